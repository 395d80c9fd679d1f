"""``gpushare-extender``: the scheduling half of gpushare, run beside a kube-scheduler."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from typing import Any

import uvloop
import yaml
from traitlets import Enum, Float, List, TraitError, Unicode, validate
from traitlets.config import Application

import gpushare
from extender.admission.serving import Port
from extender.admission.settings import Webhook as WebhookSettings
from extender.api import KubeApi, NoCluster, configuration
from extender.fitting import Rules
from extender.learning import USUAL, check_place, prior
from extender.scheduler_config import WAYS, Asking, example
from extender.scoring import Workload
from extender.server import Address, CannotListen, Certificate, Server
from extender.service import Learning, Service
from extender.usage import UsageSettings
from extender.verbs_guard import Guard, read_secret
from extender.waiting import Fairness
from gpushare.dialects.table import moment, spoken
from gpushare.names import DEFAULT_PREFIX, Names
from gpushare.request import Policy
from gpushare.units import Unit

log = logging.getLogger("extender")

_DRAIN_SECONDS = 3.0
_LAST_WORDS_SECONDS = 1.0


class CannotStart(Exception):
    """A setting cannot be used. The text names it."""


class Extender(Application):
    """Answers kube-scheduler's questions about shared cards, and everybody's about what is where."""

    name = "gpushare-extender"
    version = gpushare.__version__
    description = """Scheduler extender for shared GPU cards.

    Follows nodes and pods of the cluster, keeps a ledger of what is free on each card, and answers
    kube-scheduler's filter, prioritize and bind. Bind is one API call that carries the placement.
    """
    examples = """
        gpushare-extender --kubeconfig ~/.kube/config --state 127.0.0.1:8443
        gpushare-extender --config /etc/gpushare/extender/config.json
        gpushare-extender --help-all
    """

    classes = [WebhookSettings]  # noqa: RUF012
    config_file = Unicode(
        "",
        help="""File with settings, JSON or Python as for all traitlets applications.

        JSON: {"Extender": {"unit": "GiB", "policy": "spread"}}""",
    ).tag(config=True)
    prefix = Unicode(
        DEFAULT_PREFIX,
        help="""Prefix of all names: resources PREFIX/gpu-mem and PREFIX/gpu-percent, annotations.

        Must be the same for the device plugin and the hub. A DNS name, e.g. 'gpu.example.org'.""",
    ).tag(config=True)
    unit = Unicode(
        "GiB",
        help="""What one gpu-mem is: 'GiB', 'MiB' or a step such as '256MiB'.

        Must be the device plugins' setting; nodes with another one get no pods.""",
    ).tag(config=True)
    dialects = List(
        Unicode(),
        [],
        help="""Other systems' ways of asking for a slice that are understood as well: 'aliyun' (or
        'aliyun:MiB', with the unit it counts in), 'nano', 'elastic', 'nvidia', 'hami' and others.

        Must be the device plugins' setting. docs/dialects.md says what each is.""",
    ).tag(config=True)
    adopt_before = Unicode(
        "",
        help="""Take over pods that another system bound before this moment, as in
        2026-01-31T08:00:00Z, with the cards that its annotations name. Empty: none.

        Set it to the time of the change-over: later annotations could be anybody's.""",
    ).tag(config=True)
    policy = Enum(
        [policy.value for policy in Policy],
        Policy.FRAGMENTATION.value,
        help="""How cards are chosen. 'fragmentation' loses as little as possible of what the cluster
        is usually asked for; 'binpack' takes the tightest card and keeps whole ones free; 'spread'
        takes the freest; 'first-fit' goes by the nodes' names; 'fgd' is fragmentation gradient
        descent as published, for comparison. A pod may choose for itself by annotation.""",
    ).tag(config=True)
    verbs_address = Unicode(
        "127.0.0.1:39999",
        help="""host:port of the scheduler's verbs, plain HTTP, at /scheduler/.

        Whoever reaches it can bind pods, so it belongs on loopback, beside kube-scheduler.""",
    ).tag(config=True)
    verbs_tls_address = Unicode(
        "",
        help="""host:port where the verbs are served over TLS as well, with tls_cert and tls_key, for a
        kube-scheduler in another pod or on the control plane. Needs verbs_client_ca or verbs_secret.""",
    ).tag(config=True)
    verbs_client_ca = Unicode(
        "",
        help="""File with authorities (PEM): whoever shows a certificate of theirs at verbs_tls_address may
        call the verbs.""",
    ).tag(config=True)
    verbs_client_names = List(
        Unicode(),
        help="""Common names of the certificates that may; empty: all of verbs_client_ca. Not empty where
        that is the cluster's own authority, which has signed every node's certificate too.""",
    ).tag(config=True)
    verbs_secret = Unicode(
        "",
        help="""File with a secret of 32 letters and digits or more. Who calls
        /scheduler/SECRET/... at verbs_tls_address needs no certificate: for the API server's proxy.""",
    ).tag(config=True)
    print_scheduler_config = Enum(
        ["", *WAYS],
        "",
        help="""Print what kube-scheduler must be told, and end: 'loopback' for one of our own beside the
        extender, 'mtls' and 'proxy' for the cluster's own, 'policy' for one before Kubernetes 1.23.""",
    ).tag(config=True)
    state_address = Unicode(
        "0.0.0.0:8443",
        help="""host:port of the state API (/v1/nodes, /healthz, /readyz, /metrics), HTTPS.

        On a loopback address it may also run without a certificate, as plain HTTP.""",
    ).tag(config=True)
    tls_cert = Unicode(
        "", help="Certificate (PEM) of the state API. Read again when the file changes."
    ).tag(config=True)
    tls_key = Unicode("", help="Private key (PEM) of tls_cert.").tag(config=True)
    client_ca = Unicode(
        "",
        help="""Authorities (PEM) whose client certificates the state API takes instead of a token.

        The common name is the user and the organisations are the groups; what they may get is
        RBAC's to say, as for tokens. Empty: tokens only.""",
    ).tag(config=True)
    usage_service = Unicode(
        "",
        help="""Service of the device plugins, which are asked every 5 s what slices really use.

        Empty: nobody is asked, and used memory is not known.""",
    ).tag(config=True)
    usage_namespace = Unicode(
        "", help="Namespace of usage_service. Empty: the extender's own, from POD_NAMESPACE."
    ).tag(config=True)
    usage_ca = Unicode(
        "", help="Authorities (PEM) of the device plugins' certificates. Needed with usage_service."
    ).tag(config=True)
    turn_seconds = Float(
        600.0,
        help="""How far apart the turns of one person's waiting pods are: the second comes after the
        first of everybody who came up to so many seconds later. 0: first come, first served.""",
    ).tag(config=True)
    turn_grace = Float(
        15.0,
        help="""Seconds for which room is kept for a waiting pod whose turn it is. It must be more than
        kube-scheduler's podMaxBackoffSeconds. 0: nothing is kept for anybody.""",
    ).tag(config=True)
    drain_after = Float(
        300.0,
        help="""Seconds after which a card is emptied for the first in line: pods behind it get no room
        on the card where the least has to end for it.""",
    ).tag(config=True)
    kubeconfig = Unicode(
        "", help="kubeconfig file to reach the cluster with; empty: the pod's service account."
    ).tag(config=True)
    max_hold = Float(
        90.0,
        help="""Seconds for which a slice is kept, at most, after its pod was deleted by force while
        its containers ran. The pod's own grace period plus 10 s is used if that is less.""",
    ).tag(config=True)

    workload_map = Unicode(
        "",
        help="""namespace/name of the ConfigMap that keeps what was learned of the workload, which the
        policies 'fragmentation' and 'fgd' go by. Empty: a restart begins with workload_prior.""",
    ).tag(config=True)
    workload_prior = List(
        [dict(kind) for kind in USUAL],
        help="""What pods are likely to ask for, until enough have: a list such as
        [{"mem": 7, "models": ["T4"], "cpu": "2", "weight": 4}, {"percent": 100, "weight": 1}]. mem and
        percent are as in pods' limits, cards as in their annotation; weights compare the entries.""",
    ).tag(config=True)
    workload_half_life = Float(
        7.0, help="Days after which a pod counts half in what was learned of the workload."
    ).tag(config=True)

    aliases = {  # noqa: RUF012
        "config": "Extender.config_file",
        "kubeconfig": "Extender.kubeconfig",
        "verbs": "Extender.verbs_address",
        "state": "Extender.state_address",
        "print-scheduler-config": "Extender.print_scheduler_config",
        "policy": "Extender.policy",
        "log-level": "Application.log_level",
    }
    flags = {  # noqa: RUF012
        "debug": ({"Application": {"log_level": 10}}, "log more"),
    }

    @validate("prefix")
    def _valid_prefix(self, proposal: Any) -> str:
        return _valid("prefix", Names, str(proposal["value"]))

    @validate("dialects")
    def _valid_dialects(self, proposal: Any) -> list[str]:
        _valid("dialects", lambda _text: spoken(tuple(proposal["value"])), "")
        return list(proposal["value"])

    @validate("adopt_before")
    def _valid_adopt_before(self, proposal: Any) -> str:
        return _valid("adopt_before", moment, str(proposal["value"]))

    @validate("unit")
    def _valid_unit(self, proposal: Any) -> str:
        return _valid("unit", Unit.parse, str(proposal["value"]))

    @validate("workload_map")
    def _valid_map(self, proposal: Any) -> str:
        return _valid("workload_map", check_place, str(proposal["value"]))

    @validate("workload_half_life")
    def _valid_half_life(self, proposal: Any) -> float:
        if not proposal["value"] > 0:
            raise TraitError("Extender.workload_half_life: use a number of days above 0")
        return float(proposal["value"])

    @validate("max_hold", "turn_seconds", "turn_grace", "drain_after")
    def _valid_seconds(self, proposal: Any) -> float:
        if proposal["value"] < 0:
            name = proposal["trait"].name
            raise TraitError(f"Extender.{name}: use a number of seconds, 0 or more")
        return float(proposal["value"])

    def initialize(self, argv: list[str] | None = None) -> None:
        self.log_level = logging.INFO
        super().initialize(argv)
        if self.config_file:
            if not os.path.isfile(self.config_file):
                raise CannotStart(f"Extender.config_file={self.config_file!r} is not a file")
            self.load_config_file(self.config_file)
            # The command line beats the file.
            self.update_config(self.cli_config)
        logging.basicConfig(
            level=self.log_level, format="%(asctime)s %(levelname).1s %(name)s: %(message)s"
        )
        logging.getLogger("uvicorn").setLevel(logging.WARNING)

    @property
    def rules(self) -> Rules:
        return Rules(
            Names(self.prefix, tuple(self.dialects)),
            Unit.parse(self.unit),
            Policy(self.policy),
            moment(self.adopt_before),
        )

    def learning(self) -> Learning:
        """Raises CannotStart for a prior that is none."""
        try:
            kinds = prior(self.workload_prior, self.rules.names, self.rules.unit)
        except ValueError as error:
            raise CannotStart(f"Extender.workload_prior: {error}") from None
        return Learning(Workload(self.workload_half_life * 86400, kinds), self.workload_map)

    @property
    def fairness(self) -> Fairness:
        return Fairness(self.turn_seconds, self.turn_grace, self.drain_after)

    def plugins(self) -> UsageSettings:
        """Where the device plugins are asked. Raises CannotStart."""
        if not self.usage_service:
            return UsageSettings()
        namespace = self.usage_namespace or os.environ.get("POD_NAMESPACE", "")
        if not namespace or not self.usage_ca:
            raise CannotStart(
                f"Extender.usage_service={self.usage_service!r} needs Extender.usage_ca and "
                "Extender.usage_namespace (or the variable POD_NAMESPACE)"
            )
        return UsageSettings(self.usage_service, namespace, self.usage_ca)

    def start(self) -> None:
        uvloop.run(self.serve())

    async def serve(self) -> None:
        """Run until SIGTERM or SIGINT. Raises NoCluster or CannotListen where it can't start."""
        verbs_at = Address.parse(self.verbs_address, "Extender.verbs_address")
        state_at = Address.parse(self.state_address, "Extender.state_address")
        api = KubeApi(await configuration(self.kubeconfig))
        try:
            service = Service(
                api,
                self.rules,
                self.max_hold,
                learning=self.learning(),
                fairness=self.fairness,
                plugins=self.plugins(),
            )
            servers: list[Server | Port] = [
                Server(service.verbs_app, verbs_at.listen("Extender.verbs_address")),
                Server(
                    service.state_app,
                    state_at.listen("Extender.state_address"),
                    self._certificate(state_at),
                ),
            ]
            if self.verbs_tls_address:
                servers.append(self._guarded(service))
            hook = WebhookSettings(parent=self)
            if hook.address:
                port = Port(hook, service.webhook(hook), api)
                service.starting.append(port.starting)
                servers.append(port)
            stop = asyncio.Event()
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
            log.info("verbs on %s, state on %s", self.verbs_address, self.state_address)
            await _serve(service, servers, stop)
        finally:
            await api.close()

    def _guarded(self, service: Service) -> Server:
        """The verbs for callers from elsewhere."""
        address = Address.parse(self.verbs_tls_address, "Extender.verbs_tls_address")
        secret = read_secret(self.verbs_secret)
        if not (self.tls_cert and self.tls_key) or not (self.verbs_client_ca or secret):
            raise CannotListen(
                f"Extender.verbs_tls_address={self.verbs_tls_address} needs Extender.tls_cert, "
                "Extender.tls_key, and Extender.verbs_client_ca or Extender.verbs_secret"
            )
        return Server(
            Guard(service.verbs_app, self.verbs_client_names, secret),
            address.listen("Extender.verbs_tls_address"),
            Certificate(self.tls_cert, self.tls_key, self.verbs_client_ca),
        )

    def _certificate(self, address: Address) -> Certificate | None:
        if self.tls_cert and self.tls_key:
            return Certificate(self.tls_cert, self.tls_key, self.client_ca)
        if self.tls_cert or self.tls_key:
            raise CannotListen("Extender.tls_cert and Extender.tls_key need each other")
        if address.loopback:
            return None
        raise CannotListen(
            f"Extender.state_address={self.state_address} is not loopback, so Extender.tls_cert and "
            "Extender.tls_key are needed"
        )


async def _serve(service: Service, servers: list[Server | Port], stop: asyncio.Event) -> None:
    """Serve until ``stop``, then let binds in flight come to their end."""
    following = asyncio.create_task(service.run())
    serving = [asyncio.create_task(server.run_until_stopped()) for server in servers]
    stopping = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait(
            [following, stopping, *serving], return_when=asyncio.FIRST_COMPLETED
        )
        log.info("stopping")
        for server in servers:
            server.stop()
        await service.binder.drain(_DRAIN_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(service.learned.finish(), _LAST_WORDS_SECONDS)
        await asyncio.wait(serving, timeout=_DRAIN_SECONDS)
        for task in done - {stopping}:
            task.result()
    finally:
        for task in (following, stopping, *serving):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following


def _valid(setting: str, check: Any, value: str) -> str:
    try:
        check(value)
    except ValueError as error:
        raise TraitError(f"Extender.{setting}: {error}") from None
    return value


def main() -> None:
    """Entry point."""
    app = Extender.instance()
    try:
        app.initialize(sys.argv[1:])
        if app.print_scheduler_config:
            asking = Asking(app.rules.names.resources)
            shown = example(app.print_scheduler_config, asking)
            legacy = app.print_scheduler_config == "policy"
            print(json.dumps(shown, indent=2) if legacy else yaml.safe_dump(shown, sort_keys=False))
            return
        app.start()
    except (NoCluster, CannotListen, CannotStart) as error:
        sys.exit(f"gpushare-extender: {error}")


if __name__ == "__main__":
    main()
