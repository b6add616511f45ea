//! State of the object that `tag_wrapper` returns: prepared labels and the scopes now open on it. One object may be open many
//! times at once, in several tasks and threads. It is a raw C type instead of a `#[pyclass]`, because entering and leaving a
//! scope must cost less than PyO3's argument handling alone (decision 10). Not here: the C entry points
//! (`scope_calls`) and context ids (`crate::context`).

use std::ffi::{c_int, c_void};

use pyo3::ffi;

use crate::context;
use crate::convert::PreparedLabels;
use crate::ffi::variable::{self, VariableValue};
use spanprof_aggregate::context::{pin_context, PinnedContext};

/// One open scope: the value it wrote, and the value to restore. The written context is pinned until the scope ends.
struct OpenScope {
    written: VariableValue,
    previous: VariableValue,
    /// Resets the variable in the `Context` of the write. Not kept while the scope is open more than once: the scopes then
    /// mostly end in another `Context`.
    token: VariableValue,
    _pin: PinnedContext,
}

/// Tokens released by a scope. Dropping one may free a `Context` and everything it references.
#[derive(Default)]
pub struct ReleasedTokens {
    _tokens: [VariableValue; 2],
}

/// The labels of one `tag_wrapper(...)` and its open scopes.
pub struct ScopeState {
    labels: PreparedLabels,
    /// The last parent and the child created for it. Within one scope object equal children have equal parents, so open scopes
    /// of interleaved tasks are interchangeable.
    parent: VariableValue,
    child: VariableValue,
    child_may_expire: bool,
    open: Option<OpenScope>,
    /// Further open scopes; most objects are open once at a time.
    more_open: Vec<OpenScope>,
}

impl ScopeState {
    /// A closed scope over `labels`.
    pub fn new(labels: PreparedLabels) -> Self {
        Self {
            labels,
            parent: VariableValue::UNSET,
            child: VariableValue::UNSET,
            child_may_expire: false,
            open: None,
            more_open: Vec::new(),
        }
    }

    /// Makes the labels current, merged into the current context. The caller drops the result after its borrow of the scope has
    /// ended: dropping a token may free a `Context` and everything it references.
    #[must_use]
    pub fn enter(&mut self) -> ReleasedTokens {
        let previous = variable::get();
        let written = self.child_of(&previous);
        let token = variable::set_with_token(&written);
        let mut open = OpenScope { _pin: pin_context(written.id()), written, previous, token };
        match &mut self.open {
            None => {
                self.open = Some(open);
                ReleasedTokens::default()
            }
            Some(first) => {
                let tokens = [&mut first.token, &mut open.token].map(std::mem::take);
                self.more_open.push(open);
                ReleasedTokens { _tokens: tokens }
            }
        }
    }

    /// Visits the references to a `Context`, the tokens, for the garbage collector.
    ///
    /// # Safety
    /// As [`VariableValue::traverse`].
    pub unsafe fn traverse(&self, visit: ffi::visitproc, argument: *mut c_void) -> c_int {
        // SAFETY: caller's contract.
        self.open.as_ref().map_or(0, |open| unsafe { open.token.traverse(visit, argument) })
    }

    /// Releases the references to a `Context`, for the garbage collector.
    #[must_use]
    pub fn clear(&mut self) -> ReleasedTokens {
        let token = self.open.as_mut().map(|open| std::mem::take(&mut open.token));
        ReleasedTokens { _tokens: [token.unwrap_or_default(), VariableValue::UNSET] }
    }

    /// Removes the labels. Has no effect in a `Context` other than the one it was entered in (an async generator finalized by
    /// the event loop, a callback). The caller drops the result as for [`ScopeState::enter`].
    #[must_use]
    pub fn exit(&mut self) -> ReleasedTokens {
        let current = variable::get();
        let Some(mut open) = self.take_open(&current) else { return ReleasedTokens::default() };
        if open.written.is(&current) {
            variable::reset(&open.token, &open.previous);
        } else if let Some(id) = context::without_labels(current.id(), open.written.id(), open.previous.id()) {
            variable::set(&VariableValue::new(id));
        }
        ReleasedTokens { _tokens: [std::mem::take(&mut open.token), VariableValue::UNSET] }
    }

    fn child_of(&mut self, parent: &VariableValue) -> VariableValue {
        let has_same_parent =
            !self.child.is(&VariableValue::UNSET) && (parent.is(&self.parent) || parent.id() == self.parent.id());
        if has_same_parent && (!self.child_may_expire || context::is_live(self.child.id())) {
            return self.child.clone();
        }
        let (id, may_expire) = context::child(parent.id(), &self.labels);
        self.parent = parent.clone();
        self.child = VariableValue::new(id);
        self.child_may_expire = may_expire;
        self.child.clone()
    }

    /// The open scope that wrote `current`, else the newest one.
    fn take_open(&mut self, current: &VariableValue) -> Option<OpenScope> {
        if self.more_open.is_empty() {
            return self.open.take();
        }
        if let Some(at) = self.more_open.iter().rposition(|open| open.written.is(current)) {
            return Some(self.more_open.swap_remove(at));
        }
        if self.open.as_ref().is_some_and(|open| open.written.is(current)) {
            return self.open.take();
        }
        self.more_open.pop()
    }
}
