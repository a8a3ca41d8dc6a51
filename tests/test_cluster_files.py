"""The examples of a cluster: whole, and closed to whom they do not concern."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
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


def test_every_call_wants_the_token_that_the_operator_makes() -> None:
    """Its Secret has the cluster's name; a pod that the operator does not make must be given it."""
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


def test_these_pods_alone_speak_to_one_another() -> None:
    policy = DOCUMENTS["NetworkPolicy"]["spec"]
    ours = policy["podSelector"]["matchLabels"]
    assert policy["ingress"] == [{"from": [{"podSelector": {"matchLabels": ours}}]}]
    assert [pod["metadata"]["labels"].items() >= ours.items() for pod in PODS] == [True] * 3
    assert [pod["spec"]["automountServiceAccountToken"] for pod in PODS] == [False] * 3


def test_demons_are_held_by_workers_alone_and_their_memory_is_promised() -> None:
    assert CLUSTER["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert "--num-cpus=0" in containers()[-1]["command"]
    assert all(c["resources"]["requests"] == c["resources"]["limits"] for c in containers())


def test_who_takes_a_lost_shard_s_place_finds_its_snapshots() -> None:
    mounts = [{m["mountPath"] for m in c.get("volumeMounts", ())} for c in containers()]
    assert [("/runs" in paths) for paths in mounts] == [False, True, True]
    claim = DOCUMENTS["PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    used = {v["persistentVolumeClaim"]["claimName"] for pod in PODS[1:] for v in pod["spec"]["volumes"]}
    assert used == {claim["metadata"]["name"]}


def test_the_image_has_the_version_of_ray_that_the_cluster_is_told() -> None:
    image = re.search(r"^FROM rayproject/ray:([\d.]+)-py3\d+$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    assert image is not None
    assert image[1] == CLUSTER["rayVersion"]


def test_the_script_of_a_node_can_be_read_by_any_shell_and_says_what_it_wants() -> None:
    script = FOLDER / "node.sh"
    assert subprocess.run(["sh", "-n", script], capture_output=True, text=True).stderr == ""
    asked = subprocess.run(["sh", script], capture_output=True, text=True)
    assert asked.returncode == 2
    assert asked.stderr.count("\n") == 1
    assert "export RAY_AUTH_MODE=token" in script.read_text()


def listening(pids: set[int]) -> list[tuple[str, int]]:
    """Return the addresses at which processes listen, (host, port) each."""
    psutil = pytest.importorskip("psutil")
    found = [c for c in psutil.net_connections("tcp") if c.status == "LISTEN" and c.pid in pids]
    return [(c.laddr.ip.removeprefix("::ffff:"), c.laddr.port) for c in found]


@pytest.mark.slow
def test_a_head_without_an_address_is_on_the_loopback_alone_and_wants_the_token(tmp_path: Path) -> None:
    """Started by the script, as a user would; nothing of it is left."""
    pytest.importorskip("ray")
    psutil = pytest.importorskip("psutil")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    port = port if not 10_001 <= port <= 19_999 else 6_389  # those are Ray's own
    # A short folder: the names of sockets in it may have 107 letters.
    folder = Path(tempfile.mkdtemp(prefix="ray"))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "HOME": str(tmp_path), "PORT": str(port), "PATH": path}
    env.pop("RAY_AUTH_TOKEN", None)
    script = ["sh", str(FOLDER / "node.sh")]
    subprocess.run([*script, "token"], env=env, check=True, capture_output=True)
    token = tmp_path / ".ray" / "auth_token"
    assert token.stat().st_mode & 0o077 == 0
    flags = ["--block", "--num-cpus=1", "--object-store-memory=100000000", f"--temp-dir={folder}"]
    with subprocess.Popen([*script, "head", "127.0.0.1", *flags], env=env, stdout=subprocess.DEVNULL) as head:
        try:
            before = psutil.Process(head.pid)
            ask = [sys.executable, "-c", ASK, f"127.0.0.1:{port}"]
            here = {**env, "RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
            told = ""
            for _ in range(20):  # until it is there
                done = subprocess.run(ask, env=here, capture_output=True, text=True)
                if told := done.stdout:
                    break
            assert told == "127.0.0.1\n", done.stderr
            processes = [before, *before.children(recursive=True)]
            hosts = {host for host, _ in listening({p.pid for p in processes})}
            assert hosts == {"127.0.0.1"}
            stranger = subprocess.run(ask, env={**here, "RAY_AUTH_TOKEN": "0" * 64}, capture_output=True, text=True)
            assert stranger.stdout == ""
            assert stranger.returncode != 0
        finally:
            head.terminate()
    assert psutil.wait_procs(processes, timeout=20.0)[1] == []
    shutil.rmtree(folder)


ASK = """
import sys
import ray
ray.init(sys.argv[1], log_to_driver=False, logging_level="critical")
print(ray.nodes()[0]["NodeManagerAddress"])
"""
