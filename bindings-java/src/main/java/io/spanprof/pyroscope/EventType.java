package io.spanprof.pyroscope;

import java.util.Locale;

/** The profiled event. {@link #WALL} is wall time; every other event is CPU time. */
public enum EventType {
    CPU,
    ALLOC,
    LOCK,
    WALL,
    CTIMER,
    ITIMER;

    /** Its name in variables and properties. */
    public final String id = name().toLowerCase(Locale.ROOT);

    /**
     * The event of that name in variables and properties.
     *
     * @throws IllegalArgumentException when there is none
     */
    public static EventType fromId(String id) {
        for (EventType event : values()) {
            if (event.id.equals(id)) {
                return event;
            }
        }
        throw new IllegalArgumentException("no event is called " + id);
    }
}
