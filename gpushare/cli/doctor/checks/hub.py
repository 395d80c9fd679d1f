"""JupyterHubs in the cluster: the spawner's settings, as far as they can be seen."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from gpushare.cli.doctor.facts import Facts, Hub, Right
from gpushare.cli.doctor.finding import Check, Finding, error, warning

_SPAWNERS = ("gpushare", "hub_integration.spawner.GPUShareSpawner")


def spawners(facts: Facts) -> Iterator[Finding]:
    for hub in facts.hubs:
        config = hub.config
        spawner = (config.get("JupyterHub") or {}).get("spawner_class")
        settings = config.get("GPUShareSpawner") or {}
        where = f"the Hub in {hub.namespace}"
        if spawner not in _SPAWNERS and settings:
            yield error(
                f"{where} has settings for GPUShareSpawner but another spawner_class",
                "set hub.config.JupyterHub.spawner_class: gpushare",
            )
        if spawner in _SPAWNERS:
            yield from _settings(facts, hub, where)


def _settings(facts: Facts, hub: Hub, where: str) -> Iterator[Finding]:
    settings = hub.config.get("GPUShareSpawner") or {}
    url = str(settings.get("extender_url") or "")
    host = urlsplit(url).hostname or ""
    if not url:
        yield warning(
            f"{where} does not know the extender: its form shows no free slices",
            f"set GPUShareSpawner.extender_url: https://gpushare-extender.{facts.namespace}.svc:8443",
        )
    elif host.endswith(".svc") and host.split(".")[1:2] != [facts.namespace]:
        yield error(
            f"{where} asks {url}, but gpushare is installed in {facts.namespace}",
            f"set GPUShareSpawner.extender_url: https://gpushare-extender.{facts.namespace}.svc:8443",
        )
    elif url.startswith("https") and not settings.get("extender_ca"):
        yield warning(
            f"{where} has no authority to check the extender's certificate by",
            "set GPUShareSpawner.extender_ca to the mounted ca.crt (chart value tls.publishTo)",
        )
    for setting, trait in (("unit", "unit"), ("prefix", "prefix")):
        said = settings.get(trait)
        here = facts.extender.get(setting)
        if said and here and said != here:
            yield error(
                f"{where} has {setting} {said}, the extender {here}: notebooks get other amounts",
                f"set GPUShareSpawner.{trait}: {here}",
            )
    name = settings.get("gpu_scheduler_name")
    if name and name not in facts.scheduler_names:
        yield error(
            f"{where} gives notebooks the scheduler {name!r}, which is not gpushare's",
            f"set GPUShareSpawner.gpu_scheduler_name: {facts.scheduler_names[0]}",
        )


def readers(facts: Facts) -> Iterator[Finding]:
    """Whether the Hub's account may ask the state API."""
    for hub in facts.hubs:
        if not (hub.config.get("GPUShareSpawner") or {}).get("extender_url"):
            continue
        right = reading(hub)
        if facts.rights.get(right) is False:
            yield error(
                f"the Hub in {hub.namespace} may not read the state API: its form shows no free slices",
                f"add {{namespace: {hub.namespace}, name: {hub.account}}} to the chart's "
                "stateApi.serviceAccounts",
            )


def reading(hub: Hub) -> Right:
    """What the Hub's account needs."""
    return Right(f"system:serviceaccount:{hub.namespace}:{hub.account}", "get", path="/v1/nodes")


def failure_limits(facts: Facts) -> Iterator[Finding]:
    """Zero to JupyterHub ends the Hub after five failed starts in a row."""
    for hub in facts.hubs:
        spawner = (hub.config.get("JupyterHub") or {}).get("spawner_class")
        limit = (hub.config.get("Spawner") or {}).get(
            "consecutive_failure_limit", hub.failure_limit
        )
        if spawner in _SPAWNERS or not limit:
            continue
        if any(_of(pod, hub, facts) for pod in facts.asking()):
            yield warning(
                f"the Hub in {hub.namespace} ends itself after {limit} failed starts in a row, and with "
                "its spawner a full cluster is such a failure",
                "use GPUShareSpawner, whose refusals do not count, or set "
                "hub.consecutiveFailureLimit: 0",
            )


def _of(pod: object, hub: Hub, facts: Facts) -> bool:
    assert isinstance(pod, dict)
    component = (pod["metadata"].get("labels") or {}).get("component")
    return pod["metadata"].get("namespace") == hub.namespace and component == "singleuser-server"


CHECKS = (
    Check("spawner", "settings of the Hubs' spawners", spawners, ("hubs",)),
    Check("hub-rights", "the Hubs may read the state", readers, ("hubs", "rights")),
    Check("failure-limit", "a full cluster ends no Hub", failure_limits, ("hubs", "pods")),
)
