"""configurable-http-proxy, the proxy in front of a JupyterHub, installed by npm into the cache;
and other packages of npm, for those who need one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from playground.cache import cache_folder
from playground.packages import PackagesMissing
from playground.progress import Say, run_logged

VERSION = "5.3.0"
_PACKAGE = "configurable-http-proxy"


def ensure_proxy(say: Say = print) -> tuple[str, str]:
    """The command of the proxy: node and the script. Installs what is missing."""
    node = ensure_node(say)
    package = ensure_package(_PACKAGE, VERSION, say)
    return node, str(package / "bin" / _PACKAGE)


def ensure_package(name: str, version: str, say: Say = print) -> Path:
    """The folder of one of npm's packages in the cache. Installs it where it is missing."""
    folder = cache_folder("npm", f"{name}-{version}")
    package = folder / "node_modules" / name
    if not (package / "package.json").exists():
        npm = shutil.which("npm")
        if npm is None:
            raise PackagesMissing("npm is missing: apt-get install npm")
        run_logged(
            f"installing {name} {version} (npm)",
            [npm, "install", "--no-audit", "--no-fund", "--omit=dev", f"{name}@{version}"],
            cache_folder("logs") / "npm.log",
            say,
            cwd=_project(folder),
        )
    return package


def ensure_node(say: Say = print) -> str:
    """The path of node; installed by apt-get, with npm, where either is missing."""
    node = shutil.which("node")
    if node and shutil.which("npm"):
        return node
    by_hand = "apt-get install --no-install-recommends nodejs npm"
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise PackagesMissing(f"node and npm are missing; as root: {by_hand}")
    log = cache_folder("logs") / "apt-node.log"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run_logged("reading Debian's package lists", ["apt-get", "update", "-q"], log, say)
    command = [*by_hand.split(), "-y", "-q"]
    run_logged("installing node and npm (apt-get)", command, log, say, env=environment)
    node = shutil.which("node")
    if node is None:
        raise PackagesMissing(f"node is missing after `{by_hand}`: see {log}")
    return node


def _project(folder: Path) -> Path:
    """A folder of its own for npm: it would install into a package.json further up."""
    (folder / "package.json").write_text('{"private": true}\n')
    return folder
