"""Labels that threads inherit, and labels on interpreters that lack the C functions for context variables."""

from __future__ import annotations

# The first argument sets `inherit_threads`; prints the initial labels of new threads.
_THREADS = """
    import sys, threading
    import spanprof
    from spanprof import _spanprof as native

    def labels():
        return native.describe()["labels"]

    def of_thread(before=lambda: None):
        seen = []
        def work():
            before()
            seen.append(labels())
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return seen[0]

    spanprof.start(destinations=[], inherit_threads=sys.argv[1] == "yes")
    with spanprof.tag_wrapper({"a": "1"}):
        print(of_thread())
        with spanprof.tag_wrapper({"b": "2"}):
            print(of_thread(lambda: native.add_labels({"c": "3"})))
        print(labels())
    print(of_thread())
    spanprof.stop()
"""


def test_with_inherit_threads_a_thread_starts_with_the_labels_of_its_creator(run_target):
    target = run_target(_THREADS, "yes")
    inner = "{'a': '1', 'b': '2', 'c': '3'}"
    assert target.stdout.splitlines() == ["{'a': '1'}", inner, "{'a': '1'}", "{}"], target.stderr


def test_without_inherit_threads_a_thread_starts_without_labels(run_target):
    target = run_target(_THREADS, "no")
    assert target.stdout.splitlines() == ["{}", "{'c': '3'}", "{'a': '1'}", "{}"], target.stderr


def test_without_the_c_functions_for_context_variables_labels_are_still_correct(run_target):
    target = run_target(
        """
        import asyncio
        import time
        import spanprof
        from spanprof import _spanprof as native

        native._testing.hide_context_functions()

        def labels():
            return native.describe()["labels"]

        scope = spanprof.tag_wrapper({"a": "1"})
        with scope:
            with spanprof.tag_wrapper({"b": "é"}), scope:
                assert labels() == {"a": "1", "b": "é"}
            assert labels() == {"a": "1"}
        assert labels() == {}

        async def task(number):
            async with spanprof.tag_wrapper({"task": number}), scope:
                await asyncio.sleep(0)
                return labels()

        async def main():
            return await asyncio.gather(*map(task, range(3)))

        assert asyncio.run(main()) == [{"a": "1", "task": str(number)} for number in range(3)]

        def spin(seconds):
            end = time.thread_time() + seconds
            while time.thread_time() < end:
                pass

        spanprof.start(service_name="without-functions")
        assert "PyContextVar" in spanprof.stats()["python.missing_functions"]
        with spanprof.tag_wrapper({"part": "labeled"}):
            spin(0.5)
        assert spanprof.stop()
        """,
    )
    by_part = target.profiles().by_label("part")
    # Apart from its start the program uses no other CPU time; load on the machine adds none.
    assert by_part["labeled"] > sum(by_part.values()) / 2 > 0


def test_a_thread_that_python_did_not_start_is_sampled_with_its_labels_from_its_first_scope_on(run_target):
    target = run_target(
        """
        import ctypes, threading, time
        import spanprof

        def callback(_):
            with spanprof.tag_wrapper({"by": "c"}):
                end = time.thread_time() + 0.05
                while time.thread_time() < end:
                    pass

        spanprof.start(heap=False)
        library = ctypes.CDLL(None)
        library.pthread_join.argtypes = [ctypes.c_ulong, ctypes.c_void_p]
        function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(callback)
        for _ in range(20):
            thread = ctypes.c_ulong()
            library.pthread_create(ctypes.byref(thread), None, ctypes.cast(function, ctypes.c_void_p), None)
            library.pthread_join(thread, None)
        assert spanprof.stop()
        """
    )
    by_label = target.profiles().by_label("by")
    assert by_label["c"] > 0.8e9, by_label


def test_samples_have_the_whole_name_of_their_thread_at_their_time(run_target):
    target = run_target(
        """
        import os, threading, time
        import spanprof

        def spin():
            end = time.thread_time() + 0.2
            while time.thread_time() < end:
                pass

        def renamed():
            threading.current_thread().name = "requests-of-the-shop-renamed"
            spin()

        def work():
            spin()
            renamed()

        spanprof.start(heap=False, thread_labels=True)
        for name in ("connection-pool-of-the-shop", "connection-pool-of-the-bank"):
            thread = threading.Thread(target=work if "shop" in name else spin, name=name)
            thread.start()
            thread.join()
        spin()
        if os.fork() == 0:
            threading.current_thread().name = "main-thread-of-the-child"
            child = threading.Thread(target=spin, name="thread-of-the-forked-child")
            child.start()
            child.join()
            spin()
            os._exit(spanprof.stop() is not True)
        assert os.wait()[1] == 0
        assert spanprof.stop()
        """
    )
    by_name = target.profiles().by_label("thread.name", through="spin")
    of_child = {"main-thread-of-the-child", "thread-of-the-forked-child"}
    expected = of_child | {"connection-pool-of-the-shop", "connection-pool-of-the-bank", "requests-of-the-shop-renamed", "MainThread"}
    assert set(by_name) == expected, by_name
    assert all(value > 0.15e9 for value in by_name.values()), by_name
