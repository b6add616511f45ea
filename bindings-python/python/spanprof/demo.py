"""``spanprof demo``: a small shop under load, whose slowest request is shown on the page of ``spanprof serve``. Python only.

The shop is a WSGI application, profiled with default settings and the middleware.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import webbrowser
from typing import Callable, Iterable

_HELP = """\
Show the slowest request of a small shop under load

Usage: spanprof demo [--no-open] [--once]

Flags:
      --no-open  open no browser
      --once     end after the result, instead of at Ctrl-C
  -h, --help     this text"""
_SECONDS_OF_LOAD = 8
_SLOW = 7


def main(arguments: list[str]) -> int:
    """Runs the demo; returns the exit code."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(_HELP)
        return 0
    unknown = [option for option in arguments if option not in ("--no-open", "--once")]
    if unknown:
        print(f"spanprof: unknown argument `{unknown[0]}`\n  Usage: spanprof demo [--no-open] [--once]", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="spanprof-demo-") as directory:
        serve = [sys.executable, "-m", "spanprof", "serve", "--http", "0", "--grpc", "0", "--json", "--quiet", "--dir", directory]
        with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as receiver:
            try:
                return _run(receiver, arguments)
            except KeyboardInterrupt:
                return 0
            finally:
                receiver.terminate()


def _run(receiver: subprocess.Popen, arguments: list[str]) -> int:
    line = receiver.stdout.readline() if receiver.stdout else ""
    if not line:
        print("spanprof: `spanprof serve` did not start", file=sys.stderr)
        return 1
    page = json.loads(line)["url"].rstrip("/")
    environment = {**os.environ, "SPANPROF_SERVICE_NAME": "shop", "SPANPROF_ENDPOINT": page, "SPANPROF_UPLOAD_INTERVAL": "2"}
    environment["SPANPROF_OWN_CODE"] = "spanprof/demo.py"
    shop = [sys.executable, "-m", "spanprof.demo"]
    with subprocess.Popen(shop, stdout=subprocess.PIPE, text=True, env=environment) as service:
        try:
            address = (service.stdout.readline() if service.stdout else "").strip()
            print(f"a shop runs at {address}; {_SECONDS_OF_LOAD} s of load", flush=True)
            _load(address)
        finally:
            # The end delivers the last window.
            service.terminate()
    command = [sys.executable, "-m", "spanprof", "spans", page]
    slowest = json.loads(subprocess.check_output([*command, "--sort", "duration", "--limit", "1", "--json"]))["rows"][0]
    print("\nthe slowest request:", flush=True)
    subprocess.call([*command, "--span-id", slowest["span_id"], "--against-endpoint", "--limit", "3"])
    link = f"{page}/?span_id={slowest['span_id']}"
    print(f"\non the page: {link}", flush=True)
    if "--no-open" not in arguments:
        webbrowser.open(link)
    if "--once" not in arguments:
        print("Ctrl-C ends the demo", flush=True)
        receiver.wait()
    return 0


def _load(address: str) -> None:
    """Requests of two customers; one order is slow."""
    end = time.monotonic() + _SECONDS_OF_LOAD

    def customer(first: int) -> None:
        number = first
        while time.monotonic() < end:
            for path in ("cart", "checkout"):
                with urllib.request.urlopen(f"{address}/{path}/{number}") as response:
                    response.read()
            number += 2

    customers = [threading.Thread(target=customer, args=(first,)) for first in (_SLOW - 1, _SLOW)]
    for thread in customers:
        thread.start()
    for thread in customers:
        thread.join()


def price(items: int) -> str:
    """Uses the CPU."""
    digest = b""
    for _ in range(items):
        digest = hashlib.sha256(digest * 50).digest()
    return digest.hex()


def call_payment_provider(order: int) -> None:
    """Waits, in one order for long."""
    time.sleep(2.0 if order == _SLOW else 0.01)


def shop(environ: dict, start_response: Callable) -> Iterable[bytes]:
    """The application; it sets the route, as a framework would."""
    from spanprof import tag_wrapper

    _, path, order = environ["PATH_INFO"].split("/")
    with tag_wrapper({"http.route": f"/{path}/{{order}}"}):
        environ["spanprof.request"].route = f"/{path}/{{order}}"
        if path == "checkout":
            call_payment_provider(int(order))
        body = price(3_000)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [body.encode()]


def _serve() -> None:
    import signal
    from socketserver import ThreadingMixIn
    from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

    import spanprof
    import spanprof.wsgi

    class Quiet(WSGIRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    class Threads(ThreadingMixIn, WSGIServer):
        daemon_threads = True

    spanprof.start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    server = make_server("127.0.0.1", 0, spanprof.wsgi.Middleware(shop), Threads, Quiet)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    _serve()
