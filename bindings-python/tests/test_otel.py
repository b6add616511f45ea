"""Samples are linked to the active OpenTelemetry span without code in the program, in every task and thread of the span."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
from random import Random

import pytest
import spanprof
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from spanprof import _spanprof as native
from spanprof import otel_link

otel_link.install()
tracer = TracerProvider().get_tracer("tests")


def linked() -> tuple[str, str, str]:
    described = native.describe()
    return described["trace_id"], described["span_id"], described["local_root_span_id"]


def ids(span, root=None) -> tuple[str, str, str]:
    context = span.get_span_context()
    root_context = (root or span).get_span_context()
    return (
        trace.format_trace_id(context.trace_id),
        trace.format_span_id(context.span_id),
        trace.format_span_id(root_context.span_id),
    )


NOTHING = ("", "", "")


def test_the_current_span_is_the_link_and_the_outer_one_is_restored():
    assert linked() == NOTHING
    with tracer.start_as_current_span("root") as root:
        assert linked() == ids(root)
        with tracer.start_as_current_span("child") as child:
            assert linked() == ids(child, root)
        assert linked() == ids(root)
    assert linked() == NOTHING


def test_a_remote_parent_makes_the_first_local_span_the_root():
    remote = trace.NonRecordingSpan(trace.SpanContext(0xABC << 100, 0x123, is_remote=True, trace_flags=trace.TraceFlags(1)))
    token = otel_context.attach(trace.set_span_in_context(remote))
    assert linked()[:2] == ids(remote)[:2]
    with tracer.start_as_current_span("server") as server:
        assert linked() == ids(server)
        assert linked()[0] == ids(remote)[0]
    otel_context.detach(token)
    assert linked() == NOTHING


def test_interleaved_tasks_each_keep_their_own_span():
    async def request(number: int) -> int:
        wrong = 0
        with tracer.start_as_current_span(f"request {number}") as span, spanprof.tag_wrapper({"n": str(number)}):
            expected = ids(span)
            for _ in range(5):
                await asyncio.sleep(0.001 * (number % 3))
                wrong += linked() != expected or native.describe()["labels"] != {"n": str(number)}
                with tracer.start_as_current_span("inner") as inner:
                    await asyncio.sleep(0)
                    wrong += linked() != ids(inner, span)
        return wrong + (linked() != NOTHING)

    async def main() -> list[int]:
        return await asyncio.gather(*(request(number) for number in range(1000)))

    assert sum(asyncio.run(main())) == 0


def test_tasks_and_executors_started_in_a_span_are_linked_to_it():
    async def main() -> None:
        with tracer.start_as_current_span("root") as root:
            task = asyncio.create_task(linked_later())
            assert await asyncio.to_thread(linked) == ids(root)
            assert await asyncio.get_running_loop().run_in_executor(None, linked) == ids(root)
        assert await task == ids(root)

    async def linked_later() -> tuple:
        await asyncio.sleep(0.001)
        return linked()

    asyncio.run(main())
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with tracer.start_as_current_span("root") as root:
            assert pool.submit(linked).result() == ids(root)
        assert pool.submit(linked).result() == NOTHING


def test_detaching_in_another_context_behaves_as_without_the_profiler(caplog):
    attached = contextvars.copy_context()
    span = tracer.start_span("span")
    token = attached.run(otel_context.attach, trace.set_span_in_context(span))
    otel_context.detach(token)
    assert "Failed to detach context" in caplog.text
    assert linked() == NOTHING
    assert attached.run(linked) == ids(span)


@pytest.mark.parametrize("seed", range(20))
def test_the_link_is_the_current_span_in_any_order_of_attaching_and_detaching(seed):
    random = Random(seed)
    named = TracerProvider().get_tracer("walk")
    tokens: list = []
    scopes: list = []

    def walk() -> None:
        for step in range(300):
            choice = random.random()
            if choice < 0.4 and len(tokens) < 12:
                parent = None if random.random() < 0.5 else otel_context.Context()
                span = named.start_span(f"span {step}", context=parent)
                base = random.choice([otel_context.get_current(), otel_context.Context()])
                context = random.choice([trace.set_span_in_context(span, base), otel_context.set_value("key", step, base)])
                tokens.append(otel_context.attach(context))
            elif choice < 0.8 and tokens:
                otel_context.detach(tokens.pop(random.randrange(len(tokens))))
            elif choice < 0.9:
                scopes.append(spanprof.tag_wrapper({"n": str(len(scopes))}))
                scopes[-1].__enter__()
            elif scopes:
                scopes.pop(random.randrange(len(scopes))).__exit__(None, None, None)
            current = trace.get_current_span().get_span_context()
            assert linked()[:2] == (ids(trace.get_current_span())[:2] if current.is_valid else ("", "")), step
            assert len(native.describe()["labels"]) == bool(scopes), step
        for token in tokens:
            otel_context.detach(token)

    contextvars.copy_context().run(walk)
    assert linked() == NOTHING


def test_a_span_is_current_again_with_its_local_root_when_tokens_are_detached_in_the_order_of_attaching():
    with tracer.start_as_current_span("root") as root:
        child = tracer.start_span("child")
        one = otel_context.attach(trace.set_span_in_context(child))
        two = otel_context.attach(trace.set_span_in_context(tracer.start_span("other")))
        otel_context.detach(one)
        assert linked() == ids(root)
        otel_context.detach(two)
        assert linked() == ids(child, root)
        otel_context.attach(trace.set_span_in_context(root))


@pytest.mark.parametrize("order", ["before", "after"])
def test_samples_of_an_instrumented_program_are_linked(run_target, order):
    start = "import spanprof; spanprof.start()"
    target = run_target(
        f"""
        import time
        {start if order == "before" else ""}
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        {start if order == "after" else ""}

        def burn(seconds):
            start = time.thread_time()
            while time.thread_time() - start < seconds:
                sum(range(500))

        trace.set_tracer_provider(TracerProvider())
        with trace.get_tracer("t").start_as_current_span("root") as span:
            context = span.get_span_context()
            print(trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id))
            burn(0.5)
        """
    )
    trace_id, span_id = target.stdout.split()
    profiles = target.profiles()
    inside = profiles.through("burn")
    assert inside and all((s.labels["trace_id"], s.labels["span_id"]) == (trace_id, span_id) for s in inside)


def test_starting_inside_a_span_links_it_at_once(run_target):
    run_target(
        """
        import spanprof
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from spanprof import _spanprof

        with TracerProvider().get_tracer("t").start_as_current_span("root") as span:
            spanprof.start()
            assert _spanprof.describe()["span_id"] == trace.format_span_id(span.get_span_context().span_id)
        """
    )


def test_pyroscopes_span_processor_names_the_profile_of_local_roots(run_target):
    run_target(
        """
        import spanprof
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from spanprof import _spanprof
        from spanprof.otel import PyroscopeSpanProcessor

        spanprof.start()
        provider = TracerProvider()
        provider.add_span_processor(PyroscopeSpanProcessor())
        tracer = provider.get_tracer("t")
        with tracer.start_as_current_span("root") as root:
            root_id = trace.format_span_id(root.get_span_context().span_id)
            assert root.attributes["pyroscope.profile.id"] == root_id
            assert _spanprof.describe()["labels"] == {"span_name": "root"}
            with tracer.start_as_current_span("child") as child:
                assert "pyroscope.profile.id" not in child.attributes
                assert _spanprof.describe()["local_root_span_id"] == root_id
                assert _spanprof.describe()["labels"] == {"span_name": "root"}
        assert _spanprof.describe()["labels"] == {}
        assert provider.force_flush()
        provider.shutdown()
        """
    )


def test_starting_does_not_import_opentelemetry(run_target):
    run_target(
        """
        import sys
        import spanprof

        before = set(sys.modules)
        spanprof.start()
        for name in ("opentelemetry", "asyncio", "concurrent.futures", "multiprocessing"):
            assert name not in sys.modules, name
        """
    )
