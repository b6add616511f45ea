//! Names that a language gives its threads, by kernel id, with the time of each change: a sample has the name that its thread had
//! when it was taken. The kernel keeps 15 bytes of a name, and nothing of a thread that has ended. Written by threads of the
//! program, which never wait; read by the drain thread. Not here: the kernel's names, for threads without one of the language
//! (`WindowSettings::thread_name`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::hash::WordMap;

/// Changes that wait for the drain thread. Further ones are dropped and counted: the samples then have an earlier or the kernel's
/// name.
const MAX_WAITING: u32 = 65_536;
/// Names of more threads are checked for threads that have ended.
const MIN_CHECKED: usize = 4096;
/// A longer name is cut.
const MAX_NAME_BYTES: usize = 1024;

/// One change, in a list with the newest first.
struct NameChange {
    thread_id: u32,
    time_ns: u64,
    name: Arc<str>,
    earlier: Option<Arc<NameChange>>,
    /// Length of the list from here on.
    count: u32,
}

impl Drop for NameChange {
    /// Not recursive, because the list may be long.
    fn drop(&mut self) {
        let mut next = self.earlier.take();
        while let Some(mut change) = next.and_then(Arc::into_inner) {
            next = change.earlier.take();
        }
    }
}

static WAITING: ArcSwapOption<NameChange> = ArcSwapOption::const_empty();
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Names dropped since the process began.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// The language named a thread, or renamed it, at this monotonic time. Called for threads that exist at the start of the profiler
/// too. Never blocks; not for handlers.
pub fn set_thread_name(thread_id: u32, time_ns: u64, name: &str) {
    let end = (0..=name.len().min(MAX_NAME_BYTES)).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    let name: Arc<str> = name[..end].into();
    let count = |waiting: &Option<Arc<NameChange>>| waiting.as_ref().map_or(0, |newest| newest.count);
    let before = WAITING.rcu(|earlier| {
        let count = count(earlier) + 1;
        if count > MAX_WAITING {
            return earlier.clone();
        }
        let (name, earlier) = (Arc::clone(&name), earlier.clone());
        Some(Arc::new(NameChange { thread_id, time_ns, name, earlier, count }))
    });
    if count(&before) == MAX_WAITING {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// The names on the drain thread.
#[derive(Default)]
pub(crate) struct ThreadNames {
    names: WordMap<u32, Arc<str>>,
    /// Time and name of each change that the samples drained now may precede or follow; the newest of a thread first.
    changes: WordMap<u32, Vec<(u64, Arc<str>)>>,
    /// Number of names at which ended threads are looked for.
    checked_at: usize,
}

impl ThreadNames {
    /// Takes the changes since the last call. Called after the ring's head was read.
    pub fn take_changes(&mut self) {
        let newest = |(thread_id, mut changes): (u32, Vec<(u64, Arc<str>)>)| (thread_id, changes.swap_remove(0).1);
        self.names.extend(self.changes.drain().map(newest));
        let mut next = WAITING.swap(None);
        while let Some(change) = next {
            self.changes.entry(change.thread_id).or_default().push((change.time_ns, Arc::clone(&change.name)));
            next = change.earlier.clone();
        }
    }

    /// The name of a thread at a time; `None` if the language has not named it.
    pub fn name(&self, thread_id: u32, time_ns: u64) -> Option<&Arc<str>> {
        let changes = self.changes.get(&thread_id).map_or(&[][..], Vec::as_slice);
        let last_before = changes.get(changes.partition_point(|(changed_ns, _)| *changed_ns > time_ns));
        last_before
            .map(|(_, name)| name)
            .or_else(|| self.names.get(&thread_id))
            .or(changes.last().map(|(_, name)| name))
    }

    /// Forgets ended threads, if there are many names. Called when no sample waits in the ring.
    pub fn forget_ended(&mut self, is_alive: &mut dyn FnMut(u32) -> bool) {
        if self.names.len() > self.checked_at.max(MIN_CHECKED) {
            self.names.retain(|thread_id, _| is_alive(*thread_id));
            self.checked_at = 2 * self.names.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests of one process share the waiting changes, so one runs at a time, with threads of its own.
    fn one_at_a_time() -> std::sync::MutexGuard<'static, ()> {
        static SERIAL: std::sync::Mutex<()> = std::sync::Mutex::new(());
        SERIAL.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn names_after(names: &mut ThreadNames, changes: &[(u32, u64, &str)]) {
        for (thread_id, time_ns, name) in changes {
            set_thread_name(*thread_id, *time_ns, name);
        }
        names.take_changes();
    }

    #[test]
    fn names_beyond_the_limit_are_counted() {
        let _serial = one_at_a_time();
        let names = &mut ThreadNames::default();
        names_after(names, &[]);
        let before = dropped();
        names_after(names, &vec![(9, 1, "first"); MAX_WAITING as usize]);
        assert_eq!(dropped(), before);
        (0..MAX_WAITING).for_each(|_| set_thread_name(9, 2, "second"));
        names_after(names, &[(9, 3, "lost"), (9, 3, "lost")]);
        assert_eq!((dropped() - before, names.name(9, 3).map(AsRef::as_ref)), (2, Some("second")));
    }

    #[test]
    fn a_thread_has_the_name_of_the_time_before_and_after_a_change_is_taken() {
        let _serial = one_at_a_time();
        let names = &mut ThreadNames::default();
        let name_at = |names: &ThreadNames, time_ns| names.name(7, time_ns).map(|name| name.to_string());
        assert_eq!(name_at(names, 10), None);
        names_after(names, &[(7, 10, "started"), (7, 20, "request 1"), (8, 20, "other")]);
        let names_at_times = [5, 10, 19, 20, 99].map(|time_ns| name_at(names, time_ns).unwrap());
        assert_eq!(names_at_times, ["started", "started", "started", "request 1", "request 1"]);
        names_after(names, &[(7, 200, "request 2")]);
        assert_eq!([199, 200].map(|time_ns| name_at(names, time_ns).unwrap()), ["request 1", "request 2"]);
    }

    #[test]
    fn names_of_ended_threads_are_forgotten_when_there_are_many() {
        let _serial = one_at_a_time();
        let names = &mut ThreadNames::default();
        for round in 0..3 {
            let changes: Vec<_> = (0..4000).map(|n| (1_000_000 + 4000 * round + n, 1, "worker")).collect();
            names_after(names, &changes);
        }
        names.take_changes();
        names.forget_ended(&mut |thread_id| thread_id < 1_000_010);
        assert_eq!((1_000_000..1_012_000).filter(|id| names.name(*id, 2).is_some()).count(), 10);
    }
}
