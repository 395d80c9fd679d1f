"""Configuration of the Hub that the browser tests start; LOCAL_HUB in the environment says the rest."""

# mypy: ignore-errors
# ruff: noqa: F821

import json
import os
import sys

from hub_integration.dashboard.configure import configure_dashboard

given = json.loads(os.environ["LOCAL_HUB"])
c = get_config()

c.JupyterHub.bind_url = f"http://127.0.0.1:{given['port']}"
c.JupyterHub.hub_port = given["hub_port"]
c.JupyterHub.hub_connect_ip = "127.0.0.1"
c.ConfigurableHTTPProxy.command = given["proxy"]
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{given['proxy_api_port']}"
c.JupyterHub.db_url = "sqlite://"
c.JupyterHub.cookie_secret = b"x" * 32
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.Authenticator.admin_users = {"admin"}
c.DummyAuthenticator.password = "pass"
c.JupyterHub.last_activity_interval = 3600
c.JupyterHub.cleanup_servers = True

c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = given["folder"] + "/home-{username}"
c.Spawner.start_timeout = 180
c.Spawner.http_timeout = 180
if given.get("lab"):
    c.Spawner.cmd = [sys.executable, "-m", "jupyterhub.singleuser"]
    c.Spawner.args = [
        "--allow-root",
        "--ServerApp.jpserver_extensions=hub_integration.lab=True",
    ]
    c.Spawner.environment = {
        "JUPYTER_PATH": f"{given['folder']}/share",
        "JUPYTERHUB_SINGLEUSER_EXTENSION": "1",
        "PYTHONPATH": os.environ["PYTHONPATH"],
        **given["lab"],
    }
else:
    c.Spawner.cmd = [sys.executable, "-m", "tests.browser.quiet_server"]
    c.Spawner.environment = {"PYTHONPATH": os.environ["PYTHONPATH"]}

# What configure_culler does, around the culler's double.
if given.get("culler"):
    c.JupyterHub.services = [{"name": "gpushare-culler", "url": given["culler"]}]
    c.JupyterHub.load_roles = [
        {
            "name": "server",
            "scopes": [
                "users:activity!user",
                "access:servers!server",
                "access:services!service=gpushare-culler",
            ],
        }
    ]
if given.get("extender"):
    configure_dashboard(
        c,
        port=given["dashboard_port"],
        culler_url=given.get("culler", "") and f"{given['culler']}/services/gpushare-culler",
        extender_url=given["extender"],
        extender_token_file="",
        environment={"PYTHONPATH": os.environ["PYTHONPATH"]},
    )
