"""Listening: one web application on one address, with or without TLS, without its own signals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from extender.auth import certified

log = logging.getLogger(__name__)

_DRAIN_SECONDS = 3
_CERTIFICATE_CHECK_SECONDS = 10.0


class CannotListen(Exception):
    """The address or the certificate cannot be used. The text names the setting."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, setting: str) -> Address:
        """Read 'host:port' or '[v6]:port'. Raises CannotListen that names ``setting``."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not port.isdecimal() or int(port) > 65535:
            raise CannotListen(f"{setting}={text!r} is not host:port, for example 127.0.0.1:39999")
        return cls(host, int(port))

    @property
    def loopback(self) -> bool:
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    def listen(self, setting: str) -> socket.socket:
        """A bound socket. Raises CannotListen."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((self.host, self.port))
        except OSError as error:
            sock.close()
            raise CannotListen(f"{setting}={self.host}:{self.port}: {error.strerror}") from None
        sock.set_inheritable(True)
        return sock


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files of a server certificate. They may be replaced while we run.

    ``client_ca``: callers may show a certificate of these authorities instead of a token.
    """

    cert: str
    key: str
    client_ca: str = ""

    def load(self, context: ssl.SSLContext) -> None:
        """Raises CannotListen."""
        try:
            context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            raise CannotListen(
                f"Extender.tls_cert={self.cert!r}, Extender.tls_key={self.key!r}: {error}"
            ) from None
        if not self.client_ca:
            return
        try:
            context.load_verify_locations(self.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise CannotListen(f"Extender.client_ca={self.client_ca!r}: {error}") from None
        context.verify_mode = ssl.CERT_OPTIONAL

    def age(self) -> tuple[int, ...]:
        """Changes when the files do."""
        files = [self.cert, self.key, *([self.client_ca] if self.client_ca else [])]
        return tuple(os.stat(name).st_mtime_ns for name in files)


class _Protocol(HttpToolsProtocol):
    """HTTP that tells the application whom a verified client certificate names."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        tls = self.transport.get_extra_info("ssl_object")
        shown = tls.getpeercert() if tls is not None else None
        if shown:
            self.scope["client_certificate"] = certified(shown.get("subject", ()))  # type: ignore[typeddict-unknown-key]


class Server(uvicorn.Server):
    """One application on one socket. The process's signals stay the application's."""

    def __init__(
        self, app: ASGIApp, sock: socket.socket, certificate: Certificate | None = None
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=_Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_keep_alive=300,
                timeout_graceful_shutdown=_DRAIN_SECONDS,
            )
        )
        self.config.load()
        self.sock = sock
        self.certificate = certificate
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            certificate.load(context)
            self.config.ssl = context

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def run_until_stopped(self) -> None:
        """Serve until ``stop``."""
        renewing = asyncio.create_task(self._renew()) if self.certificate else None
        try:
            await self.serve([self.sock])
        finally:
            if renewing is not None:
                renewing.cancel()

    def stop(self) -> None:
        """Accept nothing new and let what runs come to its end, within seconds."""
        self.should_exit = True

    async def _renew(self) -> None:
        """Take up a replaced certificate. New connections use it; there is no event to wait for."""
        assert self.certificate is not None
        assert self.config.ssl is not None
        known = self.certificate.age()
        while True:
            await asyncio.sleep(_CERTIFICATE_CHECK_SECONDS)
            try:
                age = self.certificate.age()
                if age != known:
                    self.certificate.load(self.config.ssl)
                    log.info("the certificate %s was replaced", self.certificate.cert)
                known = age
            except (CannotListen, OSError) as error:
                log.warning("the replaced certificate cannot be used yet: %s", error)
