"""Web servers with worker processes: every answer is right, the server ends as without spanprof, the profiles hold the view.

    web_servers.py sync|gthread|gevent|preload|max-requests|usr2|uvicorn|uwsgi
"""

import os
import re
import signal
import socket
import sys
import urllib.error
import urllib.request

import field

REQUESTS = 60
GUNICORN = [sys.executable, "-m", "gunicorn", "web_app:application", "--workers", "2"]
MORE = {
    "sync": [],
    "gthread": ["--worker-class", "gthread", "--threads", "4"],
    "gevent": ["--worker-class", "gevent"],
    "preload": ["--preload"],
    "max-requests": ["--max-requests", "5"],
    "usr2": [],
}
#: Lines of a server that lost a worker.
LOST = re.compile(r"was sent SIG|exited with code|died|Traceback|Child process \[\d+\] died")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def words(kind, port):
    bind = f"127.0.0.1:{port}"
    if kind == "uvicorn":
        return [sys.executable, "-m", "uvicorn", "web_app:asgi", "--workers", "2", "--port", str(port), "--no-access-log"]
    if kind == "uwsgi":
        program = os.path.join(os.path.dirname(sys.executable), "uwsgi")
        if not os.path.exists(program):
            raise field.Skip("uWSGI is not installed in the environment of the suite: its source did not build")
        return [program, "--http-socket", bind, "--module", "web_app", "--processes", "2", "--master", "--enable-threads",
                "--lazy-apps", "--die-on-term"]
    return [*GUNICORN, *MORE[kind], "--bind", bind]


def get(port, path):
    """An answer; a connection that a restarting worker refused is tried once more, as a load balancer does."""
    for attempt in range(3):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
                return response.read()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            if attempt == 2:
                raise


def is_up(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def upgrade(server):
    """gunicorn's change of its program without a gap: a new master starts, the old one ends. The new master's process id."""
    before = field.children(server.process.pid)
    server.process.send_signal(signal.SIGUSR2)
    found = []

    def has_workers():
        found[:] = [pid for pid in field.children(server.process.pid) - before if len(field.children(pid)) == 2]
        return found

    field.wait_until(has_workers, 60, "the start of a new master with 2 workers after SIGUSR2")
    return found[0]


def serve(kind, profiles):
    """Answers, exit code, lost workers and the log of one run of the server."""
    port = free_port()
    with field.Server(words(kind, port), profiles) as server:
        try:
            field.wait_until(lambda: is_up(port) or server.process.poll() is not None, 60, "the start of the server")
            get(port, "/first")
            answers = [get(port, f"/{number}") for number in range(REQUESTS // 2)]
            successor = upgrade(server) if kind == "usr2" else None
            code = server.end() if successor else None
            answers += [get(port, f"/{number}") for number in range(REQUESTS // 2, REQUESTS)]
            if successor:
                os.kill(successor, signal.SIGTERM)
                field.wait_until(lambda: not is_up(port), 30, "the end of the new master")
        except OSError as error:
            raise field.Wrong(f"a request failed: {error}\n{server.log()}") from error
        code = server.end() if code is None else code
        return answers, code, [line for line in server.log().splitlines() if LOST.search(line)], server.log()


def main(kind):
    expected, expected_code, expected_lost, _ = serve(kind, None)
    profiles = field.folder()
    answers, code, lost, log = serve(kind, profiles)
    field.expect(answers == expected, f"answers differ\n{log}")
    field.expect(code == expected_code, f"ended with {code}, expected {expected_code}\n{log}")
    field.expect(len(lost) <= len(expected_lost), f"{len(lost)} lines about lost workers, {len(expected_lost)} without\n{log}")
    count = field.expect_samples(profiles, REQUESTS // 3)
    return f"{len(answers)} answers right, exit {code}, {count} samples of the view"


if __name__ == "__main__":
    field.cell(main)
