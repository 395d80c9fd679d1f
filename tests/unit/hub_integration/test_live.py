"""Open forms: one look for all, nothing sent without news, nothing asked without a listener."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hub_integration import live
from hub_integration.live import LiveForms
from tests.unit.hub_integration.test_state_client import LOG


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.01)


class Numbers:
    """What a look finds."""

    def __init__(self) -> None:
        self.value = 1
        self.looks = 0
        self.broken = False
        self.looked = asyncio.Event()

    async def look(self) -> dict[str, Any]:
        self.looks += 1
        self.looked.set()
        if self.broken:
            raise ValueError("no numbers")
        return {"free": self.value}

    async def next_look(self) -> None:
        for _ in range(2):  # one may be under way
            self.looked.clear()
            await self.looked.wait()


async def test_two_hundred_forms_are_one_look() -> None:
    forms, numbers = LiveForms(LOG), Numbers()
    channels = {forms.join("same", numbers.look) for _ in range(200)}
    (channel,) = channels
    assert forms.listeners == 200
    await channel.changed.wait()
    assert channel.message == b'data: {"free":1}\n\n'
    assert numbers.looks == 1
    for _ in range(200):
        forms.leave("same")


async def test_only_news_are_told() -> None:
    forms, numbers = LiveForms(LOG), Numbers()
    channel = forms.join("one", numbers.look)
    await channel.changed.wait()
    changed = channel.changed
    await numbers.next_look()
    assert not changed.is_set()
    numbers.value = 2
    await changed.wait()
    assert b'"free":2' in channel.message
    forms.leave("one")


async def test_without_listeners_nothing_is_asked() -> None:
    forms, numbers = LiveForms(LOG), Numbers()
    forms.join("one", numbers.look)
    await numbers.looked.wait()
    forms.leave("one")
    task = forms._task
    assert task is not None
    await task  # it ends by itself
    looks = numbers.looks
    channel = forms.join("one", numbers.look)  # and begins anew
    await channel.changed.wait()
    assert numbers.looks > looks
    forms.leave("one")


async def test_one_forms_trouble_is_not_the_others() -> None:
    forms, bad, good = LiveForms(LOG), Numbers(), Numbers()
    bad.broken = True
    forms.join("bad", bad.look)
    channel = forms.join("good", good.look)
    await channel.changed.wait()
    bad.broken = False
    await bad.next_look()
    for key in ("bad", "good"):
        forms.leave(key)
