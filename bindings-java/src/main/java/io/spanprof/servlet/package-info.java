/**
 * Filters that label requests and servlets that serve profiles, for both names of the servlet API: {@code jakarta.servlet}
 * and {@code javax.servlet}. A program uses at most one of them.
 */
package io.spanprof.servlet;
