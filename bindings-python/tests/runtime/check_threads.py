"""The wall walk: stacks of other threads, without the GIL, while they wait, run and end."""

import collections
import contextvars
import os
import queue
import subprocess
import sys
import threading
import time
import unittest

from native_testing import runtime, stack_of, variable, without_columns


#: Timeout of a wait, far above its duration on any machine.
TIMEOUT_S = 30
#: Stacks of running threads to check, and the time limit. Before callers had to have the same instruction in all reads, 1 of
#: 20,000 was torn.
TARGET_STACKS, MIN_STACKS = 20_000, 500
MAX_CHECK_S = 8
#: A process that is always busy on the processor of its argument.
BUSY = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


class WaitingThread:
    """A thread that waits below a few frames until it is released."""

    def __init__(self, depth, context=0):
        self.go = threading.Event()
        self.ready = threading.Event()
        self.context = context
        self.thread = threading.Thread(target=self.down, args=(depth,))
        self.thread.start()
        self.ready.wait()

    def down(self, depth):
        if depth:
            return self.down(depth - 1)
        if self.context:
            variable.set(self.context)
        self.ready.set()
        self.go.wait()

    def end(self):
        self.go.set()
        self.thread.join()


class Threads(unittest.TestCase):
    maxDiff = None

    def handles(self):
        return dict(runtime.threads())

    def walk_while_unchanged(self, thread):
        """A thread's own stack, equal before and after the walk, and the walk."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            before = stack_of(sys._current_frames().get(thread.ident))
            handle = self.handles().get(thread.native_id)
            if not before or handle is None:
                continue
            walked = runtime.walk_other(thread.native_id, handle)
            if stack_of(sys._current_frames().get(thread.ident)) == before:
                return before, walked
        self.fail("the thread's stack changes during every walk")

    def test_each_waiting_thread_is_listed_and_walked_exactly(self):
        waiting = [WaitingThread(depth, depth * 1000 + 1) for depth in range(1, 20)]
        try:
            for thread in waiting:
                expected, (outcome, found, context, _) = self.walk_while_unchanged(thread.thread)
                self.assertEqual(outcome, "walked")
                self.assertEqual(without_columns(found), expected)
                self.assertEqual(context, thread.context)
        finally:
            for thread in waiting:
                thread.end()

    def test_all_ways_of_waiting(self):
        lock, empty, done = threading.Lock(), queue.Queue(), threading.Event()
        lock.acquire()

        def sleeps():
            while not done.is_set():
                time.sleep(0.2)

        def waits_for_a_lock():
            lock.acquire()

        def waits_for_a_queue():
            empty.get()

        def waits_in_a_generator():
            def numbers():
                done.wait()
                yield 1

            return list(numbers())

        bodies = [sleeps, waits_for_a_lock, waits_for_a_queue, waits_in_a_generator]
        threads = [threading.Thread(target=body, daemon=True) for body in bodies]
        for thread in threads:
            thread.start()
        try:
            for body, thread in zip(bodies, threads):
                while body.__name__ not in str(stack_of(sys._current_frames().get(thread.ident))):
                    time.sleep(0.01)
                expected, (outcome, found, *_) = self.walk_while_unchanged(thread)
                self.assertEqual(outcome, "walked", body)
                self.assertEqual(without_columns(found), expected)
                self.assertTrue(any(body.__name__ in frame[0] for frame in found))
        finally:
            done.set()
            lock.release()
            empty.put(None)
            for thread in threads:
                thread.join()

    def test_the_main_thread_is_listed_under_its_kernel_id(self):
        self.assertIn(threading.main_thread().native_id, self.handles())

    def test_an_ended_thread_is_neither_listed_nor_walked(self):
        thread = WaitingThread(3)
        native_id = thread.thread.native_id
        handle = self.handles()[native_id]
        thread.end()
        self.assertNotIn(native_id, self.handles())
        outcome, frames, context, _ = runtime.walk_other(native_id, handle)
        self.assertEqual((frames, context), ([], 0))
        self.assertIn(outcome, ("no_thread_state", "moved_during_walk", "invalid_frame", "faulted_read"))

    def test_a_handle_that_is_no_thread_gives_no_frames(self):
        for handle in (0, 1, 4096, 0xDEAD_BEEF_0000, 2**47, 2**64 - 1):
            outcome, frames, *_ = runtime.walk_other(threading.get_native_id(), handle)
            self.assertEqual((outcome, frames), ("no_thread_state", []))

    def test_running_threads_give_consistent_stacks(self):
        # Each function calls only its own successors: any other edge was never on a stack.
        successors = {"root": {"even"}, "even": {"odd", "leaf_even"}, "odd": {"even", "leaf_odd"}}
        stopping = False

        def leaf_even(depth):
            return depth + 1

        def leaf_odd(depth):
            return depth - 1

        def even(depth):
            leaf_even(depth)
            return odd(depth - 1) if depth else 0

        def odd(depth):
            leaf_odd(depth)
            return even(depth - 1) if depth else 0

        def root():
            variable.set(threading.get_native_id())
            while not stopping:
                even(30)

        def stop():
            nonlocal stopping
            stopping = True

        self.check_running(root, stop, successors, threads=3)
        stopping = False
        self.check_running(root, stop, successors, threads=1)

    def test_frames_of_all_sizes_give_consistent_stacks(self):
        # A larger frame covers a popped one; its unused part keeps the popped frame's contents.
        successors, lines = {"tick": set()}, ["def tick(number):", "    return number + 1"]
        for chain, widths in enumerate(([1, 90, 1, 40], [40, 1, 1, 5, 1], [1, 1, 12, 1, 90, 1], [2, 1], [90])):
            for level, width in enumerate(widths):
                callee = "tick" if level == len(widths) - 1 else f"chain_{chain}_{level + 1}"
                successors[f"chain_{chain}_{level}"] = {callee, "tick"}
                lines += [
                    f"def chain_{chain}_{level}(number):",
                    f"    number = {callee}(number)",
                    "    tick(number)",
                    f"    number = {callee}(number) if number & 1 else number",
                    f"    return number if number else [{', '.join(['number'] * width)}]",
                ]
        successors["root"] = {f"chain_{chain}_0" for chain in range(5)}
        lines += ["def root():", "    variable.set(get_native_id())", "    number = 0", "    while not stopping:"]
        lines += [f"        number = chain_{chain}_0(number)" for chain in range(5)]
        scope = {"variable": variable, "get_native_id": threading.get_native_id, "stopping": False}
        exec("\n".join(lines), scope)
        self.check_running(scope["root"], lambda: scope.update(stopping=True), successors, threads=1)

    def check_running(self, root, stop, successors, threads):
        """Walks running threads until there are enough stacks: each pair of caller and callee must be possible.

        A stack is complete if the thread does not move during the walk. The threads share a processor with a busy process so
        that they are often preempted, on an idle machine too, and not always by the walk.
        """
        processor = min(os.sched_getaffinity(0))

        def run_beside_busy_process():
            os.sched_setaffinity(0, {processor})
            root()

        busy = subprocess.Popen([sys.executable, "-c", BUSY, str(processor)])
        contexts = [contextvars.Context() for _ in range(threads)]
        running = [threading.Thread(target=context.run, args=(run_beside_busy_process,)) for context in contexts]
        for thread in running:
            thread.start()
        walked, torn, outcomes = 0, collections.Counter(), collections.Counter()
        deadline = time.monotonic() + MAX_CHECK_S
        before = sys.getswitchinterval()
        sys.setswitchinterval(0.0005)
        try:
            while walked < TARGET_STACKS and time.monotonic() < deadline:
                handles = self.handles()
                for thread in running:
                    if thread.native_id not in handles:
                        continue
                    found = runtime.walk_other_often(thread.native_id, handles[thread.native_id], 2000)
                    for (outcome, frames, context, _), count in found:
                        outcomes[outcome] += count
                        names = [frame[0].rpartition(".")[2] for frame in reversed(frames)]
                        if outcome != "walked":
                            self.assertEqual((names, context), ([], 0))
                            continue
                        if "root" not in names:
                            continue
                        walked += count
                        inner = names[names.index("root"):]
                        for pair in zip(inner, inner[1:]):
                            if pair[1] not in successors.get(pair[0], ()):
                                torn[pair] += count
                        if len(inner) > 1:
                            self.assertIn(context, (0, thread.native_id), "the context of another thread")
        finally:
            stop()
            sys.setswitchinterval(before)
            for thread in running:
                thread.join()
            busy.kill()
            busy.wait()
        if "SPANPROF_SHOW" in os.environ:
            print(threads, "threads", dict(outcomes), dict(torn))
        self.assertEqual(torn, {}, outcomes)
        self.assertGreaterEqual(walked, MIN_STACKS, outcomes)


if __name__ == "__main__":
    unittest.main()
