"""Running buildah without an engine: its own storage, chroot for isolation, no pulling."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterable, Mapping
from configparser import ConfigParser
from pathlib import Path

from playground.cache import cache_folder
from playground.progress import Say, StepFailed, run_logged

_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"  # where the images' Debian looks


class Buildah:
    """One storage under the cache, and a log that every command writes to."""

    def __init__(self, log: Path, say: Say) -> None:
        self._log = log
        self._say = say
        storage = cache_folder("containers")
        overlay = "overlay" in Path("/proc/filesystems").read_text()
        self._program = [
            # A build that fails or is killed leaves its mounts; in a namespace they end with it.
            *("unshare", "--mount", "--propagation", "private"),
            "buildah",
            f"--root={storage / 'root'}",
            f"--runroot={storage / 'run'}",
            f"--storage-driver={'overlay' if overlay else 'vfs'}",
        ]

    def build(
        self,
        reference: str,
        containerfile: Path,
        context: Path,
        arguments: Mapping[str, str],
        clients: Path,
        title: str,
    ) -> None:
        """Build ``reference``. ``clients`` is a folder for the package clients' configuration."""
        options = [f"--build-arg={key}={value}" for key, value in arguments.items()]
        options += [f"--volume={s}:{t}:{mode}" for s, t, mode in package_clients(clients)]
        self._run(
            title,
            "bud",
            "--isolation=chroot",
            "--format=docker",
            "--layers",
            "--force-rm",
            "--pull-never",
            "--network=host",
            f"--tag={reference}",
            f"--file={containerfile}",
            *options,
            str(context),
        )

    def export(self, reference: str, path: Path) -> None:
        """Write ``reference`` to ``path``, whole or not at all."""
        partial = path.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        self._run(
            f"packing {reference}", "push", reference, f"docker-archive:{partial}:{reference}"
        )
        partial.replace(path)

    def has(self, reference: str) -> bool:
        command = [*self._program, "inspect", "--type=image", reference]
        return subprocess.run(command, capture_output=True).returncode == 0

    def load(self, path: Path) -> None:
        """Make the image of an archive known, for others to build on."""
        self._run(f"loading {path.name}", "pull", f"docker-archive:{path}")

    def tag(self, reference: str, name: str) -> None:
        self._run(f"naming {name}", "tag", reference, name)

    def _run(self, title: str, *arguments: str) -> None:
        run_logged(title, [*self._program, *arguments], self._log, self._say)


def require(programs: Iterable[str], log: Path, say: Say) -> None:
    """Install what is missing of ``programs`` (named as their Debian packages), or say how."""
    missing = [program for program in programs if not shutil.which(program)]
    if not missing:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise StepFailed(f"building images needs {' and '.join(missing)}: install them")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run_logged("apt-get update", ["apt-get", "update", "-q"], log, say, env=environment)
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *missing]
    run_logged(f"installing {' '.join(missing)}", install, log, say, env=environment)


def package_clients(folder: Path) -> list[tuple[Path, str, str]]:
    """Mounts (source, target, mode) that let pip and uv inside a build reach what this host
    reaches: its certificate authorities, its package index, and a cache.

    They are there while commands run and never become part of an image.
    """
    settings = pip_settings()
    certificates = _host_certificates(settings)
    pip = ConfigParser(interpolation=None)
    pip["global"] = {key: value for key, value in settings.items() if key in _KEPT}
    pip["global"]["disable-pip-version-check"] = "true"
    uv = ['link-mode = "copy"']
    if index := settings.get("index-url"):
        uv.append(f'index-url = "{index}"')
    if extra := settings.get("extra-index-url", "").split():
        uv.append(f"extra-index-url = {extra!r}".replace("'", '"'))
    mounts = [
        (cache_folder("pip"), "/root/.cache/pip", "rw"),
        (cache_folder("uv"), "/root/.cache/uv", "rw"),
        (folder / "pip.conf", "/etc/pip.conf", "ro"),
        (folder / "uv.toml", "/etc/uv/uv.toml", "ro"),
    ]
    if certificates:
        pip["global"]["cert"] = _CERTIFICATES
        uv.append("system-certs = true")
        mounts.append((certificates, _CERTIFICATES, "ro"))
    with (folder / "pip.conf").open("w") as file:
        pip.write(file)
    (folder / "uv.toml").write_text("\n".join(uv) + "\n")
    return mounts


_KEPT = {"index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries"}


def pip_settings() -> dict[str, str]:
    """pip's configuration on this host, from its files and environment together."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True
    )
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listing.stdout.splitlines():
        name, equals, value = line.partition("=")
        section, _, key = name.partition(".")
        if equals and section in found:
            found[section][key] = value.strip().strip("'\"").replace("\\n", " ").strip()
    return found["global"] | found["install"] | found[":env:"]  # pip's own order


def _host_certificates(settings: Mapping[str, str]) -> Path | None:
    """The bundle that this host trusts; None leaves the clients to their own."""
    for name in (
        settings.get("cert"),
        os.environ.get("SSL_CERT_FILE"),
        ssl.get_default_verify_paths().cafile,
        _CERTIFICATES,
        "/etc/pki/tls/certs/ca-bundle.crt",
    ):
        if name and Path(name).is_file():
            return Path(name).resolve()
    return None
