package io.spanprof.pyroscope;

import java.util.concurrent.atomic.AtomicReference;

/** Where bridges to Pyroscope's agent look for it. */
public class ProfilerApiHolder {
    public static final AtomicReference<ProfilerApi> INSTANCE = new AtomicReference<>(new ProfilerSdk());
}
