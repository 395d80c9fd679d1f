"""Who may read, as the API server says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from device_plugin.usage.access import Access, Verdict

GOOD = "Bearer extender-token"


class Away(Exception):
    status = 0


class Server:
    def __init__(self) -> None:
        self.calls: list[Mapping[str, Any]] = []
        self.authenticated, self.allowed, self.away = True, True, False

    async def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.away:
            raise Away("no answer")
        self.calls.append(body)
        if body["kind"] == "TokenReview":
            assert path == "/apis/authentication.k8s.io/v1/tokenreviews"
            user = {
                "username": "system:serviceaccount:gpushare:extender",
                "groups": ["g"],
                "uid": "u",
            }
            return {"status": {"authenticated": self.authenticated, "user": user}}
        assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return {"status": {"allowed": self.allowed}}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access(server: Server, clock: Clock) -> Access:
    return Access(server, clock)


async def test_who_may(access: Access, server: Server) -> None:
    assert await access.verdict(GOOD, "/v1/usage") is Verdict.ALLOWED
    token, rights = server.calls
    assert token["spec"] == {"token": "extender-token"}
    assert rights["spec"]["user"] == "system:serviceaccount:gpushare:extender"
    assert rights["spec"]["nonResourceAttributes"] == {"path": "/v1/usage", "verb": "get"}


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic abc", "token"])
async def test_without_a_token_nobody_is_asked(access: Access, server: Server, header: str) -> None:
    assert await access.verdict(header, "/v1/usage") is Verdict.UNKNOWN
    assert server.calls == []


async def test_a_token_of_nobody_and_one_without_the_right(access: Access, server: Server) -> None:
    server.authenticated = False
    assert await access.verdict("Bearer a", "/v1/usage") is Verdict.UNKNOWN
    server.authenticated, server.allowed = True, False
    assert await access.verdict("Bearer b", "/v1/usage") is Verdict.FORBIDDEN


async def test_an_answer_is_kept_a_minute(access: Access, server: Server, clock: Clock) -> None:
    await access.verdict(GOOD, "/v1/usage")
    server.allowed = False
    clock.now = 59
    assert await access.verdict(GOOD, "/v1/usage") is Verdict.ALLOWED
    assert len(server.calls) == 2
    clock.now = 61
    assert await access.verdict(GOOD, "/v1/usage") is Verdict.FORBIDDEN


async def test_for_another_path_it_is_asked_again(access: Access, server: Server) -> None:
    await access.verdict(GOOD, "/v1/usage")
    server.allowed = False
    assert await access.verdict(GOOD, "/v1/other") is Verdict.FORBIDDEN


async def test_while_the_server_is_away(access: Access, server: Server, clock: Clock) -> None:
    await access.verdict(GOOD, "/v1/usage")
    server.away = True
    clock.now = 300
    assert await access.verdict(GOOD, "/v1/usage") is Verdict.ALLOWED
    assert await access.verdict("Bearer new", "/v1/usage") is Verdict.UNDECIDED
    clock.now = 700
    assert await access.verdict(GOOD, "/v1/usage") is Verdict.UNDECIDED


async def test_it_does_not_grow_for_ever(access: Access) -> None:
    for number in range(1000):
        await access.verdict(f"Bearer {number}", "/v1/usage")
    assert len(access._kept) <= 500


async def test_no_token_is_kept_as_it_is(access: Access) -> None:
    await access.verdict(GOOD, "/v1/usage")
    assert "extender-token" not in repr(access._kept)
