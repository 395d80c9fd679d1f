"""The ready values: who they are for, and that what they set exists."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from traitlets.config import Config

from hub_integration.spawner import GPUShareSpawner
from profiles import reader
from tests.unit.chart.combinations import VALUES_FOLDER
from tests.unit.chart.rendering import ROOT, Chart

FILES = sorted(VALUES_FOLDER.glob("*.yaml"))
HUB_FILE = VALUES_FOLDER / "zero-to-jupyterhub.yaml"


def header(file: Path) -> str:
    lines = []
    for line in file.read_text().splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#"))
    return "\n".join(lines)


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_file_says_for_whom_and_how(file: Path) -> None:
    text = header(file)
    assert text.startswith(" For whom: ")
    assert "helm upgrade --install gpushare charts/gpushare" in text
    for path in re.findall(r"helm-values/[\w.-]+|images/[\w.-]+", text):
        assert (ROOT / path).exists(), path
    assert f"helm-values/{file.name}" in text


def test_every_file_is_listed() -> None:
    listed = set(re.findall(r"^\| `([\w.-]+)`", (VALUES_FOLDER / "README.md").read_text(), re.M))
    assert listed == {file.name for file in FILES}


@pytest.fixture(scope="module")
def hub() -> dict[str, Any]:
    values = yaml.safe_load(HUB_FILE.read_text())
    assert isinstance(values, dict)
    return values


# What Zero to JupyterHub's schema takes, of the parts that we use. It is closed at each of these
# levels: an unknown key stops the installation.
ZERO_TO_JUPYTERHUB: dict[str, set[str]] = {
    "": {"hub", "proxy", "singleuser", "scheduling", "prePuller", "cull", "custom", "global"},
    "hub": {
        "image", "config", "extraConfig", "extraFiles", "extraVolumes", "extraVolumeMounts",
        "extraEnv", "services", "loadRoles", "networkPolicy", "templatePaths", "templateVars",
        "service",
    },
    "hub.service": {"type", "ports", "annotations", "extraPorts", "loadBalancerIP"},
    "hub.networkPolicy": {
        "enabled", "ingress", "egress", "egressAllowRules", "interNamespaceAccessLabels",
        "allowedIngressPorts",
    },
    "proxy": {"chp", "service", "https", "traefik", "secretToken", "secretSync"},
    "proxy.chp": {"networkPolicy", "resources", "image", "nodeSelector", "tolerations"},
    "proxy.chp.networkPolicy": {
        "enabled", "ingress", "egress", "egressAllowRules", "interNamespaceAccessLabels",
        "allowedIngressPorts",
    },
    "hub.image": {"name", "tag", "pullPolicy", "pullSecrets"},
    "singleuser": {"startTimeout", "image", "extraTolerations", "extraResource", "profileList"},
    "prePuller": {"extraTolerations", "hook", "continuous", "pullProfileListImages"},
    "cull": {
        "enabled", "users", "adminUsers", "removeNamedServers", "timeout", "every", "concurrency",
        "maxAge",
    },
}  # fmt: skip


def test_hub_values_fit_the_closed_schema(hub: dict[str, Any]) -> None:
    for path, known in ZERO_TO_JUPYTERHUB.items():
        part: Any = hub
        for key in filter(None, path.split(".")):
            part = part.get(key, {})
        assert part.keys() <= known, path or "the root"
    for file in hub["hub"]["extraFiles"].values():
        assert file.keys() <= {"mountPath", "data", "stringData", "binaryData", "mode"}
        assert len(file.keys() & {"data", "stringData", "binaryData"}) == 1


def test_hub_values_set_what_the_spawner_has(hub: dict[str, Any]) -> None:
    traits = GPUShareSpawner.class_traits(config=True)
    assert hub["custom"]["gpushare"].keys() <= traits.keys()


def test_hub_reads_its_files_where_they_are_mounted(hub: dict[str, Any]) -> None:
    settings = hub["custom"]["gpushare"]
    files = {f["mountPath"] for f in hub["hub"]["extraFiles"].values()}
    assert settings["catalogue_file"] in files
    (mount,) = hub["hub"]["extraVolumeMounts"]
    assert settings["extender_ca"] == f"{mount['mountPath']}/ca.crt"
    (volume,) = hub["hub"]["extraVolumes"]
    assert volume["name"] == mount["name"]


def test_hub_finds_the_state_api_and_its_authority(chart: Chart, hub: dict[str, Any]) -> None:
    release = chart.render({"tls": {"publishTo": ["jupyter"]}})
    service = release.of("Service", "gpushare-extender")
    metadata, (port,) = service["metadata"], service["spec"]["ports"]
    url = f"https://{metadata['name']}.{metadata['namespace']}.svc:{port['port']}"
    assert hub["custom"]["gpushare"]["extender_url"] == url
    (volume,) = hub["hub"]["extraVolumes"]
    authorities = {
        m["metadata"]["namespace"]
        for m in release.all("ConfigMap")
        if m["metadata"]["name"] == volume["configMap"]["name"]
    }
    assert authorities == {"gpushare", "jupyter"}


def test_catalogue_of_the_hub_values_is_valid(hub: dict[str, Any]) -> None:
    (file,) = hub["hub"]["extraFiles"].values()
    catalogue = reader.loads(yaml.safe_dump(file["data"], sort_keys=False))
    assert [profile.name for profile in catalogue.profiles] == ["t4", "a10", "cpu"]


def test_extra_configuration_is_taken(
    hub: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As the chart's jupyterhub_config.py runs it, with the values that it reads through z2jh."""
    (file,) = hub["hub"]["extraFiles"].values()
    catalogue = tmp_path / "catalogue.yaml"
    catalogue.write_text(yaml.safe_dump(file["data"], sort_keys=False))
    custom = {**hub["custom"]["gpushare"], "catalogue_file": str(catalogue)}
    z2jh = ModuleType("z2jh")
    z2jh.get_config = {"custom.gpushare": custom}.get  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "z2jh", z2jh)
    c = Config()
    for code in hub["hub"]["extraConfig"].values():
        exec(compile(code, "extraConfig", "exec"), {"c": c})
    assert c.JupyterHub.spawner_class == "gpushare"
    assert c.GPUShareSpawner.extender_url == custom["extender_url"]
    found = {
        service["name"]: service["url"] for service in c.JupyterHub.services if "url" in service
    }
    open_ports = {port["port"] for port in hub["hub"]["service"]["extraPorts"]}
    assert {
        urlsplit(found[f"gpushare-{name}"]).port for name in ("culler", "dashboard")
    } == open_ports
    assert {urlsplit(url).hostname for url in found.values()} == {"hub"}
    for policy in (
        hub["hub"]["networkPolicy"]["ingress"],
        hub["proxy"]["chp"]["networkPolicy"]["egress"],
    ):
        assert {port["port"] for rule in policy for port in rule["ports"]} == open_ports
    assert hub["cull"] == {"enabled": False}, "two cullers would not agree"
