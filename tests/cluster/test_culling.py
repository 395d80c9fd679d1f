"""Idle slices come back, on a real cluster with a real Hub: who is ended, who is not, and proof."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from gpushare.waiting import seconds_of
from playground.cache import cache_folder
from playground.hub_account import ACCOUNT, NAMESPACE
from tests.cluster.culling import Culling
from tests.cluster.pods import Pods, container, pod

pytestmark = pytest.mark.root

FINALIZER = "example.org/keep"


@pytest.fixture(scope="module")
def house(api: client.ApiClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Culling]:
    house = Culling(api, tmp_path_factory.mktemp("culling"))
    yield house
    house.hub.stop()


@pytest.fixture
def culling(house: Culling) -> Iterator[Culling]:
    house.start({})
    yield house
    house.clear()


def test_a_silent_training_survives_and_an_unused_notebook_does_not(culling: Culling) -> None:
    culling.server("trainer", "t4/3g")
    culling.program("trainer", 2000, sm=80)
    culling.server("gone", "t4/brief")
    culling.server("held", "t4/brief")
    hold = culling.ask("POST", "api/holds", "held", json={"minutes": 60})
    assert hold.status_code == 200, hold.text
    assert hold.json()["held_until"]
    ended = culling.await_reclaim("gone", state="freed")
    assert (ended["reason"], ended["kind"], ended["confirmed"]) == ("idle", "server", True)
    assert ended["gib"] == 3.0
    assert ended["sentence"].startswith("Ended: unused for ")
    kept = culling.await_verdict(
        "trainer", "long idle in Jupyter's eyes", lambda v: v["idle_seconds"] > 26
    )
    assert kept["action"] == "keep"
    assert kept["gpu_idle_seconds"] < 25
    assert culling.user("trainer").server() is not None
    assert culling.user("gone").server() is None
    assert culling.user("held").server() is not None
    print(f"freed {ended['freed_after_seconds']} s after the decision")
    _only_ones_own(culling)
    _hours(culling)


def _only_ones_own(culling: Culling) -> None:
    """People see and hold their own servers, and nobody else's."""
    mine = culling.get("api/verdicts/mine", "held")["verdicts"]
    assert [v["user"] for v in mine] == ["held"]
    assert culling.ask("GET", "api/verdicts", "held").status_code == 403
    other = culling.ask("POST", "api/holds", "held", json={"user": "trainer", "minutes": 1})
    assert other.status_code == 403
    much = culling.ask("POST", "api/holds", "trainer", json={"minutes": 1000})
    assert (much.status_code, "at most" in much.json()["detail"]) == (400, True)
    seen = culling.get("api/reclaimed", "held")["reclaimed"]
    assert {r["user"] for r in seen} <= {"held"}


def _hours(culling: Culling) -> None:
    """Given, used and idle add up, and what was ended is on the page."""
    rows = {row["user"]: row for row in culling.get("api/usage", by="user")["rows"]}
    trainer = rows["trainer"]
    assert trainer["given"] > 0
    assert trainer["busy"] > trainer["idle"]
    assert 0 < trainer["used"] < trainer["given"]
    page = culling.ask("GET", "api/metrics").text
    assert 'gpushare_culls_total{kind="server",reason="idle"} ' in page
    table = culling.ask("GET", "api/usage", params={"format": "csv", "by": "user,model"}).text
    assert table.startswith("user,model,given_gib_hours,used_gib_hours,")
    assert "\ntrainer,T4," in table


def test_an_idle_gpu_under_an_open_tab_goes_back_only_when_somebody_waits(
    culling: Culling,
) -> None:
    culling.server("computes", "t4/whole")
    culling.program("computes", 9000, sm=90)
    culling.server("sits", "t4/whole")
    with culling.open_tab("computes", "sits"):
        kept = culling.await_verdict(
            "sits", "its GPU idle beyond the limit", lambda v: (v["gpu_idle_seconds"] or 0) > 9
        )
        assert (kept["action"], kept["ends_at"]) == ("keep", None)
        culling.user("waits").request_server({"profile": "t4", "slice": "3g"})
        waited = culling.user("waits").await_ready()
        ended = culling.await_reclaim("sits", state="freed")
        assert ended["reason"] == "gpu-idle-while-others-wait"
        assert culling.user("computes").server() is not None
        assert culling.reclaims("computes") == []
    (running,) = culling.pod("waits").status.container_statuses
    started = running.state.running.started_at.timestamp()
    after = started - seconds_of(ended["decided_at"])
    assert -1 < after < 60  # Kubernetes tells whole seconds
    print(
        f"asked for, warned, ended, started: {waited:.1f} s; decision to freed "
        f"{ended['freed_after_seconds']} s; decision to the next container's start {after:.1f} s"
    )


def test_a_stuck_pod_raises_the_alarm_and_the_hub_may_restart_meanwhile(
    culling: Culling,
) -> None:
    culling.server("stuck", "t4/brief")
    patch: dict[str, Any] = {"metadata": {"finalizers": [FINALIZER]}}
    culling.core.patch_namespaced_pod("jupyter-stuck", NAMESPACE, patch)
    try:
        stuck = culling.await_reclaim("stuck", state="stuck")
        assert stuck["freed_at"] is None
        stuck = culling.until(
            "the finalizer is named",
            lambda: next(
                (r for r in culling.reclaims("stuck") if FINALIZER in r["alarm"]["sentence"]), None
            ),
        )
        assert stuck["alarm"]["why"] == "stuck-finalizer"
        page = culling.ask("GET", "api/metrics").text
        assert 'gpushare_reclaim_alarms{why="stuck-finalizer"} 1.0' in page
        culling.hub.restart()
        culling.await_look()
        still = culling.await_reclaim("stuck", id=stuck["id"])
        assert (still["state"], still["freed_at"]) == ("stuck", None)
    finally:
        patch["metadata"]["finalizers"] = None
        culling.core.patch_namespaced_pod("jupyter-stuck", NAMESPACE, patch)
    freed = culling.await_reclaim("stuck", id=stuck["id"], state="freed")
    assert freed["alarm"] is None
    assert len([r for r in culling.reclaims("stuck") if r["state"] != "abandoned"]) == 1


def test_a_lost_node_raises_the_alarm_and_its_slice_is_not_free(culling: Culling) -> None:
    node = culling.node_without_extender()
    culling.server("lost", f"{'t4' if node.startswith('t4') else 'a10'}/brief")
    assert culling.pod("lost").spec.node_name == node
    culling.cluster.cut_off(node)
    try:
        alarm = culling.until(
            "the lost node is named",
            lambda: next(
                (r for r in culling.reclaims("lost")
                 if r["alarm"] and r["alarm"]["why"] == "lost-node"),
                None,
            ),
            timeout=180,
            story=lambda: culling.reclaims("lost"),
        )  # fmt: skip
        assert (alarm["state"], alarm["freed_at"]) == ("stuck", None)
        assert node in alarm["alarm"]["sentence"]
    finally:
        culling.cluster.reconnect(node)
    freed = culling.await_reclaim("lost", id=alarm["id"], state="freed", timeout=180)
    assert freed["alarm"] is None


def test_idle_kernels_that_hold_memory_are_ended_before_the_server(culling: Culling) -> None:
    user = culling.server("fingers", "t4/kernels")
    with user.session as session:
        headers = {"Authorization": f"token {user.token}"}
        kernels = f"{user.server_url}api/kernels"
        session.post(kernels, json={}, headers=headers, timeout=30).raise_for_status()
        culling.program("fingers", 1500, sm=0)
        ended = culling.await_reclaim("fingers", kind="kernel")
        assert "while its server holds 1500 MiB" in ended["sentence"]
        assert session.get(kernels, headers=headers, timeout=30).json() == []
    assert user.server() is not None


def test_idle_jobs_are_suspended_where_the_namespace_says_so(
    culling: Culling, api: client.ApiClient, pods: Pods, rights_over_workloads: None
) -> None:
    culling.start({"workload_policies": {pods.namespace: {"idle_minutes": 6, "end": True}}})
    template = pod("job", container("main", mem=3))
    template["spec"].pop("initContainers")
    batch = client.BatchV1Api(api)
    spec = {"template": {"metadata": {}, "spec": template["spec"]}, "backoffLimit": 0}
    batch.create_namespaced_job(pods.namespace, {"metadata": {"name": "idle"}, "spec": spec})
    pods.create(pod("alone", container("main", mem=3)))
    for stem in ("idle", "alone"):
        ended = culling.until(
            f"the end of {stem}",
            partial(_freed_workload, culling, pods.namespace, stem),
            story=lambda: (culling.reclaims(), culling.get("api/workloads")),
        )
        assert "has been unused for" in ended["sentence"]
    job = batch.read_namespaced_job("idle", pods.namespace)
    assert job.spec.suspend
    assert "unused" in job.metadata.annotations["gpushare/ended"]
    batch.delete_namespaced_job("idle", pods.namespace, propagation_policy="Background")


def _freed_workload(culling: Culling, namespace: str, stem: str) -> dict[str, Any] | None:
    found = culling.reclaims(kind="workload", namespace=namespace, state="freed")
    return next((r for r in found if r["pod"].startswith(stem)), None)


@pytest.fixture
def rights_over_workloads(api: client.ApiClient) -> Iterator[None]:
    """What docs/culling.md tells to bind where idle workloads are to be ended."""
    rbac = client.RbacAuthorizationV1Api(api)
    text = (Path(__file__).parents[2] / "docs" / "culling.md").read_text()
    role, binding = cluster_role(text)
    rbac.create_cluster_role(role)
    binding["subjects"] = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}]
    rbac.create_cluster_role_binding(binding)
    yield
    rbac.delete_cluster_role_binding(binding["metadata"]["name"])
    rbac.delete_cluster_role(role["metadata"]["name"])


def cluster_role(page: str) -> list[dict[str, Any]]:
    """The role and its binding in the documentation's only manifest of kind ClusterRole."""
    import yaml

    blocks = [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]
    (manifest,) = [block for block in blocks if "kind: ClusterRole\n" in block]
    return list(yaml.safe_load_all(manifest))


def test_a_dry_run_ends_nobody(house: Culling) -> None:
    house.start({"dry_run": True})
    house.server("spared", "t4/brief")
    try:
        noted = house.await_reclaim("spared", state="dry-run")
        assert noted["stopped_at"] is None
        house.await_verdict("spared", "long beyond its time", lambda v: v["idle_seconds"] > 9)
        assert house.user("spared").server() is not None
        assert house.reclaims("spared", kind="server") == [noted]
        page = house.ask("GET", "api/metrics").text
        assert 'gpushare_cull_dry_runs_total{kind="server",reason="idle"} 1.0' in page
        assert 'gpushare_culls_total{kind="server",reason="idle"} 0.0' in page
    finally:
        house.clear()


def test_under_an_older_culler_the_bridge_keeps_what_stays(house: Culling, tmp_path: Path) -> None:
    """Culler 1.4 knows no arbiter and no GPU. One of it runs beside, as in zero-to-jupyterhub."""
    old = old_culler()
    house.start({"bridge_every": 1.0}, environment={"PYTHONPATH": old})
    house.server("trainer", "t4/3g")
    house.program("trainer", 2000, sm=80)
    house.server("gone", "t4/brief")
    log = tmp_path / "culler.log"
    with log.open("w") as out:
        beside = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub_idle_culler", "--timeout=9", "--cull-every=1",
             f"--url={house.hub.url}/hub/api", "--logging=debug"],
            env={"PYTHONPATH": old, "JUPYTERHUB_API_TOKEN": house.hub.culler_token},
            stdout=out,
            stderr=out,
        )  # fmt: skip
    try:
        ended = house.await_reclaim("gone", state="freed")
        assert ended["reason"] == "idle"
        kept = house.await_verdict(
            "trainer", "idle beyond the other's limit", lambda v: v["idle_seconds"] > 20
        )
        assert kept["action"] == "keep"
        assert house.user("trainer").server() is not None
        assert "Not culling server trainer" in log.read_text()
    finally:
        beside.terminate()
        beside.wait()
        house.clear()


def old_culler() -> str:
    """A folder with jupyterhub-idle-culler 1.4.0, as zero-to-jupyterhub's image has it."""
    folder = cache_folder("python") / "jupyterhub-idle-culler-1.4.0"
    if not (folder / "jupyterhub_idle_culler").exists():
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
             f"--target={folder}", "jupyterhub-idle-culler==1.4.0"],
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        if done.returncode:
            pytest.skip(f"jupyterhub-idle-culler 1.4.0 cannot be had: {done.stderr[-300:]}")
    return str(folder)
