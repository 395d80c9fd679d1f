"""The configuration of the playground's JupyterHub. Run by JupyterHub, with the file named by
GPUSHARE_HUB_SETTINGS for all that differs from one playground to another.

The settings that matter are zero-to-jupyterhub's: five failures end the Hub, servers may take five
minutes, requests do not wait for slow servers, running servers outlive the Hub.
"""

# mypy: ignore-errors
# ruff: noqa: F821

import json
import os
from pathlib import Path

from hub_integration.config import configure

given = json.loads(Path(os.environ["GPUSHARE_HUB_SETTINGS"]).read_text())
c = get_config()

c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = given["password"]
c.Authenticator.allow_all = True
c.Authenticator.admin_users = set(given["admins"])

c.JupyterHub.bind_url = f"http://{given['host']}:{given['port']}"
c.JupyterHub.hub_ip = given["host"]
c.JupyterHub.hub_port = given["hub_port"]
c.JupyterHub.hub_connect_ip = given["host"]
c.ConfigurableHTTPProxy.api_url = given["proxy_api"]
c.ConfigurableHTTPProxy.auth_token = given["proxy_token"]
c.ConfigurableHTTPProxy.should_start = False

c.JupyterHub.db_url = f"sqlite:///{given['folder']}/jupyterhub.sqlite"
c.JupyterHub.cookie_secret_file = f"{given['folder']}/cookie_secret"
c.JupyterHub.cleanup_servers = False
c.JupyterHub.last_activity_interval = 60
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}
c.Spawner.consecutive_failure_limit = 5
c.Spawner.start_timeout = 300
c.Spawner.http_timeout = 60

# What jupyterhub-idle-culler's documentation asks for, and nothing more.
c.JupyterHub.services = [{"name": "culler", "api_token": given["culler_token"]}]
c.JupyterHub.load_roles = [
    {
        "name": "culler",
        "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"],
        "services": ["culler"],
    }
]

c.KubeSpawner.namespace = given["namespace"]
c.KubeSpawner.image = given["image"]
c.KubeSpawner.image_pull_policy = "IfNotPresent"
c.KubeSpawner.cmd = ["jupyterhub-singleuser"]
c.KubeSpawner.storage_pvc_ensure = False
c.KubeSpawner.cpu_guarantee = 0.02
c.KubeSpawner.mem_guarantee = "32M"
c.KubeSpawner.delete_grace_period = 1
# The playground has no cluster DNS.
c.KubeSpawner.extra_pod_config = {"dnsPolicy": "Default"}

spawner = {
    "catalogue_file": given["catalogue"],
    "extender_url": given["extender_url"],
    "extender_ca": given["extender_ca"],
    "extender_server_name": given["extender_server_name"],
    "extender_token_file": f"{given['folder']}/token",
    "ledger_url": f"sqlite:///{given['folder']}/ledger.sqlite",
    **given["spawner"],
}
if given["culler"] is not None:
    port = given["culler_port"]
    spawner["culler_url"] = f"http://127.0.0.1:{port}/services/gpushare-culler/"
    spawner["culler_runs"] = True
configure(c, **spawner)
if given["stock"]:
    c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"

if given["culler"] is not None:
    from hub_integration.config import configure_culler

    c.GPUShareCuller.database = f"sqlite:///{given['folder']}/culler.sqlite"
    configure_culler(c, port=given["culler_port"], **given["culler"])
    # Pods reach the culler where browsers do: through the proxy.
    proxy = f"http://{given['host']}:{given['port']}"
    c.KubeSpawner.environment = {"GPUSHARE_CULLER_URL": f"{proxy}/services/gpushare-culler"}

if given["dashboard_port"]:
    from hub_integration.config import configure_dashboard

    history = f"{given['folder']}/trends.json"
    configure_dashboard(c, port=given["dashboard_port"], history_file=history)
