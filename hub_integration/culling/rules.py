"""Which policy holds for a server: from its choice in the catalogue and its user's groups.

The catalogue as it is now comes first, so that a changed time holds at once for running servers.
For a choice that is not in it any more, what the pod's annotation promised at the start; for a
server that is not of our choices at all, the policy of ``c.GPUShareCuller``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hub_integration.culling.policy import IdlePolicy
from profiles.catalogue import Catalogue, GroupTimes, Settings
from profiles.choice import CUSTOM, CUSTOM_NAME, PROFILE, SLICE

DEFAULT_HOLD = 30  # minutes
_TIMES = tuple(GroupTimes.model_fields)
# A time of 0 is for ever for these, and nothing at all for the others.
_ENDLESS = {"idle_minutes", "gpu_idle_minutes", "max_age_minutes", "kernel_idle_minutes"}
_ANNOTATION = {
    "idle": "idle_minutes",
    "pressedIdle": "pressed_idle_minutes",
    "gpuIdle": "gpu_idle_minutes",
    "kernelIdle": "kernel_idle_minutes",
    "warn": "warn_minutes",
    "minRun": "min_run_minutes",
    "maxAge": "max_age_minutes",
    "hold": "hold_minutes",
}

Times = dict[str, int]


@dataclass(frozen=True, slots=True)
class ServerRules:
    """The policy, and what goes beyond it. ``kernel_idle`` None: kernels are left alone."""

    policy: IdlePolicy
    kernel_idle: timedelta | None
    hold: timedelta


def choice_times(catalogue: Catalogue, key: str, groups: Iterable[str]) -> Times | None:
    """The times of the choice ``key`` ('t4/7g', 'cpu'); None if the catalogue has it no more."""
    name, _, part = key.partition("/")
    profile = catalogue.profile(name)
    if profile is None or bool(part) != profile.has_gpu:
        return None
    settings = profile.over(catalogue.defaults)
    if part:
        layers = [layer for layer in profile.slices if layer.name == part]
        if part == CUSTOM_NAME and profile.custom:
            layers = [profile.custom]  # type: ignore[list-item]
        if not layers:
            return None
        settings = layers[0].over(settings)
    return group_times(settings, groups)


def group_times(settings: Settings, groups: Iterable[str]) -> Times:
    """With what the user's groups are given instead; of several groups, the longest."""
    times = {name: getattr(settings, name) for name in _TIMES}
    mine = [settings.groups[group] for group in groups if group in settings.groups]
    for name in _TIMES:
        given = [getattr(entry, name) for entry in mine if getattr(entry, name) is not None]
        if given:
            times[name] = 0 if name in _ENDLESS and 0 in given else max(given)
    return {name: minutes for name, minutes in times.items() if minutes is not None}


def annotated_times(text: str) -> Times | None:
    """The times in a pod's annotation; None if it holds none."""
    try:
        data = json.loads(text)
    except ValueError:
        return None
    if not isinstance(data, Mapping):
        return None
    return {
        name: int(data[key])
        for key, name in _ANNOTATION.items()
        if isinstance(data.get(key), int) and data[key] >= 0
    }


def rules(times: Mapping[str, int], minute: timedelta) -> ServerRules:
    """The rules that ``times`` say, where a minute of them lasts ``minute``."""

    def time(name: str) -> timedelta:
        return times.get(name, 0) * minute

    def endless(name: str) -> timedelta | None:
        return time(name) or None

    idle = endless("idle_minutes")
    pressed = endless("pressed_idle_minutes") or idle
    if idle is not None and pressed is not None:
        pressed = min(pressed, idle)
    policy = IdlePolicy(
        idle=idle,
        pressed_idle=pressed,
        gpu_idle=endless("gpu_idle_minutes"),
        warn=time("warn_minutes"),
        guaranteed=time("min_run_minutes"),
        max_age=endless("max_age_minutes"),
    )
    hold = times.get("hold_minutes", DEFAULT_HOLD) * minute
    return ServerRules(policy, endless("kernel_idle_minutes"), hold)


def policy_object(policy: IdlePolicy) -> dict[str, Any]:
    """For the API: seconds, None for never."""

    def seconds(time: timedelta | None) -> float | None:
        return None if time is None else time.total_seconds()

    return {
        "idle_seconds": seconds(policy.idle),
        "pressed_idle_seconds": seconds(policy.pressed_idle),
        "gpu_idle_seconds": seconds(policy.gpu_idle),
        "warn_seconds": seconds(policy.warn),
        "guaranteed_seconds": seconds(policy.guaranteed),
        "max_age_seconds": seconds(policy.max_age),
    }


def choice_title(catalogue: Catalogue, key: str) -> str:
    """The choice's name for people; '' for one that is not in the catalogue."""
    name, _, part = key.partition("/")
    profile = catalogue.profile(name)
    if profile is None:
        return ""
    if not part:
        return profile.title
    found = next((one.title for one in profile.slices if one.name == part), "")
    if not found and part == CUSTOM_NAME and profile.custom:
        found = profile.custom.title
    return f"{found} on {profile.title}" if found else ""


def choice_of_options(options: Mapping[str, Any]) -> str:
    """The choice that user options name, where the pod does not say."""
    profile, part = options.get(PROFILE), options.get(SLICE)
    if options.get(CUSTOM):
        part = CUSTOM_NAME
    if not isinstance(profile, str):
        return ""
    return f"{profile}/{part}" if isinstance(part, str) and part else profile
