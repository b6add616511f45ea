/**
 * A continuous profiler that lives inside the service. {@link io.spanprof.Spanprof} has the verbs,
 * {@link io.spanprof.SpanprofConfig} the settings.
 */
package io.spanprof;
