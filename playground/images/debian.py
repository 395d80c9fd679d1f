"""A small Debian with Python, from Debian's own mirror by debootstrap."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from playground.progress import Say, run_logged

SUITE = "bookworm"
MIRROR = os.environ.get("GPUSHARE_DEBIAN_MIRROR", "http://deb.debian.org/debian")
PACKAGES = "python3,python3-venv,ca-certificates,libstdc++6"
# Nothing is installed with apt inside our images, so what only apt and dpkg's scripts use can go.
# perl-base is last: the scripts of the others may still want it.
_PURGED = """
    apt libapt-pkg6.0 gpgv debian-archive-keyring libgnutls30 libhogweed6 libnettle8 libp11-kit0
    libtasn1-6 libgmp10 libgcrypt20 libgpg-error0 libxxhash0 e2fsprogs libext2fs2 libss2 logsave
    util-linux-extra init-system-helpers sysvinit-utils adduser debconf perl-base
"""
_EMPTIED = """
    dev run tmp var/cache var/lib/apt var/lib/dpkg/info var/log
    usr/share/bash-completion usr/share/common-licenses usr/share/doc usr/share/info
    usr/share/lintian usr/share/locale usr/share/man usr/share/perl5
    usr/lib/*/gconv usr/lib/*/perl-base
    usr/lib/python3*/lib2to3 usr/lib/python3*/pydoc_data usr/lib/python3*/test
"""


def inputs() -> Iterable[str]:
    """Texts that the result depends on; Debian's own updates come with a new cache only."""
    yield Path(__file__).read_text()


def context(folder: Path, logs: Path, say: Say) -> None:
    """Leave rootfs.tar in ``folder``."""
    log = logs / "debootstrap.log"
    root = folder / "rootfs"
    try:
        run_logged(
            f"debootstrap {SUITE} (about 1 min)",
            ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(root), MIRROR],
            log,
            say,
        )
        with log.open("ab") as out:
            slim(root, out.fileno())
        pack = ["tar", "--numeric-owner", "-C", str(root), "-cf", str(folder / "rootfs.tar"), "."]
        run_logged("packing the base", pack, log, say)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def slim(root: Path, log: int) -> None:
    """Remove what no container of ours needs; a third of the size stays."""
    for package in _PURGED.split():
        # One by one: a package that a later Debian no longer has must not keep the others.
        command = ["dpkg", "--purge", "--force-all", package]
        subprocess.run(["chroot", str(root), *command], stdout=log, stderr=log, check=False)
    for pattern in _EMPTIED.split():
        for folder in root.glob(pattern):
            shutil.rmtree(folder)
            folder.mkdir()
    (root / "tmp").chmod(0o1777)
