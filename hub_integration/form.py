"""The spawn form: what it shows, and its rendering.

The view holds only what the page shows; nothing else of the catalogue reaches the browser. Field
names are KubeSpawner's own (``profile``, ``profile-option-PROFILE--slice``), so that links and
programs made for it go on working.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gpushare.capacity import Capacity
from hub_integration.availability import Memory, Offer, offer
from hub_integration.outlook import Outlook
from hub_integration.quota.rules import Account
from profiles.catalogue import Catalogue, Profile, Settings
from profiles.choice import CUSTOM, CUSTOM_NAME, IMAGE, PROFILE, SLICE, Choice, choices
from profiles.pod import PodParts


@dataclass(frozen=True, slots=True)
class ChoiceView:
    """One radio button: ``id`` in the page, ``value`` in the form."""

    id: str
    value: str
    title: str
    text: str
    checked: bool
    words: str = ""
    full: bool = False
    impossible: bool = False


@dataclass(frozen=True, slots=True)
class CustomView:
    """The number field for a size of one's own, in GiB."""

    field: str
    smallest: str
    largest: str
    step: str
    value: str


@dataclass(frozen=True, slots=True)
class ProfileView:
    """One profile with its slices and images."""

    id: str
    value: str
    title: str
    text: str
    checked: bool
    memory: Memory | None
    slice_field: str
    slices: Sequence[ChoiceView]
    custom: CustomView | None
    image_field: str
    images: Sequence[ChoiceView]
    idle: str


@dataclass(frozen=True, slots=True)
class FormView:
    """The whole form. ``updated``: how current the numbers are; ``notice``: a line above it all."""

    profiles: Sequence[ProfileView]
    updated: str
    notice: str = ""
    allowance: Sequence[str] = ()

    @property
    def has_gpus(self) -> bool:
        return any(profile.slices for profile in self.profiles)


def form_view(
    catalogue: Catalogue,
    profiles: Sequence[Profile],
    selected: Choice,
    parts_of: Callable[[Choice], PodParts],
    outlook: Outlook,
    *,
    notice: str = "",
    ends: bool = True,
    accounts: Iterable[Account] = (),
) -> FormView:
    """The form with ``selected`` preselected, for somebody who may use ``profiles``.

    ``ends``: whether to say when servers end, because something ends them.
    """
    views = []
    for profile in profiles:
        mine = selected if selected.profile.name == profile.name else None
        offers = [offer(c, parts_of(c), outlook.capacity) for c in choices(catalogue, profile)]
        idle = _idle([o.choice.settings for o in offers]) if ends else ""
        views.append(_profile(profile, offers, mine, outlook, idle))
    return FormView(views, _updated(outlook), notice, _allowance(accounts))


def live_numbers(view: FormView) -> dict[str, Any]:
    """What of the form changes while it is open, by the ids of its elements.

    ``rows``: words, and whether none is free now; ``bars``: words, and per cent in use.
    """
    return {
        "updated": view.updated,
        "rows": {
            part.id: [part.words, part.full] for profile in view.profiles for part in profile.slices
        },
        "bars": {
            profile.id: [profile.memory.words, profile.memory.used_percent]
            if profile.memory
            else ["", 0]
            for profile in view.profiles
            if profile.slices
        },
    }


def _updated(outlook: Outlook) -> str:
    if outlook.capacity is None:
        return "How much is free is not known right now; you can start all the same."
    waiting = outlook.number_waiting
    if waiting == 0:
        return "What is free now; nobody is waiting."
    return f"What is free now; {waiting} {'is' if waiting == 1 else 'are'} waiting."


def _allowance(accounts: Iterable[Account]) -> list[str]:
    """A line for each account that is bounded."""
    whose = [(f"Your group {a.group}" if a.group else "Your allowance", a.words) for a in accounts]
    return [f"{who}: {words}" for who, words in whose if words]


def _profile(
    profile: Profile,
    offers: Sequence[Offer],
    mine: Choice | None,
    outlook: Outlook,
    idle: str,
) -> ProfileView:
    slice_id, image_id = _id(profile, SLICE), _id(profile, IMAGE)
    picked = mine.slice.name if mine and mine.slice else _default_name(profile.slices)
    image = mine.image.name if mine and mine.image else _default_name(profile.images)
    slices = [_slice(o, outlook, slice_id, picked) for o in offers if o.choice.slice]
    capacity = outlook.capacity
    custom = None
    if profile.custom:
        size = mine.slice.memory if mine and mine.slice and picked == CUSTOM_NAME else None
        slices.append(
            ChoiceView(
                id=f"{slice_id}--{CUSTOM_NAME}",
                value=CUSTOM_NAME,
                title=profile.custom.title,
                text=profile.custom.text,
                checked=picked == CUSTOM_NAME,
                words=_custom_words(capacity, offers),
            )
        )
        custom = CustomView(
            field=f"profile-option-{profile.name}--{CUSTOM}",
            smallest=_gib(profile.custom.smallest),
            largest=_gib(profile.custom.largest),
            step=_gib(profile.custom.step),
            value=_gib(size) if size else "",
        )
    memory = None
    if capacity is not None and offers and offers[0].parts.request:
        memory = Memory(*capacity.memory(offers[0].parts.request))
    return ProfileView(
        id=f"profile-item-{profile.name}",
        value=profile.name,
        title=profile.title,
        text=profile.text,
        checked=mine is not None,
        memory=memory,
        slice_field=slice_id,
        slices=slices,
        custom=custom,
        image_field=image_id,
        images=[
            ChoiceView(f"{image_id}--{i.name}", i.name, i.title, i.text, i.name == image)
            for i in profile.images
        ],
        idle=idle,
    )


def _custom_words(capacity: Capacity | None, offers: Sequence[Offer]) -> str:
    if capacity is None or not offers:
        return ""
    free = capacity.largest_free(offers[0].parts.request)
    return f"up to {round(free / 1024, 1):g} GiB free now" if free >= 1024 else "none free now"


def _slice(offered: Offer, outlook: Outlook, field: str, picked: str) -> ChoiceView:
    part = offered.choice.slice
    assert part is not None
    return ChoiceView(
        id=f"{field}--{part.name}",
        value=part.name,
        title=part.title,
        text=part.text,
        checked=part.name == picked,
        words=outlook.words(offered),
        full=offered.full,
        impossible=offered.impossible,
    )


def _id(profile: Profile, option: str) -> str:
    return f"profile-option-{profile.name}--{option}"


def _default_name(parts: Sequence[object]) -> str:
    named = [(getattr(p, "name", ""), getattr(p, "default", False)) for p in parts]
    return next((name for name, default in named if default), named[0][0] if named else "")


def _gib(mib: int) -> str:
    return f"{mib / 1024:g}"


def _idle(settings: Sequence[Settings]) -> str:
    """When unused servers end, if that is the same for all slices."""
    clocks = {(s.idle_minutes or 0, s.warn_minutes or 0, s.max_age_minutes or 0) for s in settings}
    if len(clocks) != 1:
        return ""
    idle, warn, age = clocks.pop()
    parts = []
    if idle:
        warning = f" (warning {_minutes(warn)} before)" if warn else ""
        parts.append(f"Ends after {_minutes(idle)} without use{warning}.")
    if age:
        parts.append(f"Ends after {_minutes(age)} in any case.")
    return " ".join(parts)


def _minutes(minutes: int) -> str:
    if minutes % 60 == 0:
        return f"{minutes // 60} h"
    return f"{minutes} min"


@cache
def environment() -> Environment:
    """Our own templates."""
    return Environment(
        loader=PackageLoader("hub_integration", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(view: FormView, live_url: str = "") -> str:
    """The form as HTML, to go into the Hub's spawn page. ``live_url`` is '' for one that stands
    still."""
    template = environment().get_template("spawn_form.html")
    return template.render(form=view, live=live_url, profile_field=PROFILE)


def render_message(text: str) -> str:
    """What stands in the form's place when there is nothing to choose."""
    return str(Markup('<p class="alert alert-warning" role="alert">{}</p>').format(text))
