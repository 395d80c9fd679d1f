"""What one user may still have: the quotas, applied to what the cluster and the ledger say."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gpushare.capacity import Capacity
from gpushare.request import PodRequest
from hub_integration.desk import desk
from hub_integration.quota.bookkeeper import Bookkeeper
from hub_integration.quota.claims import Claim, Key
from hub_integration.quota.rules import Account, Limits, objection
from hub_integration.quota.windows import Window
from hub_integration.settings import GPUShareSettings


class Allowance(GPUShareSettings):
    """Mixed into the spawner, whose ``user``, ``namespace`` and ``pod_name`` it asks for."""

    user: Any
    namespace: str
    pod_name: str
    enable_user_namespaces: bool

    @property
    def pod_key(self) -> Key:
        return self.namespace, self.pod_name

    def bookkeeper(self) -> Bookkeeper | None:
        """The ledger's keeper, at work from now on; None without a ledger."""
        if not self.extender_url or not self.ledger_url:
            return None
        return desk().bookkeeper(
            self.state_address, self.ledger_url, self.ledger_days, self.quota_timezone, self.log
        )

    async def accounts(self) -> list[Account]:
        """How this user stands, and each of their groups that is bounded as a whole."""
        rules = self.rules
        if not rules.bound_anything:
            return []
        groups = list(getattr(self.user, "groups", None) or ())
        names = [group.name for group in groups]
        mine = rules.of_user(self.user.name, names)
        accounts = [await self._account(mine, {self.user.name})] if mine.bounds else []
        bounded = rules.of_groups(names)
        for group in groups:
            if group.name in bounded:
                members = {member.name for member in group.users}
                accounts.append(await self._account(bounded[group.name], members, group.name))
        return accounts

    async def unbounded(self) -> Account:
        """How somebody stands whom nothing bounds: what they have and used is told all the same."""
        return await self._account(Limits(), {self.user.name}, counted=True)

    async def over_quota(self, request: PodRequest, capacity: Capacity | None) -> str:
        """Why the quotas forbid a further server with ``request`` now, as a sentence; or ''."""
        mib = most_mib(request, capacity)
        objections = (objection(account, mib) for account in await self.accounts())
        return next(filter(None, objections), "")

    async def _account(
        self, limits: Limits, users: Collection[str], group: str = "", *, counted: bool = False
    ) -> Account:
        """``counted``: GiB-hours too where nothing bounds them."""
        client = desk().state_client(self.state_address, self.log) if self.extender_url else None
        held = await client.holdings() if client else None
        waiting = await client.waiting() if client else None
        own = "" if self.enable_user_namespaces else self.namespace
        now = desk().claims.at_once(
            users, held or (), waiting or (), besides=self.pod_key, namespace=own
        )
        keeper = self.bookkeeper()
        used, anew = {}, {}
        bounded = counted or any(limits.per(kind) is not None for kind in Window)
        if keeper is not None and bounded:
            used = await keeper.used(users, [own] if own else None)
            anew = keeper.begins_anew()
        return Account(limits, now.slices, now.mib, used, anew, group)

    def claim(self, mib: int) -> None:
        desk().claims.put(self.pod_key, Claim(self.user.name, mib))

    def drop_claim(self) -> None:
        desk().claims.drop(self.pod_key)


def most_mib(request: PodRequest, capacity: Capacity | None) -> int:
    """The memory that a server with ``request`` would hold, on the largest card that would do."""
    if not request.containers:
        return 0
    demand = request.containers[0].demand
    if demand.mib is not None:
        return demand.mib * demand.cards
    return capacity.most_mib(request) if capacity is not None else 0
