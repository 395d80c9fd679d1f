"""The webhook's port: it opens when there is a certificate, ours or another's."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path

from extender.admission.certificates import Keeper
from extender.admission.review import Webhook, application
from extender.admission.settings import Webhook as Settings
from extender.api import KubeApi
from extender.server import Address, CannotListen, Certificate, Server


class Port:
    """As ``extender.server.Server``, with its certificate kept beside it. Raises CannotListen."""

    def __init__(self, settings: Settings, webhook: Webhook, api: KubeApi) -> None:
        self._settings = settings
        self._app = application(webhook)
        self._api = api
        if bool(settings.tls_cert) != bool(settings.tls_key):
            raise CannotListen("Webhook.tls_cert and Webhook.tls_key need each other")
        self._place = None if settings.tls_cert else settings.place()
        if not settings.tls_cert and self._place is None:
            raise CannotListen(
                "the webhook needs a certificate: set Webhook.tls_cert and Webhook.tls_key, or "
                "Webhook.namespace (or the variable POD_NAMESPACE) for one of our own"
            )
        address = Address.parse(settings.address, "Webhook.address")
        self._sock = address.listen("Webhook.address")
        self._server: Server | None = None
        self._stopped = asyncio.Event()
        self._keeper: Keeper | None = None
        self._open = False

    def starting(self) -> str:
        """Why the API server cannot call it yet, or ''. It says nothing more once it could."""
        if not self._open:
            keeper = self._keeper
            trusted = self._place is None or (keeper is not None and keeper.trusted)
            self._open = self._server is not None and trusted
        if self._open:
            return ""
        problem = self._keeper.problem if self._keeper else ""
        return problem or "the webhook has no certificate yet"

    async def run_until_stopped(self) -> None:
        if self._place is None:
            await self._serve(Certificate(self._settings.tls_cert, self._settings.tls_key))
            return
        with tempfile.TemporaryDirectory(prefix="webhook-") as folder:
            keeper = self._keeper = Keeper(self._api, self._place, Path(folder))
            ready = asyncio.Event()
            keeping = asyncio.create_task(keeper.run(ready))
            waiting = [asyncio.create_task(e.wait()) for e in (ready, self._stopped)]
            try:
                await asyncio.wait([keeping, *waiting], return_when=asyncio.FIRST_COMPLETED)
                if ready.is_set() and not self._stopped.is_set():
                    await self._serve(Certificate(str(keeper.cert), str(keeper.key)))
            finally:
                for task in (keeping, *waiting):
                    task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await keeping

    def stop(self) -> None:
        """Accept nothing new and let what runs come to its end."""
        self._stopped.set()
        if self._server is not None:
            self._server.stop()

    async def _serve(self, certificate: Certificate) -> None:
        self._server = Server(self._app, self._sock, certificate)
        await self._server.run_until_stopped()
