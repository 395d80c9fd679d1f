"""The slice inside the notebook: a server extension, a JupyterLab extension and a line magic.

Everything here runs in the user's container, with the user's rights. It reads what the node says
about this one slice, and asks the culler about this one server; it knows nothing of anybody else.
"""

from __future__ import annotations

from typing import Any

NAME = "jupyterhub-gpushare"


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "hub_integration.lab"}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": NAME}]


def _load_jupyter_server_extension(server: Any) -> None:
    from hub_integration.lab.handlers import add_handlers

    add_handlers(server)
    server.log.info("The slice of this server is at %sgpushare/slice", server.base_url)


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext hub_integration.lab`` brings ``%gpushare``."""
    from hub_integration.lab.magic import gpushare

    shell.register_magic_function(gpushare, "line", "gpushare")
