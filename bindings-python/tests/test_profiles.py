"""Profiles of real programs: shares, labels and totals compared with the programs' own clocks; and the API functions."""

from __future__ import annotations

import json
import pathlib
import re

import pytest

DOCUMENTS = pathlib.Path(__file__).parents[2] / "docs"

BURN = """
import time

def burn(seconds):
    start = time.thread_time()
    while time.thread_time() - start < seconds:
        sum(range(500))
"""


def test_an_unconfigured_program_is_profiled_with_its_lines_and_labels(run_target):
    target = run_target(
        BURN
        + """
import spanprof

def cart():
    burn(0.6)

def checkout():
    burn(0.2)

assert spanprof.start() is True
with spanprof.tag_wrapper({"endpoint": "/cart"}):
    cart()
with spanprof.tag_wrapper({"endpoint": "/checkout"}):
    checkout()
burn(0.2)
assert spanprof.stop() is True
"""
    )
    profiles = target.profiles()
    assert profiles.files[0].types == [("samples", "count"), ("cpu", "nanoseconds")]
    assert profiles.files[0].period == 10_000_000
    by_label = profiles.by_label("endpoint", through="burn")
    total = sum(by_label.values())
    assert total == pytest.approx(1.0e9, rel=0.1)
    # Three standard errors of a share of 0.6 over some hundred samples.
    assert by_label["/cart"] / total == pytest.approx(0.6, abs=0.15)
    assert by_label["/checkout"] / total == pytest.approx(0.2, abs=0.12)
    (sample, *_) = profiles.through("cart")
    assert sample.frames[-2:] == ["cart", "<module>"]
    assert sample.lines[sample.frames.index("cart")][0].endswith("target.py")
    assert sample.labels["service.name"] == "target"


def test_time_in_c_code_without_the_gil_is_attributed_to_the_calling_function(run_target):
    target = run_target(
        """
        import hashlib, time
        import spanprof

        def hashing(data, seconds):
            start = time.thread_time()
            while time.thread_time() - start < seconds:
                hashlib.sha256(data).digest()

        spanprof.start()
        hashing(b"x" * 4_000_000, 0.5)
        """
    )
    profiles = target.profiles()
    inside = sum(sample.nanoseconds for sample in profiles.through("hashing"))
    assert inside == pytest.approx(0.5e9, rel=0.15)


def test_wall_profiles_show_where_a_program_waits(run_target):
    target = run_target(
        """
        import threading, time
        import spanprof

        def waiting():
            time.sleep(1)

        spanprof.start(wall=True, cpu=False)
        thread = threading.Thread(target=waiting)
        thread.start()
        thread.join()
        """
    )
    assert not target.profiles().samples
    wall = target.profiles("wall")
    waited = sum(sample.nanoseconds for sample in wall.through("waiting"))
    assert waited == pytest.approx(1e9, rel=0.25)


def test_the_wall_clock_lets_an_idle_process_sleep(run_target):
    target = run_target(
        """
        import pathlib, re, time
        import spanprof

        def wakeups():
            for thread in pathlib.Path("/proc/self/task").iterdir():
                try:
                    status = (thread / "status").read_text()
                except OSError:  # The thread has ended.
                    continue
                if "\\tspanprof-wall\\n" in status:
                    return int(re.search(r"^voluntary_ctxt_switches:\\s+(\\d+)", status, re.MULTILINE)[1])

        def waiting():
            time.sleep(3)

        spanprof.start(wall=True)
        # Until the thread has its name.
        time.sleep(0.3)
        began, before = time.monotonic(), wakeups()
        waiting()
        print((wakeups() - before) / (time.monotonic() - began), time.monotonic() - began)
        """
    )
    wakeups_per_second, seconds = map(float, target.stdout.split())
    assert 0 < wakeups_per_second <= 20
    waited = sum(sample.nanoseconds for sample in target.profiles("wall").through("waiting"))
    assert waited == pytest.approx(seconds * 1e9, rel=0.1)


def test_the_api_functions_work_in_any_order_and_twice(run_target):
    target = run_target(
        BURN
        + """
import spanprof

assert spanprof.stop() is True
assert spanprof.flush() is True
assert spanprof.stats() == {}
assert spanprof.update(sample_rate=50) is False
assert spanprof.start() is True
assert spanprof.start() is True
burn(0.2)
assert spanprof.flush(5) is True
stats = spanprof.stats()
assert stats["samples.cpu"] > 5, stats
assert spanprof.update(sample_rate=200) is True
assert spanprof.stats()["config.sample_rate"] == "200"
assert spanprof.stats()["config.sample_rate.source"] == "update"
burn(0.2)
assert spanprof.stop() is True
assert spanprof.stop() is True
assert spanprof.stats() == {} or spanprof.stats()["state"] != "running"
assert spanprof.start() is True
burn(0.2)
"""
    )
    periods = {profile.period for profile in target.profiles().files}
    assert periods == {10_000_000, 5_000_000}
    assert target.profiles().nanoseconds == pytest.approx(0.6e9, rel=0.15)


def test_a_hundred_cycles_from_four_threads_leak_no_descriptor_and_no_thread(run_target):
    run_target(
        """
        import os, random, threading, time
        import spanprof

        def busy():
            while not done:
                sum(range(1000))

        def cycle(seed):
            random.seed(seed)
            for _ in range(25):
                spanprof.start(sample_rate=1000)
                time.sleep(random.random() / 200)
                spanprof.flush(0.1) if random.random() < 0.2 else None
                spanprof.stop()

        def open_resources():
            return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

        done = False
        spanprof.start()
        spanprof.stop()
        time.sleep(0.1)
        before = open_resources()
        burner = threading.Thread(target=busy)
        burner.start()
        threads = [threading.Thread(target=cycle, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spanprof.stop()
        done = True
        burner.join()
        # Threads of the profiler close their descriptors and end shortly after the stop.
        until = time.monotonic() + 30
        while any(now > then for now, then in zip(open_resources(), before)):
            assert time.monotonic() < until, (before, open_resources())
            time.sleep(0.05)
        """,
        SPANPROF_FILE_KEEP="5",
    )


@pytest.mark.parametrize("variable", [{"SPANPROF_DISABLED": "1"}, {"OTEL_SDK_DISABLED": "true"}])
def test_a_kill_switch_prevents_threads_and_signal_handlers(run_target, variable):
    target = run_target(
        """
        import os, signal, threading
        import spanprof

        assert spanprof.start() is False
        with spanprof.tag_wrapper({"a": "1"}):
            pass
        assert len(os.listdir("/proc/self/task")) == 1
        assert signal.getsignal(signal.SIGURG) == signal.SIG_DFL
        assert spanprof.stop() is True
        """,
        **variable,
    )
    assert not target.profiles().files


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"sample_rate": 0}, ["sample_rate", "10000", "0"]),
        ({"sample_rate": "fast"}, ["sample_rate", "fast"]),
        ({"clock": "sundial"}, ["clock", "thread_timer", "sundial"]),
        ({"max_stack_depth": 4}, ["max_stack_depth", "16"]),
        ({"headers": 5}, ["headers"]),
    ],
)
def test_an_invalid_setting_raises_an_error_with_the_expected_value(run_target, config, expected):
    target = run_target(
        f"""
        import json, spanprof

        try:
            spanprof.start(**json.loads({json.dumps(json.dumps(config))}))
        except spanprof.SpanprofError as error:
            print(json.dumps([error.kind, str(error), error.hint]))
        else:
            raise AssertionError("no error")
        with spanprof.tag_wrapper({{"a": "1"}}):
            print("still here")
        """
    )
    error, still = target.stdout.splitlines()
    kind, message, hint = json.loads(error)
    assert kind == "invalid_config"
    assert hint
    assert all(word in message for word in expected), message
    assert still == "still here"


@pytest.mark.parametrize(
    ("limit", "config", "reason"),
    [
        ("", {"config_file": "/does/not/exist.yaml"}, "/does/not/exist.yaml"),
        ("", {"file_directory": "/proc/none"}, "cannot be used"),
        ("AS, (size + (32 << 20),) * 2", {"destinations": []}, "no memory for the profiler"),
        ("NPROC, (0, 0)", {"destinations": []}, "refused a thread"),
    ],
)
def test_what_the_system_refuses_is_one_line_and_raises_nothing(run_target, limit, config, reason):
    target = run_target(
        f"""
        import os, resource, spanprof

        size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        if {limit!r}:
            os.setuid(65534) if "NPROC" in {limit!r} and os.getuid() == 0 else None
            resource.setrlimit(resource.RLIMIT_{limit or "CORE, (0, 0)"})
        print(spanprof.start(**{config!r}))
        """
    )
    assert target.stdout.strip() == "False"
    assert target.stderr.count("spanprof: this process is not profiled: ") == 1 and reason in target.stderr, target.stderr


def test_every_name_of_stats_is_documented(run_target):
    target = run_target(
        """
        import json
        import spanprof

        spanprof.start()
        spanprof.flush(10)
        print(json.dumps(list(spanprof.stats())))
        """
    )
    pages = "".join((DOCUMENTS / page).read_text() for page in ("reference/statistics.md", "internals/runtime-statistics.md"))
    documented = set(re.findall(r"`([^`\n]+)`", pages))
    names = json.loads(target.stdout)
    assert len(names) > 100
    for name in names:
        general = re.sub(r"^export\.\d+\.", "export.<n>.", re.sub(r"^config\.[a-z_]+", "config.<key>", name))
        if general not in documented:
            group, _, reason = general.partition("dropped")
            assert reason[1:] in documented, name
            assert f"{group}dropped{reason[0]}<reason>" in documented, name
