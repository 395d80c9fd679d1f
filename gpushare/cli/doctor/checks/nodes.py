"""The nodes: runtime and kubelet, device plugins, labels and taints, units."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from gpushare.cli.doctor.facts import Facts, Object, labels, name, notes, offers
from gpushare.cli.doctor.finding import Check, Finding, error, warning

# From which version on a runtime heeds CDI, and from which on it does so unasked.
_RUNTIMES = {"containerd": ((1, 7), (2, 0)), "cri-o": ((1, 23), (1, 23))}
_GATES = ("DevicePluginCDIDevices", "KubeletPodResources")
# Resources by which other device plugins offer the same cards.
_OTHERS = {
    "nvidia.com/gpu": "NVIDIA's device plugin",
    "nvidia.com/gpu.shared": "NVIDIA's device plugin (time-slicing)",
    "aliyun.com/gpu-mem": "the aliyun gpushare plugin",
    "nano-gpu/gpu-percent": "the nano-gpu agent",
    "elasticgpu.io/gpu-core": "the Elastic GPU agent",
    "elasticgpu.io/gpu-memory": "the Elastic GPU agent",
    "nvidia.com/gpumem": "HAMi's device plugin",
    "volcano.sh/vgpu-memory": "Volcano's vGPU plugin",
}
_GPU_LABELS = (
    "nvidia.com/gpu.present",
    "nvidia.com/gpu.count",
    "feature.node.kubernetes.io/pci-10de.present",
)


def runtime(facts: Facts) -> Iterator[Finding]:
    """Whether the runtimes heed CDI, as their versions and the device plugins there tell."""
    for node in facts.sharing():
        text = node["status"].get("nodeInfo", {}).get("containerRuntimeVersion", "")
        kind, version = _runtime(text)
        told = _delivery(node, facts)
        if told.startswith("cdi"):
            continue
        if told or version < _RUNTIMES.get(kind, ((99, 0), (99, 0)))[0]:
            yield warning(
                f"{name(node)} runs {text}, which heeds no CDI: containers get their cards through "
                "NVIDIA's own runtime by a variable alone",
                _SWITCH_ON,
            )
        elif version < _RUNTIMES[kind][1]:
            yield warning(f"{name(node)} runs {text}, where CDI may be off", _SWITCH_ON)
    for pod in facts.asking():
        statuses = (pod.get("status") or {}).get("containerStatuses") or []
        for status in statuses:
            waiting = (status.get("state") or {}).get("waiting") or {}
            if "CDI" in str(waiting.get("message", "")):
                yield error(
                    f"{name(pod)} on {pod['spec'].get('nodeName')} does not start: "
                    f"{str(waiting['message'])[:200]}",
                    "let the runtime read the folders that the chart's devicePlugin.cdiDirs names",
                )


_SWITCH_ON = (
    "use containerd 2.0 or CRI-O 1.23 or later, or with containerd 1.7 set enable_cdi = true and "
    'cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"] under [plugins."io.containerd.grpc.v1.cri"] '
    "and restart containerd"
)


def _delivery(node: Object, facts: Facts) -> str:
    """How containers get their cards on the node, as its device plugin found out; '' if not told."""
    try:
        told = json.loads(notes(node).get(facts.names.in_force, "{}"))
        way = str(told.get("delivery", "")).lower()
    except (ValueError, AttributeError):
        return ""
    return "" if " or " in way else way


def kubelet(facts: Facts) -> Iterator[Finding]:
    """Switched-off features without which no container gets its cards."""
    for node, gates in facts.feature_gates.items():
        for gate in _GATES:
            if gates.get(gate) is False:
                yield error(
                    f"the kubelet of {node} has the feature {gate} switched off",
                    f"remove {gate}=false from the kubelet's featureGates and restart it",
                )


def plugins(facts: Facts) -> Iterator[Finding]:
    """Two plugins that hand out the same cards know nothing of each other."""
    ours = facts.names.all_resources
    for node in facts.nodes:
        if not any(offers(node, resource) for resource in facts.names.resources):
            continue
        for resource, who in _OTHERS.items():
            if offers(node, resource) and resource not in ours:
                yield error(
                    f"{name(node)} offers {resource} ({who}) beside {facts.names.gpu_mem}: the same "
                    "cards are handed out twice",
                    "take that plugin off the node, or give each its own cards "
                    "(devicePlugin.config.DevicePlugin.exclude_cards). With NVIDIA's operator: "
                    f"kubectl label node {name(node)} nvidia.com/gpu.deploy.device-plugin=false",
                )


def problems(facts: Facts) -> Iterator[Finding]:
    """What the device plugins themselves complain about, and nodes that offer nothing."""
    names = facts.names
    for node in facts.sharing():
        problem = notes(node).get(names.node_problem)
        if problem:
            yield error(f"{name(node)}: {problem}", _AGENT_LOG.format(facts.namespace))
        elif names.cards not in notes(node):
            yield error(
                f"{name(node)} publishes no cards, though a device plugin runs on it",
                _AGENT_LOG.format(facts.namespace),
            )
        elif not any(offers(node, resource) for resource in names.resources):
            yield error(
                f"the kubelet of {name(node)} offers none of {', '.join(names.resources)}: the device "
                "plugin is not registered with it",
                _AGENT_LOG.format(facts.namespace),
            )
    for node in facts.state.get("nodes") or []:
        for card in node.get("cards") or []:
            if card["health"] not in ("ok", "cordoned"):
                yield warning(
                    f"card {node['name']}/{card['index']}: {card['health']}",
                    f"gpushare drain {node['name']}/{card['index']}, then reset or replace it",
                )


_AGENT_LOG = "kubectl -n {} logs -l app.kubernetes.io/component=device-plugin --prefix"


def places(facts: Facts) -> Iterator[Finding]:
    """Labels and taints: where the device plugin should run and does not."""
    daemonset = facts.agent_set()
    if daemonset is None:
        return
    spec = daemonset["spec"]["template"]["spec"]
    selector = spec.get("nodeSelector") or {}
    chosen = [node for node in facts.nodes if selector.items() <= labels(node).items()]
    if selector and not chosen:
        wanted = ",".join(f"{key}={value}" for key, value in selector.items())
        yield error(f"no node has the label {wanted}", f"kubectl label node NODE {wanted}")
    on = facts.agents()
    for node in chosen:
        if name(node) in on:
            continue
        for taint in node["spec"].get("taints") or []:
            if taint["effect"] == "NoSchedule" and not _tolerated(taint, spec):
                yield error(
                    f"{name(node)} has the taint {taint['key']}, which keeps the device plugin away",
                    "add a toleration to the chart's devicePlugin.tolerations",
                )
    for node in facts.nodes:
        if node not in chosen and any(labels(node).get(key) for key in _GPU_LABELS):
            wanted = ",".join(f"{key}={value}" for key, value in selector.items())
            yield warning(
                f"{name(node)} has NVIDIA cards but not the label {wanted}",
                f"kubectl label node {name(node)} {wanted}, if its cards are to be shared",
            )


def units(facts: Facts) -> Iterator[Finding]:
    """Scheduler and nodes must count memory alike, under the same names."""
    for setting, default in (("unit", "GiB"), ("prefix", "gpushare")):
        here, there = facts.extender.get(setting, default), facts.agent.get(setting, default)
        if facts.extender and facts.agent and here != there:
            yield error(
                f"the extender's {setting} is {here}, the device plugin's is {there}",
                f"set {setting} once, at the top of the chart's values, and in neither "
                "extender.config nor devicePlugin.config",
            )
    unit = facts.state.get("unit_mib")
    for node in facts.state.get("nodes") or []:
        if unit and node["cards"] and node.get("unit_mib", unit) != unit:
            yield error(
                f"{node['name']} counts memory in {node['unit_mib']} MiB, the scheduler in {unit} MiB: "
                "nothing is placed there",
                "set the chart's unit and let the device plugin of that node start again",
            )


def _tolerated(taint: Mapping[str, str], spec: Object) -> bool:
    for toleration in spec.get("tolerations") or []:
        key, operator = toleration.get("key"), toleration.get("operator", "Equal")
        if toleration.get("effect") not in (None, "", taint["effect"]):
            continue
        if key is None and operator == "Exists":
            return True
        if key == taint["key"] and (
            operator == "Exists" or toleration.get("value", "") == taint.get("value", "")
        ):
            return True
    return False


def _runtime(text: str) -> tuple[str, tuple[int, int]]:
    match = re.match(r"([a-z-]+)://v?(\d+)\.(\d+)", text)
    return (match[1], (int(match[2]), int(match[3]))) if match else ("", (0, 0))


CHECKS = (
    Check("cdi", "the container runtimes know CDI", runtime, ("nodes", "pods")),
    Check("kubelet", "the kubelets' features are on", kubelet, ("kubelets",)),
    Check("plugins", "one device plugin a card", plugins, ("nodes",)),
    Check("cards", "the nodes offer their cards", problems, ("nodes", "pods")),
    Check("places", "labels and taints", places, ("nodes", "pods", "daemonsets")),
    Check("units", "scheduler and nodes count alike", units, ("configurations",)),
)
