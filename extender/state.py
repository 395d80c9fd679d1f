"""The state API: what is where, for the hub, the command line and dashboards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from typing import Any

import orjson
from fastapi import FastAPI, Query
from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

import gpushare
from extender import schemas
from extender.auth import Gate, Refused
from extender.changes import Changes
from extender.fits import BadFit, Fitting
from extender.history import DAY, History
from extender.metrics import CONTENT_TYPE, Metrics
from extender.planning import Planner, answer
from extender.usage import Usage
from extender.view import ClusterView
from extender.waiting import Waiting
from extender.why import Explainer
from gpushare.assignment import CardState
from gpushare.ledger import CardAccount, NodeAccount
from gpushare.waiting import WaitingPod, rfc3339, why_object
from gpushare.wording import wish

_OPEN = frozenset({"/healthz", "/readyz"})
_MOST_WAITING = 1000


@dataclass(frozen=True, slots=True)
class Sources:
    """What the answers are made of. ``unready`` says why there is none yet, or ''; ``starting`` what
    else of the extender is not up yet, which is for /readyz alone."""

    view: ClusterView
    waiting: Waiting
    usage: Usage
    changes: Changes
    history: History
    explainer: Explainer
    fitting: Fitting
    planner: Planner
    unready: Callable[[], str]
    starting: Callable[[], str] = str


def application(sources: Sources, gate: Gate, metrics: Metrics) -> FastAPI:
    """The application for the TLS port."""
    app = FastAPI(
        title="gpushare state",
        version=gpushare.__version__,
        description=(
            "Cards, the slices on them, and who waits. Present a Kubernetes bearer token, or a "
            "client certificate where the extender is set to take one; its user must be allowed to "
            "get the path. Memory is in MiB, times are RFC 3339 in UTC."
        ),
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
        responses={code: {"model": schemas.Problem} for code in (401, 403, 503)},
    )

    @app.middleware("http")
    async def admit(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
        path = request.url.path
        if path in _OPEN:
            return await go_on(request)
        try:
            await gate.admit(request.headers, path, request.scope.get("client_certificate"))
        except Refused as refused:
            return _problem(refused.status, str(refused))
        why = sources.unready()
        if why and path.startswith("/v1/") and path != "/v1/openapi.json":
            return _problem(503, why)
        return await go_on(request)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first.get("loc", ()) if part != "body")
        return _problem(400, f"{where}: {first.get('msg', 'not valid')}")

    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> PlainTextResponse:
        return PlainTextResponse("ok")

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> PlainTextResponse:
        why = sources.unready() or sources.starting()
        return PlainTextResponse(why or "ok", status_code=503 if why else 200)

    @app.get("/metrics", include_in_schema=False)
    async def prometheus() -> Response:
        return Response(await metrics.text(), media_type=CONTENT_TYPE)

    _add_cluster(app, sources)
    _add_pods(app, sources)
    return app


def _add_cluster(app: FastAPI, sources: Sources) -> None:
    """What is where, what is used, what changes."""

    @app.get(
        "/v1/nodes",
        response_model=schemas.Nodes,
        summary="All nodes with cards, the slices on them and who holds them",
    )
    async def nodes(slices: bool = True) -> Response:
        """With ``slices=false`` nobody is named: ``slices`` are empty lists, all sums stay."""
        state = nodes_state(sources.view, sources.waiting, sources.usage)
        if not slices:
            state.waiting = []
            for card in (card for node in state.nodes for card in node.cards):
                card.slices = []
        return _json(200, state.model_dump())

    @app.get(
        "/v1/usage",
        response_model=schemas.UsageReport,
        summary="What slices really use, as the nodes measure it",
    )
    async def usage() -> Response:
        """Asked of the device plugins every 5 s; nodes that have been silent for 60 s are left out."""
        return Response(sources.usage.text(), media_type="application/json")

    @app.get(
        "/v1/history",
        response_model=schemas.Minutes,
        summary="The last day, a line a minute",
    )
    async def history(minutes: int = Query(DAY, ge=1, le=DAY)) -> Response:
        """Oldest first. It begins anew when the extender restarts."""
        return _json(200, {"minutes": sources.history.last(minutes)})

    @app.get(
        "/v1/events",
        summary="A stream of changes (server-sent events)",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def events(request: Request) -> Response:
        """Each has event 'change' and as data an object with at, kind (placed, released, waiting,
        unwaiting, card, node, usage) and whichever of node, card, namespace, pod, uid it is about.

        Last-Event-ID takes up the stream where it was; event 'reset' means that this cannot be done,
        so read the rest of the API anew. A comment comes every 15 s.
        """
        after = request.headers.get("last-event-id", "")
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(
            sources.changes.follow(after), media_type="text/event-stream", headers=headers
        )


def _add_pods(app: FastAPI, sources: Sources) -> None:
    """Who waits, why, and what would fit."""

    @app.get(
        "/v1/waiting",
        response_model=schemas.WaitingLine,
        summary="Pods that wait for a slice, in their order, and why",
    )
    async def waiting() -> Response:
        line = await sources.explainer.line()
        # orjson writes dataclasses itself, much faster than they become dictionaries.
        told = [{**_fields(pod), "since": rfc3339(pod.since)} for pod in line]
        return _json(200, {"waiting": told})

    @app.get(
        "/v1/pods/{namespace}/{pod}/why",
        response_model=schemas.WhyWaiting | schemas.WhyPlaced | schemas.WhyRefused,
        responses={404: {"model": schemas.Problem}},
        summary="Why one pod waits, or where it is",
    )
    async def why(namespace: str, pod: str) -> Response:
        found = sources.explainer.why(namespace, pod)
        if found is None:
            return _problem(
                404,
                f"no pod {namespace}/{pod} that asks for {sources.view.rules.names.gpu_mem} or "
                f"{sources.view.rules.names.gpu_percent} is known; check the names with kubectl",
            )
        return _json(200, why_object(found))

    @app.post(
        "/v1/fit",
        response_model=schemas.Fits,
        responses={400: {"model": schemas.Problem}},
        summary="How many of each choice fit now, and where one would go",
    )
    async def fit(asked: schemas.FitRequests) -> Response:
        """The caller must be allowed to get /v1/fit, as for the other paths."""
        try:
            fits = [sources.fitting.answer(request).model_dump() for request in asked.requests]
        except BadFit as error:
            return _problem(400, str(error))
        return _json(200, {"fits": fits})

    @app.get(
        "/v1/plan",
        response_model=schemas.RoomPlan,
        summary="What would make room for those who wait; nothing is done",
    )
    async def plan(idle_minutes: int = Query(30, ge=0, le=60 * 24 * 366)) -> Response:
        """Which idle pods' restarts would make room for each of the first 20 in line, and how many
        of them one more card of each model would serve. A pod is idle when no program has run on its
        cards for ``idle_minutes``."""
        question = sources.planner.question()
        found = await asyncio.to_thread(answer, question, 60.0 * idle_minutes)
        return _json(200, found.as_json())


def _fields(pod: WaitingPod) -> dict[str, Any]:
    return {field.name: getattr(pod, field.name) for field in fields(pod)}


def nodes_state(view: ClusterView, waiting: Waiting, usage: Usage) -> schemas.Nodes:
    """The whole state, as it is now."""
    nodes = [_node(view, usage, view.ledger.nodes[name]) for name in view.node_names()]
    cards = [card for node in nodes for card in node.cards]
    return schemas.Nodes.model_construct(
        unit_mib=view.rules.unit.mib,
        totals=schemas.Totals.model_construct(
            nodes=len(nodes),
            cards=len(cards),
            memory_mib=sum(card.memory_mib for card in cards),
            allocated_mib=sum(card.allocated_mib for card in cards),
            waiting=len(waiting.pods),
        ),
        nodes=nodes,
        waiting=[
            schemas.WaitingPod.model_construct(
                namespace=waiter.ref.namespace,
                pod=waiter.ref.name,
                uid=waiter.ref.uid,
                wants=wish(waiter.request),
                seconds=round(view.clock.now() - waiter.since, 1),
            )
            for waiter in waiting.queue()[:_MOST_WAITING]
        ],
    )


def _node(view: ClusterView, usage: Usage, node: NodeAccount) -> schemas.NodeState:
    fact = view.node_fact(node.name)
    return schemas.NodeState.model_construct(
        name=node.name,
        unit_mib=node.unit.mib,
        problem=node.problem,
        takes_pods=bool(fact and fact.takes_pods),
        address=fact.address if fact else "",
        cards=[
            _card(view, usage, node.name, state, node.accounts.get(state.card.uuid))
            for state in node.states()
        ],
    )


def _card(
    view: ClusterView, usage: Usage, node: str, state: CardState, account: CardAccount | None
) -> schemas.CardState:
    card = state.card
    holders = account.holders if account else {}
    return schemas.CardState.model_construct(
        uuid=card.uuid,
        index=card.index,
        model=card.model,
        short_model=card.short_model,
        memory_mib=card.memory,
        health=card.health,
        allocated_mib=account.used_mib if account else 0,
        allocated_percent=100 - state.free_percent,
        free_mib=state.free_mib,
        free_percent=state.free_percent,
        empty=state.empty,
        taken_mib=card.taken,
        used_mib=usage.card(node, card.uuid),
        slices=[_slice(view, usage, card.uuid, uid, share) for uid, share in holders.items()],
    )


def _slice(
    view: ClusterView, usage: Usage, card: str, uid: str, share: tuple[int, int]
) -> schemas.SliceState:
    held, fact = view.ledger.slices[uid], view.pods.get(uid)
    use = usage.slice(held.placement.node, uid, card)
    return schemas.SliceState.model_construct(
        namespace=held.pod.namespace,
        pod=held.pod.name,
        uid=uid,
        user=fact.user if fact else "",
        mib=share[0],
        percent=share[1],
        reserved=held.reserved,
        leaving=view.held_after_deletion(uid) or bool(fact and fact.deleting),
        used_mib=use.used_mib if use else None,
    )


def _json(status: int, value: Any) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")


def _problem(status: int, text: str) -> Response:
    return _json(status, {"detail": text})
