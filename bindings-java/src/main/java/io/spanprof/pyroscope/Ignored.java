package io.spanprof.pyroscope;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;

/** Settings that were accepted and do nothing here, by name, each with its reason. */
final class Ignored {
    private static final Set<String> TOLD = ConcurrentHashMap.newKeySet();

    private final Map<String, String> reasons = new LinkedHashMap<>();

    Ignored() {}

    Ignored(Ignored other) {
        reasons.putAll(other.reasons);
    }

    void note(String name, boolean isAsked, String reason) {
        if (isAsked) {
            reasons.put(name, reason);
        } else {
            reasons.remove(name);
        }
    }

    /** What the program has not been told yet, as one line; empty when there is nothing. */
    String untold() {
        return reasons.entrySet().stream().filter(entry -> TOLD.add(entry.getKey()))
                .map(entry -> entry.getKey() + " (" + entry.getValue() + ")").collect(Collectors.joining(", "));
    }
}
