"""The webhook over HTTP: admission.k8s.io/v1 AdmissionReview in and out.

Who may call it is not asked: an answer says only what the caller's own pod should be, and whether
that could fit. What an AdmissionReview is not is answered with 400, so that failurePolicy decides.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from extender.admission import never
from extender.admission.mutate import Changes, Wishes, others, sharing
from extender.admission.never import Layout
from extender.claims.limits import fill
from extender.view import ClusterView
from gpushare.dialects.claims import Claims
from gpushare.reasons import Reason, Refusal
from gpushare.request import NOTHING

log = logging.getLogger(__name__)

# As large as an object of the API can be, and the old one beside it.
_MOST_BYTES = 8 << 20
_LONGEST = 1000


class Webhook:
    """Answers reviews of pods."""

    def __init__(
        self,
        view: ClusterView,
        wishes: Wishes,
        unready: Callable[[], str],
        *,
        refuse_too_large: bool = True,
        claims: Callable[[], Claims] | None = None,
    ) -> None:
        self.claims = claims
        self.view = view
        self.wishes = wishes
        self.unready = unready
        self.refuse_too_large = refuse_too_large
        self.counts = {"changed": 0, "unchanged": 0, "refused": 0}
        self._layouts: tuple[int, frozenset[Layout]] = (-1, frozenset())

    def review(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to an AdmissionReview. Raises ValueError for what is none."""
        asked = body.get("request")
        if not isinstance(asked, Mapping) or not isinstance(asked.get("uid"), str):
            raise ValueError("not an AdmissionReview: request.uid is missing")
        pod = asked.get("object")
        resource = asked.get("resource")
        kind = resource.get("resource") if isinstance(resource, Mapping) else None
        answer: dict[str, Any] = {"uid": asked["uid"], "allowed": True}
        create = asked.get("operation") == "CREATE" and not asked.get("subResource")
        if kind == "pods" and create and isinstance(pod, Mapping):
            self._pod(pod, answer, str(asked.get("namespace") or ""))
        version = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        return {**version, "response": answer}

    def _pod(self, pod: Mapping[str, Any], answer: dict[str, Any], namespace: str) -> None:
        claimed: list[dict[str, Any]] = []
        refusal: Reason | None
        try:
            if self.claims is not None:
                pod, claimed = fill(pod, namespace, self.claims())
        except Refusal as wrong:
            request, refusal = NOTHING, wrong.reason
        else:
            request, refusal = self.view.reader.request(pod)
        text, warning = refusal.sentence() if refusal is not None else "", ""
        if not text and request:
            verdict = self._judge(request)
            text, warning = verdict.refusal, verdict.warning
        if text:
            self.counts["refused"] += 1
            answer["allowed"] = False
            answer["status"] = {"code": 422, "reason": "Invalid", "message": text[:_LONGEST]}
            return
        names = self.view.rules.names
        changes = (sharing if request else others)(pod, names, self.wishes)
        # First the claims' limits, so that what is set in their containers after that stays.
        changes.patch[:0] = claimed
        if warning:
            changes.warnings.append(warning)
        self._answer(changes, answer)

    def _judge(self, request: Any) -> never.Verdict:
        if not self.refuse_too_large or self.unready():
            return never.Verdict()
        return never.judge(request, self._known())

    def _known(self) -> frozenset[Layout]:
        version, found = self._layouts
        if version != self.view.changes:
            nodes = (account.cards.values() for account in self.view.ledger.nodes.values())
            found = never.layouts(nodes)
            self._layouts = (self.view.changes, found)
        return found

    def _answer(self, changes: Changes, answer: dict[str, Any]) -> None:
        self.counts["changed" if changes.patch else "unchanged"] += 1
        if changes.patch:
            answer["patchType"] = "JSONPatch"
            answer["patch"] = base64.b64encode(orjson.dumps(changes.patch)).decode()
        if changes.warnings:
            answer["warnings"] = [warning[:_LONGEST] for warning in changes.warnings]


def application(webhook: Webhook) -> FastAPI:
    """The application for the webhook's port."""
    app = FastAPI(title="gpushare webhook", openapi_url=None, docs_url=None, redoc_url=None)

    @app.get("/healthz")
    async def healthz() -> PlainTextResponse:
        return PlainTextResponse("ok")

    @app.post("/v1/pods")
    async def pods(request: Request) -> Response:
        try:
            body = orjson.loads(await _body(request))
            if not isinstance(body, dict):
                raise ValueError("the body is not an object")
            answer = webhook.review(body)
        except ValueError as error:
            return PlainTextResponse(str(error)[:_LONGEST], status_code=400)
        return Response(orjson.dumps(answer), media_type="application/json")

    return app


async def _body(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > _MOST_BYTES:
            raise ValueError("the body is larger than any object of the API")
        parts.append(part)
    return b"".join(parts)
