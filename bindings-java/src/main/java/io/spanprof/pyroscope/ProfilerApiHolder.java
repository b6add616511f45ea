package io.spanprof.pyroscope;

import java.util.concurrent.atomic.AtomicReference;

/** The instance that bridges to Pyroscope's agent use. */
public class ProfilerApiHolder {
    public static final AtomicReference<ProfilerApi> INSTANCE = new AtomicReference<>(new ProfilerSdk());
}
