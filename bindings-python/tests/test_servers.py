"""Real servers with worker processes: every worker is profiled, its samples have request labels, and the servers end normally."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap
import urllib.request

import pytest
from pprof_reader import Profiles
from receiver import wait_until

FLASK = """
import os, time
import spanprof, spanprof.wsgi
from flask import Flask

app = Flask(__name__)

def burn(seconds):
    start = time.thread_time()
    while time.thread_time() - start < seconds:
        sum(range(500))

@app.get("/cart/<user>")
def cart(user):
    burn(0.02)
    return str(os.getpid())

@app.get("/checkout")
def checkout():
    burn(0.02)
    return str(os.getpid())

app.wsgi_app = spanprof.wsgi.Middleware(app.wsgi_app)
spanprof.start(service_name="shop")
"""

FASTAPI = """
import os, time
import spanprof, spanprof.asgi
from fastapi import FastAPI

app = FastAPI()

def burn(seconds):
    start = time.thread_time()
    while time.thread_time() - start < seconds:
        sum(range(500))

@app.get("/cart/{user}")
def cart(user: str):
    burn(0.02)
    return os.getpid()

@app.get("/checkout")
async def checkout():
    burn(0.02)
    return os.getpid()

app.add_middleware(spanprof.asgi.Middleware)
spanprof.start(service_name="shop")
"""


@contextlib.contextmanager
def server(directory: pathlib.Path, source: str, *command: str):
    """A server on a free port; its address, and its exit code after SIGTERM."""
    (directory / "shop.py").write_text(textwrap.dedent(source))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = (directory / "log").open("w+")
    process = subprocess.Popen(
        [sys.executable, "-m", *(word.replace("PORT", str(port)) for word in command)],
        cwd=directory,
        env={
            **os.environ,
            "SPANPROF_FILE_DIRECTORY": str(directory / "profiles"),
            "SPANPROF_UPLOAD_INTERVAL": "1",
            # On a busy machine, the workers write more files than are kept by default.
            "SPANPROF_FILE_KEEP": "10000",
        },
        stdout=log,
        stderr=log,
    )

    def answers() -> bool:
        assert process.poll() is None, (directory / "log").read_text()
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/checkout", timeout=5)
            return True
        return False

    try:
        wait_until(answers)
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGTERM)
        # gunicorn ends with 0, uvicorn's supervisor by the signal itself; neither hangs nor crashes.
        assert process.wait(20) in (0, -signal.SIGTERM), (directory / "log").read_text()
        assert "Traceback" not in (directory / "log").read_text()
    finally:
        process.kill()
        process.wait()
        log.close()


def load(address: str, requests: int) -> set[str]:
    """The process ids that answered."""

    def get(number: int) -> str:
        path = "/checkout" if number % 2 else f"/cart/{number}"
        return urllib.request.urlopen(address + path, timeout=20).read().decode()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return set(pool.map(get, range(requests)))


def processes_in(profiles: Profiles) -> set[str]:
    return {
        comment.partition("=")[2]
        for profile in profiles.files
        if any("burn" in sample.frames for sample in profile.samples)
        for comment in profile.comments
        if comment.startswith("process.pid=")
    }


def assert_requests_are_labeled(profiles: Profiles, cart_route: str) -> None:
    wrong = missing = right = 0
    for function, route in (("cart", cart_route), ("checkout", "/checkout")):
        for sample in profiles.through(function):
            if "burn" in sample.frames:
                found = sample.labels.get("http.route")
                right += sample.count * (found == route)
                missing += sample.count * (found is None)
                wrong += sample.count * (found not in (None, route))
    assert wrong == 0
    assert right >= 50
    assert missing <= right * 0.02


@pytest.mark.parametrize(
    "flags",
    [
        ["--workers=2"],
        ["--workers=2", "--preload"],
        ["--workers=2", "--worker-class=gthread", "--threads=4"],
        ["--workers=2", "--worker-class=gthread", "--threads=4", "--preload"],
    ],
    ids=["sync", "sync preload", "gthread", "gthread preload"],
)
def test_gunicorn_workers_profile_themselves(tmp_path, flags):
    with server(tmp_path, FLASK, "gunicorn", "shop:app", "--bind=127.0.0.1:PORT", "--graceful-timeout=5", *flags) as address:
        answered = load(address, 160)
    profiles = Profiles(tmp_path / "profiles")
    assert answered <= processes_in(profiles)
    assert len(answered) == 2
    assert_requests_are_labeled(profiles, "/cart/<user>")
    seconds = sum(sample.nanoseconds for sample in profiles.samples if "burn" in sample.frames) / 1e9
    assert seconds == pytest.approx(161 * 0.02, rel=0.2)


def test_gunicorn_workers_that_are_recycled_all_send_their_last_window(tmp_path):
    flags = ["--workers=2", "--preload", "--max-requests=10", "--graceful-timeout=5"]
    with server(tmp_path, FLASK, "gunicorn", "shop:app", "--bind=127.0.0.1:PORT", *flags) as address:
        answered = load(address, 120)
    assert len(answered) >= 8
    assert answered <= processes_in(Profiles(tmp_path / "profiles"))


@pytest.mark.parametrize("workers", [1, 2])
def test_uvicorn_workers_profile_themselves(tmp_path, workers):
    flags = [f"--workers={workers}", "--port=PORT", "--timeout-graceful-shutdown=5", "--log-level=warning"]
    with server(tmp_path, FASTAPI, "uvicorn", "shop:app", *flags) as address:
        answered = load(address, 160)
    profiles = Profiles(tmp_path / "profiles")
    assert answered <= processes_in(profiles)
    assert_requests_are_labeled(profiles, "/cart/{user}")


def test_an_unmodified_server_is_profiled_by_run(tmp_path):
    source = FLASK.replace('spanprof.start(service_name="shop")', "")
    flags = ["shop:app", "--bind=127.0.0.1:PORT", "--workers=2", "--preload", "--graceful-timeout=5"]
    with server(tmp_path, source, "spanprof", "run", "-m", "gunicorn", *flags) as address:
        answered = load(address, 80)
    assert answered <= processes_in(Profiles(tmp_path / "profiles"))
