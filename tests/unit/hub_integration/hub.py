"""Starts the real JupyterHub of this environment, and drives it as a browser or a program would."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import requests

CONFIG = Path(__file__).with_name("hub_config.py")
PATIENCE = 60


class Hub:
    """One JupyterHub process. ``settings`` are the spawner's; ``fate`` is that of its pods."""

    def __init__(
        self, folder: Path, fate: str = "pending", settings: Any = None, **more: Any
    ) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/hub"
        given = {"port": self.port, "fate": fate, "settings": settings or {}, **more}
        self.environment = {
            **os.environ,
            "HUB_TEST": json.dumps(given),
            "KUBECONFIG": str(_kubeconfig(folder)),
        }
        self.log = folder / "hub.log"

    def __enter__(self) -> Hub:
        root = Path(__file__).parents[3]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", str(CONFIG)],
                cwd=self.folder,
                env={**self.environment, "PYTHONPATH": str(root)},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + PATIENCE
        while True:
            assert self.alive, f"the Hub did not start:\n{self.log.read_text()}"
            try:
                if requests.get(f"{self.url}/health", timeout=5).ok:
                    return self
            except requests.ConnectionError:
                assert time.monotonic() < deadline, self.log.read_text()
                time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def api(self, method: str, path: str, **more: Any) -> requests.Response:
        headers = {"Authorization": "token tester-token"}
        url = f"{self.url}/api/{path}"
        return requests.request(method, url, headers=headers, timeout=PATIENCE, **more)

    def await_stopped(self, user: str) -> None:
        """Until nothing of the user's server is pending."""
        deadline = time.monotonic() + PATIENCE
        while self.api("GET", f"users/{user}").json()["pending"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def progress(self, user: str) -> list[dict[str, Any]]:
        """The events of the spawn, to its end."""
        answer = self.api("GET", f"users/{user}/server/progress", stream=True)
        lines = (line for line in answer.iter_lines() if line.startswith(b"data: "))
        return [json.loads(line[6:]) for line in lines]

    def metric(self, name: str) -> float:
        text = self.api("GET", "../metrics").text
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0


def _kubeconfig(folder: Path) -> Path:
    """KubeSpawner wants one that it can load; nothing listens there."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "none",
        "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
        "clusters": [{"name": "none", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "none", "user": {}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


class Browser:
    """Somebody logged in through the Hub's login page."""

    def __init__(self, hub: Hub, user: str) -> None:
        self.hub = hub
        self.user = user
        self.session = requests.Session()
        self.session.get(f"{hub.url}/login", timeout=PATIENCE)
        data = {"username": user, "password": "pass", "_xsrf": self.session.cookies["_xsrf"]}
        answer = self.session.post(
            f"{hub.url}/login", data=data, timeout=PATIENCE, allow_redirects=False
        )
        assert answer.status_code == 302, answer.text

    def get(self, path: str, **more: Any) -> requests.Response:
        return self.session.get(f"{self.hub.url}/{path}", timeout=PATIENCE, **more)

    def spawn_page(self) -> Page:
        answer = self.get("spawn")
        assert answer.status_code == 200, answer.text
        return Page(answer.text)

    def submit(self, **fields: str) -> requests.Response:
        """Post the form as the page is; the page's own action carries the token."""
        page = self.spawn_page()
        origin = self.hub.url.removesuffix("/hub")
        files = {name: (None, value) for name, value in fields.items()}
        return self.session.post(
            origin + page.action, files=files, timeout=PATIENCE, allow_redirects=False
        )


class Page(HTMLParser):
    """What a browser makes of a page: its form's fields, its ids with their text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.source = text
        self.action = ""
        self.inputs: list[dict[str, str]] = []
        self.labels: list[str] = []
        self.ids: dict[str, str] = {}
        self.legends: list[str] = []
        self._open: list[tuple[str, str]] = []
        self._fieldsets = 0
        self.feed(text)

    _VOID = frozenset({"input", "br", "meta", "link", "img", "hr"})

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "form" and found.get("id") == "spawn_form":
            self.action = found["action"]
        if tag == "input":
            self.inputs.append(found)
        if tag == "label":
            self.labels.append(found.get("for", ""))
        if found.get("id"):
            self.ids.setdefault(found["id"], "")
        if tag not in self._VOID:
            self._open.append((tag, found.get("id", "")))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        for tag, id_ in self._open:
            if id_:
                self.ids[id_] += data
            if tag == "legend":
                self.legends.append(data.strip())

    def text(self, id_: str) -> str:
        return " ".join(self.ids[id_].split())

    def checked(self, name: str) -> list[str]:
        return [i["value"] for i in self.inputs if i.get("name") == name and "checked" in i]

    def values(self, name: str) -> list[str]:
        return [i["value"] for i in self.inputs if i.get("name") == name]
