"""Links lead somewhere, snippets are what they say, commands and metrics exist."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
import yaml
from traitlets.config import Config

from gpushare.cli.main import main
from gpushare.names import Names
from gpushare.request import parse_request
from tests.unit.docs.pages import DOCS, PAGES, ROOT, name, prose, snippets

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """As GitHub and MyST make them of headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(prose(page)):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), f"{link}: there is no such file"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_snippets_can_be_read(page: Path) -> None:
    for line, text in snippets(page, "yaml", "yml"):
        for document in yaml.safe_load_all(text):
            assert document is not None, f"{name(page)}:{line} is empty"
    for _line, text in snippets(page, "python", "py"):
        ast.parse(text)
    for _line, text in snippets(page, "json"):
        json.loads(text)
    for line, text in snippets(page, "sh", "bash"):
        done = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name(page)}:{line}: {done.stderr}"


def pods(document: Any) -> list[dict[str, Any]]:
    """The pod, or the pod template, of a manifest."""
    if not isinstance(document, dict):
        return []
    if document.get("kind") == "Pod":
        return [document]
    template = (document.get("spec") or {}).get("template")
    return [template] if isinstance(template, dict) and "spec" in template else []


def test_manifests_ask_for_slices_that_can_be_had() -> None:
    seen = 0
    for page in PAGES:
        for line, text in snippets(page, "yaml"):
            for document in yaml.safe_load_all(text):
                for pod in pods(document):
                    request = parse_request(pod, Names())
                    assert request is not None, f"{name(page)}:{line} asks for nothing"
                    # Absent where the page is about the webhook, which sets it.
                    named = pod["spec"].get("schedulerName", "gpushare-user-scheduler")
                    assert named == "gpushare-user-scheduler"
                    seen += 1
    assert seen >= 5


_COMMAND = re.compile(r"^(?:\$ )?((?:kubectl )?gpushare .+)$", re.MULTILINE)


def commands(page: Path) -> list[str]:
    blocks = [text for _, text in snippets(page, "sh", "bash", "")]
    inline = re.findall(r"`((?:kubectl )?gpushare [a-z][^`\n]*)`", page.read_text("utf-8"))
    return [found for text in [*blocks, *inline] for found in _COMMAND.findall(text)]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_and_their_options_exist(page: Path) -> None:
    assert isinstance(main, click.Group)
    context = click.Context(main)
    for text in commands(page):
        words = shlex.split(
            text.removeprefix("kubectl ").split("|")[0].split(">")[0], comments=True
        )
        if len(words) < 2 or not words[1].isidentifier() or words[1].isupper():
            continue
        command: click.Command | None = main.get_command(context, words[1])
        assert command is not None, f"there is no command {text!r}"
        if isinstance(command, click.Group) and len(words) > 2 and not words[2].startswith("-"):
            command = command.get_command(context, words[2])
            assert command is not None, f"there is no command {text!r}"
        known = {option for one in command.params for option in one.opts} | {"--help", "-h"}
        if command.name == "kubectl":
            continue
        for word in words[2:]:
            option = word.partition("=")[0]
            assert not option.startswith("-") or option in known, f"{text!r}: no option {option}"


def test_every_command_is_on_the_page_of_the_command_line() -> None:
    assert isinstance(main, click.Group)
    text = (DOCS / "command-line.md").read_text("utf-8")
    for command in main.list_commands(click.Context(main)):
        assert f"`{command}" in text, command


def test_every_check_of_the_doctor_is_there() -> None:
    from gpushare.cli.doctor.checks import ALL

    text = (DOCS / "command-line.md").read_text("utf-8")
    assert re.findall(r"^\| `([\w-]+)` \| [^|]+ \|$", text, re.MULTILINE) == [c.name for c in ALL]


# A metric's name where it is made: the first argument, or a table's key; the extender's cards have the
# common beginning apart. Names of databases' tables and of indexes look alike.
_METRIC = re.compile(r"\"(gpushare_[a-z_]+)\"(?=,|:)")
_APART = ("gpushare_card_", "gpushare_")
_SOURCES = (*sorted((ROOT / "extender").rglob("*.py")),
            *(ROOT / name for name in ("device_plugin/status_page.py", "device_plugin/usage/metrics.py",
              "hub_integration/metrics.py", "hub_integration/culling/metrics.py")))  # fmt: skip


def test_every_metric_is_explained_and_no_other() -> None:
    text = "\n".join(source.read_text("utf-8") for source in _SOURCES)
    made = set(_METRIC.findall(text))
    assert len(made) > 30
    told = set(re.findall(r"`(gpushare_[a-z_]+)`", (DOCS / "observability.md").read_text("utf-8")))
    assert made <= told
    invented = {
        metric
        for metric in told - made
        if not any(f'"{metric.removeprefix(apart)}"' in text for apart in _APART)
    }
    assert not invented


def test_every_alert_is_explained_and_no_other() -> None:
    rules = (ROOT / "charts" / "gpushare" / "monitoring" / "rules.yaml").read_text("utf-8")
    alerts = re.findall(r"alert: (\w+)", rules)
    assert alerts
    told = re.findall(r"^\| `(Gpushare\w+)` ", (DOCS / "observability.md").read_text("utf-8"), re.M)
    assert told == alerts


def test_the_configuration_of_a_bare_hub_is_taken(tmp_path: Path) -> None:
    (_, text), *_ = snippets(DOCS / "bare-jupyterhub.md", "python")
    c = Config()
    exec(compile(text, "jupyterhub_config.py", "exec"), {"get_config": lambda: c})
    assert c.JupyterHub.spawner_class == "gpushare"
    assert c.GPUShareSpawner.extender_url == "https://gpushare-extender.gpushare.svc:8443"
    from jupyterhub.app import JupyterHub

    from hub_integration.spawner import GPUShareSpawner

    for section, cls in (("JupyterHub", JupyterHub), ("KubeSpawner", GPUShareSpawner)):
        assert c[section].keys() <= set(cls.class_trait_names(config=True)), section


def test_figures_of_the_packages_are_those_in_use() -> None:
    """The page of compatibility names the versions that were run."""
    text = (DOCS / "compatibility.md").read_text("utf-8")
    modules = ROOT / "playground" / "binaries" / "modules"
    versions = SimpleNamespace(
        kubernetes=_required(modules / "kubernetes", r"k8s\.io/kubernetes v(1\.\d+\.\d+)"),
        containerd=_required(modules / "containerd", r"containerd/containerd/v2 v(2\.\d+\.\d+)"),
        helm=_required(modules / "helm", r"helm\.sh/helm/v\d+ v(\d+\.\d+)\."),
    )
    assert f"| Kubernetes | {versions.kubernetes} " in text
    assert f"| container runtime | containerd {versions.containerd} " in text
    assert f"| Helm | {versions.helm} " in text


def _required(module: Path, pattern: str) -> str:
    found = re.search(pattern, (module / "go.mod").read_text())
    assert found is not None, module
    return found[1]
