"""Handlers of ``/debug/pprof`` with real servers: profiles, refusals, and a continuous profile that goes on meanwhile."""

from __future__ import annotations

import concurrent.futures
import json
import pathlib
import socket
import time
import urllib.error
import urllib.request

import pytest
from pprof_reader import Profiles, read_profile
from receiver import wait_until
from test_servers import server

BURN = """
import threading, time
import spanprof, spanprof.asgi, spanprof.wsgi

def burn():
    while True:
        start = time.thread_time()
        while time.thread_time() - start < 0.01:
            sum(range(500))
        time.sleep(0.01)

spanprof.start(service_name="shop", sample_rate=100)
threading.Thread(target=burn, daemon=True).start()

"""
FLASK = BURN + """
from flask import Flask

app = Flask(__name__)

@app.get("/checkout")
def checkout():
    return str(spanprof.flush())

app.wsgi_app = spanprof.wsgi.PprofMiddleware(app.wsgi_app)
"""
FASTAPI = BURN + """
from fastapi import FastAPI

app = FastAPI()

@app.get("/checkout")
async def checkout():
    return spanprof.flush()

app.mount("/internal/profiles", spanprof.asgi.PprofMiddleware())
app.add_middleware(spanprof.asgi.PprofMiddleware)
"""
SERVERS = {
    "wsgi": (FLASK, ("gunicorn", "--threads", "4", "--bind", "127.0.0.1:PORT", "shop:app"), "/debug/pprof"),
    "asgi": (FASTAPI, ("uvicorn", "--port", "PORT", "shop:app"), "/debug/pprof"),
    "asgi mounted": (FASTAPI, ("uvicorn", "--port", "PORT", "shop:app"), "/internal/profiles"),
}


def get(
    address: str, headers: dict | None = None, method: str = "GET", body: bytes | None = None
) -> tuple[int, bytes]:
    request = urllib.request.Request(address, headers=headers or {}, method=method, data=body)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read()


def pull_after_others(address: str) -> tuple[int, bytes]:
    """Repeats a pull that another one precedes."""
    while True:
        status, body = get(address)
        if status != 429:
            return status, body


def cpu_of_burn(file: pathlib.Path) -> int:
    return sum(sample.nanoseconds for sample in read_profile(file).samples if "burn" in sample.frames)


@pytest.mark.parametrize("name", SERVERS)
def test_a_handler_serves_profiles_beside_the_continuous_one(tmp_path, monkeypatch, name):
    monkeypatch.setenv("SPANPROF_FILE_KEEP", "100000")
    source, command, prefix = SERVERS[name]
    with server(tmp_path, source, *command) as address:
        assert get(f"{address}{prefix}/")[1].count(b"<tr>") >= 5
        for query in ["seconds=abc", "seconds=-1", "seconds=1e9"]:
            assert get(f"{address}{prefix}/profile?{query}")[0] == 400, query
        assert get(f"{address}{prefix}/nothing")[0] == 404
        assert get(f"{address}/other")[0] == 404

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pull = pool.submit(pull_after_others, f"{address}{prefix}/profile?seconds=1.5")
            busy = served = 0
            while not pull.done():
                busy += get(f"{address}{prefix}/profile?seconds=0.001")[0] == 429
                # The event loop goes on, and the window is closed and sent meanwhile.
                served += get(f"{address}/checkout")[0] == 200
                time.sleep(0.1)
            status, body = pull.result()
        assert status == 200 and busy >= 1 and served >= 1, (status, busy, served)
        (tmp_path / "pulled.pb.gz").write_bytes(body)
        pulled = cpu_of_burn(tmp_path / "pulled.pb.gz")
        assert get(f"{address}/checkout")[0] == 200
    continuous = sum(s.nanoseconds for s in Profiles(tmp_path / "profiles").through("burn"))
    # The continuous profile has the same samples, and those before and after.
    assert 0 < pulled <= continuous, (pulled, continuous)


@pytest.mark.parametrize("name", SERVERS)
def test_a_handler_has_the_control_operations(tmp_path, monkeypatch, name):
    source, command, prefix = SERVERS[name]
    monkeypatch.setenv("SPANPROF_PULL_TOKEN", "pull-token-of-this-test")
    token = {"Authorization": "Bearer pull-token-of-this-test", "Content-Type": "application/json"}
    with server(tmp_path, source, *command) as address:
        for control in ["/debug/spanprof", f"{prefix}/spanprof"]:
            path = f"{address}{control}"
            for rate in [41, 43]:
                status, text = get(path, token, "PATCH", b'{"sample_rate": %d}' % rate)
                assert status == 200, text
                config = json.loads(get(path, token)[1])["config"]
                assert config["sample_rate"]["value"] == str(rate)
            assert get(path, token, "PATCH", b'{"sample_rate": 45}' + b" " * 65_536)[0] == 413
            assert get(path, {}, "PATCH", b'{"sample_rate": 45}')[0] == 401
            assert get(f"{path}/burst?seconds=1&rate=200", token, "POST", b"")[0] == 200
        assert get(f"{address}/debug/spanproof", token)[0] == 404


@pytest.mark.parametrize("name", SERVERS)
def test_the_index_redirects_to_its_final_slash_and_its_links_work(tmp_path, name):
    source, command, prefix = SERVERS[name]
    source = source.replace("sum(range(500))", "len([bytes(3_000) for _ in range(100)])")
    with server(tmp_path, source, *command) as address:
        status, page = get(f"{address}{prefix}")
        assert status == 200 and b'href="heap"' in page
        with urllib.request.urlopen(f"{address}{prefix}") as response:
            index = response.url
        assert index == f"{address}{prefix}/"
        get(f"{address}/checkout")

        def has_allocations() -> bool:
            status, body = get(f"{index}allocs")
            assert status == 200, body
            (tmp_path / "allocs.pb.gz").write_bytes(body)
            samples = read_profile(tmp_path / "allocs.pb.gz").samples
            return any("burn" in sample.frames and sample.bytes > 1_000_000 for sample in samples)

        # Without the key `pull`; from the end of the first window on, since the handler is created after the start.
        wait_until(has_allocations)


def test_a_client_that_leaves_ends_its_pull(tmp_path):
    source, command, prefix = SERVERS["asgi"]
    with server(tmp_path, source, *command) as address:
        host, port = address.removeprefix("http://").split(":")

        def is_busy() -> bool:
            return get(f"{address}{prefix}/profile?seconds=0.001")[0] == 429

        def begin() -> bool:
            client.append(socket.create_connection((host, int(port))))
            client[-1].sendall(f"GET {prefix}/profile?seconds=60 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            time.sleep(0.5)
            return is_busy()

        client: list[socket.socket] = []
        wait_until(begin)
        for connection in client:
            connection.close()
        # Long before the 60 s.
        wait_until(lambda: not is_busy())


def test_a_program_ends_during_a_pull(run_target):
    # 60 s are the limit of `run_target` too.
    run_target(
        """
        import time
        import spanprof
        from spanprof.pull import PullThread

        spanprof.start(service_name="shop")
        PullThread(("GET", "/debug/pprof", "/profile", "seconds=60", [], b""), print).start()
        time.sleep(0.5)
        """,
        timeout=40,
    )
