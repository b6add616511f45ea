"""A receiver of OTLP/HTTP that records the profiles of each request in the order of their arrival."""

import contextlib
import gzip
import http.server
import os
import signal
import threading
from typing import NamedTuple


class Request(NamedTuple):
    """Ids of the profiles, and the window of the request, ns since 1970."""

    ids: tuple
    start_ns: int
    end_ns: int


class RequestLog:
    def __init__(self):
        self.requests = []
        # A process is killed when this number of requests has arrived, before the response to the last of them.
        self.kills_at, self.killed_process = None, None
        self.was_killed = threading.Event()

    def record(self, body):
        self.requests.append(decode(body))
        if len(self.requests) == self.kills_at:
            os.kill(self.killed_process, signal.SIGKILL)
            self.was_killed.set()

    @contextlib.contextmanager
    def serving(self, port):
        """Accepts every request until the context ends."""
        log = self

        class Handler(http.server.BaseHTTPRequestHandler):
            # HTTP/1.0: no connection outlives its response, so none outlives the server.
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                compressed = self.headers.get("Content-Encoding") == "gzip"
                log.record(gzip.decompress(body) if compressed else body)
                with contextlib.suppress(OSError):
                    self.send_response(200)
                    self.send_header("Content-Type", "application/x-protobuf")
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def log_message(self, *_):
                """No log: each request is recorded."""

        with http.server.HTTPServer(("127.0.0.1", port), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join()


def decode(body):
    """The profiles of an ExportProfilesServiceRequest; the numbers are those of opentelemetry-proto 1.10."""
    profiles = [
        dict(fields(profile))
        for number, resource in fields(body)
        if number == 1
        for number, scope in fields(resource)
        if number == 2
        for number, profile in fields(scope)
        if number == 2
    ]
    time, duration, profile_id = 3, 4, 7
    start_ns = min(profile[time] for profile in profiles)
    end_ns = max(profile[time] + profile.get(duration, 0) for profile in profiles)
    return Request(tuple(bytes(profile[profile_id]) for profile in profiles), start_ns, end_ns)


def fields(message):
    """Number and value of each field of a protobuf message."""
    at, view = 0, memoryview(message)
    while at < len(view):
        key, at = varint(view, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(view, at)
        elif kind == 2:
            size, at = varint(view, at)
            value, at = view[at : at + size], at + size
        else:
            size = {1: 8, 5: 4}[kind]
            value, at = int.from_bytes(view[at : at + size], "little"), at + size
        yield key >> 3, value


def varint(view, at):
    value = shift = 0
    while True:
        byte = view[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
