"""``bind``, prepared ``Labels`` and ``is_running``."""

from __future__ import annotations

import asyncio
import contextlib
import functools

import pytest
import spanprof
from spanprof import _spanprof as native


def labels() -> dict[str, str]:
    return native.describe()["labels"]


def test_a_bound_function_passes_arguments_and_exceptions_and_keeps_its_name():
    def add(left: int, right: int = 0) -> int:
        return left + right

    with spanprof.tag_wrapper({"a": "1"}):
        bound, failing = spanprof.bind(add), spanprof.bind(lambda: {}["missing"])
    assert (bound(1, right=2), bound.__name__, bound.__wrapped__) == (3, "add", add)
    with pytest.raises(KeyError):
        failing()
    assert labels() == {}
    assert not hasattr(spanprof.bind(functools.partial(add, 1)), "__name__")


def test_a_bound_callback_of_the_event_loop_has_the_labels_of_its_binding():
    async def main() -> dict[str, str]:
        loop = asyncio.get_running_loop()
        seen = loop.create_future()
        with spanprof.tag_wrapper({"a": "1"}):
            bound = spanprof.bind(lambda: seen.set_result(labels()))
        with spanprof.tag_wrapper({"b": "2"}):
            loop.call_soon(bound)
        return await seen

    assert asyncio.run(main()) == {"a": "1"}


def test_a_bound_coroutine_function_has_its_labels_until_it_returns():
    async def work() -> list[dict[str, str]]:
        before = labels()
        await asyncio.sleep(0)
        return [before, labels()]

    with spanprof.tag_wrapper({"a": "1"}):
        bound = spanprof.bind(work)
    assert asyncio.iscoroutinefunction(bound)

    async def caller(number: int) -> None:
        with spanprof.tag_wrapper({"caller": str(number)}):
            assert await bound() == [{"a": "1"}] * 2
            assert labels() == {"caller": str(number)}

    async def main() -> None:
        await asyncio.gather(*map(caller, range(50)))

    asyncio.run(main())


def test_a_bound_coroutine_that_is_closed_in_another_task_changes_no_labels_there():
    async def work() -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        with spanprof.tag_wrapper({"a": "1"}):
            coroutine = spanprof.bind(work)()

        async def first_step() -> None:
            with contextlib.suppress(StopIteration):
                coroutine.send(None)

        await asyncio.create_task(first_step())
        with spanprof.tag_wrapper({"b": "2"}):
            coroutine.close()
            assert labels() == {"b": "2"}

    asyncio.run(main())


def test_the_body_of_a_bound_generator_function_has_the_labels_of_the_code_that_resumes_it():
    def steps():
        yield labels()
        yield labels()

    async def async_steps():
        await asyncio.sleep(0)
        yield labels()

    with spanprof.tag_wrapper({"a": "1"}):
        bound, bound_async, bound_next = spanprof.bind(steps), spanprof.bind(async_steps), spanprof.bind(next)
    with spanprof.tag_wrapper({"b": "2"}):
        generator = bound()
    with spanprof.tag_wrapper({"c": "3"}):
        assert next(generator) == {"c": "3"}
        # To carry labels into the body, bind the function that resumes it.
        assert bound_next(steps()) == {"a": "1"}
    assert next(generator) == {}

    async def main() -> None:
        with spanprof.tag_wrapper({"c": "3"}):
            assert [seen async for seen in bound_async()] == [{"c": "3"}]

    asyncio.run(main())


def test_prepared_labels_take_the_arguments_of_tag_wrapper_and_combine_with_keywords():
    prepared = spanprof.Labels({"a": "1", "b": "1"}, b="2")
    for scope in (spanprof.tag_wrapper(prepared, c="3"), spanprof.tag_wrapper(labels=prepared, c="3")):
        with scope:
            assert labels() == {"a": "1", "b": "2", "c": "3"}
    with spanprof.tag_wrapper(spanprof.Labels(spanprof.Labels(a="1"), d="4")):
        assert labels() == {"a": "1", "d": "4"}
    with spanprof.tag_wrapper(spanprof.Labels(5)):
        assert labels() == {}


def test_prepared_labels_do_not_change_with_their_mapping():
    mapping = {"a": "1"}
    prepared = spanprof.Labels(mapping)
    mapping["a"] = "2"
    with spanprof.tag_wrapper(prepared):
        assert labels() == {"a": "1"}


def test_bound_functions_and_prepared_labels_label_samples(run_target):
    target = run_target(
        """
import threading, time
import spanprof

def burn():
    start = time.thread_time()
    while time.thread_time() - start < 0.3:
        sum(range(500))

early = spanprof.Labels(endpoint="/early")
assert spanprof.start() is True
with spanprof.tag_wrapper({"endpoint": "/bound"}):
    bound = spanprof.bind(burn)
thread = threading.Thread(target=bound)
thread.start()
thread.join()
with spanprof.tag_wrapper({"endpoint": "/caller"}):
    bound()
with spanprof.tag_wrapper(early):
    burn()
assert spanprof.stop() is True
"""
    )
    by_label = target.profiles().by_label("endpoint", through="burn")
    assert set(by_label) >= {"/bound", "/early"}
    assert "/caller" not in by_label
    assert by_label["/bound"] == pytest.approx(6e8, rel=0.3)
    assert by_label["/early"] == pytest.approx(3e8, rel=0.4)


def test_is_running_is_true_from_start_to_stop_only(run_target):
    run_target(
        """
import os
import spanprof

states = [spanprof.is_running()]
os.environ["SPANPROF_DISABLED"] = "1"
states += [spanprof.start(), spanprof.is_running()]
spanprof.stop()
del os.environ["SPANPROF_DISABLED"]
states += [spanprof.start(), spanprof.is_running(), spanprof.stop(), spanprof.is_running()]
assert states == [False, False, False, True, True, True, False], states
"""
    )
