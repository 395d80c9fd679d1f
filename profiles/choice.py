"""One thing that can be chosen, and the reading of what a user chose.

The options are those of KubeSpawner's own profile list, so that its links, its API callers and
other form templates go on working: ``{"profile": NAME, "slice": NAME, "image": NAME}``, and
``{"slice--unlisted-choice": "9GiB"}`` for a custom size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gpushare.units import human_mib
from profiles.catalogue import Access, Catalogue, Custom, Image, Profile, Settings, Slice

PROFILE = "profile"
SLICE = "slice"
IMAGE = "image"
CUSTOM = f"{SLICE}--unlisted-choice"
CUSTOM_NAME = "custom"
_MAX_WORDS = 12

T = TypeVar("T", Profile, Slice, Image)


class ChoiceError(ValueError):
    """The options name nothing that this user may start. The text is for that user."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A profile with one of its slices (None without a GPU) and one of its images (or None)."""

    profile: Profile
    slice: Slice | None
    settings: Settings
    image: Image | None = None

    @property
    def key(self) -> str:
        """Its name for programs: 't4/7g', 'cpu'."""
        return f"{self.profile.name}/{self.slice.name}" if self.slice else self.profile.name

    @property
    def title(self) -> str:
        """Its name for people: '7 GiB on NVIDIA T4'."""
        return f"{self.slice.title} on {self.profile.title}" if self.slice else self.profile.title

    @property
    def options(self) -> dict[str, str]:
        """The options that select it."""
        options = {PROFILE: self.profile.name}
        if self.slice and self.slice.name == CUSTOM_NAME:
            options[CUSTOM] = f"{self.slice.memory}MiB"
        elif self.slice:
            options[SLICE] = self.slice.name
        if self.image:
            options[IMAGE] = self.image.name
        return options


@dataclass(frozen=True, slots=True)
class Person:
    """Who chooses."""

    name: str
    groups: frozenset[str] = frozenset()

    def may(self, *what: Access) -> bool:
        return all(part.admits(self.name, self.groups) for part in what)


def choices(catalogue: Catalogue, profile: Profile) -> Iterator[Choice]:
    """All choices of one profile, with its default image."""
    image = _default(profile.images) if profile.images else None
    for part in profile.slices or (None,):
        yield _choice(catalogue, profile, part, image)


def visible(catalogue: Catalogue, person: Person) -> Iterator[Profile]:
    """The profiles that this person may use, each with only the parts that they may use."""
    for profile in catalogue.profiles:
        if not person.may(profile):
            continue
        slices = tuple(part for part in profile.slices if person.may(part))
        if profile.slices and not slices:
            continue
        custom = profile.custom if profile.custom and person.may(profile.custom) else None
        images = tuple(image for image in profile.images if person.may(image))
        if profile.images and not images:
            continue
        yield profile.model_copy(update={"slices": slices, "custom": custom, "images": images})


def select(catalogue: Catalogue, options: Mapping[str, object], person: Person) -> Choice:
    """The choice that ``options`` name, for this person. Raises ChoiceError.

    What is left out is the default. Nothing else is guessed: a name that is not there, a value
    that is no text and an option that is not known are refused, because they came from a form or a
    program that means something else than we would start.
    """
    values = _texts(options)
    profiles = list(visible(catalogue, person))
    if not profiles:
        raise ChoiceError("There is no kind of server that you may start here; ask your admin.")
    name = values.pop(PROFILE, "")
    profile = _named(profiles, name, "kind of server") if name else _default(profiles)
    _check_known(values, profile)
    image = None
    if profile.images:
        name = values.get(IMAGE, "")
        image = _named(profile.images, name, "image") if name else _default(profile.images)
    if not profile.slices:
        return _choice(catalogue, profile, None, image)
    size, name = values.get(CUSTOM, ""), values.get(SLICE, "")
    if size and name and name != CUSTOM_NAME:
        raise ChoiceError(f"Both a slice ({name!r}) and a custom size are chosen; choose one.")
    if size or name == CUSTOM_NAME:
        part = _custom(profile, size)
        return _choice(catalogue, profile, part, image, profile.custom)
    part = _named(profile.slices, name, "slice") if name else _default(profile.slices)
    return _choice(catalogue, profile, part, image)


def nearest(
    catalogue: Catalogue, options: Mapping[str, object], person: Person
) -> tuple[Choice, bool]:
    """The choice to preselect for saved options, and whether it is exactly what they name.

    Catalogues change: where the saved profile or slice is gone, the default of what is left of it.
    Raises ChoiceError only where the person may start nothing at all.
    """
    kept = {k: v for k, v in options.items() if isinstance(v, str) and v}
    try:
        return select(catalogue, kept, person), True
    except ChoiceError:
        pass
    for names in ((PROFILE, SLICE), (PROFILE,)):
        try:
            part = {name: kept[name] for name in names if name in kept}
            return select(catalogue, part, person), not kept
        except ChoiceError:
            continue
    return select(catalogue, {}, person), not kept


def _choice(
    catalogue: Catalogue,
    profile: Profile,
    part: Slice | None,
    image: Image | None,
    custom: Custom | None = None,
) -> Choice:
    settings = profile.over(catalogue.defaults)
    for layer in (custom or part, image):
        if layer is not None:
            settings = layer.over(settings)
    return Choice(profile, part, settings, image)


def _custom(profile: Profile, size: str) -> Slice:
    custom = profile.custom
    if custom is None:
        raise ChoiceError(f"A custom size is not offered on {profile.title}.")
    bounds = f"from {human_mib(custom.smallest)} to {human_mib(custom.largest)}"
    if custom.step > 1:
        bounds += f" in steps of {human_mib(custom.step)}"
    text = f"{size}GiB" if size.strip().isdecimal() else size
    try:
        part = Slice.model_validate({"name": CUSTOM_NAME, "title": "-", "memory": text})
    except ValueError:
        raise ChoiceError(f"{size[:40]!r} is not a size; choose {bounds}.") from None
    mib = part.memory or 0
    fits = custom.smallest <= mib <= custom.largest
    if not fits or (mib - custom.smallest) % custom.step:
        raise ChoiceError(f"{human_mib(mib)} on {profile.title} is not offered; choose {bounds}.")
    return part.model_copy(update={"title": human_mib(mib)})


def _texts(options: Mapping[str, object]) -> dict[str, str]:
    """The options, all of which must be texts. Empty ones are as good as left out."""
    for key, value in options.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ChoiceError(
                f"Option {str(key)[:40]!r} is {type(value).__name__}; it must be a text."
            )
    return {key: str(value) for key, value in options.items() if value}


def _check_known(values: Mapping[str, str], profile: Profile) -> None:
    known = {IMAGE} if profile.images else set()
    if profile.slices:
        known |= {SLICE, CUSTOM} if profile.custom else {SLICE}
    unknown = next((key for key in values if key not in known), None)
    if unknown is not None:
        raise ChoiceError(
            f"{unknown[:40]!r} is not an option of {profile.title}; "
            f"its options are {', '.join(sorted(known)) or 'none'}."
        )


def _named(items: Sequence[T], name: str, what: str) -> T:
    found = next((item for item in items if item.name == name), None)
    if found is None:
        names = ", ".join(item.name for item in items[:_MAX_WORDS])
        more = ", …" if len(items) > _MAX_WORDS else ""
        raise ChoiceError(f"There is no {what} {name[:40]!r} for you here; there is {names}{more}.")
    return found


def _default(items: Sequence[T]) -> T:
    return next((item for item in items if item.default), items[0])
