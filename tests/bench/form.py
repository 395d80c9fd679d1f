"""The spawn form's server time with many choices and nodes.

python -m tests.bench form

200 choices (10 profiles of 20 slices) and 1,000 nodes of 4 cards, each in a state of its own, with
500 pods that wait. "First": the extender's answer has just arrived, as happens at most once a
second; "next": everybody else's form in that second. Rendering is what the Hub does between the
request and the answer; the page's own frame and the network are not in it. Times are those of the
processor, so that another program on the machine is not counted.
"""

from __future__ import annotations

import json
import random
import time
from typing import Any

from gpushare.waiting import WaitingPod, decode, encode
from hub_integration.form import form_view, live_numbers, render
from hub_integration.outlook import Outlook
from hub_integration.quota.ledger import Holding, Stay
from hub_integration.snapshot import read_snapshot
from profiles.choice import Person, choices, select, visible
from profiles.pod import pod_parts
from profiles.reader import loads
from tests.bench.results import Figure, publish, spread

ROUNDS, NODES, PROFILES, SLICES = 40, 1000, 10, 20
MODELS = [
    ("Tesla T4", 15360), ("NVIDIA A10", 23028), ("NVIDIA L4", 23034), ("NVIDIA L40S", 46068),
    ("NVIDIA A30", 24576), ("NVIDIA A40", 46068), ("Tesla V100", 16384), ("NVIDIA A2", 15356),
    ("NVIDIA A16", 15356), ("NVIDIA A100", 40960),
]  # fmt: skip


def main() -> None:
    body, line = json.dumps(state()).encode(), encode(waiting())
    catalogue, person = loads(text()), Person("ann")
    stays = releases()
    first, following, live, size = [], [], [], 0
    for _ in range(ROUNDS):
        began = time.process_time()
        snapshot, queue = read_snapshot(body), decode(line)
        outlook = Outlook(snapshot.capacity, queue, snapshot.waiting, stays)
        profiles = list(visible(catalogue, person))
        selected = select(catalogue, {}, person)
        html = render(form_view(catalogue, profiles, selected, pod_parts, outlook), "/live")
        first.append(1000 * (time.process_time() - began))
        began = time.process_time()
        view = form_view(catalogue, profiles, selected, pod_parts, outlook)
        size = len(render(view, "/live"))
        following.append(1000 * (time.process_time() - began))
        began = time.process_time()
        numbers = json.dumps(live_numbers(view))
        live.append(1000 * (time.process_time() - began))
        assert html.count("gpushare-slice") > PROFILES * SLICES
    assert sum(1 for p in catalogue.profiles for _ in choices(catalogue, p)) == PROFILES * SLICES
    what = f"{PROFILES * SLICES} × {NODES}"
    publish(
        "form",
        [
            *spread("form, first of a second", what, first, "ms"),
            *spread("form, next", what, following, "ms"),
            *spread("numbers of an open form", what, live, "ms"),
            Figure("page", what, size / 1024, "KiB"),
            Figure("numbers", what, len(numbers) / 1024, "KiB"),
            Figure("answer of the extender", what, len(body) / 1024, "KiB"),
        ],
    )


def state() -> dict[str, Any]:
    dice = random.Random(7)
    nodes = []
    for i in range(NODES):
        model, memory = MODELS[i % len(MODELS)]
        cards = []
        for index in range(4):
            used = 1024 * dice.randint(0, memory // 1024)
            cards.append(
                {
                    "uuid": f"GPU-{i}-{index}",
                    "index": index,
                    "model": model,
                    "short_model": model.split()[-1],
                    "memory_mib": memory,
                    "health": "ok",
                    "allocated_mib": used,
                    "allocated_percent": 0,
                    "free_mib": memory - used,
                    "free_percent": 100 - dice.choice((0, 0, 25, 50)),
                    "empty": used == 0,
                    "taken_mib": 0,
                    "used_mib": None,
                    "slices": [],
                }
            )
        nodes.append({"name": f"node-{i}", "unit_mib": 1024, "problem": "", "cards": cards})
    return {"nodes": nodes, "waiting": [], "totals": {"waiting": 500}}


def waiting() -> list[WaitingPod]:
    return [
        WaitingPod(
            "jupyter", f"p{i}", f"u{i}", f"user{i}", 0.0, "7 GiB on one card", 7168, 0, 1,
            (MODELS[i % len(MODELS)][0].split()[-1],), i + 1, 500,
        )
        for i in range(500)
    ]  # fmt: skip


def releases() -> list[Stay]:
    dice, now = random.Random(8), time.time()
    made = []
    for i in range(5000):
        model, memory = MODELS[i % len(MODELS)]
        end = now - dice.uniform(0, 86400)
        held = Holding(f"u{i}", "c", "x", "n", "p", "node", model, dice.randint(1024, memory), 0)
        made.append(Stay(held, end - 3600, end, end))
    return made


def text() -> str:
    profiles = [
        {
            "name": f"p{i}",
            "title": f"NVIDIA {model.split()[-1]}",
            "text": "good for classes and inference",
            "models": [model.split()[-1]],
            "slices": [
                {
                    "name": f"s{n}",
                    "title": f"{n} GiB" if n <= 14 else f"{n} %",
                    "text": "small notebooks",
                    **({"memory": f"{n}GiB"} if n <= 14 else {"percent": n}),
                }
                for n in range(1, SLICES + 1)
            ],
        }
        for i, (model, _) in enumerate(MODELS)
    ]
    return json.dumps({"version": 1, "profiles": profiles})
