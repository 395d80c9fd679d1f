"""Reads a catalogue file. What is wrong with it is said with file, line, field and the fix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gpushare.names import Names
from gpushare.reasons import Refusal
from gpushare.units import GIB, Unit
from profiles import source
from profiles.catalogue import Catalogue, Custom, Image, Profile, Settings, Slice
from profiles.choice import choices
from profiles.pod import pod_parts
from profiles.source import Problem, Source, SourceError

Place = tuple[str | int, ...]
SHIPPED = Path(__file__).with_name("catalogue.yaml")


class CatalogueError(ValueError):
    """The catalogue cannot be used. ``problems`` know their lines."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(f"{file}:{problem.line}: {problem}" for problem in problems))
        self.problems = tuple(problems)


def load(path: Path, *, unit: Unit = GIB, names: Names | None = None) -> Catalogue:
    """The catalogue in a file. Raises CatalogueError, also where the file cannot be read."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise CatalogueError(str(path), [Problem(1, "", f"cannot be read: {reason}")]) from None
    return loads(text, file=str(path), unit=unit, names=names)


def loads(
    text: str, *, file: str = "catalogue", unit: Unit = GIB, names: Names | None = None
) -> Catalogue:
    """The catalogue in a text."""
    try:
        parsed = source.parse(text)
    except SourceError as error:
        raise CatalogueError(file, error.problems) from None
    try:
        catalogue = Catalogue.model_validate(parsed.data)
    except ValidationError as error:
        raise CatalogueError(file, [_problem(e, parsed) for e in error.errors()]) from None
    problems = [
        *_bad_clocks(catalogue, parsed),
        *_impossible(catalogue, parsed, unit, names or Names()),
    ]
    if problems:
        raise CatalogueError(file, problems)
    return catalogue


def _bad_clocks(catalogue: Catalogue, parsed: Source) -> Iterator[Problem]:
    """Clocks that contradict each other once the layers are put together."""
    for path, own, settings in _layers(catalogue):
        clocks = (own.idle_minutes, own.warn_minutes, own.min_run_minutes, own.max_age_minutes)
        if all(clock is None for clock in clocks):
            continue  # inherited, and reported where it is set
        idle, warn = settings.idle_minutes, settings.warn_minutes
        if idle and warn and warn >= idle:
            text = f"{warn} is not below idle_minutes ({idle}): nobody could be warned in time"
            yield _at((*path, "warn_minutes"), text, parsed)
        age, least = settings.max_age_minutes, settings.min_run_minutes
        if age and least and least > age:
            text = f"{least} is above max_age_minutes ({age}): lower it"
            yield _at((*path, "min_run_minutes"), text, parsed)


def _layers(catalogue: Catalogue) -> Iterator[tuple[Place, Settings, Settings]]:
    """Each layer's path, what it sets itself, and what holds there."""
    yield ("defaults",), catalogue.defaults, catalogue.defaults
    for i, profile in enumerate(catalogue.profiles):
        outer = profile.over(catalogue.defaults)
        yield ("profiles", i), profile, outer
        for field in ("slices", "images"):
            for j, part in enumerate(getattr(profile, field)):
                yield ("profiles", i, field, j), part, part.over(outer)
        if profile.custom:
            yield ("profiles", i, "custom"), profile.custom, profile.custom.over(outer)


def _at(path: Place, text: str, parsed: Source) -> Problem:
    return Problem(parsed.line(path), source.field_name(path), text)


def _impossible(
    catalogue: Catalogue, parsed: Source, unit: Unit, names: Names
) -> Iterator[Problem]:
    """Slices that the scheduler would refuse: its own parser reads what each would become."""
    sizes = [*_sizes(catalogue)]
    odd = [(path, mib) for path, mib in sizes if mib % unit.mib]
    for path, mib in odd:
        yield _at(path, f"{mib} MiB is no whole number of this cluster's unit, {unit}", parsed)
    if odd:
        return
    for i, profile in enumerate(catalogue.profiles):
        for j, choice in enumerate(choices(catalogue, profile)):
            try:
                pod_parts(choice, names=names, unit=unit)
            except Refusal as refusal:
                yield _at(("profiles", i, "slices", j), str(refusal), parsed)


def _sizes(catalogue: Catalogue) -> Iterator[tuple[Place, int]]:
    """Every size of memory that is written in the catalogue."""
    for i, profile in enumerate(catalogue.profiles):
        for j, choice in enumerate(profile.slices):
            if choice.memory:
                yield ("profiles", i, "slices", j, "memory"), choice.memory
        if profile.custom:
            for field in ("smallest", "largest", "step"):
                yield ("profiles", i, "custom", field), getattr(profile.custom, field)


def _problem(error: ErrorDetails, parsed: Source) -> Problem:
    return _at(error["loc"], _words(error), parsed)


def _words(error: ErrorDetails) -> str:
    """One of pydantic's errors as a sentence with the fix."""
    kind, context = error["type"], error.get("ctx", {})
    value = repr(error["input"])[:60]
    if kind == "value_error":
        return str(context.get("error", error["msg"]))
    if kind == "extra_forbidden":
        return _unknown(error["loc"])
    if kind == "missing":
        return "is missing; add it"
    known = _KINDS.get(kind)
    if known is None:
        return f"{error['msg']}, not {value}"
    return known.format(value=value, **{k: v for k, v in context.items() if k != "value"})


_KINDS: Mapping[str, str] = {
    "string_type": "{value} is not a text; put it in quotes",
    "int_type": "{value} is not a whole number",
    "int_from_float": "{value} is not a whole number",
    "float_type": "{value} is not a number",
    "float_parsing": "{value} is not a number",
    "bool_type": "{value} is neither true nor false",
    "tuple_type": "{value} is not a list; write each item on a line of its own after '- '",
    "dict_type": "{value} is not a mapping; write 'name: value' lines below it",
    "model_type": "{value} is not a mapping; write 'name: value' lines below it",
    "literal_error": "{value} is not known; use {expected}",
    "string_too_long": "is longer than {max_length} characters",
    "string_too_short": "is empty; write something",
    "too_short": "is empty; add at least {min_length}",
    "too_long": "has more than {max_length} items",
    "greater_than": "{value} is too small; use more than {gt}",
    "greater_than_equal": "{value} is too small; use at least {ge}",
    "less_than_equal": "{value} is too large; use at most {le}",
    "string_pattern_mismatch": "{value} is not an amount of memory; use for example '512M' or '4G'",
}


def _unknown(path: Sequence[Any]) -> str:
    name, known = str(path[-1]), sorted(_owner(path).model_fields)
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
    return f"is not known; {hint}"


_OWNERS: Mapping[str, type[BaseModel]] = {
    "defaults": Settings,
    "profiles": Profile,
    "slices": Slice,
    "images": Image,
    "custom": Custom,
}


def _owner(path: Sequence[Any]) -> type[BaseModel]:
    """The part of the catalogue in which the unknown field of ``path`` stands."""
    named = [step for step in path[:-1] if isinstance(step, str) and step in _OWNERS]
    return _OWNERS[named[-1]] if named else Catalogue
