//! What scopes on virtual threads say: words of the virtual thread's own, which Java writes through a direct buffer, and
//! which the row of whatever thread carries it points to. The VM tells of each mount and unmount, which costs every virtual
//! thread: asked for only while the profiler runs and any of them says something. Normal threads only.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jni::sys::{jobject, JNIEnv};
use spanprof::{sys, Profiler};

use super::jvmti::{Environment, Event, ExtensionEvent, Jvmti};
use super::threads_signal::{self, Row, ScopeWords};

/// Words are made so many at a time, and kept for the life of the process: handlers may read them at any moment.
const CHUNK: usize = 1_024;
const MOST: usize = 1 << 20;

/// The words of one virtual thread after another.
#[repr(C, align(64))]
pub struct VirtualScope {
    words: ScopeWords,
    /// 0 when Java is to ask anew before it writes: mounts are not told of, although the profiler runs.
    is_followed: AtomicU64,
    /// Whether it is some virtual thread's.
    is_taken: AtomicBool,
}

/// Bytes that Java sees: the words, and whether they are followed.
pub const VIRTUAL_SCOPE_BYTES: usize = size_of::<ScopeWords>() + size_of::<u64>();

static MOUNTS: AtomicU64 = AtomicU64::new(0);
static WITHOUT_WORDS: AtomicU64 = AtomicU64::new(0);
/// Whether mounts are told of.
static FOLLOWED: AtomicBool = AtomicBool::new(false);
static TAKEN: AtomicUsize = AtomicUsize::new(0);
static KEPT: Mutex<Kept> =
    Mutex::new(Kept { chunks: Vec::new(), free: Vec::new(), events: None, are_ends_told: false });

struct Kept {
    chunks: Vec<&'static [VirtualScope]>,
    free: Vec<&'static VirtualScope>,
    /// Mount and unmount; none where the VM does not tell of them.
    events: Option<[ExtensionEvent; 2]>,
    /// Whether the VM tells of virtual threads that end.
    are_ends_told: bool,
}

fn kept() -> MutexGuard<'static, Kept> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Mounts told of so far, virtual threads that live and had a label, and those that found no room for one.
pub fn counts() -> (u64, u64, u64) {
    (MOUNTS.load(Ordering::Relaxed), TAKEN.load(Ordering::Relaxed) as u64, WITHOUT_WORDS.load(Ordering::Relaxed))
}

/// The words that the calling virtual thread's scopes are written to, followed from here on while the profiler runs; `None`
/// where virtual threads cannot be followed, or when there is no room for one more.
pub fn own_scope() -> Option<usize> {
    // Also before the profiler is started.
    let jvmti = super::tools()?;
    let row = threads_signal::enrol(sys::thread_id(), 0);
    let before = jvmti.thread_word(std::ptr::null_mut()).unwrap_or(0);
    let mut kept = kept();
    kept.hear_of_ends(jvmti)?;
    if is_profiled() {
        kept.follow(jvmti)?;
    }
    let scope = kept.words_of(row, before, |address| jvmti.set_thread_word(address).is_ok())?;
    // While nothing runs there is nothing to ask anew for.
    scope.is_followed.store(1, Ordering::Release);
    if let Some(row) = row.filter(|_| is_followed()) {
        // Mounted here until this call returns.
        row.scope.carry(&scope.words);
    }
    Some(std::ptr::from_ref(scope) as usize)
}

fn is_profiled() -> bool {
    Profiler::running().is_some_and(|profiler| profiler.is_running())
}

/// Whether mounts are told of.
pub fn is_followed() -> bool {
    FOLLOWED.load(Ordering::SeqCst)
}

/// The profiler runs from now on: virtual threads that say something are followed from their next mount on.
pub fn session_begins() {
    let Some(jvmti) = super::tools() else { return };
    let mut kept = kept();
    kept.taken().for_each(|scope| scope.is_followed.store(0, Ordering::SeqCst));
    if kept.says_something() {
        kept.follow(jvmti);
    }
}

/// Follows no virtual thread any more when none says anything, or nobody listens. Called when the profiler stops, and now
/// and then on a thread of the VM's.
pub fn rest() {
    let Some(jvmti) = super::tools() else { return };
    let mut kept = kept();
    if is_followed() && !(is_profiled() && kept.says_something()) {
        kept.follow_none(jvmti);
    }
    if !is_followed() {
        kept.hear_of_no_ends(jvmti);
    }
}

impl Kept {
    /// Words of threads that ended are given back from here on.
    fn hear_of_ends(&mut self, jvmti: Jvmti) -> Option<()> {
        if self.events.is_none() {
            self.events = jvmti.follow_virtual_threads(on_mount, on_unmount);
        }
        self.events?;
        if !self.are_ends_told {
            jvmti.notify(Event::VirtualThreadEnd, true).ok()?;
            self.are_ends_told = true;
        }
        Some(())
    }

    fn follow(&mut self, jvmti: Jvmti) -> Option<()> {
        if is_followed() {
            return Some(());
        }
        let events = self.events?;
        FOLLOWED.store(true, Ordering::SeqCst);
        if !events.iter().all(|event| jvmti.notify_extension(*event, true).is_ok()) {
            self.follow_none(jvmti);
            return None;
        }
        Some(())
    }

    /// A scope that opens at this very moment may stay unsaid; none is said of another thread: rows are cleared when no
    /// mount can fill them any more (`on_mount` looks again after it wrote).
    fn follow_none(&mut self, jvmti: Jvmti) {
        FOLLOWED.store(false, Ordering::SeqCst);
        self.taken().for_each(|scope| scope.is_followed.store(0, Ordering::SeqCst));
        for event in self.events.iter().flatten() {
            let _ = jvmti.notify_extension(*event, false);
        }
        threads_signal::carry_nothing();
    }

    /// Words that are some thread's come back when it ends.
    fn hear_of_no_ends(&mut self, jvmti: Jvmti) {
        let is_over = self.are_ends_told && TAKEN.load(Ordering::Relaxed) == 0;
        if is_over && jvmti.notify(Event::VirtualThreadEnd, false).is_ok() {
            self.are_ends_told = false;
        }
    }

    fn says_something(&self) -> bool {
        self.taken().any(|scope| scope.words.says_something())
    }

    /// The words of a virtual thread that is carried by `row`: those it has, or others, which `keep_address` keeps with it.
    fn words_of(
        &mut self,
        row: Option<&Row>,
        before: usize,
        keep_address: impl FnOnce(usize) -> bool,
    ) -> Option<&'static VirtualScope> {
        // Without a row of its carrier nobody would find them.
        let scope = row.and_then(|_| read(before).or_else(|| self.take()));
        let Some(scope) = scope else {
            WITHOUT_WORDS.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        if before == 0 && !keep_address(std::ptr::from_ref(scope) as usize) {
            self.give_back(scope);
            return None;
        }
        Some(scope)
    }

    fn taken(&self) -> impl Iterator<Item = &'static VirtualScope> + '_ {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).filter(|scope| scope.is_taken.load(Ordering::Relaxed))
    }

    fn take(&mut self) -> Option<&'static VirtualScope> {
        if self.free.is_empty() && self.chunks.len() < MOST / CHUNK {
            let chunk: Vec<VirtualScope> = (0..CHUNK).map(|_| VirtualScope::new()).collect();
            let chunk: &'static [VirtualScope] = chunk.leak();
            self.chunks.push(chunk);
            self.free.extend(chunk.iter().rev());
        }
        let scope = self.free.pop()?;
        scope.words.clear();
        scope.is_taken.store(true, Ordering::Relaxed);
        TAKEN.fetch_add(1, Ordering::Relaxed);
        Some(scope)
    }

    fn give_back(&mut self, scope: &'static VirtualScope) {
        scope.words.clear();
        scope.is_followed.store(0, Ordering::Relaxed);
        scope.is_taken.store(false, Ordering::Relaxed);
        TAKEN.fetch_sub(1, Ordering::Relaxed);
        self.free.push(scope);
    }
}

impl VirtualScope {
    const fn new() -> Self {
        Self { words: ScopeWords::empty(), is_followed: AtomicU64::new(0), is_taken: AtomicBool::new(false) }
    }
}

fn read(word: usize) -> Option<&'static VirtualScope> {
    // SAFETY: the word is 0 or the address of words that are never freed.
    unsafe { (word as *const VirtualScope).as_ref() }
}

unsafe extern "C" fn on_mount(_: *mut Environment, _: *mut JNIEnv, thread: jobject) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        MOUNTS.fetch_add(1, Ordering::Relaxed);
        let scope = super::tools().and_then(|jvmti| jvmti.thread_word(thread)).and_then(read);
        if let (Some(scope), Some(row)) = (scope, threads_signal::enrol(sys::thread_id(), 0)) {
            row.scope.carry(&scope.words);
            if !is_followed() {
                row.scope.carry_nothing();
            }
        }
    }));
}

unsafe extern "C" fn on_unmount(_: *mut Environment, _: *mut JNIEnv, _: jobject) {
    let _ = catch_unwind(|| {
        if let Some(row) = threads_signal::of(sys::thread_id()) {
            row.scope.carry_nothing();
        }
    });
}

/// A virtual thread's last words: a scope that nobody closed ends with it.
///
/// # Safety
/// Called by the VM.
pub unsafe extern "system" fn on_end(_: *mut Environment, _: *mut JNIEnv, _: jobject) {
    let _ = catch_unwind(|| {
        let jvmti = super::tools()?;
        let scope = jvmti.thread_word(std::ptr::null_mut()).and_then(read)?;
        jvmti.set_thread_word(0).ok()?;
        if let Some(row) = threads_signal::of(sys::thread_id()) {
            row.scope.carry_nothing();
        }
        kept().give_back(scope);
        Some(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none_yet() -> Kept {
        Kept { chunks: Vec::new(), free: Vec::new(), events: None, are_ends_told: false }
    }

    #[test]
    fn words_of_an_ended_thread_are_the_next_ones_and_say_nothing() {
        let mut kept = none_yet();
        let first = kept.take().unwrap();
        first.words.write(&[7, 0, 0, 0, 0]);
        assert!(kept.says_something());
        kept.give_back(first);
        assert_eq!(kept.taken().count(), 0);
        let second = kept.take().unwrap();
        assert!(std::ptr::eq(first, second) && !second.words.says_something());
        kept.give_back(second);
    }

    #[test]
    fn a_thread_whose_carrier_has_no_row_is_counted_and_takes_no_words() {
        let mut kept = none_yet();
        let before = WITHOUT_WORDS.load(Ordering::Relaxed);
        assert!(kept.words_of(None, 0, |_| true).is_none());
        assert_eq!((kept.taken().count(), WITHOUT_WORDS.load(Ordering::Relaxed) - before), (0, 1));

        let row = threads_signal::enrol(900_200, 4096);
        assert!(kept.words_of(row, 0, |_| false).is_none(), "the VM does not keep them");
        assert_eq!(kept.taken().count(), 0);
        let words = kept.words_of(row, 0, |_| true).unwrap();
        let again = kept.words_of(row, std::ptr::from_ref(words) as usize, |_| panic!("they are kept already"));
        assert!(std::ptr::eq(words, again.unwrap()));
        kept.give_back(words);
        threads_signal::leave(900_200);
    }
}
