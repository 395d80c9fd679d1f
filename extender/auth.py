"""Who may read the state API: whoever Kubernetes says may get its path.

The caller's bearer token is checked by a TokenReview, and the path by a SubjectAccessReview of the
non-resource URL. A client certificate is the alternative, where the extender is given the authority
that signs them: its common name is the user and its organisations are the groups, as for the API
server itself, and the path is checked the same way. The API server's service proxy strips the
Authorization header, so the token may come in X-Gpushare-Authorization as well. Answers are kept for
seconds, by the hash of the token.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from extender.api import ApiError, KubeApi, NoAnswer
from extender.clock import Clock

HEADER = "x-gpushare-authorization"
_KEEP_SECONDS = 10.0
_MOST_KEPT = 1000
_MOST_TOKEN = 16_384


class Refused(Exception):
    """The caller may not. ``status`` is 401, 403 or 503; the text says what would help."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated user, as Kubernetes knows it."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


def certified(subject: Iterable[Iterable[tuple[str, str]]]) -> Caller | None:
    """Whom the subject of a verified client certificate names (as ``ssl`` writes it)."""
    parts = [pair for group in subject for pair in group]
    names = [value for key, value in parts if key == "commonName"]
    if not names or not names[0]:
        return None
    groups = tuple(value for key, value in parts if key == "organizationName")
    return Caller(names[0], groups=(*groups, "system:authenticated"))


class Gate:
    """Answers who a token is and whether it may get a path."""

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self.api = api
        self.clock = clock
        self._kept: OrderedDict[tuple[bytes, str], tuple[float, Caller | Refused]] = OrderedDict()
        self._asking: dict[tuple[bytes, str], asyncio.Task[Caller]] = {}

    async def admit(
        self, headers: Mapping[str, str], path: str, certificate: Caller | None = None
    ) -> Caller:
        """The caller, if it may get ``path``. A token goes before a certificate. Raises Refused."""
        token = _token(headers)
        if not token and certificate is None:
            raise Refused(
                401,
                "a Kubernetes bearer token is needed, in Authorization or X-Gpushare-Authorization",
            )
        known = token or repr(certificate)
        key = (hashlib.sha256(known.encode()).digest(), path)
        kept = self._kept.get(key)
        if kept is not None and kept[0] > self.clock.now():
            if isinstance(kept[1], Refused):
                raise kept[1]
            return kept[1]
        task = self._asking.get(key)
        if task is None:
            # Many requests with one token ask the API once.
            task = self._asking[key] = asyncio.create_task(self._ask(token, certificate, path))
            task.add_done_callback(lambda _done: self._asking.pop(key, None))
        try:
            caller: Caller | Refused = await asyncio.shield(task)
        except Refused as refused:
            if refused.status == 503:
                raise
            caller = refused
        self._kept[key] = (self.clock.now() + _KEEP_SECONDS, caller)
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        if isinstance(caller, Refused):
            raise caller
        return caller

    async def _ask(self, token: str, certificate: Caller | None, path: str) -> Caller:
        try:
            caller = await self._who(token) if token else certificate
            assert caller is not None
            await self._may(caller, path)
        except (ApiError, NoAnswer) as error:
            raise Refused(503, f"Kubernetes cannot check the token now: {error}") from None
        return caller

    async def _who(self, token: str) -> Caller:
        review = await self.api.post(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": token},
            },
        )
        status = review.get("status") or {}
        if not status.get("authenticated"):
            raise Refused(401, "the token is not valid; it may have expired")
        user = status.get("user") or {}
        extra = {k: tuple(v) for k, v in (user.get("extra") or {}).items()}
        return Caller(
            name=str(user.get("username", "")),
            uid=str(user.get("uid", "")),
            groups=tuple(user.get("groups") or ()),
            extra=tuple(sorted(extra.items())),
        )

    async def _may(self, caller: Caller, path: str) -> None:
        spec: dict[str, Any] = {
            "user": caller.name,
            "uid": caller.uid,
            "groups": list(caller.groups),
            "extra": {key: list(values) for key, values in caller.extra},
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        review = await self.api.post(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": spec,
            },
        )
        if not (review.get("status") or {}).get("allowed"):
            raise Refused(
                403,
                f"{caller.name} may not get {path}: bind it to the ClusterRole "
                "gpushare-state-reader",
            )


def _token(headers: Mapping[str, str]) -> str:
    for header in (HEADER, "authorization"):
        scheme, _, token = headers.get(header, "").partition(" ")
        token = token.strip()
        if scheme.lower() == "bearer" and token:
            if len(token) > _MOST_TOKEN:
                raise Refused(401, "the token is too long to be one")
            return token
    return ""
