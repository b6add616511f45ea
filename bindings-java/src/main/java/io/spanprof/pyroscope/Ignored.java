package io.spanprof.pyroscope;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;

/** Accepted settings without effect, by name, each with its reason. */
final class Ignored {
    private static final Set<String> REPORTED = ConcurrentHashMap.newKeySet();

    private final Map<String, String> reasons = new LinkedHashMap<>();

    Ignored() {}

    Ignored(Ignored other) {
        reasons.putAll(other.reasons);
    }

    void record(String name, boolean isSet, String reason) {
        if (isSet) {
            reasons.put(name, reason);
        } else {
            reasons.remove(name);
        }
    }

    /** The settings that were not reported yet, as one line; empty if there are none. */
    String takeUnreported() {
        return reasons.entrySet().stream().filter(entry -> REPORTED.add(entry.getKey()))
                .map(entry -> entry.getKey() + " (" + entry.getValue() + ")").collect(Collectors.joining(", "));
    }
}
