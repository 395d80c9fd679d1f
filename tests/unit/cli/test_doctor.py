"""``gpushare doctor``: a sound cluster has nothing wrong, and each check finds what breaks it."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gpushare.cli.doctor.certificate import ends
from gpushare.cli.doctor.checks import ALL
from gpushare.cli.doctor.checks.hub import reading
from gpushare.cli.doctor.checks.rights import wanted
from gpushare.cli.doctor.command import as_data, failed, lines
from gpushare.cli.doctor.facts import Facts, Hub
from gpushare.cli.doctor.finding import Level, examine
from gpushare.cli.main import main
from tests.unit.cli.double import PROXY, ApiServer

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NAMESPACE = "gpushare"


def certificate(days: float, *, at: datetime = NOW) -> str:
    """A self-signed one that ends so many days after ``at``."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "extender")])
    end = at + timedelta(days=days)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - timedelta(days=4000))
        .not_valid_after(end)
        .sign(key, hashes.SHA256())
    )
    from cryptography.hazmat.primitives.serialization import Encoding

    return made.public_bytes(Encoding.PEM).decode()


GOOD = certificate(3650)


def owned(component: str, **more: Any) -> dict[str, Any]:
    return {
        "namespace": NAMESPACE,
        "labels": {
            "app.kubernetes.io/name": "gpushare",
            "app.kubernetes.io/component": component,
        },
        **more,
    }


def node(name: str, **annotations: str) -> dict[str, Any]:
    cards = {"gpushare/cards": "[]", "gpushare/in-force": '{"v":1,"delivery":"cdi"}'}
    return {
        "metadata": {
            "name": name,
            "labels": {"gpushare/enabled": "true"},
            "annotations": {**cards, **annotations},
        },
        "spec": {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"gpushare/gpu-mem": "30", "gpushare/gpu-percent": "200", "cpu": "4"},
            "nodeInfo": {
                "kubeletVersion": "v1.33.5",
                "containerRuntimeVersion": "containerd://2.2.1",
            },
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, **spec: Any) -> dict[str, Any]:
    limits = {"resources": {"limits": {"gpushare/gpu-mem": "3"}}}
    return {
        "metadata": {
            "name": name,
            "namespace": "jupyter",
            "annotations": {"gpushare/placement": "{}"},
            "labels": {},
        },
        "spec": {
            "schedulerName": "gpushare-user-scheduler",
            "nodeName": "t4-1",
            "containers": [{"name": "main", **limits}],
            **spec,
        },
        "status": {"phase": "Running"},
    }


AGENT = {
    "metadata": owned("device-plugin", name="agent-1"),
    "spec": {"nodeName": "t4-1", "containers": []},
    "status": {"phase": "Running"},
}
TOLERATIONS = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
HUB = Hub(
    "jupyter", "hub",
    {
        "JupyterHub": {"spawner_class": "gpushare"},
        "GPUShareSpawner": {
            "extender_url": "https://gpushare-extender.gpushare.svc:8443",
            "extender_ca": "/ca.crt",
        },
    },
    failure_limit=5,
)  # fmt: skip
RIGHTS = (*wanted(NAMESPACE, "gpushare-user-scheduler", "gpushare-device-plugin"), reading(HUB))
PLAIN_HUB = replace(HUB, config={"JupyterHub": {"spawner_class": "kubespawner"}})


def sound() -> Facts:
    """An installation with nothing wrong."""
    lease = {"spec": {"renewTime": (NOW - timedelta(seconds=4)).isoformat()}}
    managed = [{"name": f"gpushare/gpu-{kind}"} for kind in ("mem", "percent")]
    return Facts(
        namespace=NAMESPACE,
        now=NOW.timestamp(),
        version="v1.33.5-gke.12",
        nodes=(node("t4-1"),),
        pods=(AGENT, pod("alice")),
        daemonsets=(
            {
                "metadata": owned("device-plugin", name="agent"),
                "spec": {
                    "template": {
                        "spec": {
                            "nodeSelector": {"gpushare/enabled": "true"},
                            "tolerations": TOLERATIONS,
                        }
                    }
                },
                "status": {"desiredNumberScheduled": 1, "numberReady": 1},
            },
        ),
        deployments=(
            {
                "metadata": owned("user-scheduler", name="gpushare-user-scheduler"),
                "spec": {"replicas": 2},
                "status": {"readyReplicas": 2},
            },
        ),
        leases={"t4-1": lease},
        feature_gates={"t4-1": {"Other": True}},
        extender={"prefix": "gpushare", "unit": "GiB"},
        agent={"prefix": "gpushare", "unit": "GiB"},
        scheduler={
            "profiles": [{"schedulerName": "gpushare-user-scheduler"}],
            "extenders": [{"ignorable": False, "managedResources": managed}],
        },
        webhooks=({"name": "pods.gpushare", "ca": GOOD},),
        policies=tuple(
            {"metadata": {"name": f"gpushare-{part}"}} for part in ("placement", "cards", "agents")
        ),
        bindings=tuple(
            {"spec": {"policyName": f"gpushare-{part}", "validationActions": ["Deny"]}}
            for part in ("placement", "cards", "agents")
        ),
        certificates={"the state API's authority": GOOD},
        state={
            "unit_mib": 1024,
            "nodes": [{"name": "t4-1", "unit_mib": 1024, "cards": [{"index": 0, "health": "ok"}]}],
        },
        rights=dict.fromkeys(RIGHTS, True),
        hubs=(HUB,),
    )


def found(facts: Facts, check: str) -> str:
    """What one check has to say, all others being content. '' where it is content too."""
    results = examine(facts, ALL)
    for result in results:
        if result.check.name == check and result.level is not Level.OK:
            assert all(f.fix for f in result.findings if f.level is not Level.UNKNOWN)
            return "\n".join(f"{f.level}: {f.text}" for f in result.findings)
    return ""


def test_nothing_is_wrong_with_a_sound_cluster() -> None:
    results = examine(sound(), ALL)
    assert {
        r.check.name: [f.text for f in r.findings] for r in results if r.level is not Level.OK
    } == {}
    assert not failed(results, strict=True)
    assert lines(results)[-1] == "nothing is wrong"


def changed_node(change: Callable[[dict[str, Any]], object]) -> Callable[[Facts], Facts]:
    def apply(facts: Facts) -> Facts:
        node = copy.deepcopy(dict(facts.nodes[0]))
        change(node)
        return replace(facts, nodes=(node,))

    return apply


def with_pod(other: dict[str, Any]) -> Callable[[Facts], Facts]:
    return lambda facts: replace(facts, pods=(*facts.pods, other))


def with_hub(**settings: Any) -> Callable[[Facts], Facts]:
    config = {**HUB.config, "GPUShareSpawner": {**HUB.config["GPUShareSpawner"], **settings}}
    return lambda facts: replace(facts, hubs=(replace(HUB, config=config),))


def lease_at(seconds: float) -> Callable[[Facts], Facts]:
    when = (NOW + timedelta(seconds=seconds)).isoformat()
    return lambda facts: replace(facts, leases={"t4-1": {"spec": {"renewTime": when}}})


def runtime(version: str, told: str = "{}") -> Callable[[Facts], Facts]:
    def change(node: dict[str, Any]) -> None:
        node["status"]["nodeInfo"]["containerRuntimeVersion"] = version
        node["metadata"]["annotations"]["gpushare/in-force"] = told

    return changed_node(change)


def unplaced(scheduler: str) -> dict[str, Any]:
    past = pod("past", schedulerName=scheduler)
    past["metadata"]["annotations"] = {}
    return past


def waiting(message: str) -> dict[str, Any]:
    stuck = pod("stuck")
    state = {"waiting": {"reason": "CreateContainerError", "message": message}}
    stuck["status"] = {"phase": "Pending", "containerStatuses": [{"state": state}]}
    return stuck


def env(**variables: str) -> dict[str, Any]:
    one = pod("own-cards")
    one["spec"]["containers"][0]["env"] = [{"name": k, "value": v} for k, v in variables.items()]
    return one


BREAKS: list[tuple[str, str, Callable[[Facts], Facts]]] = [
    ("versions", "no ValidatingAdmissionPolicy", lambda f: replace(f, version="v1.29.2")),
    ("versions", "the kubelet of t4-1 is 1.28",
     changed_node(lambda n: n["status"]["nodeInfo"].update(kubeletVersion="v1.28.1"))),
    ("parts", "no gpushare-user-scheduler", lambda f: replace(f, deployments=())),
    ("parts", "nothing is scheduled",
     lambda f: replace(f, deployments=({**f.deployments[0], "status": {}},))),
    ("parts", "1 of 2 pods",
     lambda f: replace(f, deployments=({**f.deployments[0], "status": {"readyReplicas": 1}},))),
    ("parts", "0 of 1 device plugins",
     lambda f: replace(f, daemonsets=({**f.daemonsets[0], "status": {"desiredNumberScheduled": 1}},))),
    ("certificates", "ended 2 d ago", lambda f: replace(f, certificates={"the webhook": certificate(-2)})),
    ("certificates", "ends in 3 d", lambda f: replace(f, certificates={"the webhook": certificate(3.5)})),
    ("certificates", "no certificate in it", lambda f: replace(f, certificates={"x": "nonsense"})),
    ("certificates", "trusts another authority",
     lambda f: replace(f, webhooks=({"name": "pods.gpushare", "ca": certificate(100)},))),
    ("clocks", "40 s ahead of", lease_at(40)),
    ("clocks", "1 h behind", lease_at(-3600)),
    ("cdi", "heeds no CDI", runtime("docker://24.0.7")),
    ("cdi", "heeds no CDI", runtime("containerd://1.6.9")),
    ("cdi", "heeds no CDI", runtime("containerd://1.7.2", '{"delivery": "environment"}')),
    ("cdi", "CDI may be off", runtime("containerd://1.7.2")),
    ("cdi", "does not start: unresolvable CDI", with_pod(waiting("unresolvable CDI devices x"))),
    ("kubelet", "DevicePluginCDIDevices switched off",
     lambda f: replace(f, feature_gates={"t4-1": {"DevicePluginCDIDevices": False}})),
    ("plugins", "handed out twice",
     changed_node(lambda n: n["status"]["allocatable"].update({"nvidia.com/gpu": "2"}))),
    ("plugins", "the aliyun gpushare plugin",
     changed_node(lambda n: n["status"]["allocatable"].update({"aliyun.com/gpu-mem": "30"}))),
    ("cards", "no driver found",
     changed_node(lambda n: n["metadata"]["annotations"].update({"gpushare/problem": "no driver found"}))),
    ("cards", "publishes no cards",
     changed_node(lambda n: n["metadata"]["annotations"].pop("gpushare/cards"))),
    ("cards", "offers none of", changed_node(lambda n: n["status"].update(allocatable={}))),
    ("cards", "XID 79",
     lambda f: replace(f, state={"nodes": [{"name": "t4-1", "unit_mib": 1024,
                                            "cards": [{"index": 0, "health": "XID 79"}]}]})),
    ("places", "no node has the label gpushare/enabled=true",
     changed_node(lambda n: n["metadata"].update(labels={}))),
    ("places", "taint nvidia.com/gpu",
     lambda f: replace(
         f, pods=f.pods[1:],
         daemonsets=({**f.daemonsets[0], "spec": {"template": {"spec": {}}}},))),
    ("places", "has NVIDIA cards but not the label",
     lambda f: replace(f, nodes=(*f.nodes, {
         "metadata": {"name": "b", "labels": {"nvidia.com/gpu.present": "true"}},
         "spec": {}, "status": {"nodeInfo": {}}}))),
    ("units", "the extender's unit is GiB, the device plugin's is MiB",
     lambda f: replace(f, agent={**f.agent, "unit": "MiB"})),
    ("units", "the extender's prefix",
     lambda f: replace(f, agent={**f.agent, "prefix": "gpu.example.org"})),
    ("units", "t4-1 counts memory in 1 MiB",
     lambda f: replace(f, state={"unit_mib": 1024, "nodes": [
         {"name": "t4-1", "unit_mib": 1, "cards": [{"index": 0, "health": "ok"}]}]})),
    ("state", "the state API does not answer: 503",
     lambda f: replace(f, missing={"state": "503"})),
    ("placements", "jupyter/past was bound to t4-1 by default-scheduler",
     with_pod(unplaced("default-scheduler"))),
    ("scheduler-name", "jupyter/lost asks for a slice from 'default-scheduler'",
     with_pod(pod("lost", schedulerName="default-scheduler", nodeName=None))),
    ("resources", "does not ask the extender about gpushare/gpu-mem",
     lambda f: replace(f, scheduler={**f.scheduler, "extenders": []})),
    ("resources", "ignorable",
     lambda f: replace(f, scheduler={**f.scheduler, "extenders": [
         {**f.scheduler["extenders"][0], "ignorable": True}]})),
    ("variables", "sets NVIDIA_VISIBLE_DEVICES", with_pod(env(NVIDIA_VISIBLE_DEVICES="all"))),
    ("rights", "gpushare-user-scheduler may not create pods/binding",
     lambda f: replace(f, rights={r: r.resource != "pods/binding" for r in RIGHTS})),
    ("policies", "may write placements", lambda f: replace(f, policies=f.policies[1:])),
    ("policies", "reaches other nodes",
     lambda f: replace(f, bindings=(*f.bindings[:2], {"spec": {
         "policyName": "gpushare-agents", "validationActions": ["Audit"]}}))),
    ("spawner", "another spawner_class",
     lambda f: replace(f, hubs=(replace(HUB, config={**HUB.config, "JupyterHub": {}}),))),
    ("spawner", "does not know the extender", with_hub(extender_url="")),
    ("spawner", "but gpushare is installed in gpushare",
     with_hub(extender_url="https://gpushare-extender.elsewhere.svc:8443")),
    ("spawner", "no authority", with_hub(extender_ca="")),
    ("spawner", "has unit MiB", with_hub(unit="MiB")),
    ("spawner", "not gpushare's", with_hub(gpu_scheduler_name="other")),
    ("hub-rights", "may not read the state API",
     lambda f: replace(f, rights={**f.rights, reading(HUB): False})),
    ("failure-limit", "ends itself after 5 failed starts",
     lambda f: replace(f, hubs=(PLAIN_HUB,), pods=(
         *f.pods, {**pod("n"), "metadata": {**pod("n")["metadata"],
                                            "labels": {"component": "singleuser-server"}}}))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("check", "words", "change"), BREAKS, ids=[f"{c}: {w}" for c, w, _ in BREAKS]
)
def test_each_check_finds_what_breaks_it(
    check: str, words: str, change: Callable[[Facts], Facts]
) -> None:
    assert words in found(change(sound()), check)


def test_every_check_is_broken_by_some_test() -> None:
    assert {check for check, _, _ in BREAKS} == {check.name for check in ALL}


def test_dialect_of_ours_is_no_second_plugin() -> None:
    facts = changed_node(lambda n: n["status"]["allocatable"].update({"aliyun.com/gpu-mem": "30"}))(
        sound()
    )
    assert (
        found(replace(facts, extender={**facts.extender, "dialects": ["aliyun:MiB"]}), "plugins")
        == ""
    )


def test_value_that_the_webhook_gave_is_no_fault() -> None:
    one = pod("given")
    source = {"fieldRef": {"fieldPath": "metadata.annotations['x']"}}
    one["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": source}]
    assert found(with_pod(one)(sound()), "variables") == ""
    assert found(with_pod(env(NVIDIA_VISIBLE_DEVICES="void"))(sound()), "variables") == ""


def test_what_may_not_be_read_is_not_taken_for_well() -> None:
    facts = replace(sound(), pods=(), missing={"pods": "pods is forbidden"})
    assert found(facts, "placements") == "unknown: cannot be checked: pods is forbidden"
    results = examine(facts, ALL)
    assert not failed(results)
    assert failed(results, strict=True)


def test_many_such_pods_are_told_as_a_number() -> None:
    facts = replace(sound(), pods=tuple(unplaced("default-scheduler") for _ in range(9)))
    assert found(facts, "placements").endswith("and 4 more")


@pytest.mark.parametrize("year", [2049, 2051])
def test_end_of_a_certificate_in_both_forms(year: int) -> None:
    """Until 2049 it is written with two digits for the year, after that with four."""
    end = datetime(year, 5, 6, 7, 8, 9, tzinfo=UTC)
    assert ends(certificate(0, at=end)) == end.timestamp()


@pytest.mark.parametrize("junk", ["AAAA", "MAA=", "MIIB", "MAMCAQE="])
def test_certificate_that_is_none(junk: str) -> None:
    text = f"-----BEGIN CERTIFICATE-----\n{junk}\n-----END CERTIFICATE-----\n"
    with pytest.raises(ValueError, match="is no X"):
        ends(text)


def lists(api: ApiServer, path: str, items: list[Any], query: str = "?limit=500") -> None:
    api.answers[path + query] = (200, {"metadata": {}, "items": items})


@pytest.fixture
def cluster(api: ApiServer, kubeconfig: Path) -> ApiServer:
    """The sound cluster, as its API server tells it."""
    facts = sound()
    labelled = "?limit=500&labelSelector=app.kubernetes.io%2Fname%3Dgpushare"
    admission = "/apis/admissionregistration.k8s.io/v1"
    api.answers["/version"] = (200, {"gitVersion": facts.version})
    lists(api, "/api/v1/nodes", list(facts.nodes))
    hub = {"metadata": {"namespace": "jupyter"}, "spec": {"serviceAccountName": "hub"}}
    hubs = "?limit=500&labelSelector=app%3Djupyterhub%2Ccomponent%3Dhub&fieldSelector=status.phase%3DRunning"
    lists(api, "/api/v1/pods", [*facts.pods, {**pod("other"), "spec": {"containers": []}}])
    lists(api, "/api/v1/pods", [hub], hubs)
    values = yaml.safe_dump({"hub": {"config": dict(HUB.config), "consecutiveFailureLimit": 5}})
    secret = {"data": {"values.yaml": base64.b64encode(values.encode()).decode()}}
    api.answers["/api/v1/namespaces/jupyter/secrets/hub"] = (200, secret)
    for kind in ("daemonsets", "deployments"):
        found = copy.deepcopy([dict(one) for one in getattr(facts, kind)])
        for one in found:
            component = one["metadata"]["labels"]["app.kubernetes.io/component"]
            template = one["spec"].setdefault("template", {"spec": {}})["spec"]
            template["serviceAccountName"] = f"gpushare-{component}"
        lists(api, f"/apis/apps/v1/namespaces/gpushare/{kind}", found)
    configs = [
        {"metadata": owned(component), "data": {file: text}}
        for component, file, text in (
            ("user-scheduler", "config.yaml", yaml.safe_dump(dict(facts.scheduler))),
            ("user-scheduler", "config.json", json.dumps({"Extender": facts.extender})),
            ("device-plugin", "config.json", json.dumps({"DevicePlugin": facts.agent})),
        )
    ]
    lists(api, "/api/v1/namespaces/gpushare/configmaps", configs)
    made = {"metadata": {"creationTimestamp": NOW.isoformat()}}
    api.answers["/api/v1/namespaces/gpushare/configmaps?dryRun=All"] = (201, made)
    lease = {"metadata": {"name": "t4-1"}, **facts.leases["t4-1"]}
    lists(api, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", [lease])
    gates = {"kubeletconfig": {"featureGates": {"Other": True}}}
    api.answers["/api/v1/nodes/t4-1/proxy/configz"] = (200, gates)
    service = {
        "service": {"namespace": "gpushare"},
        "caBundle": base64.b64encode(GOOD.encode()).decode(),
    }
    webhook = {"webhooks": [{"name": "pods.gpushare", "clientConfig": service}]}
    lists(api, f"{admission}/validatingwebhookconfigurations", [webhook])
    lists(api, f"{admission}/mutatingwebhookconfigurations", [])
    lists(api, f"{admission}/validatingadmissionpolicies", list(facts.policies), labelled)
    lists(api, f"{admission}/validatingadmissionpolicybindings", list(facts.bindings), labelled)
    tls_only = "?limit=500&fieldSelector=type%3Dkubernetes.io%2Ftls"
    pem = base64.b64encode(GOOD.encode()).decode()
    tls = {"metadata": {"name": "gpushare-extender-tls"}, "data": {"tls.crt": pem, "ca.crt": pem}}
    lists(api, "/api/v1/namespaces/gpushare/secrets", [tls], tls_only)
    api.answers["/apis/authorization.k8s.io/v1/subjectaccessreviews"] = (
        201,
        {"status": {"allowed": True}},
    )
    api.answers[PROXY] = (200, dict(facts.state))
    return api


def doctor(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["doctor", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, result.output


def test_gathering_from_a_sound_cluster(cluster: ApiServer) -> None:
    status, text = doctor("--strict")
    assert "nothing is wrong" in text
    assert status == 0


def test_output_for_programs_and_one_check(cluster: ApiServer) -> None:
    cluster.answers["/version"] = (200, {"gitVersion": "v1.28.0"})
    status, text = doctor("-o", "json", "--check", "versions")
    assert status == 1
    (check,) = json.loads(text)["checks"]
    assert check["level"] == "error"
    assert check["findings"][0]["fix"] == "upgrade the cluster to 1.30 or later"
    assert yaml.safe_load(doctor("-o", "yaml", "--check", "versions")[1]) == json.loads(text)


def test_somebody_who_may_read_nothing(cluster: ApiServer) -> None:
    for path in [path for path in cluster.answers if path != "/version"]:
        cluster.answers[path] = (403, {"message": "is forbidden"})
    status, text = doctor()
    assert "cannot be checked: is forbidden" in text
    assert status == 1, "without the state API nothing can be said to work"


def test_secrets_are_not_printed(cluster: ApiServer) -> None:
    values = {"hub": {"config": {"GPUShareSpawner": {"culler_token": "s3cret"}}}}
    text = base64.b64encode(yaml.safe_dump(values).encode()).decode()
    cluster.answers["/api/v1/namespaces/jupyter/secrets/hub"] = (
        200,
        {"data": {"values.yaml": text}},
    )
    assert "s3cret" not in doctor()[1] + doctor("-o", "json")[1]


def test_data_has_every_check() -> None:
    names = [check["name"] for check in as_data(examine(sound(), ALL))["checks"]]
    assert names == [check.name for check in ALL]


def test_odd_object_stops_one_check_alone() -> None:
    odd = replace(sound(), pods=({"metadata": {"name": "odd", "namespace": "x"}},))
    assert "unknown: cannot be checked: KeyError" in found(odd, "placements")
    assert found(odd, "versions") == ""


def test_where_the_cluster_s_own_scheduler_asks() -> None:
    outside = {**sound().extender, "verbs_tls_address": "0.0.0.0:39998"}
    alone = pod("alone", schedulerName="default-scheduler", nodeName=None)
    facts = replace(with_pod(alone)(sound()), extender=outside, scheduler={})
    assert found(facts, "scheduler-name") == ""
    assert found(replace(facts, extender=sound().extender), "scheduler-name") != ""


def test_settings_that_configure_z2jh_reads(cluster: ApiServer) -> None:
    values = {
        "hub": {"extraConfig": {"gpushare": "configure_z2jh(c)"}},
        "custom": {"gpushare": {"extender_url": "https://gpushare-extender.elsewhere.svc:8443"}},
    }
    text = base64.b64encode(yaml.safe_dump(values).encode()).decode()
    cluster.answers["/api/v1/namespaces/jupyter/secrets/hub"] = (
        200,
        {"data": {"values.yaml": text}},
    )
    status, told = doctor("--check", "spawner")
    assert status == 1
    assert "elsewhere.svc:8443, but gpushare is installed in gpushare" in told


def test_pods_of_a_dialect_and_those_that_were_taken_over() -> None:
    old = unplaced("default-scheduler")
    old["metadata"]["uid"] = "u1"
    old["spec"]["containers"][0]["resources"] = {"limits": {"aliyun.com/gpu-mem": "7"}}
    facts = with_pod(old)(sound())
    assert found(facts, "placements") == "", "without the dialect it is none of our business"
    spoken = replace(facts, extender={**facts.extender, "dialects": ["aliyun"]})
    assert "jupyter/past was bound" in found(spoken, "placements")
    assert "aliyun.com/gpu-mem" in found(spoken, "resources")
    card = {"index": 0, "health": "ok", "slices": [{"uid": "u1"}]}
    state = {"unit_mib": 1024, "nodes": [{"name": "t4-1", "unit_mib": 1024, "cards": [card]}]}
    assert found(replace(spoken, state=state), "placements") == ""


def test_no_lease_is_asked_for_where_there_is_no_scheduler_of_ours(cluster: ApiServer) -> None:
    path = "/api/v1/namespaces/gpushare/configmaps"
    settings = json.dumps({"Extender": {"verbs_tls_address": "0.0.0.0:39998"}})
    config = {"metadata": owned("user-scheduler"), "data": {"config.json": settings}}
    lists(cluster, path, [config])
    doctor("--check", "rights")
    asked = [b["spec"].get("resourceAttributes", {}) for m, _, b in cluster.sent if "spec" in b]
    resources = {one.get("resource") for one in asked}
    assert "pods" in resources
    assert "leases" not in resources
