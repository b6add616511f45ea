//! Methods by the VM's ids, for stacks that the VM walks. The VM gives ids only for classes whose methods somebody asked
//! for, so each class is asked as it is prepared. An id dangles once its class is unloaded, and may then be given again:
//! each is kept with a weak reference to its class, and asked about only while that class is held.
//! Normal threads only. Not here: the frames (`names`).

use std::collections::HashMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use jni::sys::{jobject, JNIEnv};
use spanprof::Profiler;

use super::guest_thread;
use super::jvmti::{Environment, Jvmti};
use super::names::{class_name, Named};

/// Classes after whose learning the gone ones are looked for.
const FIRST_SWEEP: usize = 16_384;

struct Entry {
    class: u64,
    /// Ring position from which on the id is this method's.
    since: u64,
}

#[derive(Default)]
struct Known {
    /// Weak references, by our own numbers.
    classes: HashMap<u64, usize>,
    methods: HashMap<usize, Entry>,
    last_class: u64,
    sweep_at: usize,
    /// Where ids were given again; not told yet.
    given_again: Vec<u64>,
}

fn known() -> MutexGuard<'static, Known> {
    static KNOWN: OnceLock<Mutex<Known>> = OnceLock::new();
    KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Learns every class that is loaded; those that come are learnt by [`on_prepare`].
///
/// # Safety
/// `env` is the calling thread's.
pub unsafe fn begin(jvmti: Jvmti, env: *mut JNIEnv) -> Result<(), String> {
    jvmti.ask_for_sources();
    // SAFETY: the caller's promise; the references live while they are visited.
    unsafe { jvmti.each_loaded_class(env, |class| learn(jvmti, env, class)) }
}

/// The ring holds nothing of a run before.
pub fn session_begins() {
    let mut known = known();
    known.given_again.clear();
    known.methods.values_mut().for_each(|entry| entry.since = 0);
}

/// Ring positions at which ids took another meaning, since the last call.
pub fn take_given_again() -> Vec<u64> {
    std::mem::take(&mut known().given_again)
}

/// The VM loads a class: it makes ids, and walks, only where somebody wants to hear of that.
///
/// # Safety
/// Touches nothing.
pub unsafe extern "system" fn on_load(_: *mut Environment, _: *mut JNIEnv, _: jobject, _: jobject) {}

/// The VM has prepared a class: from here on its methods run.
///
/// # Safety
/// Called by the VM.
pub unsafe extern "system" fn on_prepare(_: *mut Environment, env: *mut JNIEnv, _: jobject, class: jobject) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        if let Some(jvmti) = super::tools() {
            // SAFETY: the VM passes the thread's environment and a reference to the class.
            unsafe { learn(jvmti, env, class) };
        }
    }));
}

/// # Safety
/// `env` is the calling thread's, `class` a live reference of it.
unsafe fn learn(jvmti: Jvmti, env: *mut JNIEnv, class: jobject) {
    // SAFETY: the caller's promise.
    let methods = unsafe { jvmti.methods_of(class) };
    let Some(first) = methods.first() else { return };
    let position = Profiler::running().map_or(0, |profiler| profiler.ring_position());
    let mut known = known();
    let before = known.methods.get(first).and_then(|entry| known.classes.get(&entry.class)).copied();
    // SAFETY: the caller's promise; a weak reference that is listed was not deleted.
    if before.is_some_and(|weak| unsafe { ((**env).v1_1.IsSameObject)(env, weak as jobject, class) }) {
        return;
    }
    // SAFETY: the caller's promise.
    let weak = unsafe { ((**env).v1_2.NewWeakGlobalRef)(env, class) } as usize;
    if weak == 0 {
        // SAFETY: the caller's promise; out of memory leaves an exception behind.
        unsafe { ((**env).v1_1.ExceptionClear)(env) };
        return;
    }
    known.add(&methods, weak, position);
    if known.classes.len() >= known.sweep_at.max(FIRST_SWEEP) {
        known.sweep(|weak| {
            // SAFETY: the caller's promise; listed weak references are deleted here alone, and not twice.
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

impl Known {
    fn add(&mut self, methods: &[usize], weak: usize, position: u64) {
        self.last_class += 1;
        let class = self.last_class;
        self.classes.insert(class, weak);
        let mut again = false;
        for id in methods {
            let known_before = self.methods.contains_key(id);
            again |= known_before;
            self.methods.insert(*id, Entry { class, since: if known_before { position } else { 0 } });
        }
        if again {
            self.given_again.push(position);
        }
    }

    /// Forgets the classes that are gone, and their methods.
    fn sweep(&mut self, mut is_gone: impl FnMut(usize) -> bool) {
        self.classes.retain(|_, weak| !is_gone(*weak));
        let classes = &self.classes;
        self.methods.retain(|_, entry| classes.contains_key(&entry.class));
        self.sweep_at = self.classes.len() * 2;
    }
}

/// Our number of the class that an id at a ring position belongs to.
pub fn class_at(id: usize, position: u64) -> Option<u64> {
    known().methods.get(&id).filter(|entry| entry.since <= position).map(|entry| entry.class)
}

/// What the VM says of a method of the class with our number; `None` once the class is gone.
pub fn read(id: usize, class: u64) -> Option<Named> {
    let jvmti = super::tools()?;
    let env = guest_thread::environment()?;
    let held = {
        let known = known();
        let weak = *known.classes.get(&class)?;
        // SAFETY: this thread's environment; a listed weak reference was not deleted, for the list is locked.
        unsafe { ((**env).v1_2.NewLocalRef)(env, weak as jobject) }
    };
    if held.is_null() {
        return None;
    }
    // SAFETY: the class is held by a local reference of this thread; the id is of that class.
    let named = unsafe {
        jvmti.name_of(id).zip(jvmti.signature_of(held)).map(|(method, signature)| Named {
            function: format!("{}.{method}", class_of(&signature)).into(),
            file: jvmti.file_of(held).unwrap_or_default().into(),
            lines: jvmti.lines_of(id),
        })
    };
    // SAFETY: a local reference of this thread, used no more.
    unsafe { ((**env).v1_1.DeleteLocalRef)(env, held) };
    named
}

/// `Lcom/shop/Cart;` as its author wrote it.
fn class_of(signature: &str) -> String {
    class_name(signature.strip_prefix('L').and_then(|name| name.strip_suffix(';')).unwrap_or(signature))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_given_again_names_the_new_method_from_there_on() {
        let mut known = Known::default();
        known.add(&[8, 16], 100, 0);
        known.add(&[16, 24], 200, 5000);
        let class = |id: usize| known.methods.get(&id).map(|entry| (entry.class, entry.since));
        assert_eq!([class(8), class(16), class(24)], [Some((1, 0)), Some((2, 5000)), Some((2, 0))]);
        assert_eq!(known.given_again, [5000]);
    }

    #[test]
    fn classes_that_are_gone_are_forgotten_with_their_methods() {
        let mut known = Known::default();
        known.add(&[8], 100, 0);
        known.add(&[16], 200, 0);
        known.sweep(|weak| weak == 100);
        assert!(!known.methods.contains_key(&8) && known.methods.contains_key(&16));
        assert_eq!(known.classes.len(), 1);
    }

    #[test]
    fn a_signature_is_read_as_its_class() {
        assert_eq!(class_of("Lcom/shop/Cart;"), "com.shop.Cart");
        assert_eq!(class_of("Lcom/shop/Cart$$Lambda.0x0000000800c03000;"), "com.shop.Cart$$Lambda");
    }
}
