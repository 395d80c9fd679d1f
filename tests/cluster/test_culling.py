"""Idle slices come back, on a real cluster with a real Hub: who is ended, who is not, and proof."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from gpushare.waiting import seconds_of
from playground.cache import cache_folder
from playground.hub_account import ACCOUNT, NAMESPACE
from tests.cluster.culling import Culling
from tests.cluster.pods import NAMES, Pods, container, pod

pytestmark = pytest.mark.root

FINALIZER = "example.org/keep"


@pytest.fixture(scope="module")
def house(
    api: client.ApiClient, namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Culling]:
    policies = {namespace: {"idle_minutes": 6, "end": True}}
    house = Culling(api, tmp_path_factory.mktemp("culling"), workload_policies=policies)
    with rights_over_workloads(api):
        yield house
    house.hub.stop()


@pytest.fixture
def culling(house: Culling) -> Iterator[Culling]:
    house.start({})
    yield house
    house.clear()


def test_a_silent_training_survives_and_an_unused_notebook_does_not(culling: Culling) -> None:
    with culling.open_tab("trainer", "held"):
        culling.servers(trainer="t4/3g", gone="t4/brief", held="t4/brief")
        culling.program("trainer", 2000, sm=80)
        hold = culling.ask("POST", "api/holds", "held", json={"minutes": 60})
    assert hold.status_code == 200, hold.text
    assert hold.json()["held_until"]
    ended = culling.await_reclaim("gone", state="freed")
    assert (ended["reason"], ended["kind"], ended["confirmed"]) == ("idle", "server", True)
    assert ended["gib"] == 3.0
    assert ended["sentence"].startswith("Ended: unused for ")
    kept = culling.await_verdict(
        "trainer", "long idle in Jupyter's eyes", lambda v: v["idle_seconds"] > 21
    )
    assert kept["action"] == "keep"
    assert kept["gpu_idle_seconds"] < 20
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
    culling.servers(computes="t4/whole", sits="t4/whole")
    culling.program("computes", 9000, sm=90)
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


def test_what_does_not_come_back_raises_the_alarm_and_is_not_free(culling: Culling) -> None:
    """A pod that a finalizer keeps, with the Hub restarted meanwhile; and a node that is gone."""
    node = culling.node_without_extender()
    lost, stuck = ("t4", "a10") if node.startswith("t4") else ("a10", "t4")
    people = {"lost": f"{lost}/brief", "stuck": f"{stuck}/brief"}
    with culling.open_tab(*people):
        culling.servers(**people)
        assert culling.pod("lost").spec.node_name == node
        _keep(culling, [FINALIZER])
        culling.cluster.cut_off(node)
    try:
        alarm = _alarm(culling, "stuck", "stuck-finalizer")
        assert FINALIZER in alarm["alarm"]["sentence"]
        page = culling.ask("GET", "api/metrics").text
        assert 'gpushare_reclaim_alarms{why="stuck-finalizer"} 1.0' in page
        culling.hub.restart()
        culling.await_look()
        assert _alarm(culling, "stuck", "stuck-finalizer")["id"] == alarm["id"]
        _keep(culling, None)
        freed = culling.await_reclaim("stuck", id=alarm["id"], state="freed")
        assert freed["alarm"] is None
        assert len([r for r in culling.reclaims("stuck") if r["state"] != "abandoned"]) == 1
        alarm = _alarm(culling, "lost", "lost-node")
        assert node in alarm["alarm"]["sentence"]
    finally:
        _keep(culling, None)
        culling.cluster.reconnect(node)
    freed = culling.await_reclaim("lost", id=alarm["id"], state="freed", timeout=180)
    assert freed["alarm"] is None


def _alarm(culling: Culling, user: str, why: str) -> dict[str, Any]:
    """The user's reclaim once it is stuck for this reason; until then it is free for nobody."""

    def see() -> dict[str, Any] | None:
        for reclaim in culling.reclaims(user):
            assert reclaim["freed_at"] is None
            if reclaim["alarm"] and reclaim["alarm"]["why"] == why:
                assert reclaim["state"] == "stuck"
                return reclaim
        return None

    found: dict[str, Any] = culling.until(
        f"{user}: {why}", see, 180, story=lambda: culling.reclaims(user)
    )
    return found


def _keep(culling: Culling, finalizers: list[str] | None) -> None:
    """Put finalizers on the pod of "stuck", or take them off, if it is still there."""
    body = {"metadata": {"finalizers": finalizers}}
    try:
        culling.core.patch_namespaced_pod("jupyter-stuck", NAMESPACE, body)
    except client.ApiException as error:
        if error.status != 404:
            raise


def test_idle_kernels_and_jobs_are_ended_and_notebooks_stay(
    culling: Culling, api: client.ApiClient, pods: Pods
) -> None:
    batch = client.BatchV1Api(api)
    template = {"metadata": {}, "spec": pod("job", container("main", mem=3))["spec"]}
    job = {"metadata": {"name": "idle"}, "spec": {"template": template, "backoffLimit": 0}}
    batch.create_namespaced_job(pods.namespace, job)
    pods.create(pod("alone", container("main", mem=3)))
    culling.servers(fingers="t4/kernels")
    user = culling.user("fingers")
    headers = {"Authorization": f"token {user.token}"}
    kernels = f"{user.server_url}api/kernels"
    user.session.post(kernels, json={}, headers=headers, timeout=30).raise_for_status()
    culling.program("fingers", 1500, sm=0)
    ended = culling.await_reclaim("fingers", kind="kernel")
    assert "while its server holds 1500 MiB" in ended["sentence"]
    assert user.session.get(kernels, headers=headers, timeout=30).json() == []
    assert user.server() is not None
    for stem in ("idle", "alone"):
        ended = culling.until(
            f"the end of {stem}",
            partial(_freed_workload, culling, pods.namespace, stem),
            story=lambda: (culling.reclaims(), culling.get("api/workloads")),
        )
        assert "has been unused for" in ended["sentence"]
    suspended = batch.read_namespaced_job("idle", pods.namespace)
    assert suspended.spec.suspend
    assert "unused" in suspended.metadata.annotations[NAMES.ended]
    batch.delete_namespaced_job("idle", pods.namespace, propagation_policy="Background")


def _freed_workload(culling: Culling, namespace: str, stem: str) -> dict[str, Any] | None:
    found = culling.reclaims(kind="workload", namespace=namespace, state="freed")
    return next((r for r in found if r["pod"].startswith(stem)), None)


@contextmanager
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
    blocks = [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]
    (manifest,) = [block for block in blocks if "kind: ClusterRole\n" in block]
    return list(yaml.safe_load_all(manifest))


def test_a_dry_run_ends_nobody(house: Culling) -> None:
    house.start({"dry_run": True})
    house.servers(spared="t4/brief")
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
    house.servers(trainer="t4/3g", gone="t4/brief")
    house.program("trainer", 2000, sm=80)
    log = tmp_path / "culler.log"
    with log.open("w") as out:
        beside = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub_idle_culler", "--timeout=6", "--cull-every=1",
             f"--url={house.hub.url}/hub/api", "--logging=debug"],
            env={"PYTHONPATH": old, "JUPYTERHUB_API_TOKEN": house.hub.culler_token},
            stdout=out,
            stderr=out,
        )  # fmt: skip
    try:
        ended = house.await_reclaim("gone", state="freed")
        assert ended["reason"] == "idle"
        kept = house.await_verdict(
            "trainer", "idle beyond the other's limit", lambda v: v["idle_seconds"] > 12
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
