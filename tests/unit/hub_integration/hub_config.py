"""Configuration of the real JupyterHub that tests start: everything is the Hub's own, but the proxy
goes nowhere and pods live in a dictionary. The environment says the rest."""

import json
import os
from typing import ClassVar

from jupyterhub.proxy import Proxy

from hub_integration.config import configure
from hub_integration.spawner import GPUShareSpawner
from tests.unit.hub_integration import cluster as fake

FATES = {
    "running": fake.running(),
    "pending": fake.pending,
    "failed": fake.failed("Allocate failed: no such device"),
    "denied": fake.denied(403, "exceeded quota: gpu"),
}


class NoProxy(Proxy):
    """A routing table; nothing is routed."""

    should_start = False
    routes: ClassVar[dict] = {}

    async def add_route(self, routespec, target, data):
        self.routes[routespec] = {"routespec": routespec, "target": target, "data": data}

    async def delete_route(self, routespec):
        self.routes.pop(routespec, None)

    async def get_all_routes(self):
        return self.routes


given = json.loads(os.environ["HUB_TEST"])
Spawner = fake.attach(GPUShareSpawner, fake.FakeCluster(FATES[given["fate"]]))

c = get_config()  # noqa: F821
c.JupyterHub.services = [{"name": "tester", "api_token": "tester-token", "admin": True}]
configure(c, **{"ledger_url": "sqlite:///ledger.sqlite", **given["settings"]})
c.JupyterHub.spawner_class = Spawner
c.JupyterHub.proxy_class = NoProxy
c.JupyterHub.hub_port = given["port"]
c.JupyterHub.bind_url = f"http://127.0.0.1:{given['port']}"
c.JupyterHub.db_url = given.get("db_url", "sqlite://")
c.JupyterHub.allow_named_servers = True
c.JupyterHub.cookie_secret = b"x" * 32
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.cleanup_servers = False
c.JupyterHub.last_activity_interval = 3600
c.JupyterHub.load_groups = given.get("groups", {"staff": {"users": ["prof"]}})
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": given.get("slow_spawn_timeout", 10)}
c.Authenticator.allow_all = True
c.DummyAuthenticator.password = "pass"
# zero-to-jupyterhub's.
c.Spawner.consecutive_failure_limit = 5
c.Spawner.start_timeout = given.get("start_timeout", 60)
# Where servers run, the Hub itself answers in their place.
c.KubeSpawner.port = given["port"]
