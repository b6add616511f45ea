//! The applications that hold the profiler: they have started it and not stopped it. Several applications of a server share
//! one profiler, each with its own JAR or all with the server's. An application is identified by its copy of the package
//! (the class `Native`) and an object of its own, both held weakly. The object is the class loader of the calling code: the
//! context class loader depends on the thread, and is the system's in the JDK's common pool. Not here: starting and stopping
//! (the entry points). Not for signal handlers.

use std::sync::{Mutex, MutexGuard, PoisonError};

use jni::sys::{jclass, jobject, JNIEnv, JNI_OK};

use super::jvmti::this_vm;

/// Upper bound of the frames searched for the calling application.
const MAX_FRAMES: usize = 64;

static APPLICATIONS: Mutex<Applications> = Mutex::new(Applications { agent: false, holders: Vec::new() });

/// Weak references to the two objects.
#[derive(Clone, Copy)]
struct Application {
    copy: usize,
    object: usize,
}

/// The applications that hold the profiler.
pub struct Applications {
    /// The native agent has started the profiler, and stops it only at `VMDeath`.
    agent: bool,
    holders: Vec<Application>,
}

/// The holders that remain after one application has stopped the profiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemainingHolders {
    None,
    /// Other applications; the caller held it until now.
    Others,
    /// Other applications; the caller did not hold it.
    OthersOnly,
}

/// The lock of start and stop: each runs completely before the next one.
pub fn lock() -> MutexGuard<'static, Applications> {
    APPLICATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The application that calls the package, as a local reference: the class loader of the first class on the stack that
/// belongs neither to the JDK nor to the package. The package stands for all classes of its own loader and of that loader's
/// parents.
///
/// # Safety
/// `env` is the calling thread's JNI environment, in a native method of `copy`.
pub unsafe fn calling(env: *mut JNIEnv, copy: jclass) -> jobject {
    // SAFETY: guaranteed by the caller. The local frame deletes all references but the result.
    unsafe {
        if ((**env).v1_2.PushLocalFrame)(env, 4 * MAX_FRAMES as i32) != JNI_OK {
            ((**env).v1_1.ExceptionClear)(env);
            return copy;
        }
        let loader = foreign_loader(env, copy).unwrap_or(copy);
        ((**env).v1_2.PopLocalFrame)(env, loader)
    }
}

/// The loader of the calling code; `None` if it is also the loader of the package, or a parent of it.
unsafe fn foreign_loader(env: *mut JNIEnv, copy: jclass) -> Option<jobject> {
    // SAFETY: guaranteed by `calling`: the classes and methods of this thread's frames are alive; JNI calls follow calls that
    // have not thrown.
    unsafe {
        let jvmti = this_vm::jvmti()?;
        let signature = jvmti.signature_of(copy)?;
        let package = signature.strip_suffix("Native;")?;
        let own = jvmti.loader_of(copy)?;
        for (method, _) in jvmti.stack_trace(MAX_FRAMES).ok()? {
            let class = jvmti.class_of(method)?;
            let loader = jvmti.loader_of(class)?;
            let is_same = |other: jobject| ((**env).v1_1.IsSameObject)(env, loader, other);
            if loader.is_null() || is_same(own) && is_of_package(&jvmti.signature_of(class)?, package) {
                continue;
            }
            let class_loader = ((**env).v1_1.FindClass)(env, c"java/lang/ClassLoader".as_ptr());
            let (name, descriptor) = (c"parent".as_ptr(), c"Ljava/lang/ClassLoader;".as_ptr());
            let parent = if class_loader.is_null() {
                std::ptr::null_mut()
            } else {
                ((**env).v1_1.GetFieldID)(env, class_loader, name, descriptor)
            };
            if parent.is_null() {
                ((**env).v1_1.ExceptionClear)(env);
                return None;
            }
            let parent_of = |loader: &jobject| {
                let above = ((**env).v1_1.GetObjectField)(env, *loader, parent);
                (!above.is_null()).then_some(above)
            };
            let is_foreign =
                std::iter::successors((!own.is_null()).then_some(own), parent_of).all(|above| !is_same(above));
            return is_foreign.then_some(loader);
        }
        None
    }
}

/// Whether a class is one of the API, and not of a program whose packages are below the package's.
fn is_of_package(signature: &str, package: &str) -> bool {
    let Some(class) = signature.strip_prefix(package) else { return false };
    !class.strip_prefix("pyroscope/").unwrap_or(class).contains('/')
}

impl Applications {
    /// The native agent has started the profiler.
    pub fn hold_by_agent(&mut self) {
        self.agent = true;
    }

    /// Adds an application that has started the profiler, once. If the VM has no memory for its weak references, the next
    /// query removes it.
    ///
    /// # Safety
    /// `env` is the calling thread's JNI environment, the other two are live references of it.
    pub unsafe fn hold(&mut self, env: *mut JNIEnv, copy: jclass, object: jobject) {
        // SAFETY: guaranteed by the caller; null means out of memory, whose pending exception is cleared.
        unsafe {
            if self.position(env, copy, object).is_some() {
                return;
            }
            let weak = |object| ((**env).v1_2.NewWeakGlobalRef)(env, object);
            let (copy, object) = (weak(copy), weak(object));
            if copy.is_null() || object.is_null() {
                ((**env).v1_1.ExceptionClear)(env);
            }
            self.holders.push(Application { copy: copy as usize, object: object as usize });
        }
    }

    /// Whether an application holds the profiler.
    ///
    /// # Safety
    /// `env` is the calling thread's JNI environment, the other two are live references of it.
    pub unsafe fn is_held_by(&mut self, env: *mut JNIEnv, copy: jclass, object: jobject) -> bool {
        // SAFETY: guaranteed by the caller.
        unsafe { self.position(env, copy, object) }.is_some()
    }

    /// Whether any application that uses this copy of the package holds the profiler.
    ///
    /// # Safety
    /// `env` is the calling thread's JNI environment, `copy` is a live reference of it.
    pub unsafe fn is_held_by_copy(&mut self, env: *mut JNIEnv, copy: jclass) -> bool {
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.remove_collected(env);
            self.holders.iter().any(|holder| is_same(env, holder.copy, copy))
        }
    }

    /// Removes an application that stops the profiler.
    ///
    /// # Safety
    /// `env` is the calling thread's JNI environment, the other two are live references of it.
    pub unsafe fn release(&mut self, env: *mut JNIEnv, copy: jclass, object: jobject) -> RemainingHolders {
        // SAFETY: guaranteed by the caller.
        let position = unsafe { self.position(env, copy, object) };
        if let Some(position) = position {
            let holder = self.holders.swap_remove(position);
            // SAFETY: guaranteed by the caller; the references are not used elsewhere.
            unsafe { delete(env, holder) };
        }
        match (self.agent || !self.holders.is_empty(), position) {
            (false, _) => RemainingHolders::None,
            (true, Some(_)) => RemainingHolders::Others,
            (true, None) => RemainingHolders::OthersOnly,
        }
    }

    /// The program ends: removes all holders.
    ///
    /// # Safety
    /// `env` is the calling thread's JNI environment.
    pub unsafe fn release_all(&mut self, env: *mut JNIEnv) {
        self.agent = false;
        // SAFETY: guaranteed by the caller; the references are not used elsewhere.
        self.holders.drain(..).for_each(|holder| unsafe { delete(env, holder) });
    }

    /// The number of holders, the native agent included.
    pub fn count(&self) -> usize {
        self.holders.len() + usize::from(self.agent)
    }

    unsafe fn position(&mut self, env: *mut JNIEnv, copy: jclass, object: jobject) -> Option<usize> {
        // SAFETY: guaranteed by the callers.
        unsafe {
            self.remove_collected(env);
            self.holders
                .iter()
                .position(|holder| is_same(env, holder.copy, copy) && is_same(env, holder.object, object))
        }
    }

    /// Removes applications whose objects were garbage collected: they can never stop the profiler.
    unsafe fn remove_collected(&mut self, env: *mut JNIEnv) {
        let null = std::ptr::null_mut();
        // SAFETY: guaranteed by the callers; a weak reference to a collected object equals null.
        self.holders.retain(|holder| unsafe {
            let has_ended = is_same(env, holder.copy, null) || is_same(env, holder.object, null);
            if has_ended {
                delete(env, *holder);
            }
            !has_ended
        });
    }
}

unsafe fn is_same(env: *mut JNIEnv, weak: usize, object: jobject) -> bool {
    // SAFETY: guaranteed by the callers: a weak reference that is not deleted, and a reference of the calling thread.
    unsafe { ((**env).v1_1.IsSameObject)(env, weak as jobject, object) }
}

unsafe fn delete(env: *mut JNIEnv, holder: Application) {
    // SAFETY: guaranteed by the callers; null references are not deleted.
    unsafe {
        for weak in [holder.copy, holder.object] {
            if weak != 0 {
                ((**env).v1_2.DeleteWeakGlobalRef)(env, weak as jobject);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_and_the_names_of_pyroscope_are_not_the_application() {
        for class in ["Spanprof;", "HostLog$$Lambda.0x01;", "pyroscope/PyroscopeAgent;"] {
            assert!(is_of_package(&format!("Lio/spanprof/{class}"), "Lio/spanprof/"));
        }
        for class in ["Lio/spanprof/programs/Applications;", "Lio/spanprofile/Main;", "Lcom/shop/Cart;"] {
            assert!(!is_of_package(class, "Lio/spanprof/"));
        }
    }
}
