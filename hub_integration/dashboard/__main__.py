"""The service as the Hub starts it. Loaded late what is slow to load: see ``early``."""

from __future__ import annotations

import os
import sys
from urllib.parse import urlsplit

from hub_integration.dashboard.early import EarlyAnswers


def main() -> None:
    url = urlsplit(os.environ.get("JUPYTERHUB_SERVICE_URL", ""))
    early = None
    if url.hostname and url.port:
        # Told by the command line, which is read later: the option as configure_dashboard writes it.
        given = [a.partition("=")[2] for a in sys.argv if a.startswith("--DashboardApp.ip=")]
        host = given[-1] if given and given[-1] else url.hostname
        try:
            early = EarlyAnswers(host, url.port)
        except OSError as error:
            sys.exit(
                f"gpushare-dashboard: cannot listen on {host}:{url.port}: {error.strerror}; give "
                "configure_dashboard another port"
            )
    from hub_integration.dashboard.app import DashboardApp

    app = DashboardApp.instance()
    app.early = early
    app.initialize()
    app.start()


main()
