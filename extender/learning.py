"""Keeping what was learned of the workload where a restart, and the other replica, find it.

The replica that kube-scheduler asks counts pods and writes; the others count nothing and read, so
that whoever takes over knows what the last one knew a minute before. Where several are asked at the
same time (a Service in front of them), each counts its part and the last to write wins: popularity
is a share, so a part of the pods says it as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from extender.api import ApiError, KubeApi, NoAnswer
from extender.ranking import Ranking
from extender.scoring import Ask
from extender.scoring.ask import ask_of
from gpushare.names import Names
from gpushare.quantity import parse_milli
from gpushare.reasons import Refusal
from gpushare.request import parse_request
from gpushare.units import Unit

log = logging.getLogger(__name__)

_KEY = "counts"
_PAUSE = 60.0
# So many pods of each kind the prior stands for, on average, until real ones outweigh it.
_PRIOR_PODS = 4.0

# What notebooks usually ask for, on a cluster that said nothing else: parts of a card, and whole ones.
USUAL: tuple[Mapping[str, Any], ...] = (
    {"percent": 25, "weight": 4},
    {"percent": 50, "weight": 2},
    {"percent": 100, "weight": 1},
)


class Learned:
    """The counts in the ConfigMap ``where``, as 'namespace/name'; '' keeps them in memory alone."""

    def __init__(self, api: KubeApi, ranking: Ranking, where: str) -> None:
        self.api, self.ranking = api, ranking
        self.namespace, _, self.name = where.partition("/")
        self._written = 0
        self._said = ""

    async def run(self) -> None:
        """Read, then write or read every minute, until cancelled."""
        if not self.name:
            return
        while True:
            await self.keep()
            await asyncio.sleep(_PAUSE)

    async def finish(self) -> None:
        """We stop: the next one should know what we know."""
        if self.name and self.ranking.counted > self._written:
            await self.keep()

    async def keep(self) -> None:
        """Write if pods were counted since the last time, else read. Failures are said once."""
        try:
            if self.ranking.counted > self._written:
                await self._write()
            else:
                await self._read()
            self._said = ""
        except (ApiError, NoAnswer, ValueError) as error:
            text = str(error)
            if text != self._said:
                log.warning(
                    "ConfigMap %s/%s with the learned workload: %s; scores go on with what is known",
                    self.namespace, self.name, text,
                )  # fmt: skip
            self._said = text

    async def _read(self) -> None:
        try:
            found = await self.api.get(f"{self._path}/{self.name}")
        except ApiError as error:
            if error.status == 404:
                return
            raise
        data = found.get("data")
        text = data.get(_KEY) if isinstance(data, dict) else None
        # Meanwhile pods may have been counted; those are newer.
        if isinstance(text, str) and self.ranking.counted <= self._written:
            self.ranking.workload.load(text)
            self.ranking.refresh()

    async def _write(self) -> None:
        counted = self.ranking.counted
        data = {"data": {_KEY: self.ranking.workload.dump()}}
        try:
            await self.api.merge_patch(f"{self._path}/{self.name}", data)
        except ApiError as error:
            if error.status != 404:
                raise
            metadata = {"name": self.name, "namespace": self.namespace}
            await self.api.post(
                self._path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **data}
            )
        self._written = counted

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps"


def prior(kinds: object, names: Names, unit: Unit) -> dict[Ask, float]:
    """The setting: a list of kinds of pods, each as {mem or percent, cards, models, cpu, weight}.

    Amounts are written as in pods' limits. Raises ValueError that says which entry is wrong.
    """
    if not isinstance(kinds, list | tuple):
        raise ValueError("it is not a list")
    found: dict[Ask, float] = {}
    for number, kind in enumerate(kinds, 1):
        try:
            ask, weight = _kind(kind, names, unit)
        except (Refusal, ValueError) as error:
            raise ValueError(f"entry {number}: {error}") from None
        found[ask] = found.get(ask, 0.0) + weight
    total = sum(found.values())
    return {ask: _PRIOR_PODS * len(found) * weight / total for ask, weight in found.items()}


_KEYS = {"mem", "percent", "cards", "models", "cpu", "weight"}


def _kind(kind: object, names: Names, unit: Unit) -> tuple[Ask, float]:
    if not isinstance(kind, Mapping) or not kind.keys() <= _KEYS:
        raise ValueError(f"use an object with keys of {', '.join(sorted(_KEYS))}")
    weight = kind.get("weight", 1)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < 1e6:
        raise ValueError(f"weight {weight!r} is not a number above 0")
    models = kind.get("models", [])
    if not isinstance(models, list | tuple) or not all(isinstance(m, str) for m in models):
        raise ValueError("models is not a list of names")
    annotations = {names.cards: str(kind["cards"])} if "cards" in kind else {}
    if models:
        annotations[names.card_model] = ",".join(models)
    limits = {
        resource: kind[key]
        for key, resource in (("mem", names.gpu_mem), ("percent", names.gpu_percent))
        if key in kind
    }
    container = {"name": "c", "resources": {"limits": limits}}
    pod = {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}
    request = parse_request(pod, names, unit)
    if not request:
        raise ValueError("mem or percent is needed")
    return ask_of(request, parse_milli(kind.get("cpu", 0))), float(weight)


def check_place(where: str) -> None:
    """Raises ValueError unless it is 'namespace/name' or ''."""
    namespace, slash, name = where.partition("/")
    if where and not (namespace and slash and name and "/" not in name):
        raise ValueError(f"{where!r} is not namespace/name of a ConfigMap")
