"""gpushare-device-plugin: the daemon on each node with cards.

Configured as Jupyter's programs are: a file (--config), options (--DevicePlugin.x=y), environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from traitlets import Bool, Enum, Float, Integer, List, TraitError, Unicode, default, validate
from traitlets.config import Application

from device_plugin import credentials
from device_plugin.enforcement.settings import Enforcement
from device_plugin.logs import set_up
from gpushare import __version__
from gpushare.dialects.table import moment, spoken
from gpushare.names import DEFAULT_PREFIX, Names
from gpushare.units import Unit

log = logging.getLogger("device_plugin")


class DevicePlugin(Application):
    """Offers this node's NVIDIA cards in slices, and gives each container the cards of its slice."""

    name = "gpushare-device-plugin"
    description = __doc__ or ""
    version = __version__

    classes = [Enforcement]  # noqa: RUF012  traitlets' way

    config_file = Unicode(
        "",
        help="""A configuration file, Python (.py) or JSON (.json):
        {"DevicePlugin": {"unit": "GiB", "driver_root": "/run/nvidia/driver"}}""",
    ).tag(config=True)

    node_name = Unicode(
        help="""The node's name in Kubernetes. Default: $NODE_NAME, which a DaemonSet sets from
        spec.nodeName, else the host's name."""
    ).tag(config=True)

    prefix = Unicode(
        DEFAULT_PREFIX,
        help="""What resource names and annotations begin with: PREFIX/gpu-mem, PREFIX/placement.
        The scheduler side needs the same.""",
    ).tag(config=True)

    unit = Unicode(
        "GiB",
        help="""What one gpu-mem is: 'GiB', 'MiB', or a step such as '256MiB'. The scheduler side
        needs the same. A small unit makes many ids: the kubelet accepts about 200,000 on a node,
        and is slow long before that.""",
    ).tag(config=True)

    dialects = List(
        Unicode(),
        [],
        help="""Other systems' ways of asking for a slice that are served as well: 'aliyun' (or
        'aliyun:MiB', with the unit it counts in), 'nano', 'elastic', 'nvidia', 'hami' and others. The
        scheduler side needs the same. docs/dialects.md says what each is.""",
    ).tag(config=True)

    adopt_before = Unicode(
        "",
        help="""Take over running pods that another system bound before this moment, as in
        2026-01-31T08:00:00Z, from the annotations it wrote. Empty: none. Set it to the time of the
        change-over: later annotations could be anybody's.""",
    ).tag(config=True)

    driver_root = Unicode(
        "/",
        help="""Where the NVIDIA driver's files are, as this program sees them: '/' on a plain
        host, '/run/nvidia/driver' where the gpu-operator's driver container is used. The
        management library is looked for in the usual library folders below it; where there is
        none under '/', the system's own search is used.""",
    ).tag(config=True)

    include_cards = List(
        Unicode(),
        ["*"],
        help="""Which cards are ours: shell patterns for the uuid, NVML's index, the PCI address or
        the model, in any case of letters: ["Tesla T4"], ["GPU-8d6a*", "3"].""",
    ).tag(config=True)

    exclude_cards = List(
        Unicode(),
        [],
        help="""Which of the included cards are not ours after all, for example those that NVIDIA's
        own device plugin hands out on the same node.""",
    ).tag(config=True)

    card_edits = Enum(
        ["auto", "cdi", "env"],
        "auto",
        help="""How a container gets its cards. 'cdi': as the node's own NVIDIA CDI spec says
        (device nodes, libraries, hooks), so that the default runtime does not matter. 'env': by
        NVIDIA_VISIBLE_DEVICES alone, which the classic nvidia runtime must read; a container that
        runs under another runtime then gets nothing. 'auto': cdi where there is such a spec.""",
    ).tag(config=True)

    runtime_cdi = Enum(
        ["auto", "yes", "no"],
        "auto",
        help="""Whether the node's container runtime heeds CDI. 'auto': found out by its version and
        by looking at started containers. Where it does not, containers get their cards by
        NVIDIA_VISIBLE_DEVICES, which gpushare's webhook takes from the placement, and the classic
        nvidia runtime must be theirs (RuntimeClass nvidia, or the node's default).""",
    ).tag(config=True)

    cdi_dirs = List(
        Unicode(),
        ["/etc/cdi", "/var/run/cdi"],
        help="""Where the node's NVIDIA CDI specs are looked for; later folders win.""",
    ).tag(config=True)

    cdi_kind = Unicode("nvidia.com/gpu", help="""Kind of the node's CDI spec of its cards.""").tag(
        config=True
    )

    cdi_spec_dir = Unicode(
        "/var/run/cdi",
        help="""Where we write the CDI specs of slices. The container runtime must read this
        folder (containerd: cdi_spec_dirs, CRI-O: cdi_spec_dirs).""",
    ).tag(config=True)

    kubelet_dir = Unicode(
        "/var/lib/kubelet/device-plugins",
        help="""The kubelet's folder for device plugins, with kubelet.sock in it. The kubelet keeps
        it at this place whatever its --root-dir is.""",
    ).tag(config=True)

    podresources_socket = Unicode(
        "/var/lib/kubelet/pod-resources/kubelet.sock",
        help="""The kubelet's pod resources socket: ROOT_DIR/pod-resources/kubelet.sock.""",
    ).tag(config=True)

    state_dir = Unicode(
        "/run/gpushare",
        help="""Where the node keeps what it must know without the API server: which pods hold
        what. On a tmpfs, as it means nothing after a reboot.""",
    ).tag(config=True)

    true_allocatable = Bool(
        False,
        help="""Whether memory that gpu-mem pods took disappears from what the node says is
        allocatable of gpu-percent, and the other way round. The kubelet tells the cluster of such
        changes every 10 s only, so a slice that becomes free is offered to pods of the other kind
        that much later.""",
    ).tag(config=True)

    feature_labels = Bool(
        True,
        help="""Whether the node gets the labels that NVIDIA's gpu-feature-discovery would give it
        (nvidia.com/gpu.product, .memory, .count, nvidia.com/cuda.driver.major ...), where that does
        not run. Labels that somebody else has written are left alone.""",
    ).tag(config=True)

    kubeconfig = Unicode(
        "",
        help="""How to reach the API server. Empty: the pod's service account, else $KUBECONFIG.""",
    ).tag(config=True)

    status_address = Unicode(
        "127.0.0.1:9409",
        help="""Where /healthz, /readyz and /metrics are: ADDRESS:PORT, or unix:PATH. In a pod of
        its own network, '0.0.0.0:9409' lets the kubelet's probes and Prometheus in.""",
    ).tag(config=True)

    probe_seconds = Float(10.0, help="""How often each card is asked whether it is well.""").tag(
        config=True
    )

    nvml_timeout = Float(
        10.0,
        help="""Seconds that a call to the driver may take. After that all cards count as unhealthy
        until it answers again; nothing else waits for it.""",
    ).tag(config=True)

    xid_events = Bool(
        True, help="""Whether the driver's XID error reports make a card unhealthy."""
    ).tag(config=True)

    ignore_xids = List(
        Integer(),
        [],
        help="""XIDs that say nothing about the card, besides 13, 31, 43, 45, 68 and 109, which are
        errors of programs.""",
    ).tag(config=True)

    count_xids = List(
        Integer(),
        [],
        help="""XIDs that count although they are on the list of ignored ones.""",
    ).tag(config=True)

    recover_after = Integer(
        6,
        min=0,
        help="""After so many clean probes in a row a card that had an XID is well again.
        0: never by itself. Taking back a cordon of the card (gpushare uncordon) always ends it; a
        restart of this program does not.""",
    ).tag(config=True)

    log_lines = Enum(
        ["plain", "json"],
        "plain",
        help="""How log lines are written: for people, or one JSON object a line for collectors.""",
    ).tag(config=True)

    aliases = {  # noqa: RUF012  traitlets' way
        "config": "DevicePlugin.config_file",
        "node": "DevicePlugin.node_name",
        "unit": "DevicePlugin.unit",
        "driver-root": "DevicePlugin.driver_root",
        "kubeconfig": "DevicePlugin.kubeconfig",
        "log-level": "DevicePlugin.log_level",
    }

    @default("log_level")
    def _default_log_level(self) -> int:
        return logging.INFO

    @validate("prefix")
    def _check_prefix(self, proposal: Any) -> str:
        return _checked(lambda: Names(proposal.value), "DevicePlugin.prefix", proposal.value)

    @validate("unit")
    def _check_unit(self, proposal: Any) -> str:
        return _checked(lambda: Unit.parse(proposal.value), "DevicePlugin.unit", proposal.value)

    @validate("dialects")
    def _check_dialects(self, proposal: Any) -> list[str]:
        check = lambda: spoken(tuple(proposal.value))  # noqa: E731
        found: list[str] = _checked(check, "DevicePlugin.dialects", proposal.value)
        return found

    @validate("adopt_before")
    def _check_adopt_before(self, proposal: Any) -> str:
        check = lambda: moment(proposal.value)  # noqa: E731
        return str(_checked(check, "DevicePlugin.adopt_before", proposal.value))

    @property
    def adopted(self) -> float:
        """``adopt_before`` in seconds since the epoch."""
        return moment(self.adopt_before)

    def initialize(self, argv: list[str] | None = None) -> None:
        """Read options and files; options win."""
        super().initialize(argv)
        if self.config_file:
            self._load(self.config_file)
        self.node_name = self.node_name or os.environ.get("NODE_NAME", "") or socket.gethostname()

    def start(self) -> None:
        """Run until SIGTERM or SIGINT."""
        set_up(self.log_lines, self.log_level)
        try:
            found = credentials.find(self.kubeconfig)
        except credentials.NoCredentials as error:
            sys.exit(f"gpushare-device-plugin: {error}")
        with contextlib.suppress(KeyboardInterrupt):
            sys.exit(asyncio.run(self._run(found)))

    async def _run(self, found: credentials.Credentials) -> int:
        from device_plugin.plugin import Plugin  # what it imports is only needed to run

        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        plugin = Plugin(self, found)
        loop.add_signal_handler(signal.SIGHUP, plugin.look_now)
        return await plugin.run(stop)

    def _load(self, path: str) -> None:
        file = Path(path).resolve()
        if not file.is_file():
            sys.exit(f"gpushare-device-plugin: DevicePlugin.config_file: there is no file {path}")
        options = self.cli_config
        self.load_config_file(file.stem, path=[str(file.parent)])
        self.update_config(options)


def _checked(make: Any, setting: str, value: Any) -> Any:
    try:
        make()
    except ValueError as error:
        raise TraitError(f"{setting}: {error}") from None
    return value


def main() -> None:
    """Entry point."""
    DevicePlugin.launch_instance()


if __name__ == "__main__":
    main()
