"""The profile of one piece of work: it has the work's samples, and none of the work beside it."""

from __future__ import annotations

import pytest

BURN = """
import asyncio
import gzip
import threading
import time
import spanprof

def burn(seconds):
    start = time.thread_time()
    while time.thread_time() - start < seconds:
        sum(range(200))

def f(seconds=0.2):
    burn(seconds)
    return 5

def g():
    while not done:
        burn(0.01)

done = False
spanprof.start(sample_rate=200, heap=False)
other = threading.Thread(target=g)
other.start()

def folded(captured):
    captured.save("capture.folded")
    with open("capture.folded") as file:
        return {stack: int(value) for stack, value in (line.rsplit(" ", 1) for line in file)}

def check(captured):
    stacks = folded(captured)
    assert not any({"g", "beside"} & set(stack.split(";")) for stack in stacks), stacks
    # 200 ms; the first sample may have begun before, and the last period is missing.
    assert 0.1e9 <= sum(value for stack, value in stacks.items() if ";f;burn" in stack) <= 0.3e9, stacks
    assert "cpu" in captured.types, captured.types
    assert gzip.decompress(captured.pprof()) and "burn" in captured.flamegraph()
"""


@pytest.mark.parametrize(
    "work",
    [
        "captured = spanprof.capture(f, 0.2)\nassert captured.result == 5",
        "with spanprof.capture() as captured:\n    f()",
        """
async def request():
    await asyncio.sleep(0.01)
    return f()

async def main():
    async def beside():
        for _ in range(20):
            burn(0.01)
            await asyncio.sleep(0)
    _, captured = await asyncio.gather(beside(), spanprof.capture(request))
    return captured

captured = asyncio.run(main())
assert captured.result == 5""",
        """
async def main():
    async with spanprof.capture() as captured:
        await asyncio.to_thread(f) if hasattr(asyncio, "to_thread") else f()
    return captured

captured = asyncio.run(main())""",
    ],
    ids=["function", "scope", "coroutine", "asynchronous_scope"],
)
def test_a_capture_has_the_samples_of_its_work_only(run_target, work):
    run_target(f"{BURN}\n{work}\ndone = True\nother.join()\ncheck(captured)\nassert spanprof.stop()\n")


def test_the_file_of_a_capture_is_an_attribute_of_the_current_span(run_target):
    run_target(
        """
        import spanprof
        from opentelemetry.sdk.trace import TracerProvider
        from spanprof.otel import SpanProcessor

        provider = TracerProvider()
        provider.add_span_processor(SpanProcessor())
        spanprof.start(heap=False, gc=False, off_cpu=False)
        with provider.get_tracer("t").start_as_current_span("root") as root:
            captured = spanprof.capture(lambda: 5)
            captured.save("capture.html")
            assert root.attributes["profile.file"] == "capture.html"
            assert root.attributes["profile.type"] == ("cpu",)
        try:
            captured.save("capture.svg")
        except spanprof.SpanprofError as error:
            assert "no known format" in str(error)
        else:
            raise AssertionError("an unknown format was accepted")
        spanprof.stop()
        assert spanprof.capture(lambda: 6).result == 6
        """
    )


def test_a_saved_capture_names_the_profiles_without_a_span_processor(run_target):
    run_target(
        """
        import spanprof
        from opentelemetry.sdk.trace import TracerProvider

        spanprof.start(heap=False, gc=False, off_cpu=False)
        with TracerProvider().get_tracer("t").start_as_current_span("root") as root:
            spanprof.capture(lambda: 5).save("capture.html")
            assert root.attributes["profile.type"] == ("cpu",), dict(root.attributes)
        spanprof.stop()
        """
    )


def test_a_sent_capture_reaches_the_destination_under_types_of_its_own(run_target):
    run_target(
        f"""{BURN}
done = True
other.join()
spanprof.stop()
spanprof.start(sample_rate=200, heap=False, destinations=[])
captured = spanprof.capture(f, 0.2)
assert captured.send(0) is False, "no destination"
assert spanprof.stats()["capture.unsent"] > 0
spanprof.stop()
assert captured.send() is False, "no profiler"

import glob
spanprof.start(sample_rate=200, heap=False, file_directory="sent", upload_interval=3600)
with spanprof.tag_wrapper({{"endpoint": "/cart", "password": "hunter2"}}):
    captured = spanprof.capture(f, 0.2)
assert captured.send(30)
sent = glob.glob("sent/capture_cpu-*.pb.gz")
assert len(sent) == 1 and not glob.glob("sent/cpu-*.pb.gz"), glob.glob("sent/*")
with open(sent[0], "rb") as file:
    content = gzip.decompress(file.read())
assert b"/cart" in content and b"hunter2" not in content
assert spanprof.stats()["export.0.sent_samples"] > 0
spanprof.stop()
"""
    )
