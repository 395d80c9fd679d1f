"""The usage API over real TLS."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from device_plugin.usage import server as module
from device_plugin.usage.access import Verdict
from device_plugin.usage.server import PATH, UsageServer
from gpushare.usage import NodeUsage, decode

NAME = "gpushare-device-plugin.gpushare.svc"


def certificate(folder: Path) -> None:
    """A certificate for the service that all nodes' plugins share."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(exist_ok=True)
    (folder / "tls.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "tls.key").write_bytes(private)


class Access:
    async def verdict(self, authorization: str, path: str) -> Verdict:
        assert path == PATH
        return {"Bearer good": Verdict.ALLOWED, "Bearer poor": Verdict.FORBIDDEN}.get(
            authorization, Verdict.UNKNOWN
        )


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_LOOK_AT_FILES", 0.02)
    made = UsageServer(
        "127.0.0.1:0",
        tmp_path / "tls" / "tls.crt",
        tmp_path / "tls" / "tls.key",
        Access(),  # type: ignore[arg-type]
        lambda: NodeUsage("node-1", 5.0, "watchdog"),
    )
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()


async def until(condition) -> None:
    async with asyncio.timeout(10):
        # The server tells nobody when it has looked at its files.
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def ask(server: UsageServer, folder: Path, token: str) -> tuple[int, str]:
    context = ssl.create_default_context(cafile=str(folder / "tls" / "tls.crt"))
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"https://127.0.0.1:{server.port}{PATH}"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers=headers, ssl=context, server_hostname=NAME) as answer,
    ):
        return answer.status, await answer.text()


async def test_it_waits_for_its_certificate_and_serves(server: UsageServer, tmp_path: Path) -> None:
    await until(lambda: "tls_cert" in server.problem)
    certificate(tmp_path / "tls")
    await until(lambda: server.problem == "")
    status, text = await ask(server, tmp_path, "good")
    assert status == 200
    assert decode(text) == NodeUsage("node-1", 5.0, "watchdog")


@pytest.mark.parametrize(("token", "status"), [("", 401), ("poor", 403), ("unknown", 401)])
async def test_who_may_not(server: UsageServer, tmp_path: Path, token: str, status: int) -> None:
    certificate(tmp_path / "tls")
    await until(lambda: server.problem == "")
    got, text = await ask(server, tmp_path, token)
    assert got == status
    assert "node-1" not in text


async def test_a_renewed_certificate_is_taken(server: UsageServer, tmp_path: Path) -> None:
    certificate(tmp_path / "tls")
    await until(lambda: server.problem == "")
    before = server._stamp
    certificate(tmp_path / "tls")
    await until(lambda: server._stamp != before)
    assert (await ask(server, tmp_path, "good"))[0] == 200


async def test_a_broken_renewal_leaves_the_old_one(server: UsageServer, tmp_path: Path) -> None:
    certificate(tmp_path / "tls")
    await until(lambda: server.problem == "")
    good = (tmp_path / "tls" / "tls.crt").read_bytes()
    (tmp_path / "tls" / "tls.crt").write_text("half a file")
    await until(lambda: server.problem != "")
    (tmp_path / "ca").mkdir()
    (tmp_path / "ca" / "tls").mkdir()
    (tmp_path / "ca" / "tls" / "tls.crt").write_bytes(good)
    assert (await ask(server, tmp_path / "ca", "good"))[0] == 200
    (tmp_path / "tls" / "tls.crt").write_bytes(good)
    await until(lambda: server.problem == "")
