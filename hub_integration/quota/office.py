"""Everybody's accounts, for admins: what is allowed, what is held, what was used, what was granted."""

from __future__ import annotations

import logging
import time
from typing import Any

from traitlets.config import Config

from hub_integration.allowance import Allowance
from hub_integration.quota.ledger import Grant, LedgerError
from hub_integration.quota.rules import Account
from hub_integration.quota.windows import Window, window


class OfficeDesk(Allowance):  # its name is a section of a configuration: no leading '_'
    """The spawner's settings for one user, without a spawner."""

    def __init__(self, config: Any, user: Any, log: logging.Logger) -> None:
        settings = {**config.KubeSpawner, **config.GPUShareSpawner}
        known = self.class_trait_names(config=True)
        own = {name: value for name, value in settings.items() if name in known}
        super().__init__(config=Config({"OfficeDesk": own}), log=log)
        self.user = user
        self.enable_user_namespaces = settings.get("enable_user_namespaces") is True
        namespace = settings.get("namespace")
        self.namespace = namespace if isinstance(namespace, str) else _own_namespace()
        self.pod_name = ""


class Office:
    """Answers the Hub's handlers."""

    def __init__(self, config: Any, log: logging.Logger) -> None:
        self._config = config
        self._log = log

    async def account(self, user: Any) -> dict[str, Any]:
        """One user's account with those of the groups that bound it."""
        desk = OfficeDesk(self._config, user, self._log)
        accounts = await desk.accounts()
        mine = next((a for a in accounts if not a.group), None) or await desk.unbounded()
        groups = [{"group": a.group, **_public(a)} for a in accounts if a.group]
        grants = [
            {"at": g.at, "gib_hours": g.gib_hours, "by": g.by, "note": g.note}
            for g in await self._grants(desk, user.name)
        ]
        return {"user": user.name, **_public(mine), "groups": groups, "grants": grants}

    async def all_accounts(self, handler: Any) -> list[dict[str, Any]]:
        from jupyterhub import orm

        users = handler.db.query(orm.User).order_by(orm.User.name)
        return [await self.account(user) for user in users]

    async def grant(self, user: Any, gib_hours: float, by: str, note: str) -> dict[str, Any]:
        """Give a user more (or, negative, less) in the windows of now."""
        from tornado.web import HTTPError

        keeper = OfficeDesk(self._config, user, self._log).bookkeeper()
        if keeper is None:
            raise HTTPError(409, "GPUShareSpawner.ledger_url or extender_url is not set: no ledger")
        try:
            ledger = await keeper.ledger()
            ledger.grant(Grant(user.name, time.time(), gib_hours, by, note))
        except LedgerError as error:
            raise HTTPError(503, str(error)) from None
        keeper.forget_sums()
        self._log.info("%s grants %s %g GiB-hours: %s", by, user.name, gib_hours, note)
        return await self.account(user)

    @staticmethod
    async def _grants(desk: OfficeDesk, user: str) -> list[Grant]:
        keeper = desk.bookkeeper()
        if keeper is None:
            return []
        start, end = window(Window.MONTH, time.time(), keeper.zone)
        try:
            return (await keeper.ledger()).grants(start, end, [user])
        except LedgerError:
            return []


def _public(account: Account) -> dict[str, Any]:
    limits = account.limits
    return {
        "words": account.words,
        "slices": account.slices,
        "most_slices": limits.most_slices,
        "mib": account.mib,
        "most_mib": limits.most_mib,
        "gib_hours": {
            kind.value: {"used": round(account.used.get(kind, 0.0), 3), "most": limits.per(kind)}
            for kind in Window
        },
    }


def _own_namespace() -> str:
    """As KubeSpawner finds it: that of the Hub's own pod, else 'default'."""
    try:
        with open("/var/run/secrets/kubernetes.io/serviceaccount/namespace") as file:
            return file.read().strip()
    except OSError:
        return "default"
