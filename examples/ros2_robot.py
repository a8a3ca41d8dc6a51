"""A ROS 2 robot by rosbridge: commands to /cmd_vel, readings from /odom and /scan.

On the robot: ros2 launch rosbridge_server rosbridge_websocket_launch.xml
Here: pip install roslibpy; fill in ros2_robot.toml; then measure what stops the wheels, and learn:
    cd examples; python ros2_robot.py; horde learn --env ros2_robot:Ros2Robot-v0 --watch

What stops the wheels: a zero command at each close (also after Ctrl-C and SIGTERM), when the robot
is silent, and in front of an obstacle. If this program is killed or hangs, or the link is lost, no
command arrives: the base's own timeout stops them, and the program refuses a base without one.
"""

import time
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import roslibpy

from horde_env import Frame, RealTimeClock, RobotEnv, RobotSpec
from horde_env.errors import BackendLost, BackendUnavailable
from horde_env.spaces import checked_request

SETTINGS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
TOPICS = {"/odom": "nav_msgs/msg/Odometry", "/scan": "sensor_msgs/msg/LaserScan"}
N_SECTORS = 8
CONNECT_S = 5.0


class Arrival(NamedTuple):
    """The newest message of a topic, how many came, and when the last one did."""

    message: dict[str, Any]
    number: int
    at_s: float


class Ros2Robot:
    """A base with wheels and a laser scanner; docs/robot.md has the contract of its methods."""

    # A reset finds the robot where it stands
    can_be_placed = False
    monotonic = staticmethod(time.monotonic)

    def __init__(self, settings, clock):
        self.spec = RobotSpec(settings, tile_layout="")
        self.period_s = self.spec.period_s
        self.settings = settings["rosbridge"]
        self.address = f"{self.settings['host']}:{self.settings['port']}"
        self.clock = clock
        self.link = None
        timeout_s = self.settings["command_timeout_s"]
        if not self.period_s < timeout_s <= 1.0:
            raise BackendUnavailable(
                f"command_timeout_s is {timeout_s}: state in ros2_robot.toml how many seconds after the last command "
                f"the base stops its wheels, more than the period of {self.period_s} s and at most 1 s"
            )

    def reset(self, rng):
        if self.link is None:
            self.connect()
        self.publish(np.zeros(3))
        deadline_s = time.monotonic() + CONNECT_S
        while len(self.newest) < len(TOPICS):
            if time.monotonic() > deadline_s:
                silent = sorted(set(TOPICS) - set(self.newest))
                self.close()
                raise BackendUnavailable(f"no message on {' and '.join(silent)} in {CONNECT_S} s")
            time.sleep(0.005)
        return self.frame(np.zeros(3), applied=True)

    def connect(self):
        self.newest = {}
        self.n_used = 0
        link = roslibpy.Ros(self.settings["host"], self.settings["port"], transport="asyncio")
        # A link that reconnects by itself would then send an old command
        link.factory.set_max_retries(0)
        try:
            link.run(timeout=CONNECT_S)
        except roslibpy.core.RosTimeoutError:
            raise BackendUnavailable(f"no rosbridge answers at {self.address}") from None
        self.link = link
        kind = "geometry_msgs/msg/Twist"
        if self.settings["stamped"]:
            kind = "geometry_msgs/msg/TwistStamped"
        self.commands = roslibpy.Topic(link, "/cmd_vel", kind, queue_size=1)
        for topic, kind in TOPICS.items():
            subscription = roslibpy.Topic(link, topic, kind, queue_length=1)
            subscription.subscribe(lambda message, topic=topic: self.receive(topic, message))

    def receive(self, topic, message):
        number = 1
        if topic in self.newest:
            number += self.newest[topic].number
        self.newest[topic] = Arrival(message, number, self.monotonic())

    def publish(self, request):
        x, y, yaw = checked_request(request)
        message = {"linear": {"x": x, "y": y, "z": 0.0}, "angular": {"x": 0.0, "y": 0.0, "z": yaw}}
        if self.settings["stamped"]:
            # A stamp of 0 is replaced by the time of arrival
            header = {"stamp": {"sec": 0, "nanosec": 0}, "frame_id": "base_link"}
            message = {"header": header, "twist": message}
        self.commands.publish(message)

    def exchange(self, command):
        if self.link is None:
            raise BackendUnavailable("the robot is not connected: call reset() first")
        checked_request(command)
        self.check_link()
        applied = not self.is_blocked(command)
        if applied:
            self.publish(command)
        else:
            self.publish(np.zeros(3))
        self.clock.wait()
        self.check_link()
        return self.frame(command, applied)

    def check_link(self):
        for topic in TOPICS:
            limit_s = self.settings["lost_after_s"]
            silent_s = self.monotonic() - self.newest[topic].at_s
            if silent_s > limit_s or not self.link.is_connected:
                self.close()
                raise BackendLost(
                    port=f"{topic} of {self.address}",
                    silent_s=silent_s,
                    limit_s=limit_s,
                    last_frame=self.newest[topic].number,
                    stops=f"The base stops {self.settings['command_timeout_s']} s after its last command.",
                )

    def is_blocked(self, command):
        """Return whether the command drives towards something near."""
        distances = sectors(self.newest["/scan"].message)
        ahead = distances[0]
        behind = distances[N_SECTORS // 2]
        nearest_m = self.settings["nearest_m"]
        return (command[0] > 0 and ahead < nearest_m) or (command[0] < 0 and behind < nearest_m)

    def frame(self, command, applied):
        odometry = self.newest["/odom"]
        scan = self.newest["/scan"]
        stale = odometry.number == self.n_used
        self.n_used = odometry.number
        stamp = odometry.message["header"]["stamp"]
        twist = odometry.message["twist"]["twist"]
        speeds = [twist["linear"]["x"], twist["angular"]["z"]]
        values = [*sectors(scan.message), *speeds, *self.spec.shares(command)]
        now_s = self.monotonic()
        return Frame(
            values=np.array(values, dtype=np.float64),
            t=stamp["sec"] + 1e-9 * stamp["nanosec"],
            sensor_age_s=now_s - odometry.at_s,
            stale=stale,
            applied=applied,
            extras={"scan_age_s": now_s - scan.at_s},
        )

    def close(self):
        if self.link is not None and self.link.is_connected:
            self.publish(np.zeros(3))
            self.link.close()
        self.link = None


def sectors(scan):
    """Return the nearest reading of each eighth of a scan in m; far where there is none."""
    # What is infinite or no number arrives as null, which becomes NaN
    ranges = np.array(scan["ranges"], dtype=np.float64)
    angles = scan["angle_min"] + scan["angle_increment"] * np.arange(len(ranges))
    numbers = np.rint(angles / (2 * np.pi / N_SECTORS)).astype(int) % N_SECTORS
    valid = (ranges >= scan["range_min"]) & (ranges <= scan["range_max"])
    nearest = np.full(N_SECTORS, float(scan["range_max"]))
    np.minimum.at(nearest, numbers[valid], ranges[valid])
    return nearest


def make():
    clock = RealTimeClock(SETTINGS["period_s"])
    return RobotEnv(Ros2Robot(SETTINGS, clock), clock, spec=RobotSpec(SETTINGS, tile_layout=""))


def measure_stop():
    """Drive forward for half a second, send nothing more, and print when the wheels stopped."""
    env = make()
    env.reset()
    for _ in range(5):
        env.step(0)
    began_s = time.monotonic()
    elapsed_s = 0.0
    while env.backend.newest["/odom"].message["twist"]["twist"]["linear"]["x"] > 0.01:
        elapsed_s = time.monotonic() - began_s
        if elapsed_s > 3.0:
            env.close()
            raise SystemExit("the wheels turn 3 s after the last command: do not use this base")
        time.sleep(0.01)
    env.close()
    stated_s = SETTINGS["rosbridge"]["command_timeout_s"]
    print(f"the wheels stopped {elapsed_s:.2f} s after the last command; {stated_s} s were stated")


if __name__ == "__main__":
    measure_stop()
else:
    gymnasium.register("Ros2Robot-v0", entry_point=make)
