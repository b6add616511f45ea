"""ddtrace with one of its profiles, written to a file."""

import glob
import os

#: The file in the folder.
FILE = "ddtrace.pb"


def ddtrace(folder, **settings):
    """Starts it; the other profiles are off. Returns the function that stops it and writes the file."""
    os.environ.update(
        DD_INSTRUMENTATION_TELEMETRY_ENABLED="false",
        DD_PROFILING_STACK_ENABLED="false",
        DD_PROFILING_MEMORY_ENABLED="false",
        DD_PROFILING_LOCK_ENABLED="false",
        DD_PROFILING_EXCEPTION_ENABLED="false",
        DD_PROFILING_OUTPUT_PPROF=os.path.join(folder, "ddtrace"),
        DD_PROFILING_UPLOAD_INTERVAL="3600",
    )
    os.environ.update(settings)
    from ddtrace.profiling import Profiler

    profiler = Profiler(service="bench", env="bench", version="1")
    profiler.start()

    def stop():
        import zstandard

        profiler.stop(flush=True)
        (written,) = glob.glob(os.path.join(folder, "ddtrace.*.pprof"))
        with open(written, "rb") as compressed, open(os.path.join(folder, FILE), "wb") as plain:
            zstandard.ZstdDecompressor().copy_stream(compressed, plain)

    return stop
