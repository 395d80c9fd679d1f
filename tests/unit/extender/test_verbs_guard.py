"""The verbs on a port that others can reach: certificates, names, and the secret in the path."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from extender.server import Address, CannotListen, Certificate, Server
from extender.verbs_guard import Guard, read_secret
from tests.unit.extender.api_double import ApiDouble
from tests.unit.extender.authority import Authority
from tests.unit.extender.conftest import running
from tests.unit.extender.objects import node, pod, t4

SECRET = "s3cret" * 8
BODY = json.dumps({"Pod": pod("p", mem=7), "NodeNames": ["n"]})


@asynccontextmanager
async def guarded(
    api: ApiDouble, authority: Authority, names: Sequence[str] = (), secret: str = ""
) -> AsyncIterator[str]:
    """The verbs of a running extender over TLS; yields their address."""
    api.put("nodes", node("n", t4("n", 0)))
    async with running(api) as extender:
        sock = Address("127.0.0.1", 0).listen("test")
        sock.listen()
        cert, key = authority.issue("extender", hosts=["127.0.0.1"])
        server = Server(
            Guard(extender.service.verbs_app, names, secret),
            sock,
            Certificate(cert, key, str(authority.file)),
        )
        task = asyncio.create_task(server.run_until_stopped())
        try:
            yield f"https://127.0.0.1:{sock.getsockname()[1]}/scheduler"
        finally:
            server.stop()
            await task


async def status(url: str, context: ssl.SSLContext) -> int:
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.post(url, data=BODY) as answer,
    ):
        if answer.status == 200:
            assert (await answer.json())["NodeNames"] == ["n"]
        return answer.status


def stranger(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.file))


async def test_only_who_shows_a_certificate_is_answered(api: ApiDouble, tmp_path: Path) -> None:
    ours = Authority(tmp_path)
    others = Authority(tmp_path, "others")
    async with guarded(api, ours) as url:
        assert await status(f"{url}/filter", ours.client("kube-scheduler")) == 200
        assert await status(f"{url}/filter", stranger(ours)) == 403
        assert await status(f"{url}/{SECRET}/filter", stranger(ours)) == 403
        assert await status(f"{url}//filter", stranger(ours)) == 403
        wrong = stranger(ours)
        wrong.load_cert_chain(*others.issue("kube-scheduler-of-others"))
        with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
            await status(f"{url}/filter", wrong)


async def test_names_are_held_to(api: ApiDouble, tmp_path: Path) -> None:
    ours = Authority(tmp_path)
    async with guarded(api, ours, ["system:kube-scheduler"]) as url:
        assert await status(f"{url}/filter", ours.client("system:kube-scheduler")) == 200
        assert await status(f"{url}/filter", ours.client("system:node:n")) == 403


async def test_the_secret_in_the_path_stands_for_a_certificate(
    api: ApiDouble, tmp_path: Path
) -> None:
    ours = Authority(tmp_path)
    async with guarded(api, ours, secret=SECRET) as url:
        assert await status(f"{url}/{SECRET}/filter", stranger(ours)) == 200
        for path in ("filter", f"{SECRET}x/filter", f"{SECRET[:-1]}/filter", SECRET, ""):
            assert await status(f"{url}/{path}", stranger(ours)) == 403


@pytest.mark.parametrize("text", ["", "short", "x" * 31, "with space " * 9, "a/b" * 20])
def test_a_secret_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "secret"
    file.write_text(text)
    with pytest.raises(CannotListen, match=r"Extender\.verbs_secret=.*32 letters"):
        read_secret(str(file))
    with pytest.raises(CannotListen, match=r"Extender\.verbs_secret="):
        read_secret(str(tmp_path / "nowhere"))
    assert read_secret("") == ""
    file.write_text(f"{SECRET}\n")
    assert read_secret(str(file)) == SECRET
