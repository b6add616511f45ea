"""Receivers for the tests: ``spanprof serve`` on free ports, queried by the command line; and unreachable ones."""

from __future__ import annotations

import contextlib
import json
import pathlib
import socket
import subprocess
import sys
import time
from typing import Iterator

SPANPROF = [sys.executable, "-m", "spanprof"]
# Sockets of `refused`.
HELD: list[socket.socket] = []


class Receiver:
    """A running ``spanprof serve``."""

    def __init__(self, listening: dict) -> None:
        self.url = listening["url"].rstrip("/")
        self.grpc_endpoint = f"http://127.0.0.1:{self.url.rsplit(':', 1)[1]}"

    def top(self, *flags: str) -> dict:
        """The output of ``spanprof top --json`` for everything received so far."""
        done = subprocess.run([*SPANPROF, "top", self.url, "--json", *flags], capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def functions(self, *flags: str) -> dict[str, dict]:
        """Rows of the table by function name; empty while nothing has been received."""
        done = subprocess.run(
            [*SPANPROF, "top", self.url, "--json", "-n", "0", *flags], capture_output=True, text=True, timeout=30
        )
        if done.returncode != 0:
            return {}
        return {row["function"]: row for row in json.loads(done.stdout)["rows"]}


@contextlib.contextmanager
def serving(directory: pathlib.Path) -> Iterator[Receiver]:
    process = subprocess.Popen(
        [*SPANPROF, "serve", "--grpc", "0", "--http", "0", "--dir", str(directory), "--json", "--quiet"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield Receiver(json.loads(process.stdout.readline()))
    finally:
        process.terminate()
        process.wait(10)


@contextlib.contextmanager
def never_answering() -> Iterator[str]:
    """The address of a receiver that accepts connections and sends no response."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def refused() -> str:
    """An address that refuses connections. Its port stays bound, so no other process gets it; a server may still listen there."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    HELD.append(held)
    return f"http://127.0.0.1:{held.getsockname()[1]}"


def wait_until(condition, seconds: float = 30) -> None:
    """Returns when the condition holds; fails after the timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.1)
