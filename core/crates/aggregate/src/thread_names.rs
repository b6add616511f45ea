//! Names that a language gives its threads, by kernel id, with the time of each change: a sample has the name that its thread had
//! when it was taken. The kernel keeps 15 bytes of a name, and nothing of a thread that has ended. Written by threads of the
//! program, which never wait; read by the drain thread. Not here: the kernel's names, for threads without one of the language
//! (`WindowSettings::thread_name`).

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::hash::WordMap;

/// Changes that wait for the drain thread. Further ones are dropped: the samples then have the kernel's name.
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

/// The language named a thread, or renamed it, at this monotonic time. Called for threads that exist at the start of the profiler
/// too. Never blocks; not for handlers.
pub fn set_thread_name(thread_id: u32, time_ns: u64, name: &str) {
    let end = (0..=name.len().min(MAX_NAME_BYTES)).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    let name: Arc<str> = name[..end].into();
    WAITING.rcu(|earlier| {
        let count = earlier.as_ref().map_or(0, |earlier| earlier.count);
        if count == MAX_WAITING {
            return earlier.clone();
        }
        let (name, earlier) = (Arc::clone(&name), earlier.clone());
        Some(Arc::new(NameChange { thread_id, time_ns, name, earlier, count: count + 1 }))
    });
}

/// The names on the drain thread.
#[derive(Default)]
pub(crate) struct ThreadNames {
    names: WordMap<u32, Arc<str>>,
    /// Thread, time and name of each change that the samples drained now may precede or follow; oldest first.
    changes: Vec<(u32, u64, Arc<str>)>,
    /// Number of names at which ended threads are looked for.
    checked_at: usize,
}

impl ThreadNames {
    /// Takes the changes since the last call. Called after the ring's head was read.
    pub fn take_changes(&mut self) {
        self.names.extend(self.changes.drain(..).map(|(thread_id, _, name)| (thread_id, name)));
        let mut next = WAITING.swap(None);
        while let Some(change) = next {
            self.changes.push((change.thread_id, change.time_ns, Arc::clone(&change.name)));
            next = change.earlier.clone();
        }
        self.changes.reverse();
    }

    /// The name of a thread at a time; `None` if the language has not named it.
    pub fn name(&self, thread_id: u32, time_ns: u64) -> Option<&Arc<str>> {
        let mut changes = self.changes.iter().filter(|change| change.0 == thread_id).peekable();
        let first = changes.peek().map(|(_, _, name)| name);
        let last_before = changes.take_while(|(_, changed_ns, _)| *changed_ns <= time_ns).last();
        last_before.map(|(_, _, name)| name).or_else(|| self.names.get(&thread_id)).or(first)
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

    /// Tests of one process share the waiting changes, so each has threads of its own.
    fn names_after(names: &mut ThreadNames, changes: &[(u32, u64, &str)]) {
        for (thread_id, time_ns, name) in changes {
            set_thread_name(*thread_id, *time_ns, name);
        }
        names.take_changes();
    }

    #[test]
    fn a_thread_has_the_name_of_the_time_before_and_after_a_change_is_taken() {
        let names = &mut ThreadNames::default();
        let of = |names: &ThreadNames, time_ns| names.name(7, time_ns).map(|name| name.to_string());
        assert_eq!(of(names, 10), None);
        names_after(names, &[(7, 10, "started"), (7, 20, "request 1"), (8, 20, "other")]);
        let at = [5, 10, 19, 20, 99].map(|time_ns| of(names, time_ns).unwrap());
        assert_eq!(at, ["started", "started", "started", "request 1", "request 1"]);
        names_after(names, &[(7, 200, "request 2")]);
        assert_eq!([199, 200].map(|time_ns| of(names, time_ns).unwrap()), ["request 1", "request 2"]);
    }

    #[test]
    fn names_of_ended_threads_are_forgotten_when_there_are_many() {
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
