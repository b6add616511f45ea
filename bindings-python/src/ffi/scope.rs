//! The object behind `tag_wrapper`: a raw type instead of a `#[pyclass]`, because entering and leaving a scope must cost
//! less than PyO3's argument handling alone (`docs/decisions`). Holds prepared labels and the scopes now open on it; one
//! object may be open many times at once, in several tasks and threads. Not here: the C entry points
//! ([`super::scope_calls`]) and what labels mean ([`crate::context`]).

use super::variable::{self, Value};
use crate::context::{self, PreparedLabels};
use spanprof::context::{hold_context, HeldContext};

/// One open scope: what it wrote, and what to write back. What it wrote does not expire before it ends.
struct Open {
    written: Value,
    previous: Value,
    _held: HeldContext,
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

    /// Makes the labels current, on top of what is current now.
    pub fn enter(&mut self) {
        let previous = variable::get();
        let written = self.child_of(&previous);
        variable::set(&written);
        let open = Open { _held: hold_context(written.id()), written, previous };
        match self.open {
            None => self.open = Some(open),
            Some(_) => self.more_open.push(open),
        }
    }

    /// Takes the labels away again. Left in another context than it was entered in (an async generator finalised by the
    /// event loop, a callback), it changes nothing there.
    pub fn exit(&mut self) {
        let current = variable::get();
        let Some(open) = self.take_open(&current) else { return };
        if open.written.is(&current) {
            variable::set(&open.previous);
        } else if let Some(id) = context::without_labels(current.id(), open.written.id(), open.previous.id()) {
            variable::set(&Value::new(id));
        }
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
