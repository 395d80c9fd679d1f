"""Reaching the state API of a cluster with whatever kubeconfig the user has.

The way is the API server's service proxy, so no port has to be opened and no address known. The
proxy strips the Authorization header, so a short-lived token of the read-only service account
``gpushare-state-reader`` goes in a header of our own.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import click
import urllib3
from kubernetes import client, config

SERVICE = "gpushare-extender"
PORT = "state"
READER = "gpushare-state-reader"
_HEADER = "X-Gpushare-Authorization"
_TOKEN_SECONDS = 600  # the least that the API grants
_TIMEOUT = (5, 30)


class NoState(click.ClickException):
    """The state cannot be read. The text says what to do."""


@dataclass(frozen=True)
class Target:
    """Which cluster, and where in it gpushare is installed."""

    namespace: str
    kubeconfig: str | None = None
    context: str | None = None

    def read(self, path: str) -> Any:
        """GET ``path`` of the state API, decoded. Raises NoState."""
        with self._client() as api:
            token = self._token(api)
            service = f"https:{SERVICE}:{PORT}"
            url = f"/api/v1/namespaces/{self.namespace}/services/{service}/proxy{path}"
            return json.loads(self._call(api, "GET", url, headers={_HEADER: f"Bearer {token}"}))

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

    def _token(self, api: client.ApiClient) -> str:
        url = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{READER}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _TOKEN_SECONDS},
        }
        answer = json.loads(self._call(api, "POST", url, body=body))
        return str(answer["status"]["token"])

    def _call(
        self,
        api: client.ApiClient,
        method: str,
        url: str,
        headers: dict[str, str] | None = None,
        body: Any = None,
    ) -> bytes:
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
            self._explain(int(error.status or 0), str(error.body or error.reason or ""), url)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise NoState(
                f"the API server at {api.configuration.host} does not answer: {_root(error)}\n"
                "Is the cluster up, and the kubeconfig the right one?"
            ) from None
        if answer.status >= 400:
            self._explain(answer.status, answer.data.decode(errors="replace"), url)
        result: bytes = answer.data
        return result

    def _explain(self, status: int, body: str, url: str) -> NoReturn:
        """Turn a refusal into what to do."""
        text = _message(body)
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


def _message(body: str) -> str:
    """The sentence in an error's body."""
    try:
        data = json.loads(body)
        return str(data.get("message") or data.get("detail") or body)
    except (ValueError, AttributeError):
        return body.strip()[:300] or "no reason given"


def _root(error: BaseException) -> str:
    reason = getattr(error, "reason", None)
    return _root(reason) if isinstance(reason, BaseException) else str(error)
