"""The state API: what is where, for the hub, the command line and dashboards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import orjson
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

import gpushare
from extender import schemas
from extender.auth import Gate, Refused
from extender.metrics import CONTENT_TYPE, Metrics
from extender.view import ClusterView
from extender.waiting import Waiting
from gpushare.assignment import CardState
from gpushare.ledger import CardAccount, NodeAccount
from gpushare.wording import wish

_OPEN = frozenset({"/healthz", "/readyz"})
_MOST_WAITING = 1000


def application(
    view: ClusterView,
    waiting: Waiting,
    gate: Gate,
    metrics: Metrics,
    unready: Callable[[], str],
) -> FastAPI:
    """The application for the TLS port. ``unready`` says why it is not ready, or ''."""
    app = FastAPI(
        title="gpushare state",
        version=gpushare.__version__,
        description="Cards and the slices on them. Present a Kubernetes bearer token.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
    )

    @app.middleware("http")
    async def admit(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
        if request.url.path in _OPEN:
            return await go_on(request)
        try:
            await gate.admit(request.headers, request.url.path)
        except Refused as refused:
            return _problem(refused.status, str(refused))
        return await go_on(request)

    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> PlainTextResponse:
        return PlainTextResponse("ok")

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> PlainTextResponse:
        why = unready()
        return PlainTextResponse(why or "ok", status_code=503 if why else 200)

    @app.get("/metrics", include_in_schema=False)
    async def prometheus() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    @app.get(
        "/v1/nodes",
        response_model=schemas.Nodes,
        responses={code: {"model": schemas.Problem} for code in (401, 403, 503)},
        summary="All nodes with cards, the slices on them and who holds them",
    )
    async def nodes(slices: bool = True) -> Response:
        """With ``slices=false`` nobody is named: ``slices`` are empty lists, all sums stay."""
        why = unready()
        if why:
            return _problem(503, why)
        state = nodes_state(view, waiting)
        if not slices:
            state.waiting = []
            for card in (card for node in state.nodes for card in node.cards):
                card.slices = []
        return _json(200, state.model_dump())

    return app


def nodes_state(view: ClusterView, waiting: Waiting) -> schemas.Nodes:
    """The whole state, as it is now."""
    nodes = [_node(view, view.ledger.nodes[name]) for name in view.node_names()]
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


def _node(view: ClusterView, node: NodeAccount) -> schemas.NodeState:
    fact = view.node_fact(node.name)
    return schemas.NodeState.model_construct(
        name=node.name,
        unit_mib=node.unit.mib,
        problem=node.problem,
        takes_pods=bool(fact and fact.takes_pods),
        cards=[_card(view, state, node.accounts.get(state.card.uuid)) for state in node.states()],
    )


def _card(view: ClusterView, state: CardState, account: CardAccount | None) -> schemas.CardState:
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
        used_mib=None,
        slices=[_slice(view, uid, *share) for uid, share in holders.items()],
    )


def _slice(view: ClusterView, uid: str, mib: int, percent: int) -> schemas.SliceState:
    held, fact = view.ledger.slices[uid], view.pods.get(uid)
    return schemas.SliceState.model_construct(
        namespace=held.pod.namespace,
        pod=held.pod.name,
        uid=uid,
        user=fact.user if fact else "",
        mib=mib,
        percent=percent,
        reserved=held.reserved,
        leaving=view.held_after_deletion(uid) or bool(fact and fact.deleting),
    )


def _json(status: int, value: object) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")


def _problem(status: int, text: str) -> Response:
    return _json(status, {"detail": text})
