/**
 * A filter for web servers that serve through servlets, in two names of the same interface: {@code jakarta.servlet} and
 * {@code javax.servlet}. A program needs none of them, or one.
 */
package io.spanprof.servlet;
