"""Listening with TLS: a replaced certificate is taken up without a restart."""

from __future__ import annotations

import asyncio
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fastapi import FastAPI

from extender import server as server_module
from extender.server import Address, CannotListen, Certificate, Server
from tests.unit.extender.api_double import ApiDouble
from tests.unit.extender.authority import Authority
from tests.unit.extender.conftest import running


def write_certificate(folder: Path, serial: int) -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "tls.crt").write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    for file in folder.iterdir():
        os.utime(file, (serial, serial))
    return Certificate(str(folder / "tls.crt"), str(folder / "tls.key"))


async def served_serial(port: int) -> int:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(der).serial_number


async def test_a_replaced_certificate_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server_module, "_CERTIFICATE_CHECK_SECONDS", 0.01)
    certificate = write_certificate(tmp_path, 1)
    sock = Address("127.0.0.1", 0).listen("test")
    sock.listen()
    port = sock.getsockname()[1]
    server = Server(FastAPI(), sock, certificate)
    task = asyncio.create_task(server.run_until_stopped())
    try:
        assert await served_serial(port) == 1
        # Half-replaced files are no reason to stop serving.
        (tmp_path / "tls.crt").write_text("half")
        os.utime(tmp_path / "tls.crt", (2, 2))
        await asyncio.sleep(0.05)
        assert await served_serial(port) == 1
        write_certificate(tmp_path, 3)
        for _ in range(200):
            if await served_serial(port) == 3:
                break
            await asyncio.sleep(0.01)
        assert await served_serial(port) == 3
    finally:
        server.stop()
        await task


def test_a_certificate_that_is_none_names_the_settings(tmp_path: Path):
    sock = Address("127.0.0.1", 0).listen("test")
    with pytest.raises(CannotListen, match=r"Extender\.tls_cert=.*Extender\.tls_key="):
        Server(FastAPI(), sock, Certificate(str(tmp_path / "no.crt"), str(tmp_path / "no.key")))
    sock.close()


async def test_a_client_certificate_does_instead_of_a_token(tmp_path: Path):
    api = ApiDouble()
    api.allowed = {("ann", "/v1/nodes")}
    authority = Authority(tmp_path)
    paths = authority.issue("server", hosts=["127.0.0.1"])
    async with running(api) as extender:
        sock = Address("127.0.0.1", 0).listen("test")
        sock.listen()
        certificate = Certificate(*paths, client_ca=str(authority.file))
        server = Server(extender.service.state_app, sock, certificate)
        task = asyncio.create_task(server.run_until_stopped())
        address = f"https://127.0.0.1:{sock.getsockname()[1]}"
        stranger = Authority(tmp_path, "stranger")
        trusting = ssl.create_default_context(cafile=str(authority.file))
        foreign = ssl.create_default_context(cafile=str(authority.file))
        foreign.load_cert_chain(*stranger.issue("ann-too"))
        async with aiohttp.ClientSession() as session:
            for context, status in (
                (authority.client("ann", ["staff"]), 200),
                (authority.client("bob"), 403),
                (trusting, 401),
            ):
                async with session.get(f"{address}/v1/nodes", ssl=context) as answer:
                    assert answer.status == status, await answer.text()
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"{address}/v1/nodes", ssl=foreign)
        server.stop()
        await task
