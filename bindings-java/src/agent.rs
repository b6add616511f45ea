//! The native agent: `-agentpath:…/libspanprof_java.so=serviceName=checkout,sampleRate=99`, at the start of the VM or
//! attached later. The profiler starts at `VMInit` and stops at `VMDeath`; a program with the package on its class path
//! finds it running. An error here is reported, and the VM continues.

use std::ffi::{c_char, c_void, CStr};
use std::sync::{Arc, Mutex, PoisonError};

use jni::sys::{jint, jobject, JNIEnv, JavaVM, JNI_OK};
use spanprof_profiler::binding::ffi_guard;
use spanprof_profiler::ProfilerHandle;

use crate::api::{self, Started};
use crate::convert::{self, BINDING};
use crate::natives;
use crate::runtime::{self, Callbacks, Environment, Jvmti, JvmtiEvent};

/// The options after the library's path.
static OPTIONS: Mutex<String> = Mutex::new(String::new());

/// Called when the VM starts with the agent.
///
/// # Safety
/// Called by the VM.
#[no_mangle]
pub unsafe extern "system" fn Agent_OnLoad(vm: *mut JavaVM, options: *const c_char, _: *mut c_void) -> jint {
    let outcome = ffi_guard(internal_error(), || {
        // SAFETY: the VM passes itself, and null or a NUL-terminated string.
        unsafe {
            store(vm, options);
            request_init_event(vm)
        }
    });
    report_error(outcome);
    JNI_OK
}

/// Called when the agent is attached to the running VM.
///
/// # Safety
/// Called by the VM.
#[no_mangle]
pub unsafe extern "system" fn Agent_OnAttach(vm: *mut JavaVM, options: *const c_char, _: *mut c_void) -> jint {
    let outcome = ffi_guard(internal_error(), || {
        // SAFETY: the VM passes itself, and null or a NUL-terminated string; the attaching thread is a Java thread.
        unsafe {
            store(vm, options);
            request_death_event(vm)?;
            begin(runtime::environment().ok_or("this thread is not attached to the VM")?)
        }
    });
    report_error(outcome);
    JNI_OK
}

fn internal_error() -> Result<(), String> {
    Err("an internal error".to_owned())
}

fn report_error(outcome: Result<(), String>) {
    if let Err(message) = outcome {
        print(&format!("spanprof: this process is not profiled: {message}"));
    }
}

/// Writes to standard error: the program's logger is not available here, and standard output belongs to the program.
fn print(line: &str) {
    spanprof_os::remember_standard_error();
    spanprof_os::write_to_standard_error(&BINDING.message(line));
}

/// # Safety
/// `vm` is the running VM; `options` is null or NUL-terminated.
unsafe fn store(vm: *mut JavaVM, options: *const c_char) {
    runtime::set_vm(vm);
    if !options.is_null() {
        // SAFETY: guaranteed by the caller.
        let text = unsafe { CStr::from_ptr(options) }.to_string_lossy().into_owned();
        *OPTIONS.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

/// # Safety
/// `vm` is the running VM.
unsafe fn request_init_event(vm: *mut JavaVM) -> Result<(), String> {
    // SAFETY: guaranteed by the caller.
    let jvmti = unsafe { request_death_event(vm) }?;
    jvmti.notify(JvmtiEvent::VmInit, true)
}

/// A separate JVMTI environment: its events precede those of the runtime's environment, which is created later.
///
/// # Safety
/// `vm` is the running VM.
unsafe fn request_death_event(vm: *mut JavaVM) -> Result<Jvmti, String> {
    // SAFETY: guaranteed by the caller.
    let jvmti = unsafe { Jvmti::of(vm) }?;
    let mut callbacks = Callbacks::none();
    callbacks.on_thread(JvmtiEvent::VmInit, on_vm_init);
    callbacks.on_end(on_vm_death);
    jvmti.set_callbacks(&callbacks)?;
    jvmti.notify(JvmtiEvent::VmDeath, true)?;
    Ok(jvmti)
}

unsafe extern "system" fn on_vm_init(_: *mut Environment, env: *mut JNIEnv, _: jobject) {
    // SAFETY: the VM passes the JNI environment of its first thread.
    let outcome = ffi_guard(internal_error(), || unsafe { begin(env) });
    report_error(outcome);
}

unsafe extern "system" fn on_vm_death(_: *mut Environment, _: *mut JNIEnv) {
    ffi_guard(None, || ProfilerHandle::running().map(|profiler| profiler.stop()));
}

/// # Safety
/// `env` is the calling thread's JNI environment.
unsafe fn begin(env: *mut JNIEnv) -> Result<(), String> {
    // Prints log lines until the package, if present, forwards them to the program's logger.
    spanprof_profiler::set_log_callback(Some(Arc::new(|_, line: &str| print(&BINDING.message(line)))));
    let options = OPTIONS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // SAFETY: guaranteed by the caller.
    unsafe {
        runtime::share(env, &natives::all());
        let command = runtime::property(c"sun.java.command").unwrap_or_default();
        let mut applications = runtime::applications::lock();
        let code = convert::agent_options(options);
        let outcome = api::start(env, code, program_name(&command), &[], true);
        if let Ok(Started::Running | Started::Disabled) = outcome {
            applications.hold_by_agent();
        }
        drop(applications);
        runtime::take_warning().iter().for_each(|line| print(line));
        match outcome {
            Ok(Started::Running | Started::Disabled | Started::Off) => Ok(()),
            Err(error) => Err(BINDING.message(&error.line())),
        }
    }
}

/// A short program name: that of the JAR, or of the main class.
fn program_name(command: &str) -> String {
    let program = command.split(' ').next().unwrap_or_default();
    match program.strip_suffix(".jar") {
        Some(jar) => jar.rsplit('/').next().unwrap_or(jar).to_owned(),
        None => program.rsplit(['.', '/']).next().unwrap_or(program).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_named_after_its_jar_or_its_main_class() {
        assert_eq!(program_name("/srv/app/checkout.jar --port 80"), "checkout");
        assert_eq!(program_name("com.shop.Checkout now"), "Checkout");
        assert_eq!(program_name("shop.module/com.shop.Checkout"), "Checkout");
        assert_eq!(program_name(""), "");
    }
}
