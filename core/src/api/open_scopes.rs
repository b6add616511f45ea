//! The open scopes of each thread, so that they may end in any order. Not here: their labels (`labels`).

use std::cell::Cell;

use spanprof_aggregate::context::{context_row, merge_label_sets, open_context, ContextRow, LabelSetId};
use spanprof_os::thread_context;

/// An open scope of a thread.
#[derive(Clone, Copy)]
struct OpenTagScope {
    number: u32,
    /// Its own labels. `None`: its context replaces the outer one.
    labels: Option<LabelSetId>,
    /// The context around it.
    outer: u64,
}

/// The open scopes of a thread, outermost first, and the number of the last one.
pub(super) struct ThreadScopes {
    open: [Cell<OpenTagScope>; 16],
    len: Cell<usize>,
    last: Cell<u32>,
}

thread_local! {
    pub(super) static SCOPES: ThreadScopes = const {
        ThreadScopes {
            open: [const { Cell::new(OpenTagScope { number: 0, labels: None, outer: 0 }) }; 16],
            len: Cell::new(0),
            last: Cell::new(0),
        }
    };
}

impl ThreadScopes {
    /// A scope begins; returns its number, or 0 if it is not listed.
    #[inline]
    pub(super) fn push(&self, labels: Option<LabelSetId>, outer: u64) -> u32 {
        let Some(slot) = self.open.get(self.len.get()) else { return 0 };
        let number = self.last.get().wrapping_add(1).max(1);
        slot.set(OpenTagScope { number, labels, outer });
        self.len.set(self.len.get() + 1);
        self.last.set(number);
        number
    }

    /// Ends a scope, and those inside it if `ends_inner`.
    #[inline]
    pub(super) fn end(&self, number: u32, ends_inner: bool) {
        let len = self.len.get();
        // Absent: it ended with a scope around it.
        let Some(index) = (0..len).rev().find(|index| self.open[*index].get().number == number) else { return };
        if index + 1 < len && !ends_inner {
            return self.remove(index);
        }
        self.len.set(index);
        thread_context::replace_current(self.open[index].get().outer);
    }

    /// Ends a scope inside which others are open: takes its own labels, link and capture out of their contexts.
    #[cold]
    fn remove(&self, index: usize) {
        let row = |id| context_row(id).unwrap_or_default();
        let ended_outer = self.open[index].get().outer;
        let (before, ended) = (row(ended_outer), row(self.open[index + 1].get().outer));
        self.len.set(self.len.get() - 1);
        let open = &self.open[..=self.len.get()];
        (index..self.len.get()).for_each(|next| open[next].swap(&open[next + 1]));
        let mut outer = ended_outer;
        for at in index..self.len.get() {
            let scope = open[at].get();
            open[at].set(OpenTagScope { outer, ..scope });
            // The contexts inside a context that replaces are unaffected.
            let Some(labels) = scope.labels else { return };
            let is_innermost = at + 1 == self.len.get();
            let inner = row(if is_innermost { thread_context::current() } else { open[at + 1].get().outer });
            let mut inner = ContextRow { label_set: merge_label_sets(row(outer).label_set, labels), ..inner };
            if inner.link == ended.link {
                (inner.link, inner.local_root_span_id) = (before.link, before.local_root_span_id);
            }
            if inner.capture == ended.capture {
                inner.capture = before.capture;
            }
            outer = open_context(inner);
        }
        thread_context::replace_current(outer);
    }
}
