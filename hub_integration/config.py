"""One line for a jupyterhub_config.py.

With zero-to-jupyterhub no line of Python is needed: ``hub.config.JupyterHub.spawner_class:
gpushare`` and the settings under ``hub.config.GPUShareSpawner`` say the same.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any

from gpushare.names import Names
from gpushare.units import Unit
from hub_integration.settings import GPUShareSettings
from profiles.reader import load


def configure(c: Any, **settings: Any) -> None:
    """Let the Hub with the configuration ``c`` spawn servers with slices of cards::

        from hub_integration.config import configure
        configure(c, catalogue_file="/etc/jupyterhub/catalogue.yaml", extender_url="https://…:8443")

    ``settings`` are those of ``c.GPUShareSpawner``. Raises ValueError for a setting that there is
    not, and CatalogueError for a catalogue that is not valid, so that the Hub does not start with
    it.
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
    if settings.get("catalogue_file"):
        unit = Unit.parse(settings.get("unit", "GiB"))
        names = Names(settings["prefix"]) if "prefix" in settings else Names()
        load(Path(settings["catalogue_file"]), unit=unit, names=names)
