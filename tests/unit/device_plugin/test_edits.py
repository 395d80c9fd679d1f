from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from device_plugin.edits import env_edits, join, read_env, spec

names = st.sampled_from(["A", "B", "C"])
nodes = st.builds(lambda path, host: {"path": path, "hostPath": host}, names, names)
mounts = st.builds(lambda path, host: {"containerPath": path, "hostPath": host}, names, names)
hooks = st.builds(lambda name, path: {"hookName": name, "path": path}, names, names)
edits = st.fixed_dictionaries(
    {},
    optional={
        "env": st.lists(st.builds("{}={}".format, names, names), max_size=4),
        "deviceNodes": st.lists(nodes, max_size=4),
        "mounts": st.lists(mounts, max_size=4),
        "hooks": st.lists(hooks, max_size=4),
        "additionalGids": st.lists(st.integers(1, 5), max_size=4),
    },
)


@given(st.lists(edits, max_size=4))
def test_joined_edits_say_everything_once(parts: list[dict[str, object]]) -> None:
    joined = join(parts)
    for key, identity in (("deviceNodes", "path"), ("mounts", "containerPath")):
        said = [entry[identity] for entry in joined.get(key, [])]
        assert len(said) == len(set(said))
        assert set(said) == {e[identity] for part in parts for e in part.get(key, [])}  # type: ignore[attr-defined]
    for key in ("hooks", "additionalGids"):
        assert all(e in joined[key] for part in parts for e in part.get(key, []))  # type: ignore[attr-defined]
        assert all(joined[key].count(e) == 1 for e in joined.get(key, []))


@given(st.lists(edits, max_size=4))
def test_of_two_values_the_later_one_stands(parts: list[dict[str, object]]) -> None:
    joined = join(parts)
    expected = {}
    for part in parts:
        for entry in part.get("env", []):  # type: ignore[attr-defined]
            name, _, value = entry.partition("=")
            expected[name] = value
    assert dict(e.partition("=")[::2] for e in joined.get("env", [])) == expected


@given(st.lists(edits, max_size=3))
def test_joining_changes_nothing_that_it_was_given(parts: list[dict[str, object]]) -> None:
    before = repr(parts)
    join(parts)
    assert repr(parts) == before


def test_values_with_equals_signs_and_json_survive() -> None:
    value = '{"a": "b=c"}'
    assert read_env(join([env_edits({"X": value})]), "X") == value
    assert read_env({}, "X") is None


def test_a_spec_states_the_newest_version_that_its_parts_need() -> None:
    assert spec("gpushare/slice", "1a", {})["cdiVersion"] == "0.5.0"
    assert spec("gpushare/slice", "1a", {}, ["0.3.0", "0.7.0"])["cdiVersion"] == "0.7.0"
    assert spec("gpushare/slice", "1a", {}, ["0.10.0", "0.9.0"])["cdiVersion"] == "0.10.0"
    assert spec("gpushare/slice", "1a", {}, ["odd"])["cdiVersion"] == "0.5.0"
