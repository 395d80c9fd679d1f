"""The URLs of other systems' extenders, beside ours and with the same verbs behind them.

What they answer about the cluster is made from the same ledger. Like the verbs they belong on
loopback: whoever reaches ``bind`` can bind pods, and ``inspect`` names everybody's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import orjson
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from extender.view import ClusterView
from gpushare.assignment import CardState
from gpushare.dialects.dialect import Dialect
from gpushare.ledger import NodeAccount

# What those systems answer; clients compare it with nothing.
_VERSION = "0.1.0"


def add(app: FastAPI, verbs: Mapping[str, ASGIApp], view: ClusterView) -> None:
    """Add the routes of all dialects that are spoken. ``verbs`` are ours, by name."""
    spoken = view.rules.names.spoken
    have = {(route.path, *sorted(route.methods or ())) for route in _routes(app)}

    def route(path: str, endpoint: Any, method: str) -> None:
        if not any(known[0] == path for known in have):
            app.router.routes.append(Route(path, endpoint, methods=[method]))
            have.add((path, method))

    for prefix in dict.fromkeys(dialect.routes for dialect in spoken if dialect.routes):
        own = [dialect for dialect in spoken if dialect.routes == prefix]
        for name, verb in (
            ("filter", "filter"), ("priorities", "prioritize"), ("bind", "bind"),
        ):  # fmt: skip
            route(f"/{prefix}/{name}", verbs[verb], "POST")
        inspect = _answer(partial(inspected, view, own[0]))
        route(f"/{prefix}/inspect", inspect, "GET")
        route(f"/{prefix}/inspect/{{node}}", inspect, "GET")
        route(f"/{prefix}/status", _answer(partial(status, view, own)), "GET")
        route(f"/{prefix}/version", _version, "GET")
        route("/version", _version, "GET")


def _routes(app: FastAPI) -> list[Route]:
    return [route for route in app.router.routes if isinstance(route, Route)]


def _answer(make: Callable[[str], object]) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        return Response(
            orjson.dumps(make(request.path_params.get("node", ""))), media_type="application/json"
        )

    return endpoint


async def _version(_request: Request) -> Response:
    return PlainTextResponse(_VERSION)


def inspected(view: ClusterView, dialect: Dialect, wanted: str) -> dict[str, Any]:
    """All nodes, or the one that is ``wanted``, in units of the dialect's memory."""
    names = [wanted] if wanted else view.node_names()
    accounts = [view.ledger.nodes[name] for name in names if name in view.ledger.nodes]
    answer: dict[str, Any] = {"nodes": [_node(view, dialect, account) for account in accounts]}
    if wanted and not accounts:
        answer["error"] = f"there is no node {wanted[:253]!r} with shared cards"
    return answer


def _node(view: ClusterView, dialect: Dialect, account: NodeAccount) -> dict[str, Any]:
    devices = [_device(view, dialect, account, state) for state in account.states()]
    return {
        "name": account.name,
        "totalGPU": sum(device["totalGPU"] for device in devices),
        "usedGPU": sum(device["usedGPU"] for device in devices),
        "devs": devices,
    }


def _device(
    view: ClusterView, dialect: Dialect, account: NodeAccount, state: CardState
) -> dict[str, Any]:
    card = state.card
    book = account.accounts.get(card.uuid)
    pods = []
    for uid, (mib, _percent) in (book.holders if book else {}).items():
        pod = view.ledger.slices[uid].pod
        pods.append({"name": pod.name, "namespace": pod.namespace, "usedGPU": used(mib, dialect)})
    return {
        "id": card.index,
        "totalGPU": dialect.unit.units(card.memory),
        "usedGPU": used(book.used_mib if book else 0, dialect),
        "pods": pods,
    }


def used(mib: int, dialect: Dialect) -> int:
    """Units that are in use: a part of one is used up as a whole."""
    return -(-mib // dialect.unit.mib)


def status(view: ClusterView, dialects: list[Dialect], _wanted: str = "") -> dict[str, str]:
    """By resource, a JSON text of what each node's cards have and have left."""
    nodes = {name: view.ledger.nodes[name].states() for name in view.node_names()}
    return {
        resource.name: json.dumps({
            name: [
                {
                    "CoreAvailable": max(0, state.free_percent),
                    "MemoryAvailable": dialect.unit.units(state.free_mib),
                    "CoreTotal": 100,
                    "MemoryTotal": dialect.unit.units(state.card.memory),
                }
                for state in states
            ]
            for name, states in nodes.items()
        })
        for dialect in dialects
        for resource in dialect.counted
    }  # fmt: skip
