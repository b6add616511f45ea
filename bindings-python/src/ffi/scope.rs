//! The object behind `tag_wrapper`: a raw type instead of a `#[pyclass]`, because entering and leaving a scope must cost
//! less than PyO3's argument handling alone (`docs/decisions`). Holds prepared labels and the scopes now open on it; one
//! object may be open many times at once, in several tasks and threads. Not here: the C entry points
//! ([`super::scope_calls`]) and what labels mean ([`crate::context`]).

use std::ffi::{c_int, c_void};

use pyo3::ffi;

use super::variable::{self, Value};
use crate::context::{self, PreparedLabels};
use spanprof::context::{hold_context, HeldContext};

/// One open scope: what it wrote, and what to write back. What it wrote does not expire before it ends.
struct Open {
    written: Value,
    previous: Value,
    /// Takes back what was written, in the context in which it was; not kept while the scope is open more than once, since
    /// it would mostly be tried in the wrong one.
    token: Value,
    _held: HeldContext,
}

/// Tokens that a scope gave up.
#[derive(Default)]
pub struct Dropped {
    _tokens: [Value; 2],
}

/// The labels of one `tag_wrapper(...)` and its open scopes.
pub struct Scope {
    labels: PreparedLabels,
    /// The last parent seen and the child made for it. Within one scope object equal children have equal parents: that
    /// is what makes open scopes of interleaved tasks interchangeable.
    parent: Value,
    child: Value,
    child_may_expire: bool,
    open: Option<Open>,
    /// Further open scopes; most objects are open once at a time.
    more_open: Vec<Open>,
}

impl Scope {
    /// A closed scope over `labels`.
    pub fn new(labels: PreparedLabels) -> Self {
        Self {
            labels,
            parent: Value::UNSET,
            child: Value::UNSET,
            child_may_expire: false,
            open: None,
            more_open: Vec::new(),
        }
    }

    /// Makes the labels current, on top of what is current now. What is given back is to be dropped once the scope is no
    /// longer borrowed: with a token may go a context and all that it holds.
    #[must_use]
    pub fn enter(&mut self) -> Dropped {
        let previous = variable::get();
        let written = self.child_of(&previous);
        let token = variable::set_with_token(&written);
        let mut open = Open { _held: hold_context(written.id()), written, previous, token };
        match &mut self.open {
            None => {
                self.open = Some(open);
                Dropped::default()
            }
            Some(first) => {
                let tokens = [&mut first.token, &mut open.token].map(std::mem::take);
                self.more_open.push(open);
                Dropped { _tokens: tokens }
            }
        }
    }

    /// Shows the garbage collector what leads back to a context: the tokens.
    ///
    /// # Safety
    /// As [`Value::traverse`].
    pub unsafe fn traverse(&self, visit: ffi::visitproc, argument: *mut c_void) -> c_int {
        // SAFETY: caller's contract.
        self.open.as_ref().map_or(0, |open| unsafe { open.token.traverse(visit, argument) })
    }

    /// Gives up what leads back to a context, for the garbage collector.
    #[must_use]
    pub fn clear(&mut self) -> Dropped {
        let token = self.open.as_mut().map(|open| std::mem::take(&mut open.token));
        Dropped { _tokens: [token.unwrap_or_default(), Value::UNSET] }
    }

    /// Takes the labels away again. Left in another context than it was entered in (an async generator finalised by the
    /// event loop, a callback), it changes nothing there. As for what is given back: see [`Scope::enter`].
    #[must_use]
    pub fn exit(&mut self) -> Dropped {
        let current = variable::get();
        let Some(mut open) = self.take_open(&current) else { return Dropped::default() };
        if open.written.is(&current) {
            variable::reset(&open.token, &open.previous);
        } else if let Some(id) = context::without_labels(current.id(), open.written.id(), open.previous.id()) {
            variable::set(&Value::new(id));
        }
        Dropped { _tokens: [std::mem::take(&mut open.token), Value::UNSET] }
    }

    fn child_of(&mut self, parent: &Value) -> Value {
        let known = !self.child.is(&Value::UNSET) && (parent.is(&self.parent) || parent.id() == self.parent.id());
        if known && (!self.child_may_expire || context::is_live(self.child.id())) {
            return self.child.clone();
        }
        let (id, may_expire) = context::child(parent.id(), &self.labels);
        self.parent = parent.clone();
        self.child = Value::new(id);
        self.child_may_expire = may_expire;
        self.child.clone()
    }

    /// The open scope that wrote `current`, else the newest one.
    fn take_open(&mut self, current: &Value) -> Option<Open> {
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
