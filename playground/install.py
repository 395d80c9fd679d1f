"""Installing the product into a cluster with the real helm, as a platform team would.

The images come from this checkout and are imported into the nodes, since nothing is published.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from kubernetes import client, config

from gpushare.names import Names
from playground import binaries, images
from playground.progress import Say
from playground.rollout import await_cards, await_state_api, diagnosis, narrated

NAMESPACE = "gpushare"
RELEASE = "gpushare"
CHART = Path(__file__).parents[1] / "charts" / "gpushare"
VALUES = Path(__file__).with_name("values.yaml")

# Which of the chart's pods changes when an image of ours does.
_POD_OF_IMAGE = {
    "kube-scheduler": "scheduler",
    "extender": "scheduler",
    "device-plugin": "devicePlugin",
}


class Cluster(Protocol):
    """What is needed of a playground's cluster."""

    def kubeconfig(self) -> Path: ...

    def import_image(self, path: Path) -> object: ...


class InstallError(RuntimeError):
    """helm gave up; the message has its words and the state of the pods."""


def install(
    cluster: Cluster,
    *,
    wait: bool = True,
    say: Say = print,
    values: Sequence[Path] = (),
    settings: Sequence[str] = (),
    timeout: float = 240,
) -> None:
    """Install or upgrade the product. With ``wait``, return once the nodes offer their cards.

    ``values`` are further values files and ``settings`` further ``name=value`` for helm's --set;
    ``timeout`` is in seconds. Raises InstallError.
    """
    api = api_of(cluster.kubeconfig())
    arguments = ["--values", str(VALUES)]
    for file in values:
        arguments += ["--values", str(file)]
    for setting in [*_import_images(cluster, say), *settings]:
        arguments += ["--set-string" if ".podAnnotations." in setting else "--set", setting]
    if wait:
        arguments += ["--wait", f"--timeout={int(timeout)}s"]
    _clear_interrupted(api, say)
    say("installing the chart with helm")
    with narrated(api, NAMESPACE, say):
        done = helm(
            cluster.kubeconfig(), "upgrade", "--install", RELEASE, str(CHART), "--create-namespace",
            *arguments,
        )  # fmt: skip
    if done.returncode:
        raise InstallError(
            f"helm could not install the chart: {done.stderr.strip()}\n{diagnosis(api, NAMESPACE)}"
        )
    if wait:
        say("waiting for the nodes to offer their cards")
        waiting = await_cards(api, NAMESPACE, Names(), timeout=60)
        if not await_state_api(api, NAMESPACE, timeout=30):
            raise InstallError(
                f"the state API cannot be reached through the API server\n{diagnosis(api, NAMESPACE)}"
            )
        if waiting:
            raise InstallError(
                f"no card is offered by: {', '.join(waiting)}\n{diagnosis(api, NAMESPACE)}"
            )


def uninstall(cluster: Cluster) -> None:
    """Take the product out again; running pods stay. Raises InstallError."""
    done = helm(cluster.kubeconfig(), "uninstall", RELEASE, "--wait", "--ignore-not-found")
    if done.returncode:
        raise InstallError(f"helm could not uninstall the chart: {done.stderr.strip()}")


def helm(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the real helm on the product's namespace."""
    command = [
        str(binaries.path("helm")),
        "--kubeconfig",
        str(kubeconfig),
        "--namespace",
        NAMESPACE,
    ]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)


def api_of(kubeconfig: Path) -> client.ApiClient:
    """A client for the cluster of ``kubeconfig``."""
    return config.new_client_from_config(str(kubeconfig))


def _clear_interrupted(api: client.ApiClient, say: Say) -> None:
    """Forget an operation that was killed: helm would wait for its end for ever.

    helm keeps each operation in a Secret of its own. What the killed one had made already is found
    by its labels and taken over by the next.
    """
    core = client.CoreV1Api(api)
    pending = "pending-install,pending-upgrade,pending-rollback"
    secrets = core.list_namespaced_secret(
        NAMESPACE, label_selector=f"owner=helm,name={RELEASE},status in ({pending})"
    ).items
    for secret in secrets:
        say(
            f"forgetting an interrupted {secret.metadata.labels['status'].removeprefix('pending-')}"
        )
        core.delete_namespaced_secret(secret.metadata.name, NAMESPACE)


def _import_images(cluster: Cluster, say: Say) -> list[str]:
    """Build and import the product's images; settings that make new pods of changed images.

    The tag stays the same, so that it is the digest in an annotation that tells the pods apart.
    """
    settings = []
    for name, pod in _POD_OF_IMAGE.items():
        archive = images.build(name, say=say)
        cluster.import_image(archive.path)
        settings.append(f"{pod}.podAnnotations.image-{name}={archive.digest}")
    return settings
