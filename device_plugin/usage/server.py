"""GET /v1/usage over HTTPS: what the extender gathers from every node, as metrics-server does with
kubelets. One certificate serves all nodes; callers check it against the service's name.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from device_plugin.usage.access import Access, Verdict
from gpushare.usage import NodeUsage, encode

log = logging.getLogger(__name__)

PATH = "/v1/usage"
_LOOK_AT_FILES = 10.0
_SENTENCES = {
    Verdict.UNKNOWN: "present a Kubernetes token: Authorization: Bearer …",
    Verdict.FORBIDDEN: f"the token's owner may not get the nonResourceURL {PATH}",
    Verdict.UNDECIDED: "the API server cannot be asked about the token now; try again",
}


class UsageServer:
    """Serves until cancelled. Waits for its certificate, and takes a renewed one."""

    def __init__(
        self,
        address: str,
        certificate: Path,
        key: Path,
        access: Access,
        usage: Callable[[], NodeUsage],
    ) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._files = (certificate, key)
        self._access, self._usage = access, usage
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._stamp: tuple[int, ...] = ()
        self.problem = "not started"
        self.port = 0

    async def run(self) -> None:
        """Serve for ever."""
        application = web.Application(client_max_size=1024)
        application.router.add_get(PATH, self._answer)
        runner = web.AppRunner(application, access_log=None, handle_signals=False)
        await runner.setup()
        site: web.TCPSite | None = None
        try:
            while True:
                if self._read_files() and site is None:
                    site = web.TCPSite(
                        runner, self._host.strip("[]") or None, self._port, ssl_context=self._tls
                    )
                    site = await self._start(runner, site)
                await asyncio.sleep(_LOOK_AT_FILES)
        finally:
            await runner.cleanup()

    async def _start(self, runner: web.AppRunner, site: web.TCPSite) -> web.TCPSite | None:
        try:
            await site.start()
        except OSError as error:
            self._say(f"it cannot listen at {self._host}:{self._port}: {error.strerror}")
            return None
        self.port = runner.addresses[0][1]
        self._say("")
        log.info("usage is served at https://%s:%d%s", self._host, self.port, PATH)
        return site

    def _read_files(self) -> bool:
        """Whether there is a certificate to serve with."""
        try:
            stamp = tuple(file.stat().st_mtime_ns for file in self._files)
            if stamp != self._stamp:
                # Tried elsewhere first: a pair that does not match must not spoil what serves.
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files)
                self._tls.load_cert_chain(*self._files)
                self._stamp = stamp
            if self.port:
                self._say("")
        except (OSError, ssl.SSLError) as error:
            self._say(
                f"{error}; set Enforcement.tls_cert and tls_key to a certificate for this service"
            )
        return bool(self._stamp)

    async def _answer(self, request: web.Request) -> web.Response:
        verdict = await self._access.verdict(request.headers.get("Authorization", ""), PATH)
        if verdict is not Verdict.ALLOWED:
            return web.Response(status=verdict.value, text=_SENTENCES[verdict] + "\n")
        return web.Response(text=encode(self._usage()), content_type="application/json")

    def _say(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.warning("the usage API is not served: %s", problem)
        self.problem = problem
