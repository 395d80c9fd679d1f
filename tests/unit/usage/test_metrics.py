"""What Prometheus reads, as text."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from device_plugin.usage.metrics import UsageCollector
from gpushare.cards import Card
from gpushare.usage import CardUse, ContainerUse, NodeUsage, SliceUse

from ..enforcement.making import CARD

LABELS = f'UUID="{CARD}",Hostname="node-1",device="nvidia3",gpu="0",modelName="NVIDIA A10",'


def text(usage: NodeUsage, dcgm: bool = False) -> str:
    registry = CollectorRegistry()
    cards = {CARD: Card(CARD, 0, 3, "NVIDIA A10", 23028)}
    registry.register(
        UsageCollector(
            lambda: usage, lambda: cards, lambda: {"GPUMemoryExceeded": 2}, lambda: (9, 1), dcgm
        )
    )
    return generate_latest(registry).decode()


def sample(text: str, name: str) -> tuple[dict[str, str], float]:
    (line,) = [line for line in text.splitlines() if line.startswith(name + "{")]
    labels, _, value = line.removeprefix(name + "{").rpartition("} ")
    pairs = dict(pair.split("=", 1) for pair in labels.split(",") if pair)
    return {key: quoted.strip('"') for key, quoted in pairs.items()}, float(value)


USE = SliceUse(
    "jupyter", "jupyter-ada", "uid", CARD, 7168, 10240, percent=50, used_mib=2048, peak_mib=4096,
    sm_percent=40, last_kernel=1.8e9, watched_since=1.7e9, over_seconds=12.5, ended=2,
    containers=(ContainerUse("notebook", 2048, 4096, 3, 40, 1.8e9),),
)  # fmt: skip
NODE = NodeUsage("node-1", 1.8e9, "watchdog", (CardUse(CARD, 23028, 3000, 495, 500),), (USE,))


def test_labels_are_those_of_the_dcgm_exporter() -> None:
    labels, value = sample(text(NODE), "gpushare_slice_memory_used_bytes")
    assert labels == {
        "gpu": "0",
        "UUID": CARD,
        "device": "nvidia3",
        "modelName": "NVIDIA A10",
        "Hostname": "node-1",
        "namespace": "jupyter",
        "pod": "jupyter-ada",
    }
    assert value == 2048 * 2**20
    labels, value = sample(text(NODE), "gpushare_container_memory_used_bytes")
    assert (labels["container"], value) == ("notebook", 2048 * 2**20)


def test_units_are_base_units() -> None:
    page = text(NODE)
    assert sample(page, "gpushare_slice_memory_bytes")[1] == 7168 * 2**20
    assert sample(page, "gpushare_slice_memory_limit_bytes")[1] == 10240 * 2**20
    assert sample(page, "gpushare_slice_sm_utilization_ratio")[1] == 0.4
    assert sample(page, "gpushare_slice_compute_ratio")[1] == 0.5
    assert sample(page, "gpushare_slice_over_limit_seconds_total")[1] == 12.5
    assert sample(page, "gpushare_slice_processes_ended_total")[1] == 2
    assert sample(page, "gpushare_slice_last_kernel_timestamp_seconds")[1] == 1.8e9
    assert sample(page, "gpushare_card_memory_stray_bytes")[1] == 500 * 2**20
    assert 'gpushare_enforcement_messages_total{reason="GPUMemoryExceeded"} 2.0' in page
    assert "gpushare_enforcement_failed_looks_total 1.0" in page


def test_what_is_not_known_is_left_out() -> None:
    unknown = SliceUse("jupyter", "a", "uid", CARD, 1, 1)
    page = text(NodeUsage("node-1", 0.0, "watchdog", (CardUse(CARD),), (unknown,)))
    assert "gpushare_slice_sm_utilization_ratio{" not in page
    assert "gpushare_slice_last_kernel_timestamp_seconds{" not in page
    assert "gpushare_card_sm_utilization_ratio{" not in page


def test_a_slice_on_a_card_that_is_gone_breaks_nothing() -> None:
    elsewhere = SliceUse("jupyter", "a", "uid", "GPU-gone", 1, 1)
    assert 'pod="a"' not in text(NodeUsage("node-1", 0.0, "watchdog", (), (elsewhere,)))


def test_a_cards_utilisation_and_dcgms_own_names_where_they_are_wanted() -> None:
    busy = NodeUsage("node-1", 1.8e9, "watchdog", (CardUse(CARD, 23028, 3000, 495, sm_percent=37),))
    assert sample(text(busy), "gpushare_card_sm_utilization_ratio")[1] == 0.37
    assert "DCGM_" not in text(busy)
    page = text(busy, dcgm=True)
    labels, value = sample(page, "DCGM_FI_DEV_GPU_UTIL")
    assert (labels["UUID"], value) == (CARD, 37)
    assert sample(page, "DCGM_FI_DEV_FB_USED")[1] == 3000
    assert sample(page, "DCGM_FI_DEV_FB_FREE")[1] == 20028
