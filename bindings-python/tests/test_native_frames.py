"""Native frames above the Python line that called them: against a C extension whose every call is known."""

from __future__ import annotations

import subprocess
import sys
import sysconfig

import pytest

#: `relay` calls a function of Python two C functions deeper; `split` burns CPU time in three functions of known shares. Built without
#: frame pointers. Names have a prefix, since C functions are found by name.
CHAIN = r"""
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <time.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static volatile unsigned long sink;
#define PART(NAME) __attribute__((noinline)) void NAME(double seconds) { \
    double end = now() + seconds; while (now() < end) for (int i = 0; i < 3000; i++) sink += i * sink; }
PART(chain_half)
PART(chain_third)
PART(chain_fifth)

void *chain_thread(void *unused) {
    chain_half(2);
    sink++;
    return NULL;
}

__attribute__((noinline)) PyObject *chain_inner(PyObject *callee, PyObject *depth) {
    PyObject *result = PyObject_CallFunctionObjArgs(callee, depth, NULL);
    sink++;
    return result;
}

__attribute__((noinline)) PyObject *chain_outer(PyObject *callee, PyObject *depth) {
    PyObject *result = chain_inner(callee, depth);
    sink++;
    return result;
}

static PyObject *relay(PyObject *self, PyObject *arguments) {
    PyObject *callee, *depth;
    return PyArg_ParseTuple(arguments, "OO", &callee, &depth) ? chain_outer(callee, depth) : NULL;
}

static PyObject *split(PyObject *self, PyObject *arguments) {
    double seconds;
    int release;
    if (!PyArg_ParseTuple(arguments, "dp", &seconds, &release)) return NULL;
    PyThreadState *state = release ? PyEval_SaveThread() : NULL;
    // In turn, so that no part falls into one phase of the program.
    for (int i = 0; i < 10; i++) {
        chain_half(0.05 * seconds);
        chain_third(0.03 * seconds);
        chain_fifth(0.02 * seconds);
    }
    if (state) PyEval_RestoreThread(state);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"relay", relay, METH_VARARGS, NULL}, {"split", split, METH_VARARGS, NULL}, {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "chain", NULL, -1, methods};
PyMODINIT_FUNC PyInit_chain(void) { return PyModule_Create(&module); }
"""


@pytest.fixture
def run_with_chain(tmp_path, run_target):
    (tmp_path / "chain.c").write_text(CHAIN)
    library = tmp_path / f"chain{sysconfig.get_config_var('EXT_SUFFIX')}"
    include = sysconfig.get_paths()["include"]
    command = ["cc", "-O2", "-fomit-frame-pointer", "-shared", "-fPIC", "-I", include, "-o", library, tmp_path / "chain.c"]
    subprocess.run(command, check=True)
    return lambda source, **settings: run_target(source, PYTHONPATH=str(tmp_path), **settings)


def known_frames(sample) -> list[str]:
    return [name for name in sample.frames if name.startswith(("chain_", "python_"))]


@pytest.mark.parametrize("clock", ["auto", "thread_timer"])
@pytest.mark.parametrize("release", [False, True])
def test_functions_of_an_extension_have_their_share_below_the_line_that_called_them(run_with_chain, clock, release):
    target = run_with_chain(
        f"""
        import chain, spanprof
        def python_one(): chain.split(1.0, {release})
        def python_two(): chain.split(2.0, {release})
        spanprof.start(sample_rate=200, heap=False, clock={clock!r})
        for _ in range(2):
            python_one()
            python_two()
        """
    )
    samples = [sample for sample in target.profiles().samples if known_frames(sample)]
    total = sum(sample.nanoseconds for sample in samples)
    assert total == pytest.approx(6e9, rel=0.05)
    expected = {
        (part, line): share * of_line
        for part, share in (("chain_half", 0.5), ("chain_third", 0.3), ("chain_fifth", 0.2))
        for line, of_line in (("python_one", 1 / 3), ("python_two", 2 / 3))
    }
    parts = dict.fromkeys(expected, 0.0)
    for sample in samples:
        known = tuple(known_frames(sample))
        if len(known) == 2:
            parts[known] += sample.nanoseconds / total
    # Four standard errors of 1,200 samples; ticks of the kernel are fewer on a busy machine.
    ticks = 1200 if clock == "auto" else 300
    for part, share in expected.items():
        assert parts[part] == pytest.approx(share, abs=4 * (share * (1 - share) / ticks) ** 0.5), (part, parts)
    # The rest is time in which a part was called or returned.
    assert sum(parts.values()) > 0.98


def test_callbacks_generators_and_recursion_stand_between_the_native_frames_that_called_them(run_with_chain):
    target = run_with_chain(
        """
        import chain, spanprof
        def python_leaf(depth):
            for _ in range(2000):
                sum(range(40))
        def python_step(depth):
            return chain.relay(python_step, depth - 1) if depth else list(python_generator())
        def python_generator():
            yield chain.relay(python_leaf, 0)
        spanprof.start(sample_rate=500, heap=False)
        import time
        while time.process_time() < 3:
            python_step(3)
        """
    )
    relay = ["chain_inner", "chain_outer"]
    whole = ["python_leaf", *relay, "python_generator", "python_step", *[*relay, "python_step"] * 3]
    counts = {"whole": 0, "other": 0}
    for sample in target.profiles().through("python_leaf"):
        is_whole = known_frames(sample) == whole
        counts["whole" if is_whole else "other"] += sample.count
        # Until the tables of a file are built, at the start.
        has_no_table = "[unknown_callers]" in sample.frames or not any("/" in file for file, line in sample.lines if not line)
        assert is_whole or has_no_table, sample.frames
    assert counts["whole"] > 300 and counts["other"] < 0.05 * counts["whole"], counts


def test_native_frames_of_a_greenlet_stand_above_the_lines_that_called_them(run_with_chain):
    pytest.importorskip("greenlet")
    target = run_with_chain(
        """
        import chain, spanprof, time
        from greenlet import greenlet
        def python_leaf(_):
            for _ in range(2000):
                sum(range(40))
        def python_calls(): chain.relay(python_leaf, 0)
        def python_body():
            for _ in range(10): python_calls()
        spanprof.start(sample_rate=500, heap=False)
        for end in (0.5, 2):
            while time.process_time() < end:
                greenlet(python_body).switch()
            spanprof.flush()
        """
    )
    # Without records, functions are counted from the root of a thread, which a greenlet has not.
    relay = ["chain_inner", "chain_outer"] if sys.version_info >= (3, 10) else []
    whole = ["python_leaf", *relay, "python_calls", "python_body"]
    counts = {True: 0, False: 0}
    # Samples of the first window ask for the tables of their files.
    for window in target.profiles().files[1:]:
        for sample in window.samples:
            if "python_leaf" in sample.frames:
                counts[known_frames(sample) == whole] += sample.count
    assert counts[True] > 300 and counts[False] < 0.05 * counts[True], counts


def test_native_frames_can_be_left_out(run_with_chain):
    source = """
        import chain, spanprof
        spanprof.start(heap=False)
        chain.split(0.5, False)
    """
    target = run_with_chain(source, SPANPROF_NATIVE_FRAMES="off")
    assert not any("chain_half" in sample.frames for sample in target.profiles().samples)


def test_a_thread_without_python_code_has_its_whole_stack(run_with_chain):
    target = run_with_chain(
        """
        import ctypes, time
        import chain, spanprof
        spanprof.start(sample_rate=200, heap=False)
        library, libc, thread = ctypes.CDLL(chain.__file__), ctypes.CDLL(None), ctypes.c_ulong()
        assert libc.pthread_create(ctypes.byref(thread), None, library.chain_thread, None) == 0
        for _ in range(2):
            time.sleep(0.7)
            spanprof.flush()
        libc.pthread_join(thread, None)
        """
    )
    # The thread is found by a scan, and its first samples ask for the tables of their files.
    windows = target.profiles().files
    samples = [sample for window in windows[2:] for sample in window.samples if "chain_half" in sample.frames]
    assert sum(sample.nanoseconds for sample in samples) > 0.1e9
    for sample in samples:
        # Behind the thread's function is only the C library.
        behind = sample.frames[sample.frames.index("chain_half") + 1 :]
        assert behind[0] == "chain_thread" and len(behind) <= 3, sample.frames


def test_a_wait_for_a_lock_has_the_native_callers_of_the_function_that_waits(run_with_chain):
    target = run_with_chain(
        """
        import threading, time
        import chain, spanprof
        is_held = threading.Event()
        def python_leaf(_):
            with lock: pass
        def python_waits(): chain.relay(python_leaf, 0)
        def hold():
            with lock:
                is_held.set()
                time.sleep(0.1)
            is_held.clear()
        spanprof.start(lock=True, heap=False)
        lock = threading.Lock()
        for number in range(30):
            holder = threading.Thread(target=hold)
            holder.start()
            is_held.wait()
            python_waits()
            holder.join()
            if number == 9: spanprof.flush()
        """
    )
    whole = ["python_leaf", "chain_inner", "chain_outer", "python_waits"]
    counts = {True: 0, False: 0}
    for wait in target.profiles("lock").through("python_leaf"):
        is_whole = known_frames(wait) == whole
        counts[is_whole] += wait.count
        assert wait.frames[0] == "python_leaf", wait.frames
        # The first waits ask for the tables of their files.
        has_no_table = "[unknown_callers]" in wait.frames or known_frames(wait) == ["python_leaf", "python_waits"]
        assert is_whole or has_no_table, wait.frames
    assert counts[True] >= 5, counts
