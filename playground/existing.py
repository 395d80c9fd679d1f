"""A cluster that the user already has, named by a kubeconfig, used instead of one made here."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "GPUSHARE_PLAYGROUND_KUBECONFIG"


class ClusterSilent(Exception):
    """The cluster does not answer; the text says why and what to do."""


def chosen_kubeconfig(given: str | None = None) -> Path | None:
    """The kubeconfig that was given, or the environment's; None if a cluster is to be made."""
    chosen = given or os.environ.get(VARIABLE)
    return Path(chosen).expanduser().absolute() if chosen else None


def server_version(kubeconfig: Path) -> str:
    """Ask the cluster for its version ('v1.36.3'). Raises ClusterSilent."""
    # Only here: it takes half a second to import, and the playground itself needs none of it.
    from kubernetes import client, config
    from urllib3.exceptions import HTTPError

    advice = f"check --kubeconfig or {VARIABLE}"
    if not kubeconfig.exists():
        raise ClusterSilent(f"there is no {kubeconfig}: {advice}")
    try:
        access = config.new_client_from_config(str(kubeconfig))
        version = client.VersionApi(access).get_code(_request_timeout=10)
    except config.ConfigException as error:
        raise ClusterSilent(f"{kubeconfig} is no usable kubeconfig: {error}; {advice}") from None
    except (client.ApiException, HTTPError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ClusterSilent(
            f"the cluster of {kubeconfig} does not answer: {reason}; {advice}"
        ) from None
    return str(version.git_version)
