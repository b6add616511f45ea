/**
 * A continuous profiler inside the service. {@link io.spanprof.Spanprof} has the API,
 * {@link io.spanprof.SpanprofConfig} the settings.
 */
package io.spanprof;
