"""A Hub with the culler, its people, and what they do, for the tests of culling."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import requests
from kubernetes import client

from gpushare.placement import decode
from playground.cards import node_cards
from playground.cluster import Cluster
from playground.hub import PASSWORD, Hub
from playground.hub_account import NAMESPACE
from playground.hub_user import HubUser
from tests.cluster.gpu_programs import Programs
from tests.cluster.pods import NAMES, Pods
from tests.cluster.processes import NAMESPACE as PRODUCT

# A minute of it lasts a second: see MINUTE. "kept" never ends by itself.
CATALOGUE = """
version: 1
defaults:
  idle_minutes: 20
  warn_minutes: 2
  min_run_minutes: 1
  pressed_idle_minutes: 20
  gpu_idle_minutes: 6
  hold_minutes: 600
profiles:
  - name: t4
    title: NVIDIA T4
    models: [T4]
    slices:
      - {name: 3g, title: 3 GiB, memory: 3GiB}
      - {name: brief, title: 3 GiB for a moment, memory: 3GiB, idle_minutes: 4}
      - {name: kernels, title: 3 GiB with busy fingers, memory: 3GiB, idle_minutes: 0,
         kernel_idle_minutes: 3}
      - {name: whole, title: whole card, percent: 100, idle_minutes: 0, pressed_idle_minutes: 0}
  - name: a10
    title: NVIDIA A10
    models: [A10]
    slices:
      - {name: brief, title: 5 GiB for a moment, memory: 5GiB, idle_minutes: 4}
"""
MINUTE = 1.0
SETTINGS: dict[str, object] = {
    "minute": MINUTE,
    "interval": 0.5,
    "patience": 1.0,
    "alarm_after": 4.0,
}


class Culling:
    """The Hub, the culler's API as an admin sees it, and the people."""

    def __init__(self, api: client.ApiClient, folder: Path, **settings: object) -> None:
        self._settings = {**SETTINGS, **settings}
        self.core = client.CoreV1Api(api)
        self.pods = Pods(api, NAMESPACE)
        self.cluster = Cluster()
        self._catalogue = folder / "catalogue.yaml"
        self._catalogue.write_text(CATALOGUE)
        self.hub = self._hub({})
        self.users: dict[str, HubUser] = {}
        self.began = datetime.now(UTC).isoformat()  # what was before is none of ours

    def _hub(self, settings: Mapping[str, object], **more: Any) -> Hub:
        return Hub(
            self.cluster,
            catalogue=str(self._catalogue),
            spawner={"gpu_start_timeout": 120},
            culler={**self._settings, **settings},
            **more,
        )

    def start(self, settings: Mapping[str, object], **more: Any) -> None:
        """Run the Hub with these settings of the culler, and wait until it has looked."""
        self.hub = self._hub(settings, **more)
        self.hub.start()
        self.admin = self.user("admin")
        self.await_look()

    def user(self, name: str) -> HubUser:
        if name not in self.users:
            self.users[name] = HubUser(self.hub.url, name, PASSWORD)
        return self.users[name]

    def servers(self, **choices: str) -> None:
        """Start these people's servers at once; choices as 't4/3g'. Their time begins with the last."""
        people = {name: self.user(name) for name in choices}

        def start(name: str) -> None:
            profile, _, part = choices[name].partition("/")
            people[name].start_server({"profile": profile, "slice": part})

        with self.open_tab(*choices), ThreadPoolExecutor(8) as pool:
            list(pool.map(start, choices))

    # The culler's API

    def get(self, path: str, who: str = "admin", **query: str) -> Any:
        answer = self.ask("GET", path, who, params=query)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
        return answer.json()

    def ask(self, method: str, path: str, who: str = "admin", **more: Any) -> requests.Response:
        with requests.Session() as session:
            session.trust_env = False
            return session.request(
                method,
                f"{self.hub.url}/services/gpushare-culler/{path}",
                headers={"Authorization": f"token {self.user(who).token}"},
                timeout=30,
                **more,
            )

    def await_look(self) -> None:
        """Wait until the culler has looked at everything, counted from now."""
        began = datetime.now(UTC).isoformat()
        self.until("the culler has looked", lambda: self._looked() > began)

    def _looked(self) -> str:
        answer = self.ask("GET", "api/verdicts")
        return str(answer.json().get("at") or "") if answer.status_code == 200 else ""

    def verdict(self, user: str) -> dict[str, Any] | None:
        found = [v for v in self.get("api/verdicts")["verdicts"] if v["user"] == user]
        return found[0] if found else None

    def reclaims(self, user: str = "", **match: Any) -> list[dict[str, Any]]:
        found = self.get("api/reclaimed", **({"user": user} if user else {}))["reclaimed"]
        found = [r for r in found if r["decided_at"] >= self.began]
        return [r for r in found if all(r[key] == value for key, value in match.items())]

    def await_verdict(
        self, user: str, what: str, holds: Callable[[dict[str, Any]], bool], timeout: float = 90
    ) -> dict[str, Any]:
        def see() -> dict[str, Any] | None:
            verdict = self.verdict(user)
            return verdict if verdict and holds(verdict) else None

        found = self.until(f"{user}: {what}", see, timeout, lambda: self.verdict(user))
        assert found
        return found

    def await_reclaim(self, user: str = "", timeout: float = 90, **match: Any) -> dict[str, Any]:
        def see() -> dict[str, Any] | None:
            found = self.reclaims(user, **match)
            return found[0] if found else None

        found = self.until(
            f"a reclaim of {user} with {match}", see, timeout, lambda: self.reclaims(user)
        )
        assert found
        return found

    def until(
        self,
        what: str,
        see: Callable[[], Any],
        timeout: float = 90,
        story: Callable[[], Any] = lambda: "",
    ) -> Any:
        """The first thing seen that is true. Nothing announces it, so it is asked for again."""
        deadline = time.monotonic() + timeout
        while not (seen := see()):
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"not after {timeout:.0f} s: {what}\n{json.dumps(story(), indent=1)}"
                )
            time.sleep(0.2)
        return seen

    # What people and programs do

    @contextmanager
    def open_tab(self, *users: str) -> Iterator[None]:
        """These people use their notebooks all the time."""
        people = [self.user(name) for name in users]
        stop = threading.Event()

        def use() -> None:
            while not stop.wait(0.4):
                for person in people:
                    now = datetime.now(UTC).isoformat()
                    body = {"servers": {"": {"last_activity": now}}}
                    person._api("POST", "activity", json=body)

        thread = threading.Thread(target=use, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def pod(self, user: str) -> client.V1Pod:
        return self.pods.read(f"jupyter-{user}")

    def program(self, user: str, mib: int, sm: int) -> int:
        """A process of the server holds so much of its card and computes so much; its pid."""
        pod = self.pod(user)
        placement = decode(pod.metadata.annotations[NAMES.placement])
        programs = Programs(self.pods)
        programs.cards = node_cards(self.cluster.cards_root(pod.spec.node_name))
        pid = programs.pids(pod.metadata.name)[0]
        card = placement.containers[0].shares[0].card
        with programs.cards.edit() as edit:
            edit.add_process(card, pid, mib, sm=sm)
        return pid

    def node_without_extender(self) -> str:
        """A node that may be lost without the state API."""
        pods = self.core.list_namespaced_pod(
            PRODUCT, label_selector="app.kubernetes.io/component=user-scheduler"
        )
        taken = {pod.spec.node_name for pod in pods.items}
        free = [node.name for node in self.cluster.nodes if node.name not in taken]
        assert free, "the extender is on all nodes"
        return free[0]

    def clear(self) -> None:
        """Stop all servers that the tests started; nothing holds a card any more."""
        for node in self.cluster.nodes:
            with node_cards(self.cluster.cards_root(node.name)).edit() as edit:
                for process in edit.state.processes:
                    edit.remove_process(process.pid)
        running = [user for user in self.users.values() if user.server() is not None]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(HubUser.stop_server, running))
