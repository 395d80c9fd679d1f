"""The Debian packages whose programs the playground needs, installed where they are missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

# What to look for, and the package that has it. A path is looked for as such, a name on the PATH.
NEEDED = {
    "ip": "iproute2",
    "nsenter": "util-linux",
    "mount": "mount",
    "iptables": "iptables",
    "runc": "runc",
    "debootstrap": "debootstrap",
    "buildah": "buildah",
    "gcc": "gcc",
    "/usr/include/stdio.h": "libc6-dev",
    "ca-certificates": "ca-certificates",
}
CNI_FOLDERS = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")
_CNI_NEEDED = ("ptp", "host-local", "portmap", "loopback")
_CNI_PACKAGE = "containernetworking-plugins"
_PATH = os.defpath + ":/usr/local/sbin:/usr/sbin:/sbin"


class PackagesMissing(Exception):
    """Programs are missing and could not be installed; the text says which and how to get them."""


def find(program: str) -> Path | None:
    """Where ``program`` is; administrators' folders are looked into as well."""
    if program.startswith("/"):
        return Path(program) if Path(program).exists() else None
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:{_PATH}")
    return Path(found) if found else None


def cni_folder() -> Path | None:
    """The folder with the network plugins."""
    for folder in CNI_FOLDERS:
        if all(Path(folder, name).exists() for name in _CNI_NEEDED):
            return Path(folder)
    return None


def missing() -> list[str]:
    """The packages that have to be installed."""
    packages = [package for wanted, package in NEEDED.items() if not _is_there(wanted)]
    return packages if cni_folder() else [*packages, _CNI_PACKAGE]


def install_missing(say: Callable[[str], None]) -> None:
    """Install what is missing by apt-get. Raises PackagesMissing where that can't be done."""
    packages = missing()
    if not packages:
        return
    by_hand = f"apt-get install --no-install-recommends {' '.join(packages)}"
    if os.geteuid() != 0:
        raise PackagesMissing(f"packages are missing; as root: {by_hand}")
    if not shutil.which("apt-get"):
        raise PackagesMissing(
            f"programs of these Debian packages are missing: {' '.join(packages)}; "
            "there is no apt-get here, so install what this system calls them"
        )
    say(f"installing {' '.join(packages)} (apt-get)")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-q"], [*by_hand.split(), "-y", "-q"]):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            end = "\n".join((done.stdout + done.stderr).splitlines()[-10:])
            raise PackagesMissing(f"`{' '.join(command)}` failed:\n{end}\nBy hand: {by_hand}")


def _is_there(wanted: str) -> bool:
    if wanted == "ca-certificates":
        return Path("/etc/ssl/certs/ca-certificates.crt").exists()
    return find(wanted) is not None
