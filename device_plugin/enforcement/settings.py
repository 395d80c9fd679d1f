"""What can be set about enforcement: options --Enforcement.x=y, or "Enforcement" in the file."""

from __future__ import annotations

from traitlets import Bool, Enum, Float, Integer, TraitError, Unicode
from traitlets.config import Configurable

from device_plugin.enforcement.rules import Level, Reach, Rules, bounds_of
from device_plugin.enforcement.time_slices import LENGTHS

_DEFAULTS = Rules()


class Enforcement(Configurable):
    """How strictly slices are held on this node."""

    level = Enum(
        [level.value for level in Level],
        Level.WATCHDOG.value,
        help="""What is done about slices, in rising strength. 'advisory': containers get variables
        that PyTorch, TensorFlow, JAX, CuPy and RAPIDS honour, and use is measured. 'watchdog': and
        a pod that takes more than its slice is told, then loses its biggest GPU process, then is
        evicted. 'mps': and NVIDIA's Multi-Process Service limits each process.""",
    ).tag(config=True)

    reach = Enum(
        [reach.value for reach in Reach],
        _DEFAULTS.reach.value,
        help="""How far the watchdog goes: 'report' (it tells), 'end' (it ends GPU processes of the
        pod), 'evict' (and evicts the pod when that does not help).""",
    ).tag(config=True)

    grace = Float(
        _DEFAULTS.grace,
        help="""Seconds that a pod may be over its slice before a process of it is ended.""",
    ).tag(config=True)

    urgent_grace = Float(
        _DEFAULTS.urgent_grace,
        help="""The same where the surplus is memory that another slice on the card was promised
        and could not have now.""",
    ).tag(config=True)

    burst_grace = Float(
        _DEFAULTS.burst_grace,
        help="""Seconds to give back borrowed memory when a new slice lands on the card. The new
        pod's container waits so long for its start; more than 20 makes it wait for a retry.""",
    ).tag(config=True)

    recovery = Float(
        _DEFAULTS.recovery,
        help="""Seconds within the slice after which used up grace is there in full again.""",
    ).tag(config=True)

    term_grace = Float(
        _DEFAULTS.term_grace,
        help="""Seconds between asking a process to end (SIGTERM) and ending it (SIGKILL).""",
    ).tag(config=True)

    allowance_mib = Integer(
        _DEFAULTS.allowance_mib,
        help="""MiB that each GPU process of a pod may add beyond the slice. CUDA needs 150 to 500
        MiB in every process (context, kernels, libraries), which no program can avoid.""",
    ).tag(config=True)

    allowance_most_mib = Integer(
        _DEFAULTS.allowance_most_mib,
        help="""The most that a pod may be beyond its slice on a card, however many processes it
        has. Neighbours carry it: keep slices so much smaller than the card, or set 0.""",
    ).tag(config=True)

    evict_after = Integer(
        _DEFAULTS.evict_after,
        help="""After so many ended processes within strike_window the pod is evicted instead.""",
    ).tag(config=True)

    strike_window = Float(
        _DEFAULTS.strike_window, help="""Seconds for which an ended process counts."""
    ).tag(config=True)

    bounds = Unicode(
        "",
        help="""What a profile may change by the pod annotation PREFIX/enforcement, as JSON:
        {"grace": 120, "allowanceMib": 1000, "reach": "end", "evictAfter": 5}. A pod can always be
        held more strictly than the node's settings; without bounds it cannot be held less.""",
    ).tag(config=True)

    burst_percent = Integer(
        200,
        min=100,
        help="""The most that a pod with the annotation PREFIX/gpu-mem-limit may use while nobody
        was given that memory, in per cent of its slice. 100: no bursting on this node.""",
    ).tag(config=True)

    period = Float(1.0, min=0.1, max=10.0, help="""Seconds between two looks at the cards.""").tag(
        config=True
    )

    activity_period = Float(
        5.0,
        min=0.5,
        max=60.0,
        help="""Seconds between two looks at who computes; the driver keeps what was in between.""",
    ).tag(config=True)

    state_dir = Unicode(
        "/run/gpushare",
        help="""A folder of ours on the node, at the same path in this program and for the container
        runtime: notice boards of slices, and what was measured. Empty: no boards, and a restart of
        this program forgets what was measured.""",
    ).tag(config=True)

    usage_address = Unicode(
        "",
        help="""Where the usage API is served over HTTPS: ADDRESS:PORT, for example '0.0.0.0:9410'.
        Empty: not at all. Callers present a Kubernetes token that may get /v1/usage.""",
    ).tag(config=True)

    dcgm_metrics = Bool(
        False,
        help="""Whether /metrics has the cards' memory and utilisation under the DCGM exporter's own
        names too (DCGM_FI_DEV_FB_USED, _FB_FREE, _GPU_UTIL), for boards that expect those. Not where
        that exporter runs itself: everything would be there twice.""",
    ).tag(config=True)

    tls_cert = Unicode(
        "/etc/gpushare/tls/tls.crt",
        help="""The certificate of the usage API; read again when it changes.""",
    ).tag(config=True)

    tls_key = Unicode("/etc/gpushare/tls/tls.key", help="""The key of tls_cert.""").tag(config=True)

    time_slice = Enum(
        ["", *LENGTHS],
        "",
        help="""How long a program on a shared card computes before it is another one's turn, where
        there is no MPS: 'default', 'short', 'medium' or 'long' (nvidia-smi compute-policy). Short turns
        are fairer to small kernels and cost throughput. Nobody is held to a percentage by it. Empty:
        as it is. Setting it needs root on the cards: devicePlugin.access 'privileged' in the chart.""",
    ).tag(config=True)

    nvidia_smi = Unicode(
        "",
        help="""nvidia-smi, for time_slice. Empty: the one in $PATH, else in the driver root.""",
    ).tag(config=True)

    mps_users = Enum(
        ["auto", "one", "many"],
        "auto",
        help="""For whom MPS servers run. 'many': pods of any user (the control daemon's option
        -multiuser-server). 'one': pods of user mps_uid alone, as a client of another user would
        hold up everybody. 'auto': many where the driver can.""",
    ).tag(config=True)

    mps_uid = Integer(
        1000,
        min=0,
        help="""The user that MPS serves where it serves one; Jupyter's images use 1000.""",
    ).tag(config=True)

    mps_socket = Unicode(
        "/run/gpushare/mps/host.sock",
        help="""Where the program that runs MPS's control daemons listens
        (python -m device_plugin.enforcement.mps, in a DaemonSet of its own).""",
    ).tag(config=True)

    mps_control = Unicode(
        "",
        help="""nvidia-cuda-mps-control, where this program itself is to run the daemons, as on a
        host without containers. Empty: they are run by the program at mps_socket.""",
    ).tag(config=True)

    mps_shm_dir = Unicode(
        "/dev/shm/gpushare-mps",  # noqa: S108
        help="""A folder on a large tmpfs of the node. Under MPS, a card's daemon and its containers
        have a folder in it as /dev/shm.""",
    ).tag(config=True)

    def rules(self) -> Rules:
        """The node's rules. Raises TraitError that names the setting."""
        reach = Reach.REPORT if self.level == Level.ADVISORY.value else Reach(self.reach)
        try:
            return Rules(
                reach=reach,
                grace=self.grace,
                urgent_grace=min(self.urgent_grace, self.grace),
                burst_grace=self.burst_grace,
                recovery=self.recovery,
                term_grace=self.term_grace,
                allowance_mib=self.allowance_mib,
                allowance_most_mib=self.allowance_most_mib,
                evict_after=self.evict_after,
                strike_window=self.strike_window,
            )
        except ValueError as error:
            raise TraitError(f"Enforcement.{error}") from None

    def pod_bounds(self) -> Rules:
        """The most lenient that a pod's own wishes can make its rules. Raises TraitError."""
        try:
            return bounds_of(self.rules(), self.bounds)
        except ValueError as error:
            raise TraitError(f"Enforcement.bounds: {error}") from None
