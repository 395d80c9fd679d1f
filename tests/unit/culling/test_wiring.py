"""One call makes the culler a service of the Hub, whatever is configured already."""

from __future__ import annotations

import json

import pytest
from traitlets.config import Config

from hub_integration.config import configure_culler
from hub_integration.culling.app import SETTINGS, CannotStart, GPUShareCuller
from hub_integration.culling.wiring import ACCESS, SERVICE


def roles(c: Config) -> dict[str, list[str]]:
    return {role["name"]: role["scopes"] for role in c.JupyterHub.load_roles}


def test_least_rights_and_shared_settings() -> None:
    c = Config()
    c.GPUShareSpawner.extender_url = "https://extender:8443"
    c.KubeSpawner.namespace = "jupyter"
    configure_culler(c, end_kernels=False, interval=5.0)
    service, hub = c.JupyterHub.services
    assert (service["name"], hub["name"]) == (SERVICE, "gpushare-hub")
    assert c.GPUShareSpawner.culler_url == "http://127.0.0.1:10102/services/gpushare-culler/"
    assert hub["api_token"] == c.GPUShareSpawner.culler_token
    assert json.loads(service["environment"][SETTINGS]) == {
        "extender_url": "https://extender:8443",
        "ledger_url": "sqlite:///gpushare-ledger.sqlite",
        "namespace": "jupyter",
        "end_kernels": False,
        "interval": 5.0,
    }
    assert set(roles(c)[SERVICE]) == {
        "list:users",
        "read:users:activity",
        "read:users:groups",
        "read:servers",
        "delete:servers",
        "users:activity",
    }
    assert roles(c)["user"] == ["self", ACCESS]
    assert ACCESS in roles(c)["server"]
    assert c.GPUShareSpawner.culler_runs is True


def test_what_others_configured_stays_and_twice_is_once() -> None:
    c = Config()
    c.GPUShareSpawner.culler_url = "https://culler.example.org/"
    c.JupyterHub.services = [{"name": "mine"}]
    c.JupyterHub.load_roles = [{"name": "user", "scopes": ["self", "access:services!service=mine"]}]
    configure_culler(c)
    configure_culler(c)
    assert [service["name"] for service in c.JupyterHub.services] == ["mine", SERVICE]
    assert roles(c)["user"] == ["self", "access:services!service=mine", ACCESS]
    assert "access:servers" in roles(c)[SERVICE]
    assert len(c.JupyterHub.load_roles) == 3


def test_a_setting_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="no setting 'idle'"):
        configure_culler(Config(), idle=3)


def test_settings_reach_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTINGS, json.dumps({"minute": 1.0, "hold_total": 10.0}))
    app = GPUShareCuller()
    app.initialize(["--dry-run"])
    options = app.options(has_arbiter=False)
    assert options.dry_run
    assert options.bridge, "culler 1.4 needs the bridge"
    assert options.limits.total == 10.0
    assert not app.options(has_arbiter=True).bridge


async def test_what_cannot_work_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUPYTERHUB_API_TOKEN", raising=False)
    with pytest.raises(CannotStart, match="JUPYTERHUB_API_TOKEN"):
        async with GPUShareCuller().parts():
            pass
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "x")
    app = GPUShareCuller(database="sqlite:////nowhere/at/all.sqlite")
    with pytest.raises(CannotStart, match=r"GPUShareCuller\.database"):
        async with app.parts():
            pass
    app = GPUShareCuller(database="sqlite://", workload_policies={"batch": {"idle": 3}})
    with pytest.raises(CannotStart, match=r"workload_policies\['batch'\]"):
        async with app.parts():
            pass
