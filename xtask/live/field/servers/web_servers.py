"""Web servers: every response is right, the server ends as without spanprof, the profiles contain the view, with its route as a
label where a framework has routes.

    web_servers.py sync|gthread|gevent|preload|max-requests|usr2|uvicorn|uwsgi|django-wsgi|django-asgi|nest|spring
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
#: Functions of the frameworks' views with their routes, as the label gives them.
DJANGO = {"field_cart": "/cart/<int:number>", "field_search": "/search", "field_later": "/later/<int:number>"}
NEST = {"fieldCart": "/cart/:number", "fieldSearch": "/search", "fieldLater": "/later/:number"}
ROUTES = {"django-wsgi": DJANGO, "django-asgi": DJANGO, "nest": NEST}
#: Lines of a server that lost a worker.
LOST = re.compile(r"was sent SIG|exited with code|died|Traceback|Child process \[\d+\] died")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def words(kind, port, is_profiled):
    bind = f"127.0.0.1:{port}"
    if kind == "uvicorn":
        return [sys.executable, "-m", "uvicorn", "web_app:asgi", "--workers", "2", "--port", str(port), "--no-access-log"]
    if kind == "uwsgi":
        program = os.path.join(os.path.dirname(sys.executable), "uwsgi")
        if not os.path.exists(program):
            raise field.Skip("uWSGI is not installed in the environment of the suite: its source did not build")
        return [program, "--http-socket", bind, "--module", "web_app", "--processes", "2", "--master", "--enable-threads",
                "--lazy-apps", "--die-on-term"]
    if kind == "django-wsgi":
        return [sys.executable, "-m", "gunicorn", "django_app:application", "--workers", "2", *MORE["gthread"], "--bind", bind]
    if kind == "django-asgi":
        return [sys.executable, "-m", "uvicorn", "django_app:asgi", "--workers", "2", "--port", str(port), "--no-access-log"]
    if kind == "spring":
        class_path = f"{os.environ['FIELD_JAVA_PROGRAMS']}:{os.environ['FIELD_JAVA_LIBRARIES']}/*"
        # The profiler is an extension of OpenTelemetry's agent, and the service does not refer to it.
        extension = [f"-Dotel.javaagent.extensions={os.environ['FIELD_JAR']}"] if is_profiled else []
        return [os.environ["FIELD_JAVA"], f"-javaagent:{field.opentelemetry_agent()}", *extension, "-XX:-CreateCoredumpOnCrash",
                "-cp", class_path, "SpringService", "--server.address=127.0.0.1", f"--server.port={port}"]
    if kind == "nest":
        return [os.environ["FIELD_NODE"], os.path.join(field.HERE, "servers/nest_app.js"), str(port)]
    return [*GUNICORN, *MORE[kind], "--bind", bind]


def variables(kind, profiles):
    """Environment of a service that does not configure the profiler itself."""
    if kind != "spring":
        return {}
    exporters = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}
    # The start of the service and a window per second cost more than the budget on a busy machine, which lowers the rate.
    return {**exporters, "SPANPROF_FILE_DIRECTORY": profiles or "", "SPANPROF_UPLOAD_INTERVAL": "1", "SPANPROF_FILE_KEEP": "10000",
            "SPANPROF_CPU_BUDGET": "0"}


def path(kind, number):
    """The path of a request."""
    if kind in ROUTES or kind == "spring":
        return [f"/cart/{number}", "/search", f"/later/{number}"][number % 3]
    return f"/{number}"


def get(port, path):
    """A response; a connection refused by a restarting worker is retried once, as a load balancer does."""
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
    """gunicorn's seamless upgrade: a new master starts, the old one ends. Returns the new master's process id."""
    before = field.children(server.process.pid)
    server.process.send_signal(signal.SIGUSR2)
    found = []

    def has_workers():
        found[:] = [pid for pid in field.children(server.process.pid) - before if len(field.children(pid)) == 2]
        return found

    field.wait_until(has_workers, 60, "the start of a new master with 2 workers after SIGUSR2")
    return found[0]


def serve(kind, profiles):
    """Responses, exit code, lost workers and the log of one run of the server."""
    port = free_port()
    with field.Server(words(kind, port, bool(profiles)), profiles, **variables(kind, profiles)) as server:
        try:
            field.wait_until(lambda: is_up(port) or server.process.poll() is not None, 180, "the start of the server")
            get(port, path(kind, 0))
            answers = [get(port, path(kind, number)) for number in range(REQUESTS // 2)]
            successor = upgrade(server) if kind == "usr2" else None
            code = server.end() if successor else None
            answers += [get(port, path(kind, number)) for number in range(REQUESTS // 2, REQUESTS)]
            if successor:
                os.kill(successor, signal.SIGTERM)
                field.wait_until(lambda: not is_up(port), 30, "the end of the new master")
        except OSError as error:
            raise field.CellFailure(f"a request failed: {error}\n{server.log()}") from error
        code = server.end() if code is None else code
        return answers, code, [line for line in server.log().splitlines() if LOST.search(line)], server.log()


def expect_spans(profiles):
    """Fails the cell unless each sample of a view has a span, whose trace is of one view; the samples and their traces."""
    traces, count, without = {}, 0, 0
    for number, labels, stack in field.cpu_samples(profiles):
        for view in (view for view in NEST if any(view in frame for frame in stack)):
            traces.setdefault(labels.get("trace_id"), set()).add(view)
            count += number
            without += 0 if labels.get("span_id") else number
    # One in a hundred: the tick at the border of a span.
    field.expect(without * 100 <= count, f"{without} of {count} samples of the views have no span")
    traces.pop(None, None)
    mixed = {trace: views for trace, views in traces.items() if len(views) > 1}
    field.expect(not mixed, f"traces with the samples of two views: {mixed}")
    field.expect(len(traces) >= REQUESTS * 2 // 3, f"samples of {len(traces)} traces, after {REQUESTS} requests")
    return count, len(traces)


def main(kind):
    expected, expected_code, expected_lost, expected_log = serve(kind, None)
    profiles = field.folder()
    answers, code, lost, log = serve(kind, profiles)
    field.expect(answers == expected, f"answers differ\n{log}")
    field.expect(code == expected_code, f"ended with {code}, expected {expected_code}\n{log}")
    field.expect(len(lost) <= len(expected_lost), f"{len(lost)} lines about lost workers, {len(expected_lost)} without\n{log}")
    field.expect_no_other_lines(log, expected_log)
    if kind in ROUTES:
        count = field.expect_labels(profiles, "http.route", ROUTES[kind], REQUESTS // 9)
        return f"{len(answers)} answers right, exit {code}, {count} samples of the views, each with its route"
    if kind == "spring":
        count, traces = expect_spans(profiles)
        return f"{len(answers)} answers right, exit {code}, {count} samples of the views in {traces} traces"
    count = field.expect_samples(profiles, REQUESTS // 3)
    return f"{len(answers)} answers right, exit {code}, {count} samples of the view"


if __name__ == "__main__":
    field.cell(main)
