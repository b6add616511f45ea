/** Decides whether this Java is supported, in classes of Java 8: what a VM loads by itself must load in every VM. */
package io.spanprof.entry;
