"""What is mounted where, and namespaces kept open by files (see unshare(1), --net=FILE)."""

from __future__ import annotations

import os
import re
from pathlib import Path

from playground.commands import run

_OCTAL = re.compile(r"\\([0-7]{3})")


class StillMounted(Exception):
    """Something in a folder that is to be removed can't be unmounted; the text says what."""


def parse_mount_points(mountinfo: str) -> list[Path]:
    """The mount points of a /proc/PID/mountinfo text, in the order in which they were mounted."""
    fields = (line.split(" ") for line in mountinfo.splitlines())
    # Spaces and the like in a path stand as \040.
    return [Path(_OCTAL.sub(lambda m: chr(int(m[1], 8)), f[4])) for f in fields if len(f) > 4]


def mount_points(below: Path | None = None) -> list[Path]:
    """Mount points of this process, at or below ``below``."""
    points = parse_mount_points(Path("/proc/self/mountinfo").read_text())
    return [p for p in points if below is None or p.is_relative_to(below)]


def unmount_all(below: Path) -> None:
    """Unmount everything at or below ``below``, the newest first."""
    for point in reversed(mount_points(below)):
        # Lazily: a process that is just ending may still be inside.
        run(["umount", "--lazy", str(point)])


def make_pin_folder(folder: Path) -> None:
    """A folder in which namespaces can be kept: that needs a mount that is not shared."""
    folder.mkdir(parents=True, exist_ok=True)
    if folder not in mount_points():
        run(["mount", "--bind", str(folder), str(folder)])
        run(["mount", "--make-private", str(folder)])


def pin_network_namespace(pin: Path) -> None:
    """A new network namespace that lives as long as ``pin`` is mounted."""
    pin.touch()
    run(["unshare", f"--net={pin}", "true"])


def pin_mount_namespace(pin: Path) -> None:
    """A new mount namespace, a copy of this one in which nothing that is mounted goes in or out."""
    pin.touch()
    run(["unshare", f"--mount={pin}", "--propagation", "private", "true"])


def is_pinned(pin: Path) -> bool:
    return pin in mount_points()


def remove_tree(folder: Path) -> None:
    """Remove a folder, and never anything that is mounted in it.

    Raises StillMounted when something in it is: removing through a mount would remove
    what lies behind it.
    """
    mounted = mount_points(folder)
    if mounted:
        raise StillMounted(f"{mounted[0]} is still mounted: unmount it, then run `down` again")
    if folder.exists():
        _remove(folder)


def _remove(folder: Path) -> None:
    # Not shutil.rmtree: container roots hold names that are no text, and folders that refuse entry.
    for base, folders, files in os.walk(os.fsencode(folder), topdown=False):
        for name in files:
            os.unlink(os.path.join(base, name))
        for name in folders:
            path = os.path.join(base, name)
            if os.path.islink(path):
                os.unlink(path)
            else:
                os.rmdir(path)
    os.rmdir(folder)
