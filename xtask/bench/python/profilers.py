"""Starts and stops each profiler as its documentation describes. Imported by the measured process only."""

import os
import signal
import subprocess
import sys


def start(name, rate, address):
    """Starts a profiler in this process and returns its stop function."""
    return {"none": nothing, "py-spy": py_spy, "spanprof": spanprof, "pyroscope": pyroscope, "ddtrace": ddtrace}[name](rate, address)


def nothing(_rate, _address):
    return lambda: {}


def py_spy(rate, _address):
    program = os.path.join(os.path.dirname(sys.executable), "py-spy")
    words = ["record", "--pid", str(os.getpid()), "--rate", str(rate), "--format", "raw", "--output", os.devnull, "--duration", "600"]
    sampler = subprocess.Popen([program, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    # It reports when it is attached.
    if not any("Sampling process" in line for line in sampler.stdout):
        raise SystemExit("py-spy cannot attach")

    def stop():
        sampler.send_signal(signal.SIGINT)
        sampler.communicate(timeout=60)
        return {}

    return stop


def spanprof(rate, address):
    import spanprof

    spanprof.start(service_name="bench", sample_rate=rate, endpoint=address, heap=False, gc=False)

    def stop():
        stats = spanprof.stats()
        spanprof.stop()
        return stats

    return stop


def pyroscope(rate, address):
    import pyroscope

    pyroscope.configure(application_name="bench", server_address=address, sample_rate=rate, oncpu=True)

    def stop():
        pyroscope.shutdown()
        return {}

    return stop


def ddtrace(_rate, address):
    # Its stack sampler has its own rate (100 Hz, adaptive). Memory, lock and exception profiling are off, for an equal
    # comparison.
    os.environ.update(
        DD_TRACE_AGENT_URL=address,
        DD_INSTRUMENTATION_TELEMETRY_ENABLED="false",
        DD_PROFILING_MEMORY_ENABLED="false",
        DD_PROFILING_LOCK_ENABLED="false",
        DD_PROFILING_EXCEPTION_ENABLED="false",
    )
    from ddtrace.profiling import Profiler

    profiler = Profiler(service="bench", env="bench", version="1")
    profiler.start()

    def stop():
        profiler.stop(flush=False)
        return {}

    return stop


#: Settings of spanprof in a web service, by the name of its row.
SERVICE_SETTINGS = {
    "spanprof, cpu": {"heap": False, "gc": False},
    "spanprof, heap": {"cpu": False, "gc": False},
    "spanprof, default": {},
    "spanprof, all": {"profiles": "all"},
}
#: Prefixes of the counters of samples taken and lost.
SAMPLES_AND_LOSSES = ("samples.cpu", "samples.wall", "samples.off_cpu", "samples.submitted", "heap.samples", "dropped.", "windows.closed")


def start_service(name, address):
    """Starts a profiler with its default settings; returns its stop function, which returns counters."""
    if name in SERVICE_SETTINGS:
        import spanprof

        spanprof.start(service_name="bench", endpoint=address, **SERVICE_SETTINGS[name])

        def stop():
            stats = spanprof.stats()
            spanprof.stop()
            return {key: value for key, value in stats.items() if key.startswith(SAMPLES_AND_LOSSES) and isinstance(value, int)}

        return stop
    if name == "ddtrace":
        # Stacks, memory and locks are on by default.
        os.environ.update(DD_TRACE_AGENT_URL=address, DD_INSTRUMENTATION_TELEMETRY_ENABLED="false")
        from ddtrace.profiling import Profiler

        profiler = Profiler(service="bench", env="bench", version="1")
        profiler.start()
    if name == "pyroscope":
        import pyroscope

        pyroscope.configure(application_name="bench", server_address=address)
    return dict
