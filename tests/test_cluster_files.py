"""The examples of a cluster: complete, and closed to other users."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples" / "cluster"
DOCUMENTS = {d["kind"]: d for d in yaml.safe_load_all((FOLDER / "kuberay.yaml").read_text(encoding="utf-8"))}
CLUSTER = DOCUMENTS["RayCluster"]["spec"]
GROUPS = [CLUSTER["headGroupSpec"], *CLUSTER["workerGroupSpecs"]]
PODS = [*(group["template"] for group in GROUPS), DOCUMENTS["Deployment"]["spec"]["template"]]


def containers() -> list[dict[str, Any]]:
    return [container for pod in PODS for container in pod["spec"]["containers"]]


def test_every_call_needs_the_operators_token() -> None:
    """Its Secret has the cluster's name; a pod that the operator does not create needs it explicitly."""
    assert CLUSTER["authOptions"] == {"mode": "token"}
    environment = {one["name"]: one for one in containers()[-1]["env"]}
    assert environment["RAY_AUTH_MODE"]["value"] == "token"
    secret = environment["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]
    assert secret == {"name": DOCUMENTS["RayCluster"]["metadata"]["name"], "key": "auth_token"}


def test_nothing_is_reached_from_outside() -> None:
    head = CLUSTER["headGroupSpec"]
    assert head["serviceType"] == "ClusterIP"
    assert head["rayStartParams"]["dashboard-host"] == "127.0.0.1"
    assert not head.get("enableIngress", False)
    assert not {"Service", "Ingress", "Gateway"} & DOCUMENTS.keys()
    assert not any("hostPort" in port for container in containers() for port in container.get("ports", ()))
    assert not any(pod["spec"].get("hostNetwork") for pod in PODS)


def test_only_the_clusters_pods_can_connect_to_each_other() -> None:
    policy = DOCUMENTS["NetworkPolicy"]["spec"]
    ours = policy["podSelector"]["matchLabels"]
    assert policy["ingress"] == [{"from": [{"podSelector": {"matchLabels": ours}}]}]
    assert [pod["metadata"]["labels"].items() >= ours.items() for pod in PODS] == [True] * 3
    assert [pod["spec"]["automountServiceAccountToken"] for pod in PODS] == [False] * 3


def test_only_workers_hold_demons_and_their_memory_is_reserved() -> None:
    assert CLUSTER["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert "--num-cpus=0" in containers()[-1]["command"]
    assert all(c["resources"]["requests"] == c["resources"]["limits"] for c in containers())


def test_a_restarted_shard_finds_its_snapshots() -> None:
    mounts = [{m["mountPath"] for m in c.get("volumeMounts", ())} for c in containers()]
    assert [("/runs" in paths) for paths in mounts] == [False, True, True]
    claim = DOCUMENTS["PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    used = {v["persistentVolumeClaim"]["claimName"] for pod in PODS[1:] for v in pod["spec"]["volumes"]}
    assert used == {claim["metadata"]["name"]}


def test_the_image_has_the_clusters_version_of_ray() -> None:
    image = re.search(r"^FROM rayproject/ray:([\d.]+)-py3\d+$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    assert image is not None
    assert image[1] == CLUSTER["rayVersion"]


def test_the_script_of_a_node_is_portable_and_prints_its_usage() -> None:
    script = FOLDER / "node.sh"
    assert subprocess.run(["sh", "-n", script], capture_output=True, text=True).stderr == ""
    usage = subprocess.run(["sh", script], capture_output=True, text=True)
    assert usage.returncode == 2
    assert usage.stderr.count("\n") == 1
    assert "export RAY_AUTH_MODE=token" in script.read_text()


@pytest.mark.parametrize("words", [("head",), ("worker", "10.0.0.1", "10.0.0.2"), ("robot", "10.0.0.1", "10.0.0.9")])
def test_only_a_head_disables_the_dashboard(words: tuple[str, ...], tmp_path: Path) -> None:
    """Ray refuses to start a joining node with this flag."""
    ray = tmp_path / "ray"
    ray.write_text('#!/bin/sh\necho "$@"\n')
    ray.chmod(0o700)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    flags = subprocess.run(
        ["sh", FOLDER / "node.sh", *words], env=env, capture_output=True, text=True, check=True
    ).stdout
    assert ("--include-dashboard=false" in flags) == (words[0] == "head")
    assert ("--head" in flags) == (words[0] == "head")


def listening(pids: set[int]) -> list[tuple[str, int]]:
    """Return the addresses at which processes listen, (host, port) each."""
    psutil = pytest.importorskip("psutil")
    found = [c for c in psutil.net_connections("tcp") if c.status == "LISTEN" and c.pid in pids]
    return [(c.laddr.ip.removeprefix("::ffff:"), c.laddr.port) for c in found]


SMALL = ["--block", "--object-store-memory=100000000"]
HERE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # else Ray refuses the loopback address


class Nodes:
    """Nodes that the script starts on this machine, as a user would.

    Attributes:
        env: Environment variables of the cluster's members.
        port: Of its head.
    """

    def __init__(self, home: Path) -> None:
        pytest.importorskip("ray")
        self.psutil = pytest.importorskip("psutil")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.port = port if not 10_001 <= port <= 19_999 else 6_389  # those are Ray's own
        # A short folder: the names of sockets in it may have 107 letters.
        self.folder = Path(tempfile.mkdtemp(prefix="ray"))
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.env = {**os.environ, "HOME": str(home), "PORT": str(self.port), "PATH": path, "RAY_AUTH_MODE": "token"}
        self.env.pop("RAY_AUTH_TOKEN", None)
        self._started: list[Any] = []
        self.script("token")

    def script(self, *words: str) -> None:
        """Run the script to its end."""
        subprocess.run(["sh", FOLDER / "node.sh", *words], env=self.env, check=True, capture_output=True)

    def start(self, *words: str) -> Any:
        """Start a node, and return its process."""
        out = subprocess.DEVNULL
        node = self.psutil.Popen(["sh", FOLDER / "node.sh", *words, *SMALL], env=self.env, stdout=out, stderr=out)
        self._started.append(node)
        return node

    def processes_of(self, *nodes: Any) -> list[Any]:
        """Return the running processes of some nodes."""
        return [p for node in nodes if node.poll() is None for p in (node, *node.children(recursive=True))]

    def ask(self, address: str, **also: str) -> subprocess.CompletedProcess[str]:
        """Ask a head for the addresses of its nodes."""
        words = [sys.executable, "-c", ASK, f"{address}:{self.port}"]
        return subprocess.run(words, env={**self.env, **also}, capture_output=True, text=True)

    def wait_for(self, address: str, expected: str, **also: str) -> None:
        """Wait until a head reports nodes at these addresses."""
        for _ in range(20):
            if (answer := self.ask(address, **also)).stdout == expected:
                return
        raise AssertionError(f"{answer.stdout!r} instead of {expected!r}: {answer.stderr}")

    def close(self) -> None:
        """Terminate all nodes and all of their processes."""
        left = self.processes_of(*self._started)
        for node in self._started:
            if node.poll() is None:
                node.terminate()
        assert self.psutil.wait_procs(left, timeout=20.0)[1] == []
        shutil.rmtree(self.folder)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Return the nodes of a new cluster."""
    nodes = Nodes(tmp_path)
    yield nodes
    nodes.close()


@pytest.mark.slow
def test_a_head_at_the_loopback_listens_only_there_and_needs_the_token(nodes: Nodes, tmp_path: Path) -> None:
    """Started by the script, as a user would."""
    token = tmp_path / ".ray" / "auth_token"
    assert token.stat().st_mode & 0o077 == 0
    head = nodes.start("head", "127.0.0.1", "--num-cpus=1", f"--temp-dir={nodes.folder}")
    nodes.wait_for("127.0.0.1", "127.0.0.1\n", **HERE)
    hosts = {host for host, _ in listening({p.pid for p in nodes.processes_of(head)})}
    assert hosts == {"127.0.0.1"}
    stranger = nodes.ask("127.0.0.1", RAY_AUTH_TOKEN="0" * 64, **HERE)
    assert stranger.stdout == ""
    assert stranger.returncode != 0


ASK = """
import sys
import ray
ray.init(sys.argv[1], log_to_driver=False, logging_level="critical")
for node in ray.nodes():
    if node["Alive"]:
        print(node["NodeManagerAddress"])
"""
