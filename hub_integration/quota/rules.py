"""The rules of quotas, pure: what is allowed to whom, what is left, and whether a start fits.

Three layers, of which the innermost that says something wins: ``everybody``, the ``each`` of the
groups a user is in (the most generous of them), the user's own line. Beside them, ``together``
bounds what all members of a group have at once and use in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from gpushare.units import human_mib
from hub_integration.quota.windows import Window
from profiles.catalogue import Mib

UNLIMITED = "unlimited"
Amount = Annotated[float, Field(ge=0, strict=False)]


def _memory(value: object) -> object:
    """Zero is an amount here: a group that may have no slice at all."""
    return 0 if value in (0, "0") else value


Memory = Annotated[Literal["unlimited", 0] | Mib, BeforeValidator(_memory)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Limits(_Strict):
    """What may be had. None: as the layer around it says; 'unlimited': no bound, whatever it says."""

    slices: Annotated[int, Field(ge=0)] | Literal["unlimited"] | None = None
    """Servers with a slice at once."""
    memory: Memory | None = None
    """GPU memory at once, as '14GiB'."""
    gib_hours_per_day: Amount | Literal["unlimited"] | None = None
    gib_hours_per_week: Amount | Literal["unlimited"] | None = None
    gib_hours_per_month: Amount | Literal["unlimited"] | None = None
    """A GiB of a card's memory held for an hour, in use or not."""

    def over(self, outer: Limits) -> Limits:
        """This layer on top of ``outer``."""
        return _merge(lambda mine, theirs: theirs if mine is None else mine, self, outer)

    def or_more(self, other: Limits) -> Limits:
        """The more generous of both, bound by bound; a bound that one has not is the other's."""
        return _merge(_more, self, other)

    def per(self, kind: Window) -> float | None:
        """GiB-hours in one window; None for any number."""
        return _bound(getattr(self, f"gib_hours_per_{kind.value}"))

    @property
    def most_slices(self) -> int | None:
        return None if self.slices in (None, UNLIMITED) else int(self.slices)

    @property
    def most_mib(self) -> int | None:
        return None if self.memory in (None, UNLIMITED) else int(self.memory)

    @property
    def bounds(self) -> bool:
        """Whether anything is bounded at all."""
        values = (getattr(self, name) for name in Limits.model_fields)
        return any(value not in (None, UNLIMITED) for value in values)


class GroupLimits(_Strict):
    """What each member of a group may have, and what all of them may have together."""

    each: Limits = Limits()
    together: Limits = Limits()


class Rules(_Strict):
    """All quotas of a Hub: ``c.GPUShareSpawner.quotas``."""

    everybody: Limits = Limits()
    users: dict[str, Limits] = Field(default_factory=dict)
    groups: dict[str, GroupLimits] = Field(default_factory=dict)

    def of_user(self, name: str, groups: Iterable[str]) -> Limits:
        """What this user may have for themselves."""
        mine = [self.groups[group].each for group in groups if group in self.groups]
        shared = Limits()
        for each in mine:
            shared = shared.or_more(each)
        return self.users.get(name, Limits()).over(shared).over(self.everybody)

    def of_groups(self, groups: Iterable[str]) -> dict[str, Limits]:
        """What bounds the groups as a whole, of those that are bounded."""
        named = {group: self.groups[group].together for group in groups if group in self.groups}
        return {group: limits for group, limits in named.items() if limits.bounds}

    @property
    def bound_anything(self) -> bool:
        groups = self.groups.values()
        parts = [self.everybody, *self.users.values()]
        parts += [part for group in groups for part in (group.each, group.together)]
        return any(part.bounds for part in parts)


@dataclass(frozen=True, slots=True)
class Account:
    """How somebody stands: what they may, have now and have used.

    ``group`` is '' for the user's own account, else the group whose members stand together.
    ``used`` are GiB-hours, with what admins granted already taken off; ``begins_anew`` says in
    words when each window's count starts again.
    """

    limits: Limits
    slices: int = 0
    mib: int = 0
    used: Mapping[Window, float] = field(default_factory=dict)
    begins_anew: Mapping[Window, str] = field(default_factory=dict)
    group: str = ""

    def left(self, kind: Window) -> float | None:
        most = self.limits.per(kind)
        return None if most is None else max(0.0, most - self.used.get(kind, 0.0))

    @property
    def words(self) -> str:
        """'1 of 2 slices in use · 14 of 40 GiB-hours left this week'; '' where nothing is bounded."""
        parts = []
        if self.limits.most_slices is not None:
            parts.append(f"{self.slices} of {self.limits.most_slices} slices in use")
        if self.limits.most_mib is not None:
            parts.append(f"{_gib(self.mib)} of {_gib(self.limits.most_mib)} GiB in use")
        for kind in Window:
            most, left = self.limits.per(kind), self.left(kind)
            if most is not None and left is not None:
                parts.append(f"{_hours(left)} of {_hours(most)} GiB-hours left {kind.words}")
        return " · ".join(parts)


def objection(account: Account, mib: int | None) -> str:
    """Why a further slice of ``mib`` (None: size not known) may not start now, or ''.

    A whole sentence with what can be done about it.
    """
    who = f"Your group {account.group}" if account.group else "You"
    has, limits = ("has" if account.group else "have"), account.limits
    one_ends = "when one of them ends" if account.group else "stop one of them first"
    most = limits.most_slices
    if most == 0:
        return (
            f"{who} may not start servers with a GPU here; choose one without, or ask your admin."
        )
    if most is not None and account.slices >= most:
        many = "the one slice" if most == 1 else f"all {most} slices"
        if most == 1 and not account.group:
            one_ends = "stop that server first"
        return f"{who} {has} {many} in use that {_they(account)} may have at once: {one_ends}."
    most = limits.most_mib
    if most is not None and account.mib + (mib or 0) > most:
        left = max(0, most - account.mib)
        fits = f"choose {human_mib(left)} or less" if left else "none of it is left"
        return (
            f"{who} {has} {_gib(account.mib)} of {_gib(most)} GiB of GPU memory in use, and this "
            f"would be {human_mib(mib or 0)} more: {fits}, or stop a server first."
        )
    for kind in Window:
        left_hours, most_hours = account.left(kind), limits.per(kind)
        if left_hours is not None and most_hours is not None and left_hours <= 0:
            again = account.begins_anew.get(kind, "")
            when = f" The count begins anew {again}." if again else ""
            return (
                f"{who} {has} used up the {_hours(most_hours)} GiB-hours of {_window(kind)}.{when} "
                "Choose a server without a GPU, or ask your admin for more."
            )
    return ""


def _they(account: Account) -> str:
    return "it" if account.group else "you"


def _window(kind: Window) -> str:
    return kind.words if kind is not Window.DAY else "today"


def _merge(choose: object, one: Limits, other: Limits) -> Limits:
    assert callable(choose)
    names = Limits.model_fields
    made = {name: choose(getattr(one, name), getattr(other, name)) for name in names}
    return Limits.model_construct(**made)


def _more(one: object, other: object) -> object:
    if one is None or other is None:
        return one if other is None else other
    if UNLIMITED in (one, other):
        return UNLIMITED
    assert isinstance(one, int | float)
    assert isinstance(other, int | float)
    return max(one, other)


def _bound(value: float | str | None) -> float | None:
    return None if value is None or isinstance(value, str) else float(value)


def _gib(mib: int) -> str:
    return f"{round(mib / 1024, 1):g}"


def _hours(amount: float) -> str:
    """Rounded down: who is told that one is left can use one."""
    return f"{int(amount * 10) / 10:g}" if amount < 10 else f"{int(amount)}"
