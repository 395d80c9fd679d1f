"""The settings of the spawner: ``c.GPUShareSpawner.*``. Their help is the manual."""

from __future__ import annotations

import json
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import ValidationError
from traitlets import Bool, Dict, Enum, Float, Integer, TraitError, Unicode, validate
from traitlets.config import LoggingConfigurable

from gpushare.names import DEFAULT_PREFIX, SCHEDULER_NAME, Names
from gpushare.units import Unit
from hub_integration.quota.rules import Rules
from hub_integration.state_client import StateAddress

SERVICE_ACCOUNT_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105
_MARGIN = 5  # seconds between our own timeout and the Hub's, which would count as its failure
_EARLY = 0.9  # KubeSpawner ends its own wait up to a tenth before start_timeout, at random


class GPUShareSettings(LoggingConfigurable):
    """Mixed into the spawner."""

    catalogue_file = Unicode(
        "",
        config=True,
        help="""
        File with the choices that users have: card models, slices, images, who may, how long idle.

        Empty for the catalogue that comes with gpushare (T4: 3, 7, 15 GiB; A10: 5, 11, 22 GiB;
        25 %, 50 % and whole cards of both; and a server without a GPU). Print it as a start for
        your own with `gpushare profiles show`, and check yours with `gpushare profiles check FILE`.

        The file is read again when it changes; the Hub need not restart. While a changed file has
        errors, the one before stays in use and the Hub's log says what is wrong, with line and
        field.

        Example::

            c.GPUShareSpawner.catalogue_file = "/etc/jupyterhub/catalogue.yaml"
        """,
    )

    extender_url = Unicode(
        "",
        config=True,
        help="""
        Address of the extender's state API, which knows what is free. With the Helm chart in
        namespace `gpushare`::

            c.GPUShareSpawner.extender_url = "https://gpushare-extender.gpushare.svc:8443"

        Empty: the form shows no numbers, and nothing is checked before a server starts.
        """,
    )

    extender_ca = Unicode(
        "",
        config=True,
        help="""
        File with the certificate authority that the extender's certificate comes from (key `ca.crt`
        of the ConfigMap `gpushare-extender-ca`). Empty for the system's own authorities.
        """,
    )

    extender_server_name = Unicode(
        "",
        config=True,
        help="""
        Name that the extender's certificate must have, where `extender_url` holds another one, for
        example an address.
        """,
    )

    extender_token_file = Unicode(
        SERVICE_ACCOUNT_TOKEN,
        config=True,
        help="""
        File with the Kubernetes token that the Hub shows to the extender. The default is the token
        of the Hub's own service account, which needs the ClusterRole `gpushare-state-reader`
        (chart value `stateApi.serviceAccounts`). The file is read for every request, so a token
        that the kubelet renews is fine. Empty to show none.
        """,
    )

    availability_timeout = Float(
        1.0,
        config=True,
        help="""
        Seconds that a form waits for the extender at most, up to 1. Answers are shared by all
        users for one second.
        """,
    )

    fail_open = Bool(
        True,
        config=True,
        help="""
        Whether GPU servers may start while the extender does not answer. The scheduler finds out
        in any case whether there is room; without the extender's answer, users are only told later.

        False refuses GPU servers as long as it is not known what is free.
        """,
    )

    when_full = Enum(
        ["wait", "refuse"],
        "wait",
        config=True,
        help="""
        What happens to somebody who starts a choice of which none is free.

        - `wait`: the server waits for a slice, up to `gpu_start_timeout`. Right where slices come
          back soon, and where a node pool grows on demand.
        - `refuse`: it is refused at once, with the largest choice that is free now.
        """,
    )

    refuse_impossible = Bool(
        True,
        config=True,
        help="""
        Whether to refuse at once what no card in the cluster could hold even if it were empty.

        Set it to False where nodes with further card models are added on demand. A cluster without
        a single card refuses nothing: its first GPU node may be on its way.
        """,
    )

    culler_runs = Bool(
        False,
        config=True,
        help="""
        Whether something ends unused servers by the catalogue's `idle_minutes` and `max_age_minutes`
        (they stand on each pod as the annotation `gpushare/idle`). Only then the form says when a
        server ends.
        """,
    )

    culler_url = Unicode(
        "",
        config=True,
        help="""
        Address of the culler's service, inside the Hub's pod for example
        `http://127.0.0.1:10102/services/gpushare-culler/`. The page of somebody who waits then says
        when the next slice comes back if nobody touches it. Empty, or while it does not answer: the
        page says nothing about that.
        """,
    )

    culler_token = Unicode(
        "",
        config=True,
        help="""
        The token that the Hub shows to the culler's service: that of a Hub service with the scopes
        `access:services!service=gpushare-culler` and `delete:servers`.
        `hub_integration.config.configure` makes one where `culler_url` is given.
        """,
    )

    quotas = Dict(
        config=True,
        help="""
        How much of the cards users and groups may have. Without it, there is no bound.

        Three layers, of which the innermost that says something wins: `everybody`, the `each` of
        a user's groups (of several groups the most generous), the user's own line under `users`.
        Beside them, `together` bounds what all members of a group have and use.

        Each may set, in any combination:

        - `slices`: servers with a slice at once
        - `memory`: GPU memory at once, for example `"14GiB"`
        - `gib_hours_per_day`, `gib_hours_per_week`, `gib_hours_per_month`: a GiB of a card's memory
          held for an hour, used or not; calendar days, weeks from Monday, months

        and `"unlimited"` takes a bound of an outer layer away. Example::

            c.GPUShareSpawner.quotas = {
                "everybody": {"slices": 2, "memory": "14GiB", "gib_hours_per_week": 40},
                "groups": {
                    "course-ml": {
                        "each": {"gib_hours_per_week": 60},
                        "together": {"memory": "45GiB"},
                    },
                },
                "users": {"prof": {"slices": "unlimited", "gib_hours_per_week": "unlimited"}},
            }

        They are checked when a server starts, from the form, a link, the API and for named servers
        alike. What was used is counted from what the cluster allocated (see `ledger_url`), so it
        needs `extender_url`. Admins see all accounts at `/hub/gpushare/quotas` and grant more with
        `gpushare quota USER --grant 20`.
        """,
    )

    quota_timezone = Unicode(
        "UTC",
        config=True,
        help="""
        The time zone whose days, weeks and months quotas go by, for example `Europe/Berlin`.
        """,
    )

    ledger_url = Unicode(
        "sqlite:///gpushare-ledger.sqlite",
        config=True,
        help="""
        The database that takes down who held which slice from when to when, as the extender tells
        it: for quotas, for the expected waiting time in the form, and for accounts of GPU use. Any
        URL of SQLAlchemy; the default is a file beside the Hub's own database. It outlives restarts
        of the Hub: a slice that is still there counts on, one that ended meanwhile ended when it
        was seen last. Empty: nothing is taken down, and quotas of GiB-hours are not possible.
        """,
    )

    ledger_days = Integer(
        400,
        min=32,
        config=True,
        help="""
        Days for which the ledger keeps what has ended.
        """,
    )

    live_pages = Bool(
        False,
        config=True,
        help="""
        Whether the Hub serves our handlers and pages: a form that refreshes itself while it is
        open, and a page of waiting with the place in the line. `hub_integration.config.configure`
        sets it, together with `JupyterHub.extra_handlers` and `JupyterHub.template_paths`.
        """,
    )

    gpu_scheduler_name = Unicode(
        SCHEDULER_NAME,
        config=True,
        help="""
        The scheduler that places GPU servers. Servers without a GPU keep the one of
        `KubeSpawner.scheduler_name`.
        """,
    )

    gpu_start_timeout = Integer(
        0,
        min=0,
        config=True,
        help="""
        Seconds that a GPU server may take to start, waiting for a free slice included. After that
        the user is told what was missing and what is free instead, and the Hub does not count it
        as a failure (zero-to-jupyterhub's Hub ends itself after five).

        Always less than `start_timeout`, since that running out is a failure of the Hub: at most
        nine tenths of it less 5 seconds, which is also what 0 means.
        """,
    )

    prefix = Unicode(
        DEFAULT_PREFIX,
        config=True,
        help="""
        Prefix of resources and annotations, as in the extender and the device plugin.
        """,
    )

    unit = Unicode(
        "GiB",
        config=True,
        help="""
        What one `gpu-mem` is, as in the extender and the device plugin: `GiB`, `MiB`, or a step
        such as `256MiB`.
        """,
    )

    @property
    def rules(self) -> Rules:
        return _rules(json.dumps(self.quotas, sort_keys=True))

    @property
    def state_address(self) -> StateAddress:
        return StateAddress(
            self.extender_url,
            self.extender_ca,
            self.extender_token_file,
            self.extender_server_name,
            self.availability_timeout,
        )

    @property
    def names(self) -> Names:
        return Names(self.prefix)

    @property
    def memory_unit(self) -> Unit:
        return Unit.parse(self.unit)

    @validate("prefix")
    def _valid_prefix(self, proposal: dict[str, Any]) -> str:
        return _checked(Names, proposal, "prefix")

    @validate("unit")
    def _valid_unit(self, proposal: dict[str, Any]) -> str:
        return _checked(Unit.parse, proposal, "unit")

    @validate("quotas")
    def _valid_quotas(self, proposal: dict[str, Any]) -> dict[str, Any]:
        value = dict(proposal["value"])
        return _checked_quotas(value)

    @validate("quota_timezone")
    def _valid_zone(self, proposal: dict[str, Any]) -> str:
        name = str(proposal["value"])
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise TraitError(
                f"GPUShareSpawner.quota_timezone is {name!r}, which is no time zone here: use for "
                "example 'UTC' or 'Europe/Berlin'"
            ) from None
        return name

    @validate("availability_timeout")
    def _valid_timeout(self, proposal: dict[str, Any]) -> float:
        seconds = float(proposal["value"])
        if not 0 < seconds <= 1:
            raise TraitError(
                f"GPUShareSpawner.availability_timeout is {seconds:g}: use more than 0, at most 1, "
                "because every form waits for it"
            )
        return seconds

    @validate("extender_url")
    def _valid_url(self, proposal: dict[str, Any]) -> str:
        url = str(proposal["value"])
        if url and not url.startswith(("https://", "http://")):
            raise TraitError(
                f"GPUShareSpawner.extender_url is {url!r}: write it with its scheme, for example "
                "'https://gpushare-extender.gpushare.svc:8443'"
            )
        return url

    def start_limit(self, start_timeout: float) -> float:
        """Seconds until we give a starting GPU server up, given the Hub's own limit."""
        most = max(1.0, _EARLY * start_timeout - _MARGIN)
        return min(float(self.gpu_start_timeout), most) if self.gpu_start_timeout else most


@cache
def _rules(text: str) -> Rules:
    return Rules.model_validate(json.loads(text))


def _checked_quotas(value: dict[str, Any]) -> dict[str, Any]:
    """As it is, if it makes sense. Raises TraitError that names the field and the fix."""
    try:
        _rules(json.dumps(value, sort_keys=True))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise TraitError(
            f"GPUShareSpawner.quotas: {where}: {first['msg']}, not {first['input']!r:.60}; see "
            "the setting's help for what may stand there"
        ) from None
    except TypeError as error:
        raise TraitError(
            f"GPUShareSpawner.quotas: only plain values may stand in it: {error}"
        ) from (None)
    return value


def _checked(check: Any, proposal: dict[str, Any], name: str) -> str:
    value = str(proposal["value"])
    try:
        check(value)
    except ValueError as error:
        raise TraitError(f"GPUShareSpawner.{name}: {error}") from None
    return value
