"""Reaching a JupyterHub and the services in it, with a Hub token."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import click
import urllib3

from gpushare.cli.cluster import message
from gpushare.cli.options import Command

_TIMEOUT = urllib3.Timeout(connect=5, read=30)


class NoHub(click.ClickException):
    """The Hub cannot be asked. The text says what to do."""


@dataclass(frozen=True)
class Hub:
    """A Hub by its address, as in a browser, and a token of it."""

    url: str
    token: str

    def ask(
        self,
        path: str,
        query: Mapping[str, str | None] | None = None,
        body: Any = None,
    ) -> bytes:
        """GET, or POST with ``body``. Raises NoHub."""
        if not self.url or not self.token:
            raise NoHub(
                "which Hub? Set --hub (or GPUSHARE_HUB) to its address, as "
                "https://jupyter.example.org, and GPUSHARE_HUB_TOKEN to a token from its page "
                "'Token' (in a notebook both are there already)."
            )
        url = f"{self.url.rstrip('/')}/{path}"
        asked = {key: value for key, value in (query or {}).items() if value}
        headers = {"Authorization": f"token {self.token}", "Accept": "application/json, text/csv"}
        try:
            with urllib3.PoolManager(timeout=_TIMEOUT, retries=False) as pool:
                if body is None:
                    answer = pool.request("GET", url, fields=asked, headers=headers)
                else:
                    sent = {**headers, "Content-Type": "application/json"}
                    answer = pool.request("POST", url, body=json.dumps(body), headers=sent)
        except urllib3.exceptions.HTTPError as error:
            raise NoHub(f"the Hub at {self.url} does not answer: {error}") from None
        if answer.status >= 300:
            self._explain(answer.status, answer.data.decode(errors="replace"), path)
        return bytes(answer.data)

    def _explain(self, status: int, body: str, path: str) -> NoReturn:
        if status in (301, 302, 303, 307, 401):
            raise NoHub("the Hub does not accept the token: make a new one on its page 'Token'")
        if status == 403:
            raise NoHub(f"you may not: {message(body)}")
        if status == 404:
            raise NoHub(
                f"{self.url}/{path} is not there: {message(body)}\n"
                "Is the address the Hub's, with its base URL, and is the service switched on?"
            )
        if status in (502, 503, 504):
            raise NoHub(f"the Hub has nobody to answer this: {message(body)}")
        raise NoHub(f"the Hub answered {status}: {message(body)}")


def hub_options(command: Command) -> Command:
    """Which Hub; the command gets a ``hub``."""

    @click.option(
        "--hub",
        "url",
        envvar=["GPUSHARE_HUB", "JUPYTERHUB_PUBLIC_HUB_URL"],
        default="",
        metavar="URL",
        help="The Hub's address, as https://jupyter.example.org. [env: GPUSHARE_HUB]",
    )
    @click.option(
        "--token",
        envvar=["GPUSHARE_HUB_TOKEN", "JUPYTERHUB_API_TOKEN"],
        default="",
        metavar="TOKEN",
        help="Better in the environment, where others do not see it. [env: GPUSHARE_HUB_TOKEN]",
    )
    @functools.wraps(command)
    def with_hub(*arguments: Any, url: str, token: str, **named: Any) -> Any:
        return command(*arguments, hub=Hub(_base(url), token), **named)

    return with_hub


def _base(url: str) -> str:
    """JUPYTERHUB_PUBLIC_HUB_URL ends with hub/; services stand beside it."""
    return url.rstrip("/").removesuffix("/hub")
