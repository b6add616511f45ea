"""gevent and greenlet: each greenlet has its own labels and stacks, with and without monkey patching."""

from __future__ import annotations

import pytest

BURN = """
import time

def burn(seconds):
    start = time.thread_time()
    while time.thread_time() - start < seconds:
        sum(range(200))
"""


@pytest.mark.parametrize("started", ["before", "after"])
def test_interleaved_greenlets_keep_their_own_labels_and_stacks(run_target, started):
    target = run_target(
        ("import spanprof; spanprof.start()\n" if started == "before" else "")
        + "from gevent import monkey; monkey.patch_all()\n"
        + BURN
        + f"""
import gevent
import spanprof
from spanprof import _spanprof
if {started!r} == "after":
    spanprof.start()

wrong = 0

def route_a(number):
    burn(0.002)

def route_b(number):
    burn(0.002)

def request(number):
    global wrong
    function = (route_a, route_b)[number % 2]
    with spanprof.tag_wrapper({{"route": function.__name__}}):
        for _ in range(10):
            function(number)
            time.sleep(0)
            wrong += _spanprof.describe()["labels"] != {{"route": function.__name__}}
    wrong += _spanprof.describe()["labels"] != {{}}

gevent.joinall([gevent.spawn(request, number) for number in range(40)], raise_error=True)
assert wrong == 0, wrong
""",
        SPANPROF_SAMPLE_RATE="250",
    )
    profiles = target.profiles()
    seen = 0
    for sample in profiles.samples:
        for function in ("route_a", "route_b"):
            if function in sample.frames:
                assert sample.labels.get("route") == function
                seen += sample.count
    assert seen >= 50
    assert profiles.nanoseconds >= 0.7e9


def test_patched_threads_and_pools_work_as_without_the_profiler(run_target):
    run_target(
        "from gevent import monkey; monkey.patch_all()\n"
        + BURN
        + """
import concurrent.futures, threading
import gevent
import spanprof
from spanprof import _spanprof

spanprof.start(sample_rate=1000, wall=True)

def labels():
    gevent.sleep(0)
    return _spanprof.describe()["labels"]

found = []
with spanprof.tag_wrapper({"a": "1"}):
    thread = threading.Thread(target=lambda: found.append(labels()))
    thread.start()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert pool.submit(labels).result() == {"a": "1"}
thread.join()
burn(0.2)
assert spanprof.stop() is True
"""
    )


def test_greenlets_that_switch_explicitly_keep_their_contexts(run_target):
    run_target(
        BURN
        + """
import greenlet
import spanprof
from spanprof import _spanprof

spanprof.start(sample_rate=1000)
main = greenlet.getcurrent()

def other():
    assert _spanprof.describe()["labels"] == {}
    with spanprof.tag_wrapper({"inside": "other"}):
        burn(0.02)
        main.switch()
        burn(0.02)
        assert _spanprof.describe()["labels"] == {"inside": "other"}
    assert _spanprof.describe()["labels"] == {}

child = greenlet.greenlet(other)
with spanprof.tag_wrapper({"inside": "main"}):
    child.switch()
    assert _spanprof.describe()["labels"] == {"inside": "main"}
    burn(0.02)
child.switch()
assert child.dead and _spanprof.describe()["labels"] == {}
"""
    )


def test_a_greenlet_starts_without_labels_unless_it_is_given_the_context(run_target):
    run_target(
        """
        import contextvars
        import gevent
        import spanprof
        from spanprof import _spanprof

        seen = {}

        def record_labels(name):
            for _ in range(3):
                seen.setdefault(name, []).append(_spanprof.describe()["labels"])
                gevent.sleep(0)

        spanprof.start()
        greenlets = []
        for number in range(3):
            with spanprof.tag_wrapper({"n": str(number)}):
                greenlets.append(gevent.spawn(record_labels, f"plain {number}"))
                greenlets.append(gevent.spawn(contextvars.copy_context().run, record_labels, f"given {number}"))
        gevent.joinall(greenlets, raise_error=True)
        for number in range(3):
            assert seen[f"plain {number}"] == [{}] * 3
            assert seen[f"given {number}"] == [{"n": str(number)}] * 3
        """
    )
