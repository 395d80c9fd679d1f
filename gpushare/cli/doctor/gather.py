"""Looking at a cluster: every fact that may be read, and for each other one why it may not."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TypeVar

import yaml

from gpushare.cli.cluster import Connection, NoState, Refused, message
from gpushare.cli.doctor.checks.hub import reading
from gpushare.cli.doctor.checks.rights import wanted
from gpushare.cli.doctor.facts import Facts, Hub, Object, Right, asks, names_of, ours
from gpushare.names import Names

_PAGE = 500
# Kubelets whose running configuration is read: features are set alike on the nodes of a pool.
_MOST_KUBELETS = 50
_AUTHORITY = "the state API's authority"

T = TypeVar("T")


def gather(connection: Connection, namespace: str) -> Facts:
    """All that the checks need. Raises NoState where no API server answers."""
    return _Gatherer(connection, namespace).facts()


class _Gatherer:
    def __init__(self, connection: Connection, namespace: str) -> None:
        self.connection, self.namespace = connection, namespace
        self.missing: dict[str, str] = {}
        # Whether the cluster's own scheduler asks the extender.
        self.outside = False

    def facts(self) -> Facts:
        version = str(self.connection.get("/version").get("gitVersion", ""))
        extender, agent, scheduler = self._try(
            "configurations", self._settings, lambda: ({}, {}, {})
        )
        self.outside = bool(extender.get("verbs_tls_address"))
        names = names_of(extender)
        nodes = self._objects("nodes", lambda: self._list("/api/v1/nodes"))
        now = self._try("clock", self._now, time.time)
        pods = self._objects("pods", lambda: self._pods(names))
        none: list[Hub] = []
        hubs = tuple(self._try("hubs", self._hubs, lambda: none))
        return Facts(
            namespace=self.namespace,
            now=now,
            version=version,
            nodes=nodes,
            pods=pods,
            daemonsets=self._objects("daemonsets", lambda: self._ours("daemonsets")),
            deployments=self._objects("deployments", lambda: self._ours("deployments")),
            leases=self._try("leases", self._leases, dict),
            feature_gates=self._try("kubelets", lambda: self._kubelets(nodes), dict),
            extender=extender,
            agent=agent,
            scheduler=scheduler,
            webhooks=self._objects("webhooks", self._webhooks),
            policies=self._objects("policies", lambda: self._admission("policies")),
            bindings=self._objects("policies", lambda: self._admission("policybindings")),
            certificates=self._try("certificates", self._certificates, dict),
            state=self._try("state", lambda: self.connection.read("/v1/nodes"), dict),
            rights=self._try("rights", lambda: self._rights(hubs), dict),
            hubs=hubs,
            missing=self.missing,
        )

    def _try(self, what: str, read: Callable[[], T], otherwise: Callable[[], T]) -> T:
        try:
            return read()
        except Refused as refused:
            self.missing[what] = message(refused.message)
        except NoState as problem:
            self.missing[what] = str(problem.message).splitlines()[0]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self.missing[what] = f"{what}: {type(error).__name__}: {error}"
        return otherwise()

    def _objects(self, what: str, read: Callable[[], list[Object]]) -> tuple[Object, ...]:
        return tuple(self._try(what, read, list))

    def _items(self, path: str, **query: str) -> Iterator[Object]:
        token = ""
        while True:
            page = self.connection.get(path, limit=str(_PAGE), **query, **_more(token))
            yield from page.get("items") or []
            token = page["metadata"].get("continue", "")
            if not token:
                return

    def _list(self, path: str, **query: str) -> list[Object]:
        return list(self._items(path, **query))

    def _pods(self, names: Names) -> list[Object]:
        """Pods that ask for slices, and ours: of a large cluster's all others nothing is kept."""
        return [
            pod
            for pod in self._items("/api/v1/pods")
            if asks(pod, names) or pod["metadata"]["namespace"] == self.namespace
        ]

    def _ours(self, kind: str) -> list[Object]:
        return self._list(f"/apis/apps/v1/namespaces/{self.namespace}/{kind}")

    def _settings(self) -> tuple[Object, Object, Object]:
        """Of the extender, of the device plugin, of the scheduler."""
        extender: Object = {}
        agent: Object = {}
        scheduler: Object = {}
        for found in self._items(f"/api/v1/namespaces/{self.namespace}/configmaps"):
            data = found.get("data") or {}
            if ours(found, "user-scheduler", self.namespace):
                if "config.yaml" in data:
                    scheduler = yaml.safe_load(data["config.yaml"]) or {}
                elif "config.json" in data:
                    said = json.loads(data["config.json"])
                    webhook = said.get("Webhook") or {}
                    extender = {**webhook, **(said.get("Extender") or {})}
            elif ours(found, "device-plugin", self.namespace) and "config.json" in data:
                agent = json.loads(data["config.json"]).get("DevicePlugin") or {}
        return extender, agent, scheduler

    def _now(self) -> float:
        """The API server's clock: it dates whatever it makes, if only as a dry run."""
        body = {"metadata": {"generateName": "gpushare-doctor-"}}
        path = f"/api/v1/namespaces/{self.namespace}/configmaps?dryRun=All"
        made = self.connection.post(path, body)["metadata"]["creationTimestamp"]
        return datetime.fromisoformat(made).astimezone(UTC).timestamp()

    def _leases(self) -> dict[str, Object]:
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        return {one["metadata"]["name"]: one for one in self._items(path)}

    def _kubelets(self, nodes: Sequence[Object]) -> dict[str, dict[str, bool]]:
        """The feature gates that each kubelet was given."""

        def gates(node: str) -> dict[str, bool]:
            told = self.connection.get(f"/api/v1/nodes/{node}/proxy/configz")
            return dict(told["kubeletconfig"].get("featureGates") or {})

        chosen = [n["metadata"]["name"] for n in nodes[:_MOST_KUBELETS]]
        found: dict[str, dict[str, bool]] = {}
        with ThreadPoolExecutor(8) as pool:
            for node, asked in [(node, pool.submit(gates, node)) for node in chosen]:
                try:
                    found[node] = asked.result()
                except Refused as refused:
                    # A kubelet that is away is told by others; a missing right is ours to tell.
                    if refused.status == 403:
                        raise
        return found

    def _webhooks(self) -> list[Object]:
        """Ours: name, and the authority that the API server checks them by."""
        found: list[Object] = []
        for kind in ("validating", "mutating"):
            path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
            for configuration in self._items(path):
                for webhook in configuration.get("webhooks") or []:
                    where = webhook["clientConfig"]
                    if (where.get("service") or {}).get("namespace") == self.namespace:
                        bundle = base64.b64decode(where.get("caBundle") or "").decode()
                        signer = self._signer(where["service"].get("name", ""))
                        found.append({"name": webhook["name"], "ca": bundle, "signer": signer})
        return found

    def _signer(self, service: str) -> str:
        """The authority of a webhook's own certificate; '' where it has none of its own."""
        path = f"/api/v1/namespaces/{self.namespace}/secrets/{service}-tls"
        try:
            data = self.connection.get(path).get("data") or {}
        except Refused:
            return ""
        return base64.b64decode(data.get("ca.crt") or "").decode()

    def _admission(self, kind: str) -> list[Object]:
        path = f"/apis/admissionregistration.k8s.io/v1/validatingadmission{kind}"
        return self._list(path, labelSelector="app.kubernetes.io/name=gpushare")

    def _certificates(self) -> dict[str, str]:
        """By what they are for: of the Secrets, tls.crt alone is looked at."""
        found = {}
        for secret in self._items(
            f"/api/v1/namespaces/{self.namespace}/secrets", fieldSelector="type=kubernetes.io/tls"
        ):
            data = secret.get("data") or {}
            name = secret["metadata"]["name"]
            found[f"the Secret {name}"] = base64.b64decode(data.get("tls.crt") or "").decode()
            if name.endswith("-extender-tls") and data.get("ca.crt"):
                found[_AUTHORITY] = base64.b64decode(data["ca.crt"]).decode()
        return found

    def _rights(self, hubs: tuple[Hub, ...]) -> dict[Right, bool]:
        accounts = {
            one["metadata"]["labels"]["app.kubernetes.io/component"]: one["spec"]["template"][
                "spec"
            ]["serviceAccountName"]
            for one in [*self._ours("deployments"), *self._ours("daemonsets")]
            if (one["metadata"].get("labels") or {}).get("app.kubernetes.io/name") == "gpushare"
        }
        scheduler = accounts.get("user-scheduler", "gpushare-user-scheduler")
        agent = accounts.get("device-plugin", "gpushare-device-plugin")
        asked = [*wanted(self.namespace, scheduler, agent), *(reading(hub) for hub in hubs)]
        if self.outside:
            # No kube-scheduler of ours, and so no lease.
            asked = [right for right in asked if right.resource != "leases"]
        return {right: self._may(right) for right in asked}

    def _may(self, right: Right) -> bool:
        said = asdict(right)
        user, path = said.pop("user"), said.pop("path")
        resource, _, sub = right.resource.partition("/")
        spec: dict[str, Any] = {"user": user, "groups": _groups(user)}
        if path:
            spec["nonResourceAttributes"] = {"path": path, "verb": right.verb}
        else:
            spec["resourceAttributes"] = {**said, "resource": resource, "subresource": sub}
        review = self.connection.post(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec},
        )
        return bool(review["status"].get("allowed"))

    def _hubs(self) -> list[Hub]:
        """Hubs of the Zero to JupyterHub chart, whose values are in a Secret that is named hub."""
        found = []
        for pod in self._items(
            "/api/v1/pods",
            labelSelector="app=jupyterhub,component=hub",
            fieldSelector="status.phase=Running",
        ):
            namespace = pod["metadata"]["namespace"]
            account = pod["spec"].get("serviceAccountName", "default")
            values = self._values(namespace)
            hub = values.get("hub") or {}
            config = _spawner_settings(hub, values)
            found.append(Hub(namespace, account, config, hub.get("consecutiveFailureLimit")))
        return found

    def _values(self, namespace: str) -> dict[str, Any]:
        """The chart's values. They hold the Hub's secrets too: nothing of them is ever printed."""
        secret = self.connection.get(f"/api/v1/namespaces/{namespace}/secrets/hub")
        text = base64.b64decode((secret.get("data") or {}).get("values.yaml") or "")
        return yaml.safe_load(text) or {}


def _spawner_settings(hub: Object, values: Object) -> Object:
    """hub.config, on top of what configure_z2jh reads where it is called."""
    config = dict(hub.get("config") or {})
    if not any("configure_z2jh" in str(code) for code in (hub.get("extraConfig") or {}).values()):
        return config
    custom = (values.get("custom") or {}).get("gpushare") or {}
    return {
        **config,
        "JupyterHub": {"spawner_class": "gpushare", **(config.get("JupyterHub") or {})},
        "GPUShareSpawner": {**custom, **(config.get("GPUShareSpawner") or {})},
    }


def _groups(user: str) -> list[str]:
    """The groups of a service account."""
    namespace = user.split(":")[2]
    return ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]


def _more(token: str) -> dict[str, str]:
    return {"continue": token} if token else {}
