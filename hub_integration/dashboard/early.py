"""Answers while the service is still being loaded.

A Hub waits ten seconds for the first answer of a service that it starts, and ends itself if there is
none. On a busy machine loading takes longer than that, and no dashboard is worth a Hub. So a thread
with nothing but the standard library answers from the first moment, on the socket that the service
takes over when it is ready.
"""

from __future__ import annotations

import contextlib
import socket
import threading

_STARTING = b"The dashboard is starting."


class EarlyAnswers:
    """Listens on ``host`` and ``port`` at once. Raises OSError where it cannot."""

    def __init__(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((host, port))
        self.socket.listen(256)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def hand_over(self) -> socket.socket:
        """The socket, for the service itself."""
        self._over.set()
        self._thread.join()
        self.socket.setblocking(False)
        return self.socket

    def _answer(self) -> None:
        self.socket.settimeout(0.1)
        while not self._over.is_set():
            with contextlib.suppress(OSError):
                connection, _ = self.socket.accept()
                with connection:
                    connection.settimeout(2)
                    connection.sendall(_response(connection.recv(4096)))


def _response(request: bytes) -> bytes:
    """A page that loads itself again; health is told as it is."""
    path = request.split(b" ", 2)[1] if request.count(b" ") >= 2 else b"/"
    status = b"503 Service Unavailable" if path.endswith(b"/health") else b"200 OK"
    return (
        b"HTTP/1.1 " + status + b"\r\nContent-Type: text/plain\r\nRefresh: 1\r\n"
        b"Cache-Control: no-store\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n\r\n" % len(_STARTING)
    ) + _STARTING
