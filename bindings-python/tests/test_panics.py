"""A panic inside the profiler is a line of its log; Rust's panic message is not on standard error."""

from __future__ import annotations


def test_a_panic_inside_the_profiler_is_logged_and_writes_nothing_to_standard_error(run_target):
    target = run_target(
        """
        import logging, sys, time
        import spanprof
        from spanprof.native import native

        lines = []

        class RecordingHandler(logging.Handler):
            def emit(self, record):
                lines.append(record.getMessage())

        logging.getLogger("spanprof").addHandler(RecordingHandler())
        spanprof.start(upload_interval=0.2)
        native._testing.panic_inside()
        until = time.monotonic() + 30
        while not any("on purpose" in line for line in lines) and time.monotonic() < until:
            # CPython 3.9 runs a pending call of another thread only after the main thread has released the GIL.
            time.sleep(0.001)
        assert spanprof.stats()["python.panics"] == 1
        assert sum("internal error: panicked at" in line for line in lines) == 1, lines
        assert spanprof.stop()
        """
    )
    assert target.stderr == ""
