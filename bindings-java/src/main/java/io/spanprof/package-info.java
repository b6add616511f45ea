/**
 * A continuous profiler that runs in the process of the service. {@link io.spanprof.Spanprof} has the API,
 * {@link io.spanprof.SpanprofConfig} the settings.
 */
package io.spanprof;
