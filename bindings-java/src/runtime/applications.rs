//! Which applications have started the profiler and not stopped it: several share one in a server, each by a JAR of its own
//! or all by the server's. An application is a pair: the copy of the package that it calls (its class `Native`) and an object
//! that stands for it (its class loader). Both are held weakly. Not here: starting and stopping (the doors). Normal threads
//! only.

use std::sync::{Mutex, MutexGuard, PoisonError};

use jni::sys::{jclass, jobject, JNIEnv};

static APPLICATIONS: Mutex<Applications> = Mutex::new(Applications { agent: false, known: Vec::new() });

/// Weak references to the two objects.
#[derive(Clone, Copy)]
struct Application {
    copy: usize,
    object: usize,
}

/// See the head of the module.
pub struct Applications {
    /// The agent of the VM has started it, and stops it only when the VM ends.
    agent: bool,
    known: Vec<Application>,
}

/// What a stop by one application leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nobody has started it, or everybody has stopped it.
    Nobody,
    /// Others have started it; the caller had too, until now.
    Others,
    /// Others have started it; the caller never did, or has stopped it before.
    OthersAlone,
}

/// Held through a start or a stop, so that none falls between the two halves of another.
pub fn gate() -> MutexGuard<'static, Applications> {
    APPLICATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Applications {
    /// The agent of the VM has started the profiler.
    pub fn hold_by_agent(&mut self) {
        self.agent = true;
    }

    /// Counts an application that has started the profiler, once. It is not counted if the VM has no memory for a reference to it.
    ///
    /// # Safety
    /// `env` is the calling thread's, the other two are live references of it.
    pub unsafe fn hold(&mut self, env: *mut JNIEnv, copy: jclass, object: jobject) {
        // SAFETY: the caller's promise; null means that the VM has no memory left, and an exception that is taken back.
        unsafe {
            if self.position(env, copy, object).is_some() {
                return;
            }
            let weak = |object| ((**env).v1_2.NewWeakGlobalRef)(env, object);
            let (copy, object) = (weak(copy), weak(object));
            if copy.is_null() || object.is_null() {
                ((**env).v1_1.ExceptionClear)(env);
            }
            self.known.push(Application { copy: copy as usize, object: object as usize });
        }
    }

    /// Whether an application holds it.
    ///
    /// # Safety
    /// As for `hold`.
    pub unsafe fn is_held_by(&mut self, env: *mut JNIEnv, copy: jclass, object: jobject) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.position(env, copy, object) }.is_some()
    }

    /// Whether any application that calls a copy of the package holds it.
    ///
    /// # Safety
    /// As for `hold`.
    pub unsafe fn is_held_through(&mut self, env: *mut JNIEnv, copy: jclass) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            self.forget_ended(env);
            self.known.iter().any(|known| is_same(env, known.copy, copy))
        }
    }

    /// An application stops it.
    ///
    /// # Safety
    /// As for `hold`.
    pub unsafe fn release(&mut self, env: *mut JNIEnv, copy: jclass, object: jobject) -> Left {
        // SAFETY: the caller's promise.
        let held = unsafe { self.position(env, copy, object) };
        if let Some(position) = held {
            let known = self.known.swap_remove(position);
            // SAFETY: as above; nobody else has the references.
            unsafe { delete(env, known) };
        }
        match (self.agent || !self.known.is_empty(), held) {
            (false, _) => Left::Nobody,
            (true, Some(_)) => Left::Others,
            (true, None) => Left::OthersAlone,
        }
    }

    /// The program ends: nobody holds it any more.
    ///
    /// # Safety
    /// `env` is the calling thread's.
    pub unsafe fn release_all(&mut self, env: *mut JNIEnv) {
        self.agent = false;
        // SAFETY: the caller's promise; nobody else has the references.
        self.known.drain(..).for_each(|known| unsafe { delete(env, known) });
    }

    /// How many hold it, the VM's agent among them.
    pub fn count(&self) -> usize {
        self.known.len() + usize::from(self.agent)
    }

    unsafe fn position(&mut self, env: *mut JNIEnv, copy: jclass, object: jobject) -> Option<usize> {
        // SAFETY: the callers' promise.
        unsafe {
            self.forget_ended(env);
            self.known.iter().position(|known| is_same(env, known.copy, copy) && is_same(env, known.object, object))
        }
    }

    /// Applications whose objects were collected will never stop it.
    unsafe fn forget_ended(&mut self, env: *mut JNIEnv) {
        let null = std::ptr::null_mut();
        // SAFETY: the callers' promise; a weak reference whose object was collected equals null.
        self.known.retain(|known| unsafe {
            let has_ended = is_same(env, known.copy, null) || is_same(env, known.object, null);
            if has_ended {
                delete(env, *known);
            }
            !has_ended
        });
    }
}

unsafe fn is_same(env: *mut JNIEnv, weak: usize, object: jobject) -> bool {
    // SAFETY: the callers' promise: a weak reference that is not deleted, and one of the calling thread's.
    unsafe { ((**env).v1_1.IsSameObject)(env, weak as jobject, object) }
}

unsafe fn delete(env: *mut JNIEnv, known: Application) {
    // SAFETY: the callers' promise; null is no reference and nothing to delete.
    unsafe {
        for weak in [known.copy, known.object] {
            if weak != 0 {
                ((**env).v1_2.DeleteWeakGlobalRef)(env, weak as jobject);
            }
        }
    }
}
