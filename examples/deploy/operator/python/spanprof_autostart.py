"""Starts spanprof after OpenTelemetry's instrumentation, which finds this function by its entry point `opentelemetry_post_instrument`. A
second sitecustomize would hide the one that the operator's variables select."""


def start():
    import spanprof

    # Where it cannot start, it logs the reason, and the program of the pod runs as without it.
    spanprof.start()
