"""An OTLP receiver over HTTP that keeps each request, and the questions to its profiles, which the command `spanprof` answers."""

import gzip
import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Receiver:
    """Listens on the loopback until the process ends. With `answers` false it accepts requests and never responds."""

    def __init__(self, directory, port=4318):
        self.directory, self.answers, self.count = directory, True, 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = body_of(self)
                if not receiver.answers:
                    threading.Event().wait(60)
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if "profiles" in self.path:
                    receiver.keep(body)
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def keep(self, body):
        self.count += 1
        name = os.path.join(self.directory, f"{self.count:05}.otlp.pb")
        with open(f"{name}.part", "wb") as file:
            file.write(body)
        os.rename(f"{name}.part", name)

    def files(self):
        return [os.path.join(self.directory, name) for name in sorted(os.listdir(self.directory)) if name.endswith(".pb")]

    def rows(self, kind):
        """Cumulative value of each function in all profiles of a type."""
        return rows(self.files(), kind)


def body_of(request):
    """The body of a request of http.server, also in chunks."""
    if "chunked" not in request.headers.get("Transfer-Encoding", ""):
        return request.rfile.read(int(request.headers.get("Content-Length", 0)))
    parts = []
    while length := int(request.rfile.readline(), 16):
        parts.append(request.rfile.read(length))
        request.rfile.readline()
    request.rfile.readline()
    return b"".join(parts)


def rows(sources, kind, *options):
    """`spanprof top` of sources: the cumulative value of each function, and the total as `None`. Of functions with one name, which may call
    each other, the largest."""
    if not sources:
        return {None: 0}
    words = [os.environ["DEPLOY_SPANPROF"], "top", *sources, "--type", kind, "--limit", "0", "--json", *options]
    ended = subprocess.run(words, capture_output=True, text=True)
    if ended.returncode != 0:
        # No profile of this type yet.
        return {None: 0}
    table = json.loads(ended.stdout)
    found = {None: table["total"]}
    for row in table["rows"]:
        found[row["function"]] = max(found.get(row["function"], 0), row["cum"])
    return found


def below(table, name):
    """Cumulative value of a function, whatever its class or module is, in seconds."""
    return max((value for function, value in table.items() if function and function.split(".")[-1] == name), default=0) / 1e9


def in_spans(sources):
    """CPU time in spans, in seconds."""
    words = [os.environ["DEPLOY_SPANPROF"], "spans", *sources, "--limit", "1", "--json"]
    ended = subprocess.run(words, capture_output=True, text=True)
    return json.loads(ended.stdout)["types"]["cpu"]["linked_total"] / 1e9 if ended.returncode == 0 else 0.0
