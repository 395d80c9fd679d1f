"""The catalogue as KubeSpawner's own ``profile_list``: plain data, no callables.

For other form templates, for zero-to-jupyterhub's image puller, and for hubs that want the slices
without our spawner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from markupsafe import escape

from gpushare.names import SCHEDULER_NAME, Names
from gpushare.units import GIB, Unit
from profiles.catalogue import Catalogue, Profile, Settings
from profiles.choice import IMAGE, SLICE, Choice, choices
from profiles.pod import PodParts, pod_parts


def profile_list(
    catalogue: Catalogue,
    profiles: Iterable[Profile] | None = None,
    *,
    names: Names | None = None,
    unit: Unit = GIB,
    scheduler_name: str = SCHEDULER_NAME,
) -> list[dict[str, Any]]:
    """One entry per profile (of ``profiles``, or of all), with its slices as a profile option.

    KubeSpawner's template does not escape names and descriptions, so they are escaped here.
    """
    entries = []
    for profile in catalogue.profiles if profiles is None else profiles:
        entry: dict[str, Any] = {
            "slug": profile.name,
            "display_name": str(escape(profile.title)),
            "description": str(escape(profile.text)),
            "default": profile.default,
        }
        parts = [
            (choice, pod_parts(choice, names=names, unit=unit, scheduler_name=scheduler_name))
            for choice in choices(catalogue, profile)
        ]
        options = {}
        if profile.slices:
            options[SLICE] = {
                "display_name": "Slice",
                "choices": {
                    choice.slice.name: _choice(choice, made)
                    for choice, made in parts
                    if choice.slice
                },
            }
        else:
            entry["kubespawner_override"] = overrides(*parts[0])
        if profile.images:
            options[IMAGE] = {
                "display_name": "Image",
                "choices": {
                    image.name: {
                        "display_name": str(escape(image.title)),
                        "default": image.default,
                        "kubespawner_override": settings_overrides(image),
                    }
                    for image in profile.images
                },
            }
        if options:
            entry["profile_options"] = options
        entries.append(entry)
    return entries


def _choice(choice: Choice, parts: PodParts) -> dict[str, Any]:
    assert choice.slice is not None
    text = choice.slice.title + (f": {choice.slice.text}" if choice.slice.text else "")
    return {
        "display_name": str(escape(text)),
        "default": choice.slice.default,
        "kubespawner_override": overrides(choice, parts),
    }


def overrides(choice: Choice, parts: PodParts) -> dict[str, Any]:
    """KubeSpawner's settings for a choice."""
    settings = settings_overrides(choice.settings)
    if parts.limits:
        settings["extra_resource_limits"] = {k: str(v) for k, v in parts.limits.items()}
    if parts.scheduler_name:
        settings["scheduler_name"] = parts.scheduler_name
    settings["extra_annotations"] = _literal(parts.annotations)
    settings["environment"] = settings.get("environment", {}) | _literal(parts.environment)
    return settings


def _literal(values: Mapping[str, str]) -> dict[str, str]:
    """Values as they are: KubeSpawner expands annotations and environment as format strings."""
    return {key: value.replace("{", "{{").replace("}", "}}") for key, value in values.items()}


def settings_overrides(settings: Settings) -> dict[str, Any]:
    """KubeSpawner's settings for what a layer sets."""
    named = ("image", "cpu_limit", "cpu_guarantee", "mem_limit", "mem_guarantee")
    values = {name: getattr(settings, name) for name in named}
    made = {name: value for name, value in values.items() if value is not None}
    if settings.environment:
        made["environment"] = dict(settings.environment)
    return {**settings.kubespawner_override, **made}
