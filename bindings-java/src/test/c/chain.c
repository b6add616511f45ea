/* Known chains of functions without frame pointers, called by CallsNative: a split of 50, 30 and 20 %, and a call back to Java. */
#include <jni.h>

static volatile unsigned long sink;

#define WORK(turns) for (long i = 0; i < (turns); i++) sink = sink * 2862933555777941757UL + 3037000493UL

__attribute__((noinline)) void chain_half(long turns) { WORK(5 * turns); }
__attribute__((noinline)) void chain_third(long turns) { WORK(3 * turns); }
__attribute__((noinline)) void chain_fifth(long turns) { WORK(2 * turns); }

/* The statement after the call keeps it from becoming a jump. */
#define STEP(name, call) __attribute__((noinline)) void name(JNIEnv *env, jclass type, long turns) { call; sink++; }

STEP(chain_split, (chain_half(turns), chain_third(turns), chain_fifth(turns)))
STEP(chain_inner, chain_split(env, type, turns))
STEP(chain_outer, chain_inner(env, type, turns))

STEP(chain_back, (*env)->CallStaticVoidMethod(env, type, (*env)->GetStaticMethodID(env, type, "back", "(J)V"), (jlong)turns))
STEP(chain_call, chain_back(env, type, turns))

JNIEXPORT void JNICALL Java_io_spanprof_programs_CallsNative_split(JNIEnv *env, jclass type, jlong turns) {
    chain_outer(env, type, turns);
    sink++;
}

JNIEXPORT void JNICALL Java_io_spanprof_programs_CallsNative_callBack(JNIEnv *env, jclass type, jlong turns) {
    chain_call(env, type, turns);
    sink++;
}
