"""What kwok makes of simulated nodes and pods: the stages of their lives, as templates.

A stage's ``statusTemplate`` is a Go template over the object; what it renders is merged into the
object's status (https://kwok.sigs.k8s.io/docs/user/stages-configuration/).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_Expression = Mapping[str, Any]


def _is(key: str, operator: str, *values: str) -> _Expression:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


_READY = '.status.conditions.[] | select( .type == "Ready" ) | .status'
_ALIVE = _is(".metadata.deletionTimestamp", "DoesNotExist")

_NODE_READY = """\
{{ $now := Now }}
phase: Running
addresses:
- type: InternalIP
  address: {{ NodeIP | Quote }}
- type: Hostname
  address: {{ .metadata.name | Quote }}
allocatable:
{{ YAML .status.allocatable 1 }}
capacity:
{{ YAML .status.capacity 1 }}
conditions:
{{ range NodeConditions }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  message: {{ .message | Quote }}
  lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
nodeInfo:
  architecture: amd64
  bootID: ""
  containerRuntimeVersion: simulated
  kernelVersion: simulated
  kubeProxyVersion: simulated
  kubeletVersion: simulated
  machineID: ""
  operatingSystem: linux
  osImage: simulated
  systemUUID: ""
"""

_POD_RUNNING = """\
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
{{ with NodeIPsWith .spec.nodeName }}
hostIP: {{ index . 0 | Quote }}
{{ end }}
{{ $hostNetwork := or .spec.hostNetwork false }}
{{ $pod := .metadata }}
{{ with PodIPsWith .spec.nodeName $hostNetwork $pod.uid $pod.name $pod.namespace }}
podIP: {{ index . 0 | Quote }}
podIPs:
- ip: {{ index . 0 | Quote }}
{{ end }}
conditions:
{{ range $type := list "Initialized" "ContainersReady" "Ready" }}
- type: {{ $type | Quote }}
  status: "True"
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  started: true
  restartCount: 0
  state:
    running:
      startedAt: {{ $now | Quote }}
{{ end }}
{{ if .spec.initContainers }}
initContainerStatuses:
{{ range .spec.initContainers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  restartCount: 0
  state:
  {{ if eq ( or .restartPolicy "" ) "Always" }}
    running:
      startedAt: {{ $now | Quote }}
  {{ else }}
    terminated:
      exitCode: 0
      reason: Completed
      startedAt: {{ $now | Quote }}
      finishedAt: {{ $now | Quote }}
  {{ end }}
{{ end }}
{{ end }}
"""

_POD_ENDED = """\
{{ $now := Now }}
phase: Succeeded
conditions:
{{ range $type := list "ContainersReady" "Ready" }}
- type: {{ $type | Quote }}
  status: "False"
  reason: PodCompleted
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: false
  started: false
  restartCount: 0
  state:
    terminated:
      exitCode: 0
      reason: Completed
      startedAt: {{ $now | Quote }}
      finishedAt: {{ $now | Quote }}
{{ end }}
"""


def stages() -> str:
    """kwok's configuration: a node gets Ready, a bound pod runs, a deleted pod ends, then goes.

    As a kubelet does since 1.27: it writes the final phase before it lets the object go, so that
    nobody takes a pod that has ended for one that was torn away while it ran.
    """
    ending = _is(".metadata.deletionTimestamp", "Exists")
    final = ("Succeeded", "Failed")
    documents = [
        _stage(
            "node-ready", "Node", [_is(_READY, "NotIn", "True")], {"statusTemplate": _NODE_READY}
        ),
        _stage(
            "pod-running",
            "Pod",
            [_ALIVE, _is(".status.phase", "In", "Pending"), _is(_READY, "NotIn", "True")],
            {"statusTemplate": _POD_RUNNING},
        ),
        _stage(
            "pod-ended",
            "Pod",
            [ending, _is(".status.phase", "NotIn", *final)],
            {"statusTemplate": _POD_ENDED},
        ),
        _stage("pod-gone", "Pod", [ending, _is(".status.phase", "In", *final)], {"delete": True}),
    ]
    # JSON is YAML.
    return "---\n".join(json.dumps(document, indent=1) + "\n" for document in documents)


def _stage(
    name: str, kind: str, when: Sequence[_Expression], then: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": [dict(e) for e in when]},
            "next": dict(then),
        },
    }
