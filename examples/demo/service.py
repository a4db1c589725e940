"""The local HTTP service that the handlers depend on: not there at first, then not ready, then fine."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: After it starts to listen it answers 503 for so long, with the header Retry-After.
WARM_UP_S = 1.5


class _Handler(BaseHTTPRequestHandler):
    server: FilingService

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        ready = self.server.count()
        self.send_response(200 if ready else 503)
        if not ready:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class names it so
        """The demo prints what matters itself."""


class FilingService(ThreadingHTTPServer):
    """Holds its port from the beginning, so that nobody else takes it, but refuses connections until ``come_up()``."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler, bind_and_activate=False)
        self.server_bind()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._ready_at = 0.0
        self.answered = 0
        self.turned_away = 0

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def come_up(self) -> None:
        self._ready_at = time.monotonic() + WARM_UP_S
        self.server_activate()
        self._thread = threading.Thread(target=self.serve_forever, name="filing-service", daemon=True)
        self._thread.start()

    def count(self) -> bool:
        """Counts one request; whether it is answered or turned away."""
        ready = time.monotonic() >= self._ready_at
        with self._lock:
            if ready:
                self.answered += 1
            else:
                self.turned_away += 1
        return ready

    def close(self) -> None:
        if self._thread is not None:
            self.shutdown()
            self._thread.join()
        self.server_close()
