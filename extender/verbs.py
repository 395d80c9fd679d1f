"""The scheduler's verbs over HTTP: filter, prioritize, preempt and bind.

Answers are always HTTP 200, with what is wrong in ``Error``: kube-scheduler drops the body of
anything else. Nothing here waits for I/O but bind.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from extender import dialect_routes, wire
from extender.binder import Binder, BindFailed
from extender.facts import PodFact, priority, requested_cpu
from extender.metrics import Metrics
from extender.preemption import Proposal, preempt
from extender.view import ClusterView
from gpushare.pods import PodRef, pod_ref
from gpushare.reasons import Code, Reason
from gpushare.request import PodRequest

log = logging.getLogger(__name__)

# 5,000 nodes as whole objects are about 50 MB.
_MAX_BODY = 128 << 20
_TOO_LARGE = "the body is larger than 128 MiB; set nodeCacheCapable: true"
# Pods between filter and bind, remembered so that bind need not read them.
_REMEMBERED = 4096


class Verbs:
    """The verbs on bytes; ``ready`` says whether the cluster has been read."""

    def __init__(self, view: ClusterView, binder: Binder, metrics: Metrics) -> None:
        self.view = view
        self.binder = binder
        self.metrics = metrics
        self.ready = False
        self.on_refused: list[Callable[[PodFact, Sequence[str]], None]] = []
        self._requests: OrderedDict[str, PodRequest] = OrderedDict()

    def filter(self, body: bytes) -> bytes:
        if not self.ready:
            return wire.filter_error(Reason(Code.NOT_READY).sentence())
        try:
            args = wire.nodes_args(wire.read(body))
        except wire.BadArguments as error:
            return wire.filter_error(str(error))
        request, refusal = self.view.reader.request(args.pod)
        if refusal is not None:
            text = refusal.sentence()
            self._refused(args)
            return wire.filter_result([], args.objects, {}, dict.fromkeys(args.names, text))
        if not request:
            return wire.filter_result(args.names, args.objects, {}, {})
        self._remember(args.pod, request)
        passed, reasons = self.view.fit_many(args.names, request)
        passed, reasons = self._in_turn(args, passed, reasons)
        if not passed:
            self._refused(args)
        failed, unresolvable = _sentences(reasons)
        return wire.filter_result(passed, args.objects, failed, unresolvable)

    def prioritize(self, body: bytes) -> bytes:
        try:
            args = wire.nodes_args(wire.read(body))
        except wire.BadArguments:
            # The protocol has no place for an error here; kube-scheduler goes on without scores.
            return b"[]"
        request, _ = self.view.reader.request(args.pod)
        if not self.ready or not request:
            return wire.scores({})
        cpu, uid = requested_cpu(args.pod), _uid(args.pod)
        return wire.scores(self.binder.ranking.scores(args.names, request, cpu, uid))

    async def bind(self, body: bytes) -> bytes:
        if not self.ready:
            return wire.bind_result(Reason(Code.NOT_READY).sentence())
        try:
            args = wire.bind_args(wire.read(body))
        except wire.BadArguments as error:
            return wire.bind_result(str(error))
        try:
            await self.binder.bind(args.ref, args.node, self._request_of(args.ref))
        except BindFailed as error:
            log.info("pod %s is not bound to %s: %s", args.ref, args.node, error)
            return wire.bind_result(str(error))
        return wire.bind_result()

    def preempt(self, body: bytes) -> bytes:
        """Where nothing is answered nobody is ended: the safe side for everything that is wrong."""
        try:
            args = wire.preempt_args(wire.read(body))
        except wire.BadArguments as error:
            log.warning("preempt: %s", error)
            return wire.preempt_result({})
        request, refusal = self.view.reader.request(args.pod)
        if not self.ready or refusal is not None:
            return wire.preempt_result({})
        if not request:
            return wire.preempt_result(args.victims)
        proposals = {name: Proposal(*victims) for name, victims in args.victims.items()}
        found = preempt(self.view, request, priority(args.pod), proposals)
        return wire.preempt_result({n: (p.uids, p.violations) for n, p in found.items()})

    def _refused(self, args: wire.NodesArgs) -> None:
        try:
            fact = self.view.reader.pod(args.pod)
        except ValueError:
            return
        if fact is not None:
            for tell in self.on_refused:
                tell(fact, args.names)

    def _in_turn(
        self, args: wire.NodesArgs, passed: Sequence[str], failed: Mapping[str, Reason]
    ) -> tuple[Sequence[str], Mapping[str, Reason]]:
        """The answer, less what the line keeps for pods that were there before."""
        line = self.view.line
        if line is None or not line.busy or not passed:
            return passed, failed
        try:
            fact = self.view.reader.pod(args.pod)
        except ValueError:
            return passed, failed
        return line.admit(fact, passed, failed) if fact is not None else (passed, failed)

    def _remember(self, pod: Mapping[str, Any], request: PodRequest) -> None:
        uid = _uid(pod)
        if not uid:
            return
        if uid not in self._requests:
            self.binder.ranking.asked(request, requested_cpu(pod))
        self._requests[uid] = request
        self._requests.move_to_end(uid)
        if len(self._requests) > _REMEMBERED:
            self._requests.popitem(last=False)

    def _request_of(self, ref: PodRef) -> PodRequest | None:
        fact = self.view.pods.get(ref.uid)
        if fact is not None and fact.request:
            return fact.request
        return self._requests.get(ref.uid)


def application(verbs: Verbs) -> FastAPI:
    """The verbs as a web application, for loopback.

    The routes are plain ASGI: bodies go from the socket to the verb and back as bytes, because models
    of a v1.Pod would cost more than all the scheduling does.
    """
    app = FastAPI(title="gpushare scheduler verbs", openapi_url=None, docs_url=None, redoc_url=None)

    async def filter_verb(body: bytes) -> bytes:
        return verbs.filter(body)

    async def preempt_verb(body: bytes) -> bytes:
        return verbs.preempt(body)

    async def prioritize_verb(body: bytes) -> bytes:
        return verbs.prioritize(body)

    routes: dict[str, _Route] = {}
    for name, verb, error in (
        ("filter", filter_verb, wire.filter_error),
        ("prioritize", prioritize_verb, lambda _text: b"[]"),
        ("preempt", preempt_verb, lambda _text: wire.preempt_result({})),
        ("bind", verbs.bind, wire.bind_result),
    ):
        route = routes[name] = _Route(name, verb, error, verbs.metrics)
        app.router.routes.append(Route(f"/scheduler/{name}", route, methods=["POST"]))
    dialect_routes.add(app, routes, verbs.view)
    return app


class _Route:
    """One verb as an ASGI application: always 200, whatever happens inside."""

    def __init__(
        self,
        name: str,
        verb: Callable[[bytes], Awaitable[bytes]],
        error: Callable[[str], bytes],
        metrics: Metrics,
    ) -> None:
        self.name = name
        self.verb = verb
        self.error = error
        self.metrics = metrics.verb(name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        try:
            body = await _body(receive)
            answer = self.error(_TOO_LARGE) if body is None else await self.verb(body)
        except Exception:
            log.exception("%s: an internal error", self.name)
            answer = self.error("the gpushare extender has an internal error; see its log")
        self.metrics.observe(perf_counter() - started)
        length = str(len(answer)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


def _uid(pod: Mapping[str, Any]) -> str:
    try:
        return pod_ref(pod).uid
    except ValueError:
        return ""


async def _body(receive: Receive) -> bytes | None:
    """The whole body, or None when it is larger than any real one."""
    message = await receive()
    if not message.get("more_body"):
        return bytes(message.get("body", b""))
    parts, size = [message["body"]], len(message["body"])
    while message.get("more_body"):
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > _MAX_BODY:
            return None
        parts.append(part)
    return b"".join(parts)


def _sentences(reasons: Mapping[str, Reason]) -> tuple[dict[str, str], dict[str, str]]:
    """Failed and unresolvable nodes with their sentences. Nodes share reasons, so few are written."""
    texts: dict[int, tuple[str, bool]] = {}
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    for name, reason in reasons.items():
        known = texts.get(id(reason))
        if known is None:
            known = texts[id(reason)] = (reason.sentence(), reason.resolvable)
        (failed if known[1] else unresolvable)[name] = known[0]
    return failed, unresolvable
