//! The table of native methods of `io.spanprof.Native`: names, signatures and functions, to register them for a class of
//! another class loader, and the load of the library, which registers them. Not here: the functions (`api`, `requests`).

use std::ffi::c_void;

use jni::sys::{jint, JavaVM, JNI_VERSION_1_8};
use spanprof_profiler::binding::ffi_guard;

use crate::runtime::{self, NativeMethod};
use crate::{api, requests};

/// The VM loads the library.
#[no_mangle]
pub extern "system" fn JNI_OnLoad(vm: *mut JavaVM, _reserved: *mut c_void) -> jint {
    runtime::set_vm(vm);
    ffi_guard((), || {
        spanprof_os::remember_standard_error();
        if let Some(env) = runtime::environment() {
            // SAFETY: the environment of the calling thread, which loads the library.
            unsafe { runtime::share(env, &all()) };
        }
    });
    JNI_VERSION_1_8
}

macro_rules! methods {
    ($($name:literal $signature:literal $function:path,)+) => {
        vec![$(NativeMethod { name: $name, signature: $signature, function: $function as *const () as usize }),+]
    };
}

pub fn all() -> Vec<NativeMethod> {
    methods![
        c"version" c"()[B" api::Java_io_spanprof_Native_version,
        c"start" c"([B[B[BLjava/lang/Object;)[B" api::Java_io_spanprof_Native_start,
        c"stop" c"(Z)Z" api::Java_io_spanprof_Native_stop,
        c"isHeld" c"()Z" api::Java_io_spanprof_Native_isHeld,
        c"flush" c"(J)Z" api::Java_io_spanprof_Native_flush,
        c"update" c"([B)[B" api::Java_io_spanprof_Native_update,
        c"stats" c"()[B" api::Java_io_spanprof_Native_stats,
        c"isRunning" c"()Z" api::Java_io_spanprof_Native_isRunning,
        c"countInvalidArgument" c"()V" api::Java_io_spanprof_Native_countInvalidArgument,
        c"profileTypes" c"()[B" api::Java_io_spanprof_Native_profileTypes,
        c"beginRootSpan" c"([J[B)V" requests::Java_io_spanprof_Native_beginRootSpan,
        c"endRootSpan" c"([BJZ)V" requests::Java_io_spanprof_Native_endRootSpan,
        c"beginClientSpan" c"(JJ)V" requests::Java_io_spanprof_Native_beginClientSpan,
        c"endClientSpan" c"(J[BJ)V" requests::Java_io_spanprof_Native_endClientSpan,
        c"beginRequest" c"([J[B)J" requests::Java_io_spanprof_Native_beginRequest,
        c"endRequest" c"(J[BJZ)V" requests::Java_io_spanprof_Native_endRequest,
        c"nameRequest" c"([J[B)V" requests::Java_io_spanprof_Native_nameRequest,
        c"adoptResource" c"([B)V" requests::Java_io_spanprof_Native_adoptResource,
        c"followsRequests" c"()Z" requests::Java_io_spanprof_Native_followsRequests,
        c"setStatic" c"(Ljava/lang/Class;Ljava/lang/reflect/Field;Ljava/lang/Object;)V" api::Java_io_spanprof_Native_setStatic,
        c"servePulls" c"()V" requests::Java_io_spanprof_Native_servePulls,
        c"pull" c"([B[B)[B" requests::Java_io_spanprof_Native_pull,
        c"beginCapture" c"()I" api::Java_io_spanprof_Native_beginCapture,
        c"endCapture" c"(I)V" api::Java_io_spanprof_Native_endCapture,
        c"captured" c"(II)[B" api::Java_io_spanprof_Native_captured,
        c"sendCapture" c"(IJ)Z" api::Java_io_spanprof_Native_sendCapture,
        c"freeCapture" c"(I)V" api::Java_io_spanprof_Native_freeCapture,
        c"configKeys" c"()[B" api::Java_io_spanprof_Native_configKeys,
        c"child" c"([J[B)Z" api::Java_io_spanprof_Native_child,
        c"merge" c"([J[J)Z" api::Java_io_spanprof_Native_merge,
        c"labelsOf" c"(I)[B" api::Java_io_spanprof_Native_labelsOf,
        c"threadBuffer" c"()Ljava/nio/ByteBuffer;" api::Java_io_spanprof_Native_threadBuffer,
        c"virtualBuffer" c"()Ljava/nio/ByteBuffer;" api::Java_io_spanprof_Native_virtualBuffer,
        c"inherit" c"(Ljava/lang/Class;)Z" api::Java_io_spanprof_Native_inherit,
        c"isLoaded" c"(Ljava/lang/String;)Z" api::Java_io_spanprof_Native_isLoaded,
        c"logLines" c"(J)[B" api::Java_io_spanprof_Native_logLines,
        c"holdLog" c"()[B" api::Java_io_spanprof_Native_holdLog,
        c"heldLines" c"()[B" api::Java_io_spanprof_Native_heldLines,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The JNI signature of a declaration such as `byte[] start(byte[], byte[])`.
    fn signature(result: &str, parameters: &str) -> String {
        let descriptor = |type_name: &str| match type_name {
            "byte[]" => "[B",
            "long[]" => "[J",
            "void" => "V",
            "boolean" => "Z",
            "long" => "J",
            "int" => "I",
            "Object" => "Ljava/lang/Object;",
            "Class<?>" => "Ljava/lang/Class;",
            "Field" => "Ljava/lang/reflect/Field;",
            "ByteBuffer" => "Ljava/nio/ByteBuffer;",
            "String" => "Ljava/lang/String;",
            other => panic!("unknown type: {other}"),
        };
        let types = parameters
            .split(", ")
            .filter_map(|parameter| parameter.split_once(' '))
            .map(|(type_name, _)| descriptor(type_name));
        format!("({}){}", types.collect::<String>(), descriptor(result))
    }

    #[test]
    fn the_table_matches_the_declarations_of_the_java_class() {
        let declared: Vec<(String, String)> = include_str!("main/java/io/spanprof/Native.java")
            .lines()
            .filter_map(|line| line.trim().strip_prefix("static native ")?.strip_suffix(");"))
            .filter_map(|line| {
                let (head, parameters) = line.split_once('(')?;
                let (result, name) = head.split_once(' ')?;
                Some((name.to_owned(), signature(result, parameters)))
            })
            .collect();
        let listed: Vec<(String, String)> = all()
            .iter()
            .map(|method| [method.name, method.signature].map(|text| text.to_str().unwrap().to_owned()))
            .map(|[name, signature]| (name, signature))
            .collect();
        assert_eq!(listed, declared);
    }
}
