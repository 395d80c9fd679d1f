"""The admission policies as rendered; what they do is tested on a real API server."""

from __future__ import annotations

from gpushare.names import Names
from tests.unit.chart.rendering import Chart, Manifest

POLICIES = ("gpushare-placement", "gpushare-cards", "gpushare-agents")


def text(policy: Manifest) -> str:
    spec = policy["spec"]
    parts = [*spec["validations"], *spec.get("variables", [])]
    return "\n".join(part["expression"] for part in parts)


def test_policies_guard_the_annotations_of_the_code(chart: Chart) -> None:
    for prefix in ("gpushare", "gpu.example.org"):
        release = chart.render({"prefix": prefix})
        names = Names(prefix)
        placement, cards, _ = (release.of("ValidatingAdmissionPolicy", p) for p in POLICIES)
        assert f"'{names.placement}'" in text(placement)
        assert f"'{names.cards}'" in text(cards)


def test_every_policy_is_bound_and_denies(chart: Chart) -> None:
    release = chart.render()
    bindings = {
        b["spec"]["policyName"]: b["spec"]["validationActions"]
        for b in release.all("ValidatingAdmissionPolicyBinding")
    }
    assert bindings == {**{name: ["Deny"] for name in POLICIES}, "gpushare-stray-pods": ["Warn"]}
    for name in POLICIES:
        policy = release.of("ValidatingAdmissionPolicy", name)
        assert policy["spec"]["failurePolicy"] == "Fail"


def test_placements_are_guarded_on_every_way_to_a_pod(chart: Chart) -> None:
    policy = chart.render().of("ValidatingAdmissionPolicy", "gpushare-placement")
    guarded = {
        (resource, operation)
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for resource in rule["resources"]
        for operation in rule["operations"]
    }
    assert guarded == {
        ("pods", "CREATE"),
        ("pods", "UPDATE"),
        ("pods/status", "UPDATE"),
        ("pods/ephemeralcontainers", "UPDATE"),
        ("pods/resize", "UPDATE"),
        ("pods/binding", "CREATE"),
        ("bindings", "CREATE"),
    }


def test_writers_are_the_release_s_own_accounts(chart: Chart) -> None:
    release = chart.render(
        {"admissionPolicy": {"trustedUsers": ["restore@example.org"]}}, namespace="ours"
    )
    placement, cards, _ = (text(release.of("ValidatingAdmissionPolicy", p)) for p in POLICIES)
    scheduler = "'system:serviceaccount:ours:gpushare-user-scheduler'"
    assert f"in [{scheduler}, 'restore@example.org']" in placement
    assert "'system:serviceaccount:ours:gpushare-device-plugin'" in cards


def test_policies_can_be_left_to_others(chart: Chart) -> None:
    release = chart.render({"admissionPolicy": {"enabled": False}})
    assert release.all("ValidatingAdmissionPolicy") == []
