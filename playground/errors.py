"""The errors of the playground whose text is meant for people: it says what to do."""

from __future__ import annotations

from playground.binaries import NoGo
from playground.bootstrap import ClusterNotReady
from playground.cluster import PlaygroundError
from playground.commands import CommandFailed
from playground.existing import ClusterSilent
from playground.mounts import StillMounted
from playground.network import NetworkTaken
from playground.nvml import CompilerError
from playground.packages import PackagesMissing
from playground.processes import ComponentFailed
from playground.progress import StepFailed

EXPECTED = (
    ClusterNotReady,
    ClusterSilent,
    CommandFailed,
    CompilerError,
    ComponentFailed,
    NetworkTaken,
    NoGo,
    PackagesMissing,
    PlaygroundError,
    StepFailed,
    StillMounted,
    ValueError,
    PermissionError,
    TimeoutError,
)
