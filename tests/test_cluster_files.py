"""The examples of a cluster: complete, and closed to other users."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples" / "cluster"
DOCUMENTS = {
    d["kind"]: d for d in yaml.safe_load_all((FOLDER / "kuberay.yaml").read_text(encoding="utf-8"))
}
CLUSTER = DOCUMENTS["RayCluster"]["spec"]
GROUPS = [CLUSTER["headGroupSpec"], *CLUSTER["workerGroupSpecs"]]
PODS = [*(group["template"] for group in GROUPS), DOCUMENTS["Deployment"]["spec"]["template"]]
CONTAINERS = [container for pod in PODS for container in pod["spec"]["containers"]]


def test_the_cluster_is_closed_to_others_and_every_call_needs_the_operators_token() -> None:
    """The token's Secret has the cluster's name; a pod that the operator does not create needs it explicitly."""
    assert CLUSTER["authOptions"] == {"mode": "token"}
    environment = {one["name"]: one for one in CONTAINERS[-1]["env"]}
    assert environment["RAY_AUTH_MODE"]["value"] == "token"
    secret = environment["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]
    assert secret == {"name": DOCUMENTS["RayCluster"]["metadata"]["name"], "key": "auth_token"}
    head = CLUSTER["headGroupSpec"]
    assert (head["serviceType"], head.get("enableIngress", False)) == ("ClusterIP", False)
    assert head["rayStartParams"]["dashboard-host"] == "127.0.0.1"
    assert not {"Service", "Ingress", "Gateway"} & DOCUMENTS.keys()
    assert not any(
        "hostPort" in port for container in CONTAINERS for port in container.get("ports", ())
    )
    policy = DOCUMENTS["NetworkPolicy"]["spec"]
    ours = policy["podSelector"]["matchLabels"]
    assert policy["ingress"] == [{"from": [{"podSelector": {"matchLabels": ours}}]}]
    for pod in PODS:
        assert pod["metadata"]["labels"].items() >= ours.items()
        assert not pod["spec"].get("hostNetwork")
        assert not pod["spec"]["automountServiceAccountToken"]


def test_only_workers_hold_demons_and_find_their_snapshots_after_a_restart() -> None:
    """Memory is reserved: requests are limits."""
    assert CLUSTER["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert "--num-cpus=0" in CONTAINERS[-1]["command"]
    assert all(c["resources"]["requests"] == c["resources"]["limits"] for c in CONTAINERS)
    mounts = [{m["mountPath"] for m in c.get("volumeMounts", ())} for c in CONTAINERS]
    assert [("/runs" in paths) for paths in mounts] == [False, True, True]
    claim = DOCUMENTS["PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    used = {
        v["persistentVolumeClaim"]["claimName"] for pod in PODS[1:] for v in pod["spec"]["volumes"]
    }
    assert used == {claim["metadata"]["name"]}


def test_the_image_has_the_clusters_version_of_ray() -> None:
    image = re.search(
        r"^FROM rayproject/ray:([\d.]+)-py3\d+$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE
    )
    assert image[1] == CLUSTER["rayVersion"]


def test_the_script_of_a_node_prints_its_usage() -> None:
    usage = subprocess.run(["sh", FOLDER / "node.sh"], capture_output=True, text=True)
    assert (usage.returncode, usage.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    "words", [("head",), ("worker", "10.0.0.1", "10.0.0.2"), ("robot", "10.0.0.1", "10.0.0.9")]
)
def test_each_node_needs_the_token_and_only_heads_disable_the_dashboard(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    """Ray refuses to start a joining node with this flag."""
    ray = tmp_path / "ray"
    ray.write_text('#!/bin/sh\necho "$RAY_AUTH_MODE $@"\n')
    ray.chmod(0o700)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["sh", FOLDER / "node.sh", *words]
    mode, *flags = subprocess.run(
        command, env=env, capture_output=True, text=True, check=True
    ).stdout.split()
    assert mode == "token"
    assert ("--include-dashboard=false" in flags) == ("--head" in flags) == (words[0] == "head")


@pytest.mark.slow
def test_a_head_at_the_loopback_listens_only_there_and_needs_the_token(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    psutil = pytest.importorskip("psutil")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    if 10_001 <= port <= 19_999:  # those are Ray's own
        port = 6_389
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {
        **os.environ,
        "HOME": str(tmp_path),
        "PORT": str(port),
        "PATH": path,
        "RAY_AUTH_MODE": "token",
    }
    env.pop("RAY_AUTH_TOKEN", None)
    subprocess.run(["sh", FOLDER / "node.sh", "token"], env=env, check=True, capture_output=True)
    assert (tmp_path / ".ray" / "auth_token").stat().st_mode & 0o077 == 0

    def nodes(**also: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-c", NODES, f"127.0.0.1:{port}"]
        ray_settings = {
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"
        }  # else Ray refuses the loopback address
        return subprocess.run(
            words, env={**env, **ray_settings, **also}, capture_output=True, text=True
        )

    # The names of sockets in it have at most 107 letters
    with tempfile.TemporaryDirectory(prefix="ray") as short:
        words = ["head", "127.0.0.1", "--num-cpus=1", f"--temp-dir={short}", "--block"]
        head = psutil.Popen(
            ["sh", FOLDER / "node.sh", *words, "--object-store-memory=100000000"],
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert any(nodes().stdout == "127.0.0.1\n" for _ in range(20))
            pids = {p.pid for p in (head, *head.children(recursive=True))}
            listeners = [
                c for c in psutil.net_connections("tcp") if c.status == "LISTEN" and c.pid in pids
            ]
            assert {c.laddr.ip.removeprefix("::ffff:") for c in listeners} == {"127.0.0.1"}
            stranger = nodes(RAY_AUTH_TOKEN="0" * 64)
            assert stranger.stdout == ""
            assert stranger.returncode != 0
        finally:
            processes = [head, *head.children(recursive=True)]
            head.terminate()
            assert psutil.wait_procs(processes, timeout=20.0)[1] == []


NODES = """
import sys
import ray
ray.init(sys.argv[1], log_to_driver=False, logging_level="critical")
for node in ray.nodes():
    if node["Alive"]:
        print(node["NodeManagerAddress"])
"""
