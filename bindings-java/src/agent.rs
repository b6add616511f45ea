//! The door to the VM's loader of agents: `-agentpath:…/libspanprof_java.so=serviceName=checkout,sampleRate=99`, at the
//! start of the VM or while it runs. The profiler begins when the VM is ready and ends with it; a program that has the
//! package on its class path finds it running. Nothing here keeps the VM from starting.

use std::ffi::{c_char, c_void, CStr};
use std::io::Write;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};

use jni::sys::{jint, jobject, JNIEnv, JavaVM, JNI_OK};
use spanprof::Profiler;

use crate::door::{self, Started};
use crate::runtime::{self, Callbacks, Environment, Event, Jvmti};
use crate::{convert, natives};

/// What the VM was given behind the library's path.
static OPTIONS: Mutex<String> = Mutex::new(String::new());

/// The VM starts.
///
/// # Safety
/// Called by the VM.
#[no_mangle]
pub unsafe extern "system" fn Agent_OnLoad(vm: *mut JavaVM, options: *const c_char, _: *mut c_void) -> jint {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the VM passes itself, and null or a text that ends in NUL.
        unsafe {
            keep(vm, options);
            wait_until_ready(vm)
        }
    }));
    say_unless_well(outcome.unwrap_or_else(|_| Err("an internal error".to_owned())));
    JNI_OK
}

/// The VM runs already.
///
/// # Safety
/// Called by the VM.
#[no_mangle]
pub unsafe extern "system" fn Agent_OnAttach(vm: *mut JavaVM, options: *const c_char, _: *mut c_void) -> jint {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: as above; the thread that loads agents into a running VM is one of Java's.
        unsafe {
            keep(vm, options);
            wait_for_the_end(vm)?;
            begin(runtime::environment().ok_or("the VM does not know this thread")?)
        }
    }));
    say_unless_well(outcome.unwrap_or_else(|_| Err("an internal error".to_owned())));
    JNI_OK
}

fn say_unless_well(outcome: Result<(), String>) {
    if let Err(message) = outcome {
        say(&format!("spanprof: this process is not profiled: {message}"));
    }
}

/// There is no logger of the program's here. Standard output is the program's own.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", convert::message(line));
}

/// # Safety
/// `vm` is the running VM; `options` is null or ends in NUL.
unsafe fn keep(vm: *mut JavaVM, options: *const c_char) {
    runtime::set_vm(vm);
    if !options.is_null() {
        // SAFETY: the caller's promise.
        let text = unsafe { CStr::from_ptr(options) }.to_string_lossy().into_owned();
        *OPTIONS.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

/// # Safety
/// `vm` is the running VM.
unsafe fn wait_until_ready(vm: *mut JavaVM) -> Result<(), String> {
    // SAFETY: the caller's promise.
    let jvmti = unsafe { wait_for_the_end(vm) }?;
    jvmti.notify(Event::VmInit, true)
}

/// An environment of the agent's own, whose events come before those of the runtime, which is made later.
///
/// # Safety
/// `vm` is the running VM.
unsafe fn wait_for_the_end(vm: *mut JavaVM) -> Result<Jvmti, String> {
    // SAFETY: the caller's promise.
    let jvmti = unsafe { Jvmti::of(vm) }?;
    let mut callbacks = Callbacks::none();
    callbacks.on_thread(Event::VmInit, on_ready);
    callbacks.on_end(on_end);
    jvmti.set_callbacks(&callbacks)?;
    jvmti.notify(Event::VmDeath, true)?;
    Ok(jvmti)
}

unsafe extern "system" fn on_ready(_: *mut Environment, env: *mut JNIEnv, _: jobject) {
    // SAFETY: the VM passes the environment of its first thread.
    let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { begin(env) }));
    say_unless_well(outcome.unwrap_or_else(|_| Err("an internal error".to_owned())));
}

unsafe extern "system" fn on_end(_: *mut Environment, _: *mut JNIEnv) {
    let _ = catch_unwind(|| Profiler::running().map(|profiler| profiler.stop()));
}

/// # Safety
/// `env` is the calling thread's.
unsafe fn begin(env: *mut JNIEnv) -> Result<(), String> {
    // Until the package, if it is there, brings the lines to the program's own logger.
    spanprof::set_log_callback(Some(Arc::new(|_, line: &str| say(&convert::message(line)))));
    let options = OPTIONS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // SAFETY: the caller's promise.
    unsafe {
        runtime::share(env, &natives::all());
        let command = runtime::property(c"sun.java.command").unwrap_or_default();
        let mut applications = runtime::applications::gate();
        let code = convert::agent_options(options);
        let outcome = door::start(env, code, program_name(&command), &[], true);
        if let Ok(Started::Running) = outcome {
            applications.hold_by_agent();
        }
        drop(applications);
        runtime::take_warning().iter().for_each(|line| say(line));
        match outcome {
            Ok(Started::Running | Started::Off) => Ok(()),
            Ok(Started::Declined(message)) => Err(message),
            Err(error) => Err(convert::message(&format!("{} ({})", error.message, error.hint))),
        }
    }
}

/// The program as a person would say it: the name of the JAR, or of the main class.
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
    fn a_program_is_called_by_its_jar_or_its_main_class() {
        assert_eq!(program_name("/srv/app/checkout.jar --port 80"), "checkout");
        assert_eq!(program_name("com.shop.Checkout now"), "Checkout");
        assert_eq!(program_name("shop.module/com.shop.Checkout"), "Checkout");
        assert_eq!(program_name(""), "");
    }
}
