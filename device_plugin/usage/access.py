"""Who may read the usage API: whoever the cluster allows to get its path.

The caller's bearer token is reviewed by the API server (TokenReview), then its rights
(SubjectAccessReview, nonResourceURL). Answers are kept a minute by the token's hash; while the API
server is away, what it last said of a token holds a little longer. Tokens are never logged.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

_KEPT, _KEPT_AWAY, _MOST = 60.0, 600.0, 500
_REVIEW_TOKEN = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105  a path
_REVIEW_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Poster(Protocol):
    """The API server. Raises an exception with a ``status`` (0: no answer)."""

    async def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]: ...


class Verdict(Enum):
    """Who the caller is to us."""

    ALLOWED = 200
    UNKNOWN = 401
    FORBIDDEN = 403
    UNDECIDED = 503


@dataclass(frozen=True, slots=True)
class _Kept:
    verdict: Verdict
    at: float


class Access:
    """Reviews callers."""

    def __init__(self, poster: Poster, clock: Callable[[], float] = time.monotonic) -> None:
        self._poster, self._clock = poster, clock
        self._kept: dict[tuple[bytes, str], _Kept] = {}

    async def verdict(self, authorization: str, path: str) -> Verdict:
        """Whether the bearer of this Authorization header may get ``path``."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return Verdict.UNKNOWN
        key = (hashlib.sha256(token.strip().encode()).digest(), path)
        kept, now = self._kept.get(key), self._clock()
        if kept is not None and now - kept.at < _KEPT:
            return kept.verdict
        try:
            verdict = await self._review(token.strip(), path)
        except Exception as error:
            if getattr(error, "status", None) is None:
                raise
            away = kept is not None and now - kept.at < _KEPT_AWAY
            return kept.verdict if kept is not None and away else Verdict.UNDECIDED
        while len(self._kept) >= _MOST:
            self._kept.pop(next(iter(self._kept)))
        self._kept.pop(key, None)
        self._kept[key] = _Kept(verdict, now)
        return verdict

    async def _review(self, token: str, path: str) -> Verdict:
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        status = _mapping((await self._poster.post(_REVIEW_TOKEN, review)).get("status"))
        user = _mapping(status.get("user"))
        if status.get("authenticated") is not True or not user.get("username"):
            return Verdict.UNKNOWN
        access = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.get("username"),
                "uid": user.get("uid", ""),
                "groups": user.get("groups") or [],
                "extra": user.get("extra") or {},
                "nonResourceAttributes": {"path": path, "verb": "get"},
            },
        }
        answer = _mapping((await self._poster.post(_REVIEW_ACCESS, access)).get("status"))
        return Verdict.ALLOWED if answer.get("allowed") is True else Verdict.FORBIDDEN


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
