"""The state file's text form, edits to it, and what a node finds on its disk."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from playground.cards import (
    A10,
    LIBRARY_FOLDER,
    NODES,
    T4,
    cards_of,
    cdi_spec,
    node_cards,
    prepare_node,
)
from playground.simulated_cards import CardsEdit, SimulatedCards, process_start
from playground.simulated_state import (
    SimulatedCard,
    SimulatedEvent,
    SimulatedFault,
    SimulatedProcess,
    SimulatedState,
    decode,
    encode,
)

from .nvml_client import NvmlClient

texts = st.text(max_size=20)
counts = st.integers(0, 2**31 - 1)
wide = st.integers(0, 2**63 - 1)
simulated_cards = st.builds(
    SimulatedCard,
    uuid=texts,
    minor=counts,
    name=texts,
    memory=wide,
    reserved=wide,
    serial=texts,
    pci_domain=counts,
    pci_bus=st.integers(0, 255),
    pci_id=st.integers(0, 2**32 - 1),
    numa=st.integers(-1, 7),
    lost=st.booleans(),
    ecc=st.booleans(),
    remap_pending=st.booleans(),
)
states = st.builds(
    SimulatedState,
    driver=texts,
    cuda=counts,
    devices=st.text(max_size=200),
    pidns=wide,
    cards=st.lists(simulated_cards, max_size=4).map(tuple),
    processes=st.lists(
        st.builds(
            SimulatedProcess,
            uuid=texts,
            pid=counts,
            memory=wide,
            kind=st.sampled_from(["compute", "graphics", "mps"]),
            start=wide,
        ),
        max_size=4,
    ).map(tuple),
    events=st.lists(
        st.builds(SimulatedEvent, seq=wide, uuid=texts, type=wide, data=wide), max_size=4
    ).map(tuple),
    faults=st.lists(
        st.builds(
            SimulatedFault,
            call=texts,
            uuid=texts,
            result=counts,
            hang=st.integers(0, 10**6).map(lambda ms: ms / 1000),
        ),
        max_size=2,
    ).map(tuple),
)


@given(states)
def test_a_state_survives_its_text(state: SimulatedState) -> None:
    text = encode(state)
    assert decode(text) == state
    assert text.isascii()
    lines = 1 + sum(map(len, (state.cards, state.processes, state.events, state.faults)))
    assert text.count("\n") == lines


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("system driver=1\nbogus x=1\n", "line 2: unknown kind"),
        ("card uuid=GPU-1 wheels=4\n", "line 1: unknown field"),
        ("card uuid=GPU-1\n", "line 1: .*missing"),
        ("system cuda=many\n", "line 1: invalid literal"),
    ],
)
def test_a_wrong_text_is_refused_by_line(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode(text)


@pytest.mark.parametrize("change", [{"memory": -1}, {"name": "x" * 96}, {"memory": 2**63}])
def test_what_the_library_cannot_hold_is_refused(change: dict[str, object]) -> None:
    card = replace(NODES["t4-1"][0], **change)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=next(iter(change))):
        encode(SimulatedState(cards=(card,)))


operations = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "xid", "ecc", "lose", "restore", "fail"]),
        st.integers(0, 1),
        st.integers(1, 5),
    ),
    max_size=30,
)


@given(operations)
def test_edits_keep_the_state_in_order(steps: list[tuple[str, int, int]]) -> None:
    edit = CardsEdit(SimulatedState(cards=NODES["t4-1"]))
    held: dict[tuple[int, int], int] = {}
    xids = 0
    for step, card, number in steps:
        match step:
            case "add":
                edit.add_process(card, number, number * 100, follow=False)
                held[card, number] = number * 100
            case "remove":
                edit.remove_process(number, card)
                held.pop((card, number), None)
            case "xid":
                edit.raise_xid(card, number)
            case "ecc":
                edit.raise_ecc(card, corrected=bool(number % 2), count=number)
            case "lose":
                edit.lose_card(card)
                held = {key: value for key, value in held.items() if key[0] != card}
            case "restore":
                edit.restore_card(card)
            case "fail":
                edit.fail("nvmlInit", number)
        xids += step in ("xid", "ecc", "lose")
    minors = {card.uuid: card.minor for card in edit.state.cards}
    assert {(minors[p.uuid], p.pid): p.memory for p in edit.state.processes} == held
    numbers = [event.seq for event in edit.state.events]
    assert numbers == list(range(xids - len(numbers) + 1, xids + 1))
    assert len(edit.state.faults) <= 1
    assert decode(encode(edit.state)) == edit.state


def test_an_unknown_card_or_process_or_call_is_an_error() -> None:
    edit = CardsEdit(SimulatedState(cards=NODES["t4-1"]))
    with pytest.raises(KeyError, match="no simulated card 9"):
        edit.set_utilisation(9, 50)
    with pytest.raises(KeyError, match="no simulated process 4"):
        edit.change_process(4, memory=1)
    with pytest.raises(ValueError, match="neither an nvml call"):
        edit.fail("cudaMalloc", 2)
    with pytest.raises(ProcessLookupError, match="only a living one"):
        edit.add_process(0, 2**22 + 1, 100)
    with pytest.raises(ValueError, match="there already"):
        edit.add_card(NODES["t4-1"][0])


def test_own_start_is_found_in_proc() -> None:
    assert process_start(os.getpid()) > 0


def test_a_failing_block_changes_nothing(cards: SimulatedCards) -> None:
    before = cards.read()

    def break_off() -> None:
        with cards.edit() as edit:
            edit.lose_card(0)
            raise RuntimeError("second thoughts")

    with pytest.raises(RuntimeError):
        break_off()
    assert cards.read() == before


def test_editors_wait_for_each_other(cards: SimulatedCards) -> None:
    def add(first: int) -> None:
        for pid in range(first, first + 25):
            with SimulatedCards(cards.path).edit() as edit:
                edit.add_process(0, pid, 1, follow=False)

    editors = [threading.Thread(target=add, args=(100 * n,)) for n in range(1, 5)]
    for editor in editors:
        editor.start()
    for editor in editors:
        editor.join()
    assert len(cards.read().processes) == 100
    assert sorted(p.name for p in cards.path.parent.iterdir()) == [".lock", "state"]


def test_an_edit_forgets_processes_that_have_ended(cards: SimulatedCards) -> None:
    process = subprocess.Popen(["sleep", "60"])
    with cards.edit() as edit:
        edit.add_process(0, process.pid, 100)
        edit.add_process(0, os.getpid(), 200)
        edit.add_process(0, 2**22 + 1, 300, follow=False)
    process.kill()
    process.wait()
    with cards.edit():
        pass
    assert [p.memory for p in cards.read().processes] == [200, 300]


def test_cards_of_a_node_are_the_same_every_time_and_no_other_nodes() -> None:
    assert cards_of("t4-1", T4, (0x3B, 0xD8)) == NODES["t4-1"]
    uuids = [card.uuid for cards in NODES.values() for card in cards]
    uuids += [card.uuid for card in cards_of("a10-2", A10, (1, 2, 3, 4))]
    assert len(set(uuids)) == len(uuids)
    pattern = r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    assert all(re.fullmatch(pattern, uuid) for uuid in uuids)


def test_the_nodes_of_the_playground() -> None:
    summary = {name: [(c.name, c.memory) for c in cards] for name, cards in NODES.items()}
    assert summary == {"t4-1": [("Tesla T4", 15360)] * 2, "a10-1": [("NVIDIA A10", 23028)] * 4}


def test_cdi_spec_names_each_card_by_index_and_uuid_and_all_of_them() -> None:
    minors_turned = tuple(replace(c, minor=3 - c.minor) for c in NODES["a10-1"])
    spec = cdi_spec(SimulatedState(cards=minors_turned))
    nodes = {
        device["name"]: [node["path"] for node in device["containerEdits"]["deviceNodes"]]
        for device in spec["devices"]
    }
    by_index = {str(index): [f"/dev/nvidia{3 - index}"] for index in range(4)}
    by_uuid = {card.uuid: [f"/dev/nvidia{card.minor}"] for card in minors_turned}
    assert nodes == {**by_index, **by_uuid, "all": [path for [path] in by_index.values()]}
    assert len(spec["devices"]) == len(nodes)


def test_cdi_spec_obeys_the_specification() -> None:
    """Names and required fields as CDI's SPEC.md has them for 0.5.0."""
    spec = cdi_spec(SimulatedState(cards=NODES["t4-1"]))
    assert spec["cdiVersion"] == "0.5.0"  # the first with hostPath in deviceNodes
    assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*/[A-Za-z][A-Za-z0-9_-]*", spec["kind"])
    for device in spec["devices"]:
        assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", device["name"])
        assert device["containerEdits"]["deviceNodes"]
    edits = [spec["containerEdits"], *(device["containerEdits"] for device in spec["devices"])]
    for edit in edits:
        assert set(edit) <= {"env", "deviceNodes", "mounts", "hooks"}
        for entry in edit.get("env", []):
            assert re.fullmatch(r"[A-Z_]+=.*", entry)
        for node in edit.get("deviceNodes", []):
            assert node["path"].startswith("/dev/nvidia")
            assert node["hostPath"].startswith("/run/nvidia/driver/dev/nvidia")
        for mount in edit.get("mounts", []):
            assert mount["hostPath"].startswith("/run/nvidia/driver/usr/lib/")
            assert mount["containerPath"].startswith("/usr/lib/")
            assert "ro" in mount["options"]
    assert spec["containerEdits"]["env"] == ["NVIDIA_VISIBLE_DEVICES=void"]


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="making device nodes needs root")


@needs_root
def test_a_prepared_node(tmp_path: Path, nvml_library: Path) -> None:
    mounts = prepare_node("t4-1", tmp_path / "node", say=lambda _: None)
    on_node = {str(target): source for source, target in mounts}
    assert set(on_node) == {"/run/nvidia/driver", "/run/cdi"}
    assert all(source.is_dir() for source in on_node.values())

    def at_home(path: str) -> Path:
        return on_node["/run/nvidia/driver"] / Path(path).relative_to("/run/nvidia/driver")

    spec = yaml.safe_load((on_node["/run/cdi"] / "nvidia.yaml").read_text())
    edits = [spec["containerEdits"], *(device["containerEdits"] for device in spec["devices"])]
    for node in [node for edit in edits for node in edit.get("deviceNodes", [])]:
        status = at_home(node["hostPath"]).stat()
        assert stat.S_ISCHR(status.st_mode)
        assert stat.S_IMODE(status.st_mode) == 0o666
        assert status.st_rdev == os.stat("/dev/null").st_rdev
    for mount in spec["containerEdits"]["mounts"]:
        assert at_home(mount["hostPath"]).exists()

    nvml = NvmlClient(on_node["/run/nvidia/driver"] / LIBRARY_FOLDER / "libnvidia-ml.so.1")
    nvml("nvmlInit()")
    assert nvml("nvmlDeviceGetCount()") == 2
    nvml.close()


@needs_root
def test_preparing_again_is_a_reboot(tmp_path: Path, nvml_library: Path) -> None:
    prepare_node("t4-1", tmp_path, say=lambda _: None)
    fresh = node_cards(tmp_path).read()
    with node_cards(tmp_path).edit() as edit:
        edit.lose_card(0)
        edit.add_process(1, os.getpid(), 100)
    (tmp_path / "cdi" / "gpushare-slice-1.json").write_text("{}")
    prepare_node("t4-1", tmp_path, say=lambda _: None)
    assert node_cards(tmp_path).read() == fresh
    assert [path.name for path in (tmp_path / "cdi").iterdir()] == ["nvidia.yaml"]


@needs_root
def test_a_node_without_cards_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="pass cards= or add it to NODES"):
        prepare_node("unknown", tmp_path)
