"""Adds the dashboard to a Hub's configuration::

    from hub_integration.config import configure, configure_dashboard
    configure(c, extender_url="https://…:8443")
    configure_dashboard(c)

in ``jupyterhub_config.py``, after the settings of ``c.GPUShareSpawner``, which say where the extender
is. The service runs beside the Hub, as its child, and is found under Services in its menu.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from traitlets.config import LazyConfigValue

NAME = "gpushare-dashboard"
CULLER = "gpushare-culler"
PORT = 10103
# What a person's login here may do at the Hub, as far as that person may: no more than these.
_PERSONS_SCOPES = (
    "admin-ui",  # tells admins from others
    "delete:servers",  # stop
    "read:users",  # own allowance, own servers
    "read:servers",
    "admin:users",  # allowances of others
)
# What the child needs of the Hub's environment to find Kubernetes; the Hub passes on hardly any.
_KUBERNETES = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBECONFIG")


def configure_dashboard(
    c: Any,
    *,
    port: int = PORT,
    address: str = "127.0.0.1",
    culler_url: str | None = None,
    display: bool = True,
    environment: Mapping[str, str] | None = None,
    **settings: Any,
) -> None:
    """Add the service, and its roles.

    ``address`` is where the proxy finds the Hub's own machine, if the proxy is on another: 'hub' in
    zero-to-jupyterhub. The service then listens on all addresses.

    ``culler_url`` None takes the culler where ``configure_culler`` puts it, if it is there, and ''
    does without. ``settings`` are those of ``DashboardApp``; the extender's come from
    ``c.GPUShareSpawner`` where they are not given.
    """
    base = str(_value(c, "JupyterHub", "base_url") or "/").rstrip("/")
    services = [s for s in _listed(c, "services") if s.get("name") != NAME]
    roles = [role for role in _listed(c, "load_roles") if role.get("name") != NAME]
    if culler_url is None:
        at = next((str(s.get("url", "")) for s in services if s.get("name") == CULLER), "")
        # Both are children of the Hub, wherever the proxy finds them.
        port_of = urlsplit(at).port
        culler_url = f"http://127.0.0.1:{port_of}{base}/services/{CULLER}" if at else ""
    for name in (
        "extender_url",
        "extender_ca",
        "extender_server_name",
        "extender_token_file",
        "prefix",
    ):
        value = settings.get(name) or _value(c, "GPUShareSpawner", name)
        if isinstance(value, str):
            settings[name] = value
    if address != "127.0.0.1":
        settings.setdefault("ip", "0.0.0.0")  # noqa: S104 - a pod of its own
    options = [f"--DashboardApp.{name}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", "hub_integration.dashboard", *options]
    command.append(f"--DashboardApp.culler_url={culler_url}")
    access = f"access:services!service={NAME}"
    culler = [f"access:services!service={CULLER}"] if culler_url else []
    kept = {name: os.environ[name] for name in _KUBERNETES if name in os.environ}
    services.append(
        {
            "name": NAME,
            "url": f"http://{address}:{port}",
            "command": command,
            "display": display,
            "info": {"title": "GPU slices"},
            "oauth_no_confirm": True,
            "oauth_client_allowed_scopes": [access, *culler, *_PERSONS_SCOPES],
            "environment": {**kept, **(environment or {})},
        }
    )
    roles += [
        # Reads everything at the culler, where an unfiltered delete:servers is an admin's sign; what
        # people click is done with their own tokens.
        {"name": NAME, "services": [NAME], "scopes": [*culler, "delete:servers", "read:servers"]},
        _for_everybody(roles, [access, *culler]),
    ]
    c.JupyterHub.services = services
    c.JupyterHub.load_roles = [role for role in roles if role]


def _for_everybody(roles: list[dict[str, Any]], scopes: list[str]) -> dict[str, Any]:
    """The role that all users have; an entry that is there already gets the scopes as well."""
    for role in roles:
        if role.get("name") == "user":
            role["scopes"] = list(dict.fromkeys([*role.get("scopes", ["self"]), *scopes]))
            return {}
    return {"name": "user", "scopes": ["self", *scopes]}


def _listed(c: Any, name: str) -> list[Any]:
    """A list that may have been set, or only been appended to."""
    value = _value(c, "JupyterHub", name)
    if isinstance(value, LazyConfigValue):
        value = value.get_value([])
    return list(value or [])


def _value(c: Any, section: str, name: str) -> Any:
    """A setting that may not have been made, without making it."""
    found = c.get(section, {})
    return found.get(name) if name in found else None
