"""What configure_dashboard writes into a Hub's configuration."""

from __future__ import annotations

from traitlets.config import Config

from hub_integration.dashboard.app import DashboardApp
from hub_integration.dashboard.configure import configure_dashboard


def config() -> Config:
    c = Config()
    c.GPUShareSpawner.extender_url = "https://gpushare-extender.gpushare.svc:8443"
    c.GPUShareSpawner.extender_ca = "/etc/gpushare/ca.crt"
    return c


def options(c: Config) -> DashboardApp:
    """The service, as the Hub would start it."""
    (service,) = [s for s in c.JupyterHub.services if s["name"] == "gpushare-dashboard"]
    app = DashboardApp()
    app.initialize(service["command"][3:])
    return app


def test_settings_come_from_the_spawner() -> None:
    c = config()
    configure_dashboard(c)
    app = options(c)
    assert app.extender_url == "https://gpushare-extender.gpushare.svc:8443"
    assert app.extender_ca == "/etc/gpushare/ca.crt"
    assert app.culler_url == ""
    roles = {role["name"]: role["scopes"] for role in c.JupyterHub.load_roles}
    assert roles["user"] == ["self", "access:services!service=gpushare-dashboard"]
    assert roles["gpushare-dashboard"] == ["delete:servers", "read:servers"]


def test_the_culler_is_found_where_it_is() -> None:
    c = config()
    c.JupyterHub.base_url = "/jupyter/"
    c.JupyterHub.services.append({"name": "gpushare-culler", "url": "http://127.0.0.1:9"})
    c.JupyterHub.load_roles = [{"name": "user", "scopes": ["self", "custom"]}]
    configure_dashboard(c)
    configure_dashboard(c)  # twice is once
    assert options(c).culler_url == "http://127.0.0.1:9/jupyter/services/gpushare-culler"
    assert [s["name"] for s in c.JupyterHub.services] == ["gpushare-culler", "gpushare-dashboard"]
    (user,) = [role for role in c.JupyterHub.load_roles if role["name"] == "user"]
    assert user["scopes"] == [
        "self",
        "custom",
        "access:services!service=gpushare-dashboard",
        "access:services!service=gpushare-culler",
    ]
