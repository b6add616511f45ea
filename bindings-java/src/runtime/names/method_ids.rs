//! Methods by JVMTI id, for stacks from `AsyncGetCallTrace`. The VM creates ids only for classes whose methods were
//! queried, so each class is queried when it is prepared. An id dangles once its class is unloaded, and may be reused. Each
//! id is stored with a weak reference to its class, and used only while that class is held. Not for signal handlers. Not
//! here: the frames (`methods`).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use jni::sys::{jobject, JNIEnv};
use spanprof_profiler::binding::ffi_guard;
use spanprof_profiler::ProfilerHandle;

use super::class_names::name_in_source;
use super::method_info::{method_name, MethodInfo};
use crate::runtime::jvmti::{this_vm, Environment, Jvmti};
use crate::runtime::threads::attached_thread;

/// Number of classes at which the first sweep of unloaded classes runs.
const FIRST_SWEEP: usize = 16_384;

struct MethodEntry {
    class: u64,
    /// Ring position from which the id denotes this method.
    since: u64,
}

#[derive(Default)]
struct MethodIds {
    /// Weak references, by class number.
    classes: HashMap<u64, usize>,
    methods: HashMap<usize, MethodEntry>,
    last_class: u64,
    sweep_at: usize,
    /// Ring positions at which ids were reused, not yet reported.
    reused: Vec<u64>,
}

fn method_ids() -> MutexGuard<'static, MethodIds> {
    static METHOD_IDS: OnceLock<Mutex<MethodIds>> = OnceLock::new();
    METHOD_IDS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers every loaded class; later classes are registered by [`on_prepare`].
///
/// # Safety
/// `env` is the calling thread's JNI environment.
pub unsafe fn begin(jvmti: Jvmti, env: *mut JNIEnv) -> Result<(), String> {
    jvmti.add_source_capabilities();
    // SAFETY: guaranteed by the caller; the references live while they are visited.
    unsafe { jvmti.each_loaded_class(env, |class| register_class(jvmti, env, class)) }
}

/// A session begins: the ring holds no frames of an earlier session.
pub fn session_begins() {
    let mut method_ids = method_ids();
    method_ids.reused.clear();
    method_ids.methods.values_mut().for_each(|entry| entry.since = 0);
}

/// Takes the ring positions at which ids were reused since the last call.
pub fn take_reused() -> Vec<u64> {
    std::mem::take(&mut method_ids().reused)
}

/// `ClassLoad`: `AsyncGetCallTrace` works only if this event is enabled.
///
/// # Safety
/// Touches nothing.
pub unsafe extern "system" fn on_load(_: *mut Environment, _: *mut JNIEnv, _: jobject, _: jobject) {}

/// `ClassPrepare`: the class's methods may run from here on.
///
/// # Safety
/// Called by the VM.
pub unsafe extern "system" fn on_prepare(_: *mut Environment, env: *mut JNIEnv, _: jobject, class: jobject) {
    ffi_guard((), || {
        if let Some(jvmti) = this_vm::jvmti() {
            // SAFETY: the VM passes the thread's environment and a reference to the class.
            unsafe { register_class(jvmti, env, class) };
        }
    });
}

/// # Safety
/// `env` is the calling thread's JNI environment, `class` a live reference of it.
unsafe fn register_class(jvmti: Jvmti, env: *mut JNIEnv, class: jobject) {
    // SAFETY: guaranteed by the caller.
    let methods = unsafe { jvmti.methods_of(class) };
    let Some(first) = methods.first() else { return };
    let position = ProfilerHandle::running().map_or(0, |profiler| profiler.ring_position());
    let mut method_ids = method_ids();
    let before = method_ids.methods.get(first).and_then(|entry| method_ids.classes.get(&entry.class)).copied();
    // SAFETY: guaranteed by the caller; a stored weak reference is not deleted.
    if before.is_some_and(|weak| unsafe { ((**env).v1_1.IsSameObject)(env, weak as jobject, class) }) {
        return;
    }
    // SAFETY: guaranteed by the caller.
    let weak = unsafe { ((**env).v1_2.NewWeakGlobalRef)(env, class) } as usize;
    if weak == 0 {
        // SAFETY: guaranteed by the caller; an out-of-memory error is a pending exception.
        unsafe { ((**env).v1_1.ExceptionClear)(env) };
        return;
    }
    method_ids.add(&methods, weak, position);
    if method_ids.classes.len() >= method_ids.sweep_at.max(FIRST_SWEEP) {
        method_ids.sweep(|weak| {
            // SAFETY: guaranteed by the caller; stored weak references are deleted here only, and once.
            unsafe {
                let is_gone = ((**env).v1_1.IsSameObject)(env, weak as jobject, std::ptr::null_mut());
                if is_gone {
                    ((**env).v1_2.DeleteWeakGlobalRef)(env, weak as jobject);
                }
                is_gone
            }
        });
    }
}

impl MethodIds {
    fn add(&mut self, methods: &[usize], weak: usize, position: u64) {
        self.last_class += 1;
        let class = self.last_class;
        self.classes.insert(class, weak);
        let mut is_reused = false;
        for id in methods {
            let was_registered = self.methods.contains_key(id);
            is_reused |= was_registered;
            self.methods.insert(*id, MethodEntry { class, since: if was_registered { position } else { 0 } });
        }
        if is_reused {
            self.reused.push(position);
        }
    }

    /// Removes unloaded classes and their methods.
    fn sweep(&mut self, mut is_gone: impl FnMut(usize) -> bool) {
        self.classes.retain(|_, weak| !is_gone(*weak));
        let classes = &self.classes;
        self.methods.retain(|_, entry| classes.contains_key(&entry.class));
        self.sweep_at = self.classes.len() * 2;
    }
}

/// The class number of an id at a ring position.
pub fn class_at(id: usize, position: u64) -> Option<u64> {
    method_ids().methods.get(&id).filter(|entry| entry.since <= position).map(|entry| entry.class)
}

/// Queries a method of the class with this number; `None` if the class was unloaded.
pub fn read(id: usize, class: u64) -> Option<MethodInfo> {
    let jvmti = this_vm::jvmti()?;
    let env = attached_thread::environment()?;
    let held = {
        let method_ids = method_ids();
        let weak = *method_ids.classes.get(&class)?;
        // SAFETY: this thread's environment; a stored weak reference is not deleted while the lock is held.
        unsafe { ((**env).v1_2.NewLocalRef)(env, weak as jobject) }
    };
    if held.is_null() {
        return None;
    }
    // SAFETY: the class is held by a local reference of this thread; the id is of that class.
    let named = unsafe {
        jvmti.name_of(id).zip(jvmti.signature_of(held)).map(|(method, signature)| MethodInfo {
            function: format!("{}.{}", name_in_source(&signature), method_name(&method)).into(),
            file: jvmti.file_of(held).unwrap_or_default().into(),
            lines: jvmti.line_numbers_of(id),
            source_map: None,
        })
    };
    // SAFETY: a local reference of this thread, used no more.
    unsafe { ((**env).v1_1.DeleteLocalRef)(env, held) };
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_id_names_the_new_method_from_its_ring_position_on() {
        let mut method_ids = MethodIds::default();
        method_ids.add(&[8, 16], 100, 0);
        method_ids.add(&[16, 24], 200, 5000);
        let class = |id: usize| method_ids.methods.get(&id).map(|entry| (entry.class, entry.since));
        assert_eq!([class(8), class(16), class(24)], [Some((1, 0)), Some((2, 5000)), Some((2, 0))]);
        assert_eq!(method_ids.reused, [5000]);
    }

    #[test]
    fn unloaded_classes_are_removed_with_their_methods() {
        let mut method_ids = MethodIds::default();
        method_ids.add(&[8], 100, 0);
        method_ids.add(&[16], 200, 0);
        method_ids.sweep(|weak| weak == 100);
        assert!(!method_ids.methods.contains_key(&8) && method_ids.methods.contains_key(&16));
        assert_eq!(method_ids.classes.len(), 1);
    }
}
