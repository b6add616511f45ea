//! Context of virtual threads. Each virtual thread has scope words of its own, which Java writes through a direct buffer.
//! The row of its carrier thread points to them while it is mounted. The VM reports each mount and unmount, at a cost for
//! every virtual thread. These events are enabled only while the profiler runs, and a virtual thread has a context or waits
//! for locks are reported. Not for signal handlers.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jni::sys::{jobject, JNIEnv};
use spanprof_profiler::binding::{ffi_guard, lock_waits_are_reported};
use spanprof_profiler::ProfilerHandle;

use super::parks;
use crate::runtime::capture::thread_rows::{self, ScopeWords, ThreadRow};
use crate::runtime::jvmti::{this_vm, Environment, ExtensionEvent, Jvmti, JvmtiEvent};
use crate::runtime::threads::registry;

/// Scope words are allocated in chunks of this size and never freed: handlers may read them at any time.
const CHUNK: usize = 1_024;
const MAX_SCOPES: usize = 1 << 20;

/// Scope words of one virtual thread, reused after it ends.
#[repr(C, align(64))]
pub struct VirtualScope {
    words: ScopeWords,
    /// 0 while the profiler runs and mounts are not tracked: Java then requests the buffer again before it writes.
    is_tracked: AtomicU64,
    /// Whether a virtual thread uses it.
    is_used: AtomicBool,
}

/// Size of the part that Java sees: the words and `is_tracked`.
pub const VIRTUAL_SCOPE_BYTES: usize = size_of::<ScopeWords>() + size_of::<u64>();

static MOUNTS: AtomicU64 = AtomicU64::new(0);
static WITHOUT_SCOPE: AtomicU64 = AtomicU64::new(0);
/// Whether mount events are enabled.
static MOUNT_EVENTS_ENABLED: AtomicBool = AtomicBool::new(false);
static USED: AtomicUsize = AtomicUsize::new(0);
static SCOPES: Mutex<VirtualScopes> =
    Mutex::new(VirtualScopes { chunks: Vec::new(), free: Vec::new(), events: None, has_end_events: false });

struct VirtualScopes {
    chunks: Vec<&'static [VirtualScope]>,
    free: Vec<&'static VirtualScope>,
    /// Mount and unmount events; `None` if the VM lacks them.
    events: Option<[ExtensionEvent; 2]>,
    /// Whether `VirtualThreadEnd` is enabled.
    has_end_events: bool,
}

fn scopes() -> MutexGuard<'static, VirtualScopes> {
    SCOPES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Mount events so far, live virtual threads that have had a label, and virtual threads that got no scope words.
pub fn counts() -> (u64, u64, u64) {
    (MOUNTS.load(Ordering::Relaxed), USED.load(Ordering::Relaxed) as u64, WITHOUT_SCOPE.load(Ordering::Relaxed))
}

/// Address of the calling virtual thread's scope words, tracked from here on while the profiler runs; `None` if the VM
/// lacks mount events, or at `MAX_SCOPES`.
pub fn own_scope() -> Option<usize> {
    // Works also before the profiler is started.
    let jvmti = this_vm::jvmti()?;
    let row = registry::register(spanprof_os::thread_id(), 0);
    let before = jvmti.thread_local_storage(std::ptr::null_mut()).unwrap_or(0);
    let mut scopes = scopes();
    scopes.enable_end_events(jvmti)?;
    if is_profiled() {
        scopes.enable_mount_events(jvmti)?;
    }
    let scope = scopes.scope_for(row, before, |address| jvmti.set_thread_local_storage(address).is_ok())?;
    // While the profiler is stopped, Java need not request the buffer again.
    scope.is_tracked.store(1, Ordering::Release);
    if let Some(row) = row.filter(|_| are_mounts_tracked()) {
        // The virtual thread stays mounted on this carrier until the call returns.
        row.scope.mount(&scope.words);
    }
    Some(std::ptr::from_ref(scope) as usize)
}

fn is_profiled() -> bool {
    ProfilerHandle::running().is_some_and(|profiler| profiler.is_running())
}

/// Whether mount events are enabled.
pub fn are_mounts_tracked() -> bool {
    MOUNT_EVENTS_ENABLED.load(Ordering::SeqCst)
}

/// A session begins: virtual threads with a context are tracked from their next mount on.
pub fn session_begins() {
    let Some(jvmti) = this_vm::jvmti() else { return };
    let mut scopes = scopes();
    scopes.used().for_each(|scope| scope.is_tracked.store(0, Ordering::SeqCst));
    if scopes.any_is_set() {
        scopes.enable_mount_events(jvmti);
    }
}

/// Enables mount events for waits of virtual threads; without effect in a VM without virtual threads.
pub fn enable_for_waits() {
    let Some(jvmti) = this_vm::jvmti() else { return };
    let mut scopes = scopes();
    if scopes.enable_end_events(jvmti).is_some() {
        scopes.enable_mount_events(jvmti);
    }
}

/// Disables mount events if no virtual thread has a context and waits are not reported, or the profiler is stopped. Called when the profiler stops, and
/// periodically on a thread of the VM.
pub fn disable_unused_events() {
    let Some(jvmti) = this_vm::jvmti() else { return };
    let mut scopes = scopes();
    if are_mounts_tracked() && !(is_profiled() && (scopes.any_is_set() || lock_waits_are_reported())) {
        scopes.disable_mount_events(jvmti);
    }
    if !are_mounts_tracked() {
        scopes.disable_end_events(jvmti);
    }
}

impl VirtualScopes {
    /// Enables `VirtualThreadEnd`: from here on the scope words of ended threads are released.
    fn enable_end_events(&mut self, jvmti: Jvmti) -> Option<()> {
        if self.events.is_none() {
            self.events = jvmti.register_mount_callbacks(on_mount, on_unmount);
        }
        self.events?;
        if !self.has_end_events {
            jvmti.notify(JvmtiEvent::VirtualThreadEnd, true).ok()?;
            self.has_end_events = true;
        }
        Some(())
    }

    fn enable_mount_events(&mut self, jvmti: Jvmti) -> Option<()> {
        if are_mounts_tracked() {
            return Some(());
        }
        let events = self.events?;
        MOUNT_EVENTS_ENABLED.store(true, Ordering::SeqCst);
        if !events.iter().all(|event| jvmti.notify_extension(*event, true).is_ok()) {
            self.disable_mount_events(jvmti);
            return None;
        }
        Some(())
    }

    /// A scope that opens concurrently may be missed, but no row gets another thread's context. Rows are cleared after the
    /// last mount can set them: `on_mount` checks again after its write.
    fn disable_mount_events(&mut self, jvmti: Jvmti) {
        MOUNT_EVENTS_ENABLED.store(false, Ordering::SeqCst);
        self.used().for_each(|scope| scope.is_tracked.store(0, Ordering::SeqCst));
        for event in self.events.iter().flatten() {
            let _ = jvmti.notify_extension(*event, false);
        }
        registry::unmount_all();
    }

    /// End events stay enabled while scope words are used.
    fn disable_end_events(&mut self, jvmti: Jvmti) {
        let is_unused = self.has_end_events && USED.load(Ordering::Relaxed) == 0;
        if is_unused && jvmti.notify(JvmtiEvent::VirtualThreadEnd, false).is_ok() {
            self.has_end_events = false;
        }
    }

    fn any_is_set(&self) -> bool {
        self.used().any(|scope| scope.words.is_set())
    }

    /// The scope words of a virtual thread mounted on `row`: those at the address `before`, or new ones if it is 0. The
    /// address of new ones is stored with the thread by `store_address`.
    fn scope_for(
        &mut self,
        row: Option<&ThreadRow>,
        before: usize,
        store_address: impl FnOnce(usize) -> bool,
    ) -> Option<&'static VirtualScope> {
        // Handlers find the words only through the carrier's row.
        let scope = row.and_then(|_| scope_at(before).or_else(|| self.allocate()));
        let Some(scope) = scope else {
            WITHOUT_SCOPE.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        if before == 0 && !store_address(std::ptr::from_ref(scope) as usize) {
            self.release(scope);
            return None;
        }
        Some(scope)
    }

    fn used(&self) -> impl Iterator<Item = &'static VirtualScope> + '_ {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).filter(|scope| scope.is_used.load(Ordering::Relaxed))
    }

    fn allocate(&mut self) -> Option<&'static VirtualScope> {
        if self.free.is_empty() && self.chunks.len() < MAX_SCOPES / CHUNK {
            let chunk: Vec<VirtualScope> = (0..CHUNK).map(|_| VirtualScope::new()).collect();
            let chunk: &'static [VirtualScope] = chunk.leak();
            self.chunks.push(chunk);
            self.free.extend(chunk.iter().rev());
        }
        let scope = self.free.pop()?;
        scope.words.clear();
        scope.is_used.store(true, Ordering::Relaxed);
        USED.fetch_add(1, Ordering::Relaxed);
        Some(scope)
    }

    fn release(&mut self, scope: &'static VirtualScope) {
        scope.words.clear();
        scope.is_tracked.store(0, Ordering::Relaxed);
        scope.is_used.store(false, Ordering::Relaxed);
        USED.fetch_sub(1, Ordering::Relaxed);
        self.free.push(scope);
    }
}

impl VirtualScope {
    const fn new() -> Self {
        Self { words: ScopeWords::empty(), is_tracked: AtomicU64::new(0), is_used: AtomicBool::new(false) }
    }
}

fn scope_at(word: usize) -> Option<&'static VirtualScope> {
    // SAFETY: the word is 0 or the address of scope words, which are never freed.
    unsafe { (word as *const VirtualScope).as_ref() }
}

unsafe extern "C" fn on_mount(_: *mut Environment, env: *mut JNIEnv, thread: jobject) {
    // SAFETY: the VM passes this thread's environment and a live reference to the virtual thread.
    ffi_guard(None, || unsafe { parks::mounts(env, thread) });
    ffi_guard((), || {
        MOUNTS.fetch_add(1, Ordering::Relaxed);
        let scope = this_vm::jvmti().and_then(|jvmti| jvmti.thread_local_storage(thread)).and_then(scope_at);
        if let (Some(scope), Some(row)) = (scope, registry::register(spanprof_os::thread_id(), 0)) {
            row.scope.mount(&scope.words);
            if !are_mounts_tracked() {
                row.scope.unmount();
            }
        }
    });
}

unsafe extern "C" fn on_unmount(_: *mut Environment, env: *mut JNIEnv, thread: jobject) {
    // SAFETY: the VM passes this thread's environment and a live reference to the virtual thread.
    ffi_guard(None, || unsafe { parks::unmounts(env, thread) });
    ffi_guard((), || {
        if let Some(row) = thread_rows::of(spanprof_os::thread_id()) {
            row.scope.unmount();
        }
    });
}

/// `VirtualThreadEnd`: a scope that is still open ends with the thread.
///
/// # Safety
/// Called by the VM.
pub unsafe extern "system" fn on_end(_: *mut Environment, _: *mut JNIEnv, _: jobject) {
    ffi_guard(None, || {
        let jvmti = this_vm::jvmti()?;
        let scope = jvmti.thread_local_storage(std::ptr::null_mut()).and_then(scope_at)?;
        jvmti.set_thread_local_storage(0).ok()?;
        if let Some(row) = thread_rows::of(spanprof_os::thread_id()) {
            row.scope.unmount();
        }
        scopes().release(scope);
        Some(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> VirtualScopes {
        VirtualScopes { chunks: Vec::new(), free: Vec::new(), events: None, has_end_events: false }
    }

    #[test]
    fn scope_words_of_an_ended_thread_are_reused_and_empty() {
        let mut scopes = empty();
        let first = scopes.allocate().unwrap();
        first.words.write(&[7, 0, 0, 0, 0]);
        assert!(scopes.any_is_set());
        scopes.release(first);
        assert_eq!(scopes.used().count(), 0);
        let second = scopes.allocate().unwrap();
        assert!(std::ptr::eq(first, second) && !second.words.is_set());
        scopes.release(second);
    }

    #[test]
    fn a_thread_whose_carrier_has_no_row_is_counted_and_gets_no_scope_words() {
        let mut scopes = empty();
        let before = WITHOUT_SCOPE.load(Ordering::Relaxed);
        assert!(scopes.scope_for(None, 0, |_| true).is_none());
        assert_eq!((scopes.used().count(), WITHOUT_SCOPE.load(Ordering::Relaxed) - before), (0, 1));

        let row = registry::register(900_200, 4096);
        assert!(scopes.scope_for(row, 0, |_| false).is_none(), "the VM does not store the address");
        assert_eq!(scopes.used().count(), 0);
        let words = scopes.scope_for(row, 0, |_| true).unwrap();
        let again =
            scopes.scope_for(row, std::ptr::from_ref(words) as usize, |_| panic!("the address is stored already"));
        assert!(std::ptr::eq(words, again.unwrap()));
        scopes.release(words);
        registry::unregister(900_200);
    }
}
