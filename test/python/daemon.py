"""The binary under test, on ports and a data directory of its own."""

import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

READY_SECONDS = 60


class Daemon:
    """Its ports stay the same over restarts, so that clients can resume."""

    def __init__(self, *flags: str) -> None:
        self._dir = pathlib.Path(tempfile.mkdtemp(prefix="snakream-python-"))
        self._flags = flags
        self._port, self._admin_port = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._streams = 0

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def fresh(self) -> str:
        """The URL of a stream that no other test uses."""
        self._streams += 1
        return f"{self.base}/v1/stream/python/s{self._streams}"

    def start(self) -> None:
        # Settings of the developer's own are not for these tests.
        env = {name: value for name, value in os.environ.items() if not name.startswith("SNAKREAM_")}
        with open(self._dir / "log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    os.environ["E2E_BINARY"],
                    "serve",
                    f"--listen=127.0.0.1:{self._port}",
                    f"--admin-listen=127.0.0.1:{self._admin_port}",
                    f"--data-dir={self._dir / 'data'}",
                    *self._flags,
                ],
                env=env,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + READY_SECONDS
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the server is not ready:\n" + self.log())
            time.sleep(0.01)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._admin_port}/readyz", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def log(self) -> str:
        return (self._dir / "log").read_text()[-4000:]

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Ends the process and returns its exit code, negative for a signal."""
        assert self._process is not None
        self._process.send_signal(how)
        return self._process.wait(READY_SECONDS)

    def restart(self, how: signal.Signals) -> None:
        self.stop(how)
        self.start()

    def remove(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop(signal.SIGKILL)
        shutil.rmtree(self._dir)


def free_port() -> int:
    """Below the range from which the kernel takes ports for outgoing connections, so that none of
    those takes the server's port while it is down."""
    while True:
        port = random.randrange(10_000, 30_000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
