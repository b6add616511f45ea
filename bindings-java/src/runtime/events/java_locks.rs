//! The classes and fields of the JDK by which a wait for a lock is recognized. Looked up once. Not for signal handlers.
//!
//! # Locks and idle waits
//! `LockSupport.park(blocker)` stores the object for which a thread waits in `Thread.parkBlocker`. A wait is for a contended
//! lock if the blocker is a `StampedLock`, the synchronizer of a `ReentrantLock`, a `ReentrantReadWriteLock` or a
//! `Semaphore`, or any other `AbstractOwnableSynchronizer` that has an owner thread. All other waits are idle: the blocker
//! of `Condition.await` is the condition, the blocker of `FutureTask.get` is the task, and an idle pool worker is blocked by
//! a queue, a condition or the pool. The synchronizer of a `CountDownLatch` has no owner.
//!
//! Upstream: `AbstractQueuedSynchronizer.java`, `LockSupport.java`, `Thread.java`, JDK 8 to 25, `VirtualThread.java` from 21 on.

use std::ffi::CStr;
use std::sync::OnceLock;

use jni::sys::{jclass, jfieldID, jobject, JNIEnv, JNI_TRUE};

use crate::runtime::jvmti::Jvmti;
use crate::runtime::names::class_names;

const OWNABLE: &CStr = c"java/util/concurrent/locks/AbstractOwnableSynchronizer";
/// Classes whose objects are locks even without an owner thread: shared locks have none.
const LOCKS: [&CStr; 4] = [
    c"java/util/concurrent/locks/ReentrantLock$Sync",
    c"java/util/concurrent/locks/ReentrantReadWriteLock$Sync",
    c"java/util/concurrent/Semaphore$Sync",
    c"java/util/concurrent/locks/StampedLock",
];

static FOUND: OnceLock<JavaLocks> = OnceLock::new();

/// Classes and fields of the JDK's locks. Classes are global references.
pub struct JavaLocks {
    thread_number: jfieldID,
    park_blocker: jfieldID,
    /// `None` before Java 21.
    virtual_state: Option<(jclass, jfieldID)>,
    ownable: jclass,
    owner: jfieldID,
    locks: [jclass; LOCKS.len()],
}

// SAFETY: field ids and global references may be used from any thread.
unsafe impl Send for JavaLocks {}
// SAFETY: field ids and global references may be used by several threads at once.
unsafe impl Sync for JavaLocks {}

impl JavaLocks {
    /// The classes and fields, once they have been looked up.
    #[inline]
    pub fn found() -> Option<&'static Self> {
        FOUND.get()
    }

    /// Looks them up; the error names the first that this JDK lacks.
    ///
    /// # Safety
    /// `env` is the calling thread's JNI environment, without a pending exception.
    pub unsafe fn find(env: *mut JNIEnv) -> Result<&'static Self, String> {
        if let Some(found) = FOUND.get() {
            return Ok(found);
        }
        // SAFETY: guaranteed by the caller.
        let created = unsafe {
            let thread = class(env, c"java/lang/Thread")?;
            let ownable = class(env, OWNABLE)?;
            let mut locks = [std::ptr::null_mut(); LOCKS.len()];
            for (lock, name) in locks.iter_mut().zip(LOCKS) {
                *lock = class(env, name)?;
            }
            let virtual_thread = class(env, c"java/lang/VirtualThread").ok();
            Self {
                thread_number: field(env, thread, c"tid", c"J")?,
                park_blocker: field(env, thread, c"parkBlocker", c"Ljava/lang/Object;")?,
                virtual_state: virtual_thread
                    .map(|class| field(env, class, c"state", c"I").map(|state| (class, state)))
                    .transpose()?,
                ownable,
                owner: field(env, ownable, c"exclusiveOwnerThread", c"Ljava/lang/Thread;")?,
                locks,
            }
        };
        Ok(FOUND.get_or_init(|| created))
    }

    /// The number of a thread, platform or virtual: unique in the process and never reused.
    ///
    /// # Safety
    /// `env` is the calling thread's JNI environment, `thread` a live reference to a thread.
    pub unsafe fn thread_number(&self, env: *mut JNIEnv, thread: jobject) -> u64 {
        // SAFETY: guaranteed by the caller; the field belongs to `java.lang.Thread`.
        unsafe { ((**env).v1_1.GetLongField)(env, thread, self.thread_number) as u64 }
    }

    /// The state of a virtual thread; 0 for a platform thread.
    ///
    /// # Safety
    /// `env` is the calling thread's JNI environment, `thread` a live reference to a thread.
    pub unsafe fn virtual_state(&self, env: *mut JNIEnv, thread: jobject) -> i32 {
        let Some((class, state)) = self.virtual_state else { return 0 };
        // SAFETY: guaranteed by the caller; the field belongs to the class that is checked.
        unsafe {
            match ((**env).v1_1.IsInstanceOf)(env, thread, class) {
                JNI_TRUE => ((**env).v1_1.GetIntField)(env, thread, state),
                _ => 0,
            }
        }
    }

    /// The class number of an object (`class_names`).
    ///
    /// # Safety
    /// `env` is the calling thread's JNI environment, `object` a live reference.
    pub unsafe fn class_number(&self, jvmti: Jvmti, env: *mut JNIEnv, object: jobject) -> u32 {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let class = ((**env).v1_1.GetObjectClass)(env, object);
            let number = jvmti.signature_of(class).map_or(0, |signature| class_names::number_of(&signature));
            ((**env).v1_1.DeleteLocalRef)(env, class);
            number
        }
    }

    /// The class number of the contended lock for which a thread parks; `None` if its wait is idle.
    ///
    /// # Safety
    /// `env` is the calling thread's JNI environment, `thread` a live reference to a thread.
    pub unsafe fn parked_for(&self, jvmti: Jvmti, env: *mut JNIEnv, thread: jobject) -> Option<u32> {
        // SAFETY: guaranteed by the caller; the reference is deleted after its last use.
        unsafe {
            let blocker = ((**env).v1_1.GetObjectField)(env, thread, self.park_blocker);
            if blocker.is_null() {
                return None;
            }
            let number = self.is_contended_lock(env, blocker).then(|| self.class_number(jvmti, env, blocker));
            ((**env).v1_1.DeleteLocalRef)(env, blocker);
            number
        }
    }

    /// # Safety
    /// `env` is the calling thread's JNI environment, `blocker` a live reference.
    unsafe fn is_contended_lock(&self, env: *mut JNIEnv, blocker: jobject) -> bool {
        // SAFETY: guaranteed by the caller; the field is read of objects of its class only.
        unsafe {
            let is_of = |class: jclass| ((**env).v1_1.IsInstanceOf)(env, blocker, class) == JNI_TRUE;
            if self.locks.into_iter().any(is_of) {
                return true;
            }
            if !is_of(self.ownable) {
                return false;
            }
            let owner = ((**env).v1_1.GetObjectField)(env, blocker, self.owner);
            ((**env).v1_1.DeleteLocalRef)(env, owner);
            !owner.is_null()
        }
    }
}

/// A global reference to a class of the JDK.
///
/// # Safety
/// `env` is the calling thread's JNI environment.
unsafe fn class(env: *mut JNIEnv, name: &CStr) -> Result<jclass, String> {
    // SAFETY: guaranteed by the caller; a failed call leaves a pending exception, which is cleared.
    unsafe {
        let local = ((**env).v1_1.FindClass)(env, name.as_ptr());
        let global = if local.is_null() { std::ptr::null_mut() } else { ((**env).v1_1.NewGlobalRef)(env, local) };
        ((**env).v1_1.ExceptionClear)(env);
        ((**env).v1_1.DeleteLocalRef)(env, local);
        if global.is_null() {
            Err(format!("there is no class {}", name.to_string_lossy()))
        } else {
            Ok(global)
        }
    }
}

/// # Safety
/// `env` is the calling thread's JNI environment, `class` a live reference.
unsafe fn field(env: *mut JNIEnv, class: jclass, name: &CStr, signature: &CStr) -> Result<jfieldID, String> {
    // SAFETY: guaranteed by the caller; a failed call leaves a pending exception, which is cleared.
    unsafe {
        let field = ((**env).v1_1.GetFieldID)(env, class, name.as_ptr(), signature.as_ptr());
        if field.is_null() {
            ((**env).v1_1.ExceptionClear)(env);
            return Err(format!("there is no field {}", name.to_string_lossy()));
        }
        Ok(field)
    }
}
