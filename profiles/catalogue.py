"""The catalogue: what a notebook user may choose, as the admin writes it.

A catalogue is a list of profiles. A profile is a card model with the slices of it that people may
take, or, without slices, a server without a GPU. Settings come in three layers, of which the
innermost that says something wins: ``defaults``, the profile, the slice.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from gpushare.units import Unit, human_mib

_SLUG = re.compile(r"[a-z0-9](-?[a-z0-9])*")
_SIZE = re.compile(r"\s*(\d{1,7})\s*([A-Za-z]+)\s*")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]*")
_OURS = ("extra_resource_limits", "extra_resource_guarantees", "scheduler_name")


def _slug(text: str) -> str:
    if len(text) > 40 or not _SLUG.fullmatch(text):
        raise ValueError(
            f"{text!r} is not a name: use lower-case letters, digits and single '-', "
            "at most 40, for example 't4' or '7-gib'"
        )
    return text


def _mib(value: object) -> int | None:
    """MiB from '7GiB'. A bare number is refused: units are a setting, and guessing one is wrong."""
    if value is None:
        return None
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    try:
        mib = int(match[1]) * Unit.parse(match[2]).mib if match else 0
    except ValueError:
        mib = 0
    if mib < 1:
        raise ValueError(f"{value!r} is not a size: write it with its unit, for example 7GiB")
    return mib


def _model(text: str) -> str:
    if not _MODEL.fullmatch(text):
        raise ValueError(f"{text!r} is not a card model: use for example T4 or A10")
    return text


Slug = Annotated[str, AfterValidator(_slug)]
Mib = Annotated[int, BeforeValidator(_mib)]
Model = Annotated[str, Field(max_length=60), AfterValidator(_model)]
Title = Annotated[str, Field(min_length=1, max_length=80)]
Text = Annotated[str, Field(max_length=400)]
Minutes = Annotated[int, Field(ge=0, le=60 * 24 * 366)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class GroupTimes(_Strict):
    """When servers of a group's members end, where that differs. Minutes, as in Settings."""

    idle_minutes: Minutes | None = None
    pressed_idle_minutes: Minutes | None = None
    gpu_idle_minutes: Minutes | None = None
    kernel_idle_minutes: Minutes | None = None
    warn_minutes: Minutes | None = None
    min_run_minutes: Minutes | None = None
    max_age_minutes: Minutes | None = None
    hold_minutes: Minutes | None = None


class Watchdog(_Strict):
    """How patiently a slice is held to its size. The node's own settings bound all of it.

    ``reach``: report, end (GPU processes) or evict. ``grace`` in seconds.
    """

    reach: Literal["report", "end", "evict"] | None = None
    grace: Annotated[float, Field(gt=0, le=86_400, strict=False)] | None = None
    allowance_mib: Annotated[int, Field(ge=0, le=1 << 20)] | None = None
    evict_after: Annotated[int, Field(ge=1, le=1000)] | None = None


class Settings(_Strict):
    """What a layer may set for the servers below it. None means: as the layer above says."""

    image: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    """Container image; without one, the Hub's."""
    cpu_limit: Annotated[float, Field(gt=0, strict=False)] | None = None
    cpu_guarantee: Annotated[float, Field(ge=0, strict=False)] | None = None
    """CPU cores."""
    mem_limit: Annotated[str, Field(pattern=r"^\d+(\.\d+)?[KMGT]?$")] | None = None
    mem_guarantee: Annotated[str, Field(pattern=r"^\d+(\.\d+)?[KMGT]?$")] | None = None
    """Main memory, as KubeSpawner writes it: '512M', '4G'."""
    idle_minutes: Minutes | None = None
    """Without use for so long, the server is ended and its slice goes back; 0 for never."""
    warn_minutes: Minutes | None = None
    """So long before, the user is told."""
    min_run_minutes: Minutes | None = None
    """Younger servers are never ended for lack of use."""
    max_age_minutes: Minutes | None = None
    """Older servers are ended even if in use; 0 for never."""
    pressed_idle_minutes: Minutes | None = None
    """As idle_minutes, while somebody waits for such a slice; without it, or with 0, the same."""
    gpu_idle_minutes: Minutes | None = None
    """While somebody waits: the GPU unused for so long ends even a notebook in use; 0 for never."""
    kernel_idle_minutes: Minutes | None = None
    """Kernels idle for so long are ended before the server, if the slice holds memory; 0: never."""
    hold_minutes: Minutes | None = None
    """So long a user may put off the end with one click; 0 for not at all."""
    groups: dict[str, GroupTimes] = Field(default_factory=dict)
    """Other times for the members of a group; the longest of all that a user is in."""
    watchdog: Watchdog | None = None
    """How patiently slices are held to their size, where the node's way is not wanted."""
    environment: dict[str, str] = Field(default_factory=dict)
    kubespawner_override: dict[str, Any] = Field(default_factory=dict)
    """Any other settings of KubeSpawner, for example tolerations or volumes."""

    @field_validator("kubespawner_override")
    @classmethod
    def _not_ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        for key in _OURS:
            if key in value:
                raise ValueError(f"{key!r} is set from the slice; leave it out here")
        return value

    def over(self, outer: Settings) -> Settings:
        """This layer on top of ``outer``."""
        mine = {name: getattr(self, name) for name in Settings.model_fields}
        theirs = {name: getattr(outer, name) for name in Settings.model_fields}
        for name, value in theirs.items():
            if isinstance(value, dict):
                mine[name] = value | mine[name]
            elif mine[name] is None:
                mine[name] = value
        return Settings.model_construct(**mine)


class Access(Settings):
    """Who may: nobody named means everybody; one match of either list is enough."""

    allowed_groups: tuple[str, ...] = Field(default=(), strict=False)
    allowed_users: tuple[str, ...] = Field(default=(), strict=False)

    def admits(self, user: str, groups: frozenset[str]) -> bool:
        if not self.allowed_groups and not self.allowed_users:
            return True
        return user in self.allowed_users or not groups.isdisjoint(self.allowed_groups)


class Slice(Access):
    """A part of a card, or whole cards."""

    name: Slug
    title: Title
    text: Text = ""
    memory: Mib | None = None
    """Of one card; compute is shared, unless ``percent`` is set as well."""
    percent: Annotated[int, Field(ge=1, le=6400)] | None = None
    """Of one card's compute (and of its memory, without ``memory``); 100, 200, … are whole cards."""
    cards: Annotated[int, Field(ge=1, le=64)] = 1
    """``memory`` on each of so many cards of one node."""
    burst: Mib | None = None
    """Memory that may be used while nobody was given it; the surplus goes back when a slice lands."""
    policy: Literal["fragmentation", "binpack", "spread", "first-fit", "fgd"] | None = None
    """How the card is chosen, where the cluster's way is not wanted."""
    default: bool = False

    @model_validator(mode="after")
    def _sizes(self) -> Self:
        if self.memory is None and self.percent is None:
            raise ValueError(
                "the slice has no size: set 'memory', for example 7GiB, or 'percent', or both"
            )
        if self.percent is not None and self.percent > 100 and self.percent % 100:
            raise ValueError(f"percent {self.percent} is neither part of a card nor whole cards")
        if self.percent is not None and self.percent >= 100 and self.memory is not None:
            raise ValueError("whole cards come with all their memory: leave out 'memory'")
        if self.cards > 1 and self.memory is None:
            raise ValueError(
                "'cards' goes with 'memory' alone: for whole cards set 'percent' to 200, 300, …"
            )
        if self.cards > 1 and self.percent is not None:
            raise ValueError("'cards' goes with 'memory' alone: leave out 'percent'")
        if self.burst is not None and self.burst < (self.memory or self.burst + 1):
            raise ValueError("'burst' goes with 'memory' and is at least as much")
        return self

    @property
    def size(self) -> str:
        """The size for people, where there is no better title."""
        parts = [human_mib(self.memory)] if self.memory else []
        if self.percent and self.percent >= 100:
            count = self.percent // 100
            parts.append("a whole card" if count == 1 else f"{count} whole cards")
        elif self.percent:
            parts.append(f"{self.percent} %")
        text = " and ".join(parts)
        return f"{self.cards} × {text}" if self.cards > 1 else text


class Custom(Access):
    """A slice whose memory the user writes in the form, between two bounds."""

    title: Title = "Another size"
    text: Text = ""
    smallest: Mib = Unit().mib
    largest: Mib
    step: Mib = Unit().mib

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.smallest > self.largest:
            raise ValueError(
                f"smallest ({human_mib(self.smallest)}) is above largest "
                f"({human_mib(self.largest)}): swap them"
            )
        if (self.largest - self.smallest) % self.step:
            raise ValueError(f"from smallest to largest are no whole steps of {self.step} MiB")
        return self


class Image(Access):
    """An image that the user may choose beside the slice."""

    name: Slug
    title: Title
    text: Text = ""
    default: bool = False

    @model_validator(mode="after")
    def _has_image(self) -> Self:
        if not self.image:
            raise ValueError("there is no 'image': write the image's full name")
        return self


class Profile(Access):
    """A card model and its slices, or a server without a GPU."""

    name: Slug
    title: Title
    text: Text = ""
    models: tuple[Model, ...] = Field(default=(), strict=False, max_length=32)
    """The cards that will do; with slices and no models, any card."""
    slices: tuple[Slice, ...] = Field(default=(), strict=False)
    custom: Custom | None = None
    images: tuple[Image, ...] = Field(default=(), strict=False)
    default: bool = False

    @property
    def has_gpu(self) -> bool:
        return bool(self.slices)

    @field_validator("slices", "images")
    @classmethod
    def _distinct(cls, value: tuple[Any, ...], info: ValidationInfo) -> tuple[Any, ...]:
        _check_names(value, str(info.field_name))
        return value

    @model_validator(mode="after")
    def _gpu_parts(self) -> Self:
        if not self.slices and self.models:
            raise ValueError("the profile has models but no slices: add slices of these cards")
        if not self.slices and self.custom:
            raise ValueError("'custom' goes with slices: add at least one slice")
        if any(choice.name == "custom" for choice in self.slices):
            raise ValueError("a slice is named 'custom', which means the custom size: rename it")
        return self


class Catalogue(_Strict):
    """All that may be chosen."""

    version: Literal[1]
    defaults: Settings = Settings()
    profiles: tuple[Profile, ...] = Field(strict=False)

    @field_validator("profiles")
    @classmethod
    def _distinct(cls, value: tuple[Profile, ...]) -> tuple[Profile, ...]:
        if not value:
            raise ValueError("is empty; add at least one profile")
        _check_names(value, "profiles")
        return value

    def profile(self, name: str) -> Profile | None:
        return next((p for p in self.profiles if p.name == name), None)


def _check_names(items: tuple[Any, ...], what: str) -> None:
    names = [item.name for item in items]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two {what} are named {twice!r}: names tell them apart, rename one")
    if sum(item.default for item in items) > 1:
        raise ValueError(f"more than one of {what} is the default: keep one")
