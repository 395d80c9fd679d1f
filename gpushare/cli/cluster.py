"""Reaching a cluster, and the state API in it, with whatever kubeconfig the user has.

The way to the state API is the API server's service proxy, so no port has to be opened and no
address known. The proxy strips the Authorization header, so a short-lived token of the read-only
service account ``gpushare-state-reader`` goes in a header of our own. Everything else that a command
does (cordon, evict, look at objects) is done with the user's own rights.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlencode

import click
import urllib3
from kubernetes import client, config

SERVICE = "gpushare-extender"
PORT = "state"
READER = "gpushare-state-reader"
MERGE_PATCH = "application/merge-patch+json"
_HEADER = "X-Gpushare-Authorization"
_TOKEN_SECONDS = 600  # the least that the API grants
_TIMEOUT = (5, 30)


class NoState(click.ClickException):
    """The state cannot be read. The text says what to do."""


class Refused(Exception):
    """The API server answered, and the answer is no. ``status`` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


@dataclass(frozen=True)
class Target:
    """Which cluster, and where in it gpushare is installed."""

    namespace: str
    kubeconfig: str | None = None
    context: str | None = None

    def read(self, path: str) -> Any:
        """GET ``path`` of the state API, decoded. Raises NoState."""
        return self.connection.read(path)

    @cached_property
    def connection(self) -> Connection:
        """One connection for all that a command asks. Raises NoState."""
        return Connection(self.namespace, self._client())

    def default_namespace(self) -> str:
        """The namespace of the kubeconfig's context, where kubectl would look."""
        try:
            contexts, active = config.list_kube_config_contexts(
                self.kubeconfig or _found_kubeconfig()
            )
            chosen = [c for c in contexts if c["name"] == self.context] or [active]
            return str(chosen[0]["context"].get("namespace") or "default")
        except (config.ConfigException, OSError, KeyError, TypeError):
            return "default"

    def _client(self) -> client.ApiClient:
        kubeconfig = self.kubeconfig or _found_kubeconfig()
        settings = client.Configuration()
        # Problems are told once, by us.
        settings.retries = False
        try:
            if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
                config.load_incluster_config(settings)
            else:
                config.load_kube_config(kubeconfig, self.context, client_configuration=settings)
        except (config.ConfigException, OSError) as error:
            raise NoState(
                f"no cluster to look at: {error}\n"
                "Set KUBECONFIG or --kubeconfig to the cluster's kubeconfig, "
                "or start one here with 'gpushare playground up'."
            ) from None
        return client.ApiClient(settings)


class Connection:
    """Requests to one cluster."""

    def __init__(self, namespace: str, api: client.ApiClient) -> None:
        self.namespace = namespace
        self._api = api

    @property
    def host(self) -> str:
        """The API server's address."""
        return str(self._api.configuration.host)

    def read(self, path: str) -> Any:
        """GET ``path`` of the state API, decoded. Raises NoState."""
        url = self._proxied(path)
        try:
            answer = self._send("GET", url, headers={_HEADER: f"Bearer {self._token}"})
        except Refused as refused:
            self._explain(refused, url)
        return json.loads(answer)

    def _proxied(self, path: str) -> str:
        service = f"https:{SERVICE}:{PORT}"
        return f"/api/v1/namespaces/{self.namespace}/services/{service}/proxy{path}"

    def get(self, path: str, **query: str) -> Any:
        """GET of the Kubernetes API. Raises Refused, or NoState where nothing answers."""
        return json.loads(self._send("GET", path + (f"?{urlencode(query)}" if query else "")))

    def post(self, path: str, body: Any) -> Any:
        """POST to the Kubernetes API. Raises Refused, or NoState where nothing answers."""
        return json.loads(self._send("POST", path, body=body))

    def patch(self, path: str, body: Any) -> Any:
        """Merge patch of one object. Raises Refused, or NoState where nothing answers."""
        return json.loads(
            self._send("PATCH", path, headers={"Content-Type": MERGE_PATCH}, body=body)
        )

    @cached_property
    def _token(self) -> str:
        url = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{READER}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _TOKEN_SECONDS},
        }
        try:
            return str(self.post(url, body)["status"]["token"])
        except Refused as refused:
            self._explain(refused, url)

    def forget_token(self) -> None:
        """Get a new one with the next request: tokens live for ten minutes."""
        self.__dict__.pop("_token", None)

    def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
    ) -> bytes:
        api = self._api
        try:
            _, full, sent, data, _ = api.param_serialize(
                method,
                url,
                header_params={"Accept": "application/json", **(headers or {})},
                body=body,
                auth_settings=["BearerToken"],
            )
            answer = api.rest_client.request(
                method, full, headers=sent, body=data, _request_timeout=_TIMEOUT
            )
            answer.read()
        except client.ApiException as error:
            raise Refused(int(error.status or 0), str(error.body or error.reason or "")) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise NoState(
                f"the API server at {api.configuration.host} does not answer: {_root(error)}\n"
                "Is the cluster up, and the kubeconfig the right one?"
            ) from None
        if answer.status >= 400:
            raise Refused(answer.status, answer.data.decode(errors="replace"))
        result: bytes = answer.data
        return result

    def _explain(self, refused: Refused, url: str) -> NoReturn:
        """Turn a refusal into what to do."""
        status, body = refused.status, refused.message
        text = message(body)
        if "/proxy/" in url and '"detail"' in body:
            raise NoState(f"the extender says: {text}")
        if status == 401:
            raise NoState("the API server does not accept your credentials: log in again")
        if status == 403:
            raise NoState(
                f"you may not look: {text}\nAsk for the role gpushare-inspect in the namespace "
                f"{self.namespace} (chart value stateApi.users)."
            )
        if status == 404:
            raise NoState(
                f"gpushare is not installed in the namespace {self.namespace}: {text}\n"
                "If it is in another one, say --namespace or set GPUSHARE_NAMESPACE."
            )
        if status in (502, 503, 504):
            raise NoState(
                f"the extender does not answer: {text}\n"
                f"See 'kubectl -n {self.namespace} get pods' and the log of gpushare-user-scheduler."
            )
        raise NoState(f"the API server answered {status}: {text}")


def message(body: str) -> str:
    """The sentence in an error's body."""
    try:
        data = json.loads(body)
        return str(data.get("message") or data.get("detail") or body)
    except (ValueError, AttributeError):
        return body.strip()[:300] or "no reason given"


def _found_kubeconfig() -> str | None:
    """KUBECONFIG, else the playground's kubeconfig where the user has none; None: the usual place."""
    if said := os.environ.get("KUBECONFIG"):
        return said
    if (Path.home() / ".kube" / "config").exists() or "KUBERNETES_SERVICE_HOST" in os.environ:
        return None
    try:
        from playground.cluster import Cluster

        return str(Cluster().kubeconfig())
    except Exception:
        return None


def _root(error: BaseException) -> str:
    reason = getattr(error, "reason", None)
    return _root(reason) if isinstance(reason, BaseException) else str(error)
