"""Starts spanprof after OpenTelemetry's instrumentation, which finds this function by its entry point `opentelemetry_post_instrument`. A
second sitecustomize would hide the one that the operator's variables select."""


def start():
    import spanprof

    try:
        spanprof.start()
    except spanprof.SpanprofError as error:
        # The program of the pod starts as without the profiler.
        print(f"spanprof: not profiled: {error}")
