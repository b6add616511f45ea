/** The check of the Java version, compiled for Java 8: classes that a VM loads by itself must load in every VM. */
package io.spanprof.entry;
