"""One line for a jupyterhub_config.py::

    from hub_integration.config import configure
    configure(c, catalogue_file="/etc/jupyterhub/catalogue.yaml", extender_url="https://…:8443")

and one for zero-to-jupyterhub, whose settings then stand in the chart's values::

    hub:
      extraConfig:
        gpushare: |
          from hub_integration.config import configure_z2jh
          configure_z2jh(c)
    custom:
      gpushare:
        catalogue_file: /etc/jupyterhub/catalogue.yaml
        extender_url: https://gpushare-extender.gpushare.svc:8443
"""

from __future__ import annotations

import secrets
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from traitlets.config.loader import LazyConfigValue

from gpushare.names import Names
from gpushare.units import Unit
from hub_integration.culling.wiring import configure_culler as configure_culler
from hub_integration.dashboard.configure import configure_dashboard as configure_dashboard
from hub_integration.settings import GPUShareSettings
from profiles.reader import load

PAGES = Path(__file__).with_name("pages")
_SERVICE = "gpushare-hub"
_CULLER = "gpushare-culler"


def configure(c: Any, *, pages: bool = True, **settings: Any) -> None:
    """Let the Hub with the configuration ``c`` spawn servers with slices of cards.

    ``settings`` are those of ``c.GPUShareSpawner``. ``pages``: whether the Hub also serves the form
    that refreshes itself, the page with the place in the line, and the accounts of quotas. Raises
    ValueError for a setting that there is not, and CatalogueError for a catalogue that is not
    valid, so that the Hub does not start with it.
    """
    known = GPUShareSettings.class_trait_names(config=True)
    for name in settings:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"
            raise ValueError(f"GPUShareSpawner has no setting {name!r}: {hint}")
    c.JupyterHub.spawner_class = "gpushare"
    for name, value in settings.items():
        c.GPUShareSpawner[name] = value
    if pages:
        add_pages(c)
    if settings.get("culler_url") and not settings.get("culler_token"):
        _let_in_at_the_culler(c)
    if settings.get("catalogue_file"):
        unit = Unit.parse(settings.get("unit", "GiB"))
        names = Names(settings["prefix"]) if "prefix" in settings else Names()
        load(Path(settings["catalogue_file"]), unit=unit, names=names)


def configure_z2jh(c: Any, **settings: Any) -> None:
    """The same with the values under ``custom.gpushare`` of zero-to-jupyterhub's chart.

    ``settings`` win over those. The chart's own ``hub.config.GPUShareSpawner`` is read after this
    and wins over both, as always.
    """
    try:
        from z2jh import get_config as value_of  # type: ignore[import-not-found]
    except ImportError:
        raise RuntimeError(
            "configure_z2jh reads the values of zero-to-jupyterhub's chart, which are not here: "
            "use hub_integration.config.configure in a Hub of another kind"
        ) from None
    given = dict(value_of("custom.gpushare", {}) or {})
    configure(c, **{**given, **settings})


def add_pages(c: Any) -> None:
    """Our handlers and pages. Pages that the admin has in ``template_paths`` already go first."""
    from hub_integration.handlers import HANDLERS

    c.GPUShareSpawner.live_pages = True
    _add(c, "extra_handlers", *HANDLERS)
    _add(c, "template_paths", str(PAGES))


def _let_in_at_the_culler(c: Any) -> None:
    """A service of the Hub's own, whose token the culler knows. Made anew at each start."""
    token = secrets.token_hex(32)
    c.GPUShareSpawner.culler_token = token
    _add(c, "services", {"name": _SERVICE, "api_token": token, "display": False})
    role = {
        "name": _SERVICE,
        "scopes": [f"access:services!service={_CULLER}", "delete:servers"],
        "services": [_SERVICE],
    }
    _add(c, "load_roles", role)


def _add(c: Any, name: str, *items: Any) -> None:
    """To what the configuration has there already, set or appended."""
    section = c.JupyterHub
    if name not in section:
        section[name] = list(items)
    elif isinstance(section[name], LazyConfigValue):
        # In front: JupyterHub's own pages are the default of template_paths, and would hide ours.
        section[name].prepend(list(items))
    else:
        section[name] = [*section[name], *items]
