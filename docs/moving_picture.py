"""Draw the moving picture of the README, docs/images/life.gif: a robot, its readings, and two predictions.

    python docs/moving_picture.py

The predictions are of the gallery's "what if": the mean reflectance ahead over half a second, if
the robot went forward, and if it went backward. A Horde learns both from 20,000 steps of random
driving; the picture shows the last 24 seconds.
"""

from __future__ import annotations

from pathlib import Path

import gymnasium
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.animation import FuncAnimation, PillowWriter
from PIL import Image, ImageSequence

from horde_agent import GVF, Channel, ConstantAction, Horde, Interface, Life, StickyRandom
from horde_agent.life.excursions import ExcursionConfig

PICTURE = Path(__file__).resolve().parent / "images" / "life.gif"
N_STEPS = 20_000
N_SHOWN = 240
STEPS_PER_FRAME = 2
FRAMES_PER_S = 8
N_COLOURS = 32
PATH_STEPS = 50
WINDOW_S = 8.0
HALF_PEN_M = 1.0
BODY_RADIUS_M = 0.12
GAMMA = 0.8
PERIOD_S = 0.1
BLUE = "#0b6aa8"
RED = "#c2410c"


def live() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the last steps: poses (n, 3), readings (n,), predictions (n, 2)."""
    env = gymnasium.make("horde_env:CritterbotPen-v0", physics="planar")
    interface = Interface.of(env)
    coder = interface.coder
    nose = interface.index("ir_distance_0")
    questions = []
    for name in ("forward", "reverse"):
        policy = ConstantAction(interface.actions.index(name), n_actions=5)
        questions.append(GVF(name, policy, Channel(nose), continuation=GAMMA))
    horde = Horde(questions, n_features=coder.n_features, n_active=coder.n_active)
    poses: list[np.ndarray] = []
    readings: list[float] = []
    predictions: list[np.ndarray] = []

    def record(event) -> None:
        poses.append(np.array(event.row.pose))
        readings.append(event.row.observation[nose])
        predictions.append((1 - GAMMA) * horde.predictions)

    behaviour = StickyRandom(n_actions=5, repeat=0.8)
    no_tests = ExcursionConfig(probability=0.0)
    rng = np.random.default_rng(1)
    with Life(env, horde, behaviour, rng, excursions=no_tests, observers=[record]) as life:
        life.run(N_STEPS)
    env.close()
    last = slice(-N_SHOWN, None)
    return np.array(poses[last]), np.array(readings[last]), np.array(predictions[last])


def main() -> None:
    """Learn, then draw a frame for every other step."""
    poses, readings, predictions = live()
    time_s = PERIOD_S * np.arange(N_SHOWN)
    first = round(WINDOW_S / PERIOD_S)  # the first frame has a whole window behind it
    figure, (pen, chart) = plt.subplots(
        1, 2, figsize=(8.0, 2.9), width_ratios=(1, 2.1), layout="constrained"
    )
    pen.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05), aspect="equal", xticks=[], yticks=[])
    pen.set_title("the robot in its pen", fontsize=10)
    pen.spines[:].set_visible(False)
    pen.add_patch(
        plt.Rectangle((-HALF_PEN_M, -HALF_PEN_M), 2, 2, fill=False, linewidth=2, color="0.2")
    )
    (path,) = pen.plot([], [], color="0.75", linewidth=1.5)
    body = pen.add_patch(plt.Circle((0, 0), BODY_RADIUS_M, color="#1b7f4b"))
    (nose,) = pen.plot([], [], color="white", linewidth=2)
    chart.set(ylim=(0, 1.15), xlabel="robot time (s)", ylabel="nearness of what is ahead")
    chart.spines[["top", "right"]].set_visible(False)
    (reading,) = chart.plot([], [], color="0.6", linewidth=1.5, label="sensed now")
    (forward,) = chart.plot([], [], color=BLUE, linewidth=2, label="if it drove forward")
    (reverse,) = chart.plot([], [], color=RED, linewidth=2, label="if it drove backward")
    chart.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1), fontsize=9)

    def draw(frame: int) -> None:
        step = first + frame * STEPS_PER_FRAME
        shown = slice(0, step + 1)
        x, y, heading = poses[step]
        direction = np.array([np.cos(heading), np.sin(heading)])
        body.center = (x, y)
        tip = np.array([x, y]) + BODY_RADIUS_M * direction
        nose.set_data([x, tip[0]], [y, tip[1]])
        path.set_data(*poses[max(0, step - PATH_STEPS) : step + 1, :2].T)
        reading.set_data(time_s[shown], readings[shown])
        forward.set_data(time_s[shown], predictions[shown, 0])
        reverse.set_data(time_s[shown], predictions[shown, 1])
        chart.set_xlim(time_s[step] - WINDOW_S, time_s[step])

    animation = FuncAnimation(figure, draw, frames=(N_SHOWN - first) // STEPS_PER_FRAME)
    animation.save(PICTURE, writer=PillowWriter(fps=FRAMES_PER_S), dpi=90)
    reduce_colours()


def reduce_colours() -> None:
    """Write the picture again with one palette of few colours: half the size."""
    with Image.open(PICTURE) as picture:
        frames = [frame.convert("RGB") for frame in ImageSequence.Iterator(picture)]
    palette = frames[len(frames) // 2].quantize(colors=N_COLOURS, dither=Image.Dither.NONE)
    reduced = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    reduced[0].save(
        PICTURE,
        save_all=True,
        append_images=reduced[1:],
        duration=1_000 // FRAMES_PER_S,
        loop=0,
        optimize=True,
    )


if __name__ == "__main__":
    main()
