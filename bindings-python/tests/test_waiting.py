"""The time off CPU and the live threads: totals that the program measured itself, reasons, labels."""

from __future__ import annotations

import json
import sys

import pytest

WAITS = """
import json, os, select, socket, subprocess, sys, threading, time
import spanprof

truth = {}

def burn(seconds):
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass

def measured(function):
    def run():
        wall, cpu = time.perf_counter(), time.thread_time()
        function()
        truth[function.__name__] = time.perf_counter() - wall - (time.thread_time() - cpu)
    return threading.Thread(target=run)

def run_all(*functions):
    threads = [measured(function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spanprof.stop()
    print(json.dumps(truth))
"""


def by_reason(profiles, function: str) -> dict[str, float]:
    """Seconds through `function` by the leaf frame."""
    seconds: dict[str, float] = {}
    for sample in profiles.through(function):
        seconds[sample.leaf] = seconds.get(sample.leaf, 0) + sample.nanoseconds / 1e9
    return seconds


def test_the_time_off_cpu_has_its_total_its_stack_and_its_reason(run_target):
    target = run_target(
        WAITS
        + """
reader, writer = socket.socketpair()
lock = threading.Lock()
lock.acquire()

def reading():
    reader.recv(1)

def locking():
    lock.acquire()

def sleeping():
    time.sleep(2)

def polling():
    select.select([], [], [], 2)

def ending():
    time.sleep(2)
    writer.send(b"x")
    lock.release()

spanprof.start(off_cpu=True)
run_all(reading, locking, sleeping, polling, ending)
"""
    )
    truth = json.loads(target.stdout)
    profiles = target.profiles("off_cpu")
    assert profiles.files[0].types == [("off_cpu", "nanoseconds")]
    assert not target.profiles("wall").samples
    reasons = {"reading": "[I/O]", "locking": "[lock]", "sleeping": "[sleep]", "polling": "[sleep]"}
    for function, reason in reasons.items():
        seconds = by_reason(profiles, function)
        assert sum(seconds.values()) == pytest.approx(truth[function], rel=0.1), (function, seconds, truth)
        assert seconds[reason] > 0.8 * sum(seconds.values()), (function, seconds)


def test_only_the_waits_of_a_thread_that_also_computes_are_off_cpu(run_target):
    target = run_target(
        WAITS
        + """
def mixed():
    began = time.perf_counter()
    while time.perf_counter() - began < 5:
        burn(0.004)
        pausing()

def pausing():
    time.sleep(0.006)

spanprof.start(off_cpu=True, wall=True)
run_all(mixed)
"""
    )
    truth = json.loads(target.stdout)["mixed"]
    seconds = by_reason(target.profiles("off_cpu"), "mixed")
    # Five hundred waits at random moments of the intervals: the standard deviation is 3 %.
    assert sum(seconds.values()) == pytest.approx(truth, rel=0.2), seconds
    computing = by_reason(target.profiles("off_cpu"), "burn")
    assert computing.get("[sleep]", 0) < 0.15 * truth, (truth, computing)
    assert sum(by_reason(target.profiles("wall"), "mixed").values()) == pytest.approx(5, rel=0.2)


def test_a_thread_without_a_processor_is_scheduled_out(run_target):
    target = run_target(
        WAITS
        + """
processor = min(os.sched_getaffinity(0))
burner = subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{processor}])\\nwhile True: pass"])

def computing():
    os.sched_setaffinity(0, [processor])
    burn(1)

try:
    spanprof.start(off_cpu=True)
    run_all(computing)
finally:
    burner.kill()
"""
    )
    truth = json.loads(target.stdout)["computing"]
    seconds = by_reason(target.profiles("off_cpu"), "computing")
    assert truth > 0.2, "the processor was shared"
    assert sum(seconds.values()) == pytest.approx(truth, rel=0.2), (seconds, truth)
    assert seconds["[scheduled out]"] > 0.8 * sum(seconds.values()), seconds


def test_live_threads_are_counted_once_per_window_with_their_labels(run_target):
    target = run_target(
        """
        import threading, time
        import spanprof

        ended = threading.Event()

        def waiting(number):
            with spanprof.tag_wrapper({"worker": str(number % 2)}):
                ended.wait()

        spanprof.start(threads=True, cpu=False, heap=False, upload_interval=1)
        threads = [threading.Thread(target=waiting, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        # The process is idle: windows end nevertheless.
        time.sleep(3.5)
        ended.set()
        for thread in threads:
            thread.join()
        spanprof.stop()
        """
    )
    profiles = target.profiles("threads")
    assert profiles.files[0].types == [("threads", "count")]
    counts = []
    for window in profiles.files:
        workers = [sample for sample in window.samples if "waiting" in sample.frames]
        counts.append({sample.labels["worker"]: 0 for sample in workers})
        for sample in workers:
            counts[-1][sample.labels["worker"]] += sample.count
        main = [sample for sample in window.samples if sample.frames[-1] == "<module>"]
        assert sum(sample.count for sample in main) == 1
    assert counts.count({"0": 3, "1": 3}) >= 2, counts
    assert counts[-1] == {}, "after the threads ended"
    assert not target.profiles("wall").samples


def test_without_these_profiles_there_is_no_wall_thread(run_target):
    run_target(
        """
        import pathlib, time
        import spanprof

        def has_wall_thread():
            names = []
            for task in pathlib.Path("/proc/self/task").iterdir():
                try:
                    names.append((task / "comm").read_text().strip())
                except OSError:  # The thread has ended.
                    continue
            return "spanprof-wall" in names

        spanprof.start(off_cpu=False)
        time.sleep(0.5)
        assert not has_wall_thread()
        spanprof.update(threads=True)
        # A thread gives itself its name.
        deadline = time.monotonic() + 20
        while not has_wall_thread():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        spanprof.update(threads=False)
        # The kernel lists a thread for a moment after it was joined.
        while has_wall_thread():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        """
    )


def test_suspended_tasks_show_their_awaits_and_their_awaiters(run_target):
    target = run_target(
        """
        import asyncio
        import spanprof

        async def inner(event):
            await event.wait()

        async def child(event):
            await inner(event)

        async def parent(event):
            await asyncio.gather(child(event), child(event))

        async def labelled(event):
            with spanprof.tag_wrapper({"endpoint": "/orders"}):
                await asyncio.get_running_loop().create_task(child(event))

        async def main():
            event = asyncio.Event()
            tasks = [asyncio.create_task(parent(event)) for _ in range(3)] + [asyncio.create_task(labelled(event))]
            await asyncio.sleep(6.5)
            event.set()
            for task in tasks:
                await task

        spanprof.start(threads=True, cpu=False, heap=False, upload_interval=1)
        asyncio.run(main())
        spanprof.stop()
        """
    )
    gather = ["wait", "inner", "child", "parent"]
    counts = []
    for window in target.profiles("threads").files:
        stacks = [([frame.rpartition(".")[2] for frame in sample.frames], sample) for sample in window.samples]
        children = sum(sample.count for frames, sample in stacks if frames == gather)
        parents = sum(sample.count for frames, sample in stacks if frames == ["parent"])
        one = [sample for frames, sample in stacks if frames == ["wait", "inner", "child", "labelled"]]
        main = sum(sample.count for frames, sample in stacks if frames == ["sleep", "main"])
        counts.append((children, parents, len(one), main))
        if one and sys.version_info >= (3, 12):
            assert one[0].labels["endpoint"] == "/orders"
        # The thread that reads the tasks is not one of the program.
        files = {file for sample in window.samples for file, _ in sample.lines}
        assert not any(file.endswith("spanprof/tasks.py") for file in files), files
    assert counts.count((6, 3, 1, 1)) >= 2, counts
    assert counts[-1] == (0, 0, 0, 0), "after the tasks ended"


def test_each_window_has_the_threads_where_requests_wake_the_profiler_all_the_time(run_target):
    target = run_target(
        """
        import threading, time
        import spanprof

        ended = threading.Event()
        def idles(): ended.wait()
        threads = [threading.Thread(target=idles) for _ in range(6)]
        for thread in threads:
            thread.start()
        spanprof.start(threads=True, cpu=False, heap=False, upload_interval=1)
        until = time.monotonic() + 5.5
        while time.monotonic() < until:
            with spanprof.capture():
                pass
        ended.set()
        for thread in threads:
            thread.join()
        spanprof.stop()
        """
    )
    windows = target.profiles("threads").files
    idle = [sum(sample.count for sample in window.samples if "idles" in sample.frames) for window in windows]
    assert idle[:5] == [6] * 5, idle


@pytest.mark.parametrize("end", ["stop()", "update(threads=False)"])
def test_the_thread_that_reads_tasks_ends_with_the_profile_of_threads(run_target, end):
    run_target(
        f"""
        import sys, time
        import spanprof

        def wait_for_threads(count):
            while len(sys._current_frames()) != count:
                time.sleep(0.01)

        spanprof.start(threads=True, upload_interval=3600)
        wait_for_threads(2)
        spanprof.{end}
        wait_for_threads(1)
        """
    )


def test_a_request_awaits_for_the_time_that_its_tasks_are_suspended_and_no_longer(run_target):
    target = run_target(
        """
        import asyncio, time
        import spanprof
        from spanprof import asgi

        async def pay():
            await asyncio.sleep(1)

        async def linger():
            await asyncio.sleep(60)

        async def app(scope, receive, send):
            if scope["path"] == "/thread":
                await asyncio.to_thread(time.sleep, 1)
            elif scope["path"] == "/gather":
                await asyncio.gather(pay(), pay())
            else:
                await pay()
                app.task = asyncio.create_task(linger())

        async def main():
            requested = asgi.Middleware(app)
            for path in ["/await", "/gather", "/thread"]:
                await requested({"type": "http", "method": "GET", "path": path, "headers": []}, None, None)

        spanprof.start(cpu=False, heap=False, lock=False)
        asyncio.run(main())
        spanprof.stop()
        """
    )
    waits = target.profiles("off_cpu")
    # A task that outlives its request is not sampled, nor one that awaits others or a thread.
    assert sum(sample.nanoseconds for sample in waits.samples) / 1e9 == pytest.approx(3, abs=0.5)
    assert sum(by_reason(waits, "pay").values()) == pytest.approx(2, abs=0.4)
    assert set(by_reason(waits, "pay")) == {"[await]"}
    assert by_reason(waits, "linger") == {}


def test_of_many_awaiting_tasks_a_part_represents_all(run_target):
    target = run_target(
        """
        import asyncio
        import spanprof
        from spanprof import asgi

        async def app(scope, receive, send):
            await asyncio.sleep(3)

        async def main():
            requested = asgi.Middleware(app)
            scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
            await asyncio.gather(*[requested(dict(scope), None, None) for _ in range(400)])

        spanprof.start(cpu=False, heap=False, lock=False)
        asyncio.run(main())
        spanprof.stop()
        """
    )
    waits = target.profiles("off_cpu")
    assert sum(sample.nanoseconds for sample in waits.samples) / 1e9 == pytest.approx(400 * 3, rel=0.2)
    # A sample has 64 tasks at most, 25 times a second.
    assert len(waits.samples) < 3 * 25 * 64 * 2
