"""The spawner between a choice and a pod, on a cluster of one dictionary."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kubespawner import KubeSpawner
from traitlets import TraitError
from traitlets.config import Config

from hub_integration import desk as desk_module
from hub_integration.hub_versions import SpawnRefused, Why
from hub_integration.spawner import GPUShareSpawner
from tests.unit.hub_integration.cluster import (
    FakeCluster,
    attach,
    denied,
    failed,
    pending,
    running,
    stuck,
)
from tests.unit.hub_integration.state import T4, FakeExtender, answer, card

pytestmark = pytest.mark.asyncio

CATALOGUE = """
version: 1
defaults: {idle_minutes: 30}
profiles:
  - name: t4
    title: NVIDIA T4
    models: [T4]
    environment: {FLAVOUR: small}
    slices:
      - {name: 3g, title: 3 GiB, memory: 3GiB}
      - {name: 7g, title: 7 GiB, memory: 7GiB, mem_limit: 4G, image: "images.example/gpu:1"}
      - {name: half, title: 50 %, percent: 50}
      - {name: staff, title: 15 GiB, memory: 15GiB, allowed_groups: [staff]}
      - {name: pair, title: two cards, memory: 7GiB, cards: 2, policy: spread}
  - name: cpu
    title: No GPU
    kubespawner_override: {node_selector: {pool: cpu}}
"""


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(running())


@pytest.fixture
def make(cluster: FakeCluster, tmp_path: Path) -> Any:
    file = tmp_path / "catalogue.yaml"
    file.write_text(CATALOGUE)

    def make(options: Any = None, *, groups: tuple[str, ...] = (), **settings: Any) -> Any:
        spawner = attach(GPUShareSpawner, cluster)(
            _mock=True,
            config=Config(
                GPUShareSpawner={"catalogue_file": str(file), "ledger_url": "", **settings}
            ),
        )
        spawner.user.groups = [SimpleNamespace(name=group) for group in groups]
        spawner.user_options = {} if options is None else options
        return spawner

    return make


def notebook(pod: dict[str, Any]) -> dict[str, Any]:
    return pod["spec"]["containers"][0]


def environment(pod: dict[str, Any]) -> dict[str, str]:
    return {e["name"]: e.get("value", "") for e in notebook(pod)["env"]}


async def test_choice_becomes_a_pod(make: Any, cluster: FakeCluster) -> None:
    await make({"profile": "t4", "slice": "7g"}).start()
    (pod,) = cluster.created
    limits = notebook(pod)["resources"]["limits"]
    assert limits["gpushare/gpu-mem"] == "7"
    assert "gpushare/gpu-percent" not in limits
    assert "gpushare/gpu-mem" not in notebook(pod)["resources"].get("requests", {})
    assert pod["spec"]["schedulerName"] == "gpushare-user-scheduler"
    annotations = pod["metadata"]["annotations"]
    assert annotations["gpushare/card-model"] == "T4"
    assert annotations["gpushare/choice"] == "t4/7g"
    assert json.loads(annotations["gpushare/idle"])["idle"] == 30
    assert annotations["hub.jupyter.org/username"] == "mock@name"
    assert notebook(pod)["image"] == "images.example/gpu:1"
    assert limits["memory"] == 4 * 1024**3
    assert environment(pod)["FLAVOUR"] == "small"
    assert environment(pod)["GPUSHARE_SLICE"] == "7 GiB on NVIDIA T4"


async def test_cards_and_policy(make: Any, cluster: FakeCluster) -> None:
    await make({"profile": "t4", "slice": "pair"}).start()
    annotations = cluster.created[0]["metadata"]["annotations"]
    assert annotations["gpushare/cards"] == "2"
    assert annotations["gpushare/policy"] == "spread"


async def test_no_gpu_is_left_to_the_cluster(make: Any, cluster: FakeCluster) -> None:
    await make({"profile": "cpu"}, scheduler_name="theirs").start()
    (pod,) = cluster.created
    assert "gpushare/gpu-mem" not in json.dumps(notebook(pod)["resources"])
    assert pod["spec"]["schedulerName"] == "theirs"
    assert pod["spec"]["nodeSelector"] == {"pool": "cpu"}
    assert environment(pod)["NVIDIA_VISIBLE_DEVICES"] == "void"


async def test_prefix_and_unit(make: Any, cluster: FakeCluster) -> None:
    options = {"profile": "t4", "slice": "7g"}
    await make(options, prefix="gpu.example.org", unit="256MiB").start()
    assert notebook(cluster.created[0])["resources"]["limits"]["gpu.example.org/gpu-mem"] == "28"


async def test_limits_of_one_start_do_not_reach_the_next(make: Any, cluster: FakeCluster) -> None:
    spawner = make({"profile": "t4", "slice": "7g"}, extra_resource_limits={"example.com/x": "1"})
    await spawner.start()
    await spawner.stop()
    for options in ({"profile": "t4", "slice": "half"}, {"profile": "cpu"}):
        spawner.clear_state()
        spawner.user_options = options
        await spawner.start()
        await spawner.stop()
    first, second, third = (notebook(pod)["resources"]["limits"] for pod in cluster.created)
    assert first["gpushare/gpu-mem"] == "7"
    assert second == {"gpushare/gpu-percent": "50", "example.com/x": "1"}
    assert third == {"example.com/x": "1"}
    assert cluster.created[2]["spec"].get("schedulerName") is None
    assert notebook(cluster.created[2])["image"] != "images.example/gpu:1"


async def test_nothing_raises_a_slice_above_the_choice(make: Any, cluster: FakeCluster) -> None:
    spawner = make({"profile": "t4", "slice": "3g"})
    # What a hook or a group override may have left, before the start.
    spawner.extra_resource_limits = {"gpushare/gpu-mem": "99", "gpushare/gpu-percent": "200"}
    spawner.extra_resource_guarantees = {"gpushare/gpu-mem": "99"}
    await spawner.start()
    resources = notebook(cluster.created[0])["resources"]
    assert resources["limits"] == {"gpushare/gpu-mem": "3"}
    assert not resources.get("requests")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"profile": "nope"}, "kind of server 'nope'"),
        ({"profile": "t4", "slice": "9g"}, "no slice '9g'"),
        ({"profile": ["t4"]}, "'profile' is list"),
        ({"profile": "t4", "slice": 7}, "'slice' is int"),
        ({"profile": "t4", "slice": {"a": 1}}, "'slice' is dict"),
        ({"profile": "t4", "sliec": "3g"}, "'sliec' is not an option"),
        ({"profile": "t4", "slice--unlisted-choice": "3"}, "not an option"),
        ({"profile": "t4", "slice": "staff"}, "no slice 'staff'"),
        ({"profile": None}, "'profile' is NoneType"),
        (["t4"], "'options' is list"),
        ("t4", "'options' is not an option"),
        (7, "'options' is int"),
        ({"garbage": "1"}, "'garbage' is not an option"),
    ],
)
async def test_nonsense_is_refused_before_a_pod_exists(
    make: Any, cluster: FakeCluster, options: Any, expected: str
) -> None:
    with pytest.raises(SpawnRefused, match=expected) as refused:
        await make(options).start()
    assert refused.value.why is Why.INVALID
    assert refused.value.status_code == 400
    assert not cluster.created


async def test_groups(make: Any, cluster: FakeCluster) -> None:
    await make({"profile": "t4", "slice": "staff"}, groups=("staff",)).start()
    assert notebook(cluster.created[0])["resources"]["limits"]["gpushare/gpu-mem"] == "15"


async def test_no_options_mean_the_default(make: Any, cluster: FakeCluster) -> None:
    await make({}).start()
    assert cluster.created[0]["metadata"]["annotations"]["gpushare/choice"] == "t4/3g"


async def test_a_rejected_pod_fails_at_once_and_is_removed(make: Any, cluster: FakeCluster) -> None:
    cluster.fate = failed("Allocate failed due to no such device, which is unexpected")
    spawner = make({"profile": "t4", "slice": "3g"}, start_timeout=300)
    async with asyncio.timeout(5):
        with pytest.raises(SpawnRefused, match="no such device") as refused:
            await spawner.start()
    assert refused.value.why is Why.ADMISSION
    assert not cluster.pods
    assert len(cluster.deleted) == 1


async def test_a_failed_pod_is_no_error_for_poll(make: Any, cluster: FakeCluster) -> None:
    spawner = make({"profile": "t4", "slice": "3g"})
    await spawner.start()
    failed("gone")(cluster.pods[f"{spawner.namespace}/{spawner.pod_name}"])
    assert await spawner.poll() == 1


async def test_a_running_pod_without_an_address_is_waited_for(
    make: Any, cluster: FakeCluster
) -> None:
    spawner = make({"profile": "t4", "slice": "3g"})
    pod = running()({"metadata": {}, "spec": {}})
    del pod["status"]["podIP"]
    assert spawner.is_pod_running(pod) is False
    assert spawner.is_pod_running(None) is False


async def test_a_quota_of_the_namespace_is_a_refusal(make: Any, cluster: FakeCluster) -> None:
    cluster.fate = denied(403, "exceeded quota: gpu, requested: gpu-mem=7")
    with pytest.raises(SpawnRefused, match="exceeded quota: gpu") as refused:
        await make({"profile": "t4", "slice": "3g"}).start()
    assert refused.value.why is Why.ADMISSION


async def test_no_room_in_time(make: Any, cluster: FakeCluster) -> None:
    cluster.fate = pending
    body = answer(n1=[card(T4, used_mib=10 * 1024)])
    with FakeExtender(body) as extender:
        spawner = make(
            {"profile": "t4", "slice": "7g"},
            gpu_start_timeout=1,
            extender_url=extender.url,
            extender_token_file="",
        )
        with pytest.raises(SpawnRefused) as refused:
            await spawner.start()
    text = str(refused.value)
    assert refused.value.why is Why.CAPACITY
    assert text.startswith("7 GiB on NVIDIA T4: nothing large enough became free within 1 seconds")
    assert text.endswith("3 GiB on NVIDIA T4 is free now.")
    assert spawner._start_future.cancelled() or spawner._start_future.done()


async def test_kubespawners_own_early_timeout_is_no_error_either(
    make: Any, cluster: FakeCluster
) -> None:
    """It ends its wait up to a tenth before start_timeout, at random, which may be before us."""
    cluster.fate = pending
    for _ in range(3):
        with pytest.raises(SpawnRefused) as refused:
            await make({"profile": "t4", "slice": "7g"}, start_timeout=1).start()
        assert refused.value.why is Why.CAPACITY


async def test_without_a_gpu_a_timeout_stays_what_it_was(make: Any, cluster: FakeCluster) -> None:
    cluster.fate = pending
    with pytest.raises(TimeoutError):
        await make({"profile": "cpu"}, start_timeout=1).start()


async def test_room_but_no_container(make: Any, cluster: FakeCluster) -> None:
    cluster.fate = stuck("the placement names another pod")
    with pytest.raises(SpawnRefused, match="the placement names another pod") as refused:
        await make({"profile": "t4", "slice": "7g"}, gpu_start_timeout=1).start()
    assert refused.value.why is Why.TIMEOUT


async def test_our_limit_ends_before_the_hubs(make: Any) -> None:
    assert make(start_timeout=60).start_limit(60) == 49
    assert make(gpu_start_timeout=20).start_limit(60) == 20
    assert make(gpu_start_timeout=900).start_limit(300) == 265


async def test_cancelling_cancels_kubespawners_start(make: Any, cluster: FakeCluster) -> None:
    cluster.fate = pending
    spawner = make({"profile": "t4", "slice": "3g"})
    start = spawner.start()
    await cluster.has_created.wait()
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    with pytest.raises(asyncio.CancelledError):
        await spawner._start_future


async def test_progress_is_of_this_pod_alone(make: Any, cluster: FakeCluster) -> None:
    cluster.fate = pending
    spawner = make({"profile": "t4", "slice": "3g"}, gpu_start_timeout=2)

    def event(uid: str, message: str) -> dict[str, Any]:
        return {
            "metadata": {"uid": f"{uid}-{message}"},
            "involvedObject": {"name": spawner.pod_name, "uid": uid},
            "reason": "Other",
            "message": message,
            "type": "Normal",
            "lastTimestamp": "2030-01-01T00:00:00Z",
        }

    cluster.events = [event("old-pod", f"before {i}") for i in range(5)]
    told = asyncio.ensure_future(_messages(spawner))  # as the Hub may: before the start
    await asyncio.sleep(0)
    start = spawner.start()
    await cluster.has_created.wait()
    cluster.events.append(event("old-pod", "late word"))
    cluster.events.append(event("uid-1", "news"))
    with pytest.raises(SpawnRefused):
        await start
    assert await told == ["news"]


async def _messages(spawner: Any) -> list[str]:
    """Those of Kubernetes' events."""
    return [item["message"] async for item in spawner.progress() if "raw_event" in item]


async def test_state_outlives_the_hub(make: Any, cluster: FakeCluster) -> None:
    spawner = make({"profile": "t4", "slice": "7g"})
    await spawner.start()
    state = json.loads(json.dumps(spawner.get_state()))
    fresh = make()
    fresh.load_state(state)
    assert fresh.slice_state["choice"] == "t4/7g"
    assert fresh.slice_state["limits"] == {"gpushare/gpu-mem": 7}
    assert fresh.get_state()["gpushare"] == state["gpushare"]
    fresh.clear_state()
    assert "gpushare" not in fresh.get_state()


@pytest.mark.parametrize("kept", [None, 7, "x", []])
async def test_state_of_another_shape_is_ignored(make: Any, kept: Any) -> None:
    spawner = make()
    spawner.load_state({"pod_name": "p", "gpushare": kept, "kubespawner_version": "7"})
    assert spawner.slice_state == {}


async def test_impossible_choices_are_refused_when_that_is_known(make: Any) -> None:
    with FakeExtender(answer(n1=[card(("NVIDIA L4", 23034))])) as extender:
        options = {"profile": "t4", "slice": "3g"}
        settings = {"extender_url": extender.url, "extender_token_file": ""}
        with pytest.raises(SpawnRefused, match="no card here could hold it"):
            await make(options, **settings).start()
        await make(options, refuse_impossible=False, **settings).start()


async def test_full_is_waited_for_or_refused(make: Any, cluster: FakeCluster) -> None:
    with FakeExtender(answer(n1=[card(T4, used_mib=12 * 1024)])) as extender:
        options = {"profile": "t4", "slice": "7g"}
        settings = {"extender_url": extender.url, "extender_token_file": ""}
        await make(options, **settings).start()
        assert len(cluster.created) == 1
        with pytest.raises(
            SpawnRefused, match=r"none is free now\. 3 GiB on NVIDIA T4 is free now"
        ):
            await make(options, when_full="refuse", **settings).start()
        assert len(cluster.created) == 1


async def test_fail_open_and_closed(make: Any, cluster: FakeCluster) -> None:
    away = {"extender_url": "http://127.0.0.1:1", "extender_token_file": ""}
    await make({"profile": "t4"}, **away).start()
    with pytest.raises(SpawnRefused, match="cannot be found out"):
        await make({"profile": "t4"}, fail_open=False, **away).start()
    await make({"profile": "cpu"}, fail_open=False, **away).start()
    assert len(cluster.created) == 2


async def test_a_catalogue_that_breaks_stays_as_it_was(
    make: Any, cluster: FakeCluster, tmp_path: Path
) -> None:
    spawner = make({"profile": "t4", "slice": "3g"})
    await spawner.start()
    (tmp_path / "catalogue.yaml").write_text("version: 1\nprofiles: {")
    await make({"profile": "t4", "slice": "3g"}).start()
    assert len(cluster.created) == 2


async def test_a_catalogue_that_never_was(make: Any, tmp_path: Path) -> None:
    spawner = make({}, catalogue_file=str(tmp_path / "none.yaml"))
    with pytest.raises(SpawnRefused, match="cannot be read") as refused:
        await spawner.start()
    assert refused.value.why is Why.CATALOGUE
    assert "cannot be read" in await spawner.get_options_form()


async def test_a_changed_catalogue_is_read_again(
    make: Any, cluster: FakeCluster, tmp_path: Path
) -> None:
    await make({"profile": "t4", "slice": "3g"}).start()
    (tmp_path / "catalogue.yaml").write_text(CATALOGUE.replace("name: 3g", "name: tiny"))
    await make({"profile": "t4", "slice": "tiny"}).start()
    assert len(cluster.created) == 2


async def test_an_admins_own_form_template_gets_the_profile_list(make: Any, tmp_path: Path) -> None:
    (tmp_path / "form.html").write_text(
        "{% for p in profile_list %}{{ p.slug }}: "
        "{{ p.profile_options.slice.choices | join(' ') if p.profile_options }};{% endfor %}"
    )
    spawner = make(additional_profile_form_template_paths=[str(tmp_path)])
    assert await spawner.get_options_form() == "t4: 3g 7g half pair;cpu: ;"


async def test_kubespawner_alone_makes_the_same_pod_of_the_profile_list(
    make: Any, cluster: FakeCluster
) -> None:
    """For hubs that take only the rendered list."""
    options = {"profile": "t4", "slice": "7g"}
    ours = make(options)
    await ours.start()
    plain = attach(KubeSpawner, cluster)(
        _mock=True, config=Config(KubeSpawner={"profile_list": ours._render_profile_list()})
    )
    plain.user_options = options
    await plain.stop()
    await plain.start()
    first, second = cluster.created
    assert notebook(first)["resources"] == notebook(second)["resources"]
    assert notebook(first)["image"] == notebook(second)["image"]
    assert first["spec"]["schedulerName"] == second["spec"]["schedulerName"]
    assert first["metadata"]["annotations"] == second["metadata"]["annotations"]
    assert environment(first)["GPUSHARE_SLICE"] == environment(second)["GPUSHARE_SLICE"]


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("availability_timeout", 5, "at most 1"),
        ("extender_url", "gpushare:8443", "with its scheme"),
        ("unit", "GB", "not known"),
        ("prefix", "No Prefix", "DNS subdomain"),
        ("when_full", "explode", "when_full"),
    ],
)
async def test_settings_name_themselves_and_the_fix(
    make: Any, setting: str, value: Any, expected: str
) -> None:
    with pytest.raises(TraitError, match=expected):
        make(**{setting: value})


async def test_quotas_hold_without_the_extender_and_after_a_restart(
    make: Any, cluster: FakeCluster
) -> None:
    """What the Hub admitted counts until it is stopped, also in a Hub that has just started."""
    bound = {"quotas": {"everybody": {"memory": "8GiB"}}}
    first = make({"profile": "t4", "slice": "7g"}, pod_name_template="first", **bound)
    await first.start()
    desks = desk_module._desks
    desks.clear()  # as in another process
    second = make({"profile": "t4", "slice": "3g"}, pod_name_template="second", **bound)
    again = make({}, pod_name_template="first", **bound)
    again.load_state(json.loads(json.dumps(first.get_state())))
    with pytest.raises(SpawnRefused, match="7 of 8 GiB of GPU memory in use") as refused:
        await second.start()
    assert refused.value.why is Why.QUOTA
    again.clear_state()
    await second.start()
    assert [pod["metadata"]["name"] for pod in cluster.created] == ["first", "second"]
