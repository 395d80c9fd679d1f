"""Whether this machine can run containers as the playground does: tried, not guessed."""

from __future__ import annotations

import os
import subprocess
import sys

# Each line is one thing that nodes need; its number is the exit status when it fails. A program
# that is missing ends the trial: `up` installs it.
_TRIAL = """
mount -t tmpfs tmpfs /mnt || exit 11
cd /mnt && mkdir a b c d || exit 11
mount -t overlay overlay -o lowerdir=a,upperdir=b,workdir=c d || exit 12
command -v ip > /dev/null || exit 0
ip link add trial type bridge && ip link add one type veth peer name two || exit 13
echo 1 > /proc/sys/net/ipv4/ip_forward || exit 14
command -v iptables > /dev/null || exit 0
iptables -w -t nat -A POSTROUTING -j MASQUERADE || exit 15
"""
_REASONS = {
    11: "nothing can be mounted here",
    12: "the overlay file system is not available",
    13: "no bridge and veth network interfaces can be made",
    14: "routing can't be switched on in a network namespace",
    15: "iptables does not work here",
}


def can_run_containers() -> str | None:
    """None when it can, else the reason as one sentence."""
    if sys.platform != "linux":
        return "Containers run on Linux only, and this is another system."
    if os.geteuid() != 0:
        return "Containers need root here, and you are not root."
    try:
        trial = subprocess.run(
            ["unshare", "--mount", "--net", "--propagation", "private", "/bin/sh", "-c", _TRIAL],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            env={
                **os.environ,
                "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin:/bin",
            },
        )
    except OSError:
        return "Containers need the program unshare (Debian package util-linux)."
    if trial.returncode:
        reason = _REASONS.get(trial.returncode, "no namespaces can be made")
        detail = " ".join(trial.stderr.split())
        return f"This machine can't run containers: {reason} ({detail})."
    return _control_groups()


def _control_groups() -> str | None:
    from playground import cgroups

    tops = [h.mount for h in cgroups.hierarchies()]
    if not tops:
        return "This machine can't run containers: no control groups are mounted."
    refused = [str(top) for top in tops if not os.access(top, os.W_OK)]
    if refused:
        return f"This machine can't run containers: {refused[0]} can't be written to."
    return None
