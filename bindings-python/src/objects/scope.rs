//! State of the object that `tag_wrapper` returns: prepared labels and the scopes now open on it. One object may be open many
//! times at once, in several tasks and threads. It is a raw C type instead of a `#[pyclass]`, because entering and leaving a
//! scope must cost less than PyO3's argument handling alone (330 instead of 276 ns on CPython 3.11.2, of which `with` takes 121).
//! Not here: the C entry points (`scope_calls`) and context ids (`crate::context`).
//!
//! A scope ends in the `Context` that calls `exit`, and in the one that it was entered in, whatever their order. Contexts that
//! were copied from them keep its labels.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;

use crate::context;
use crate::convert::PreparedLabels;
use crate::ffi::interruption;
use crate::ffi::variable::{self, VariableValue};

/// One open scope: the value it wrote, which is pinned until it ends.
pub struct OpenScope {
    written: VariableValue,
    /// Resets the variable in the `Context` of the write; unset after a collection of garbage, and on an interpreter without the
    /// C functions.
    token: VariableValue,
}

/// A scope that `exit` ends.
pub enum EndedScope {
    /// Its value is current.
    Current(OpenScope),
    /// Its value is below the current one: it ends before a scope inside it.
    Below(OpenScope),
    /// It was entered in another `Context`.
    Elsewhere(OpenScope),
    /// Several are open in other `Context`s: which of them ends is unknown.
    Unknown { forgotten: Option<OpenScope> },
}

/// The labels of one `tag_wrapper(...)` and its open scopes.
pub struct ScopeState {
    /// Never reused, unlike the address of the object.
    number: u64,
    labels: PreparedLabels,
    /// The last parent's id, and the child created for it.
    child: Option<(u64, context::Child)>,
    open: Option<OpenScope>,
    /// Further open scopes; most objects are open once at a time.
    more_open: Vec<OpenScope>,
}

impl ScopeState {
    /// A closed scope over `labels`.
    pub fn new(labels: PreparedLabels) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Self { number, labels, child: None, open: None, more_open: Vec::new() }
    }

    /// A value with the labels, merged into those of `previous`.
    pub fn value_over(&mut self, previous: VariableValue) -> VariableValue {
        let parent = previous.id();
        let child = match &self.child {
            Some((of, child)) if *of == parent && (!child.may_expire || context::is_live(child.id)) => *child,
            _ => self.child.insert((parent, context::child(parent, &self.labels))).1,
        };
        context::scope_value(self.number, self.labels.label_set, child, previous)
    }

    /// The value was made current.
    pub fn opened(&mut self, written: VariableValue, token: VariableValue) {
        let is_first = self.open.is_none();
        if let Some(value) = written.parts() {
            value.index.set(if is_first { 0 } else { 1 + self.more_open.len() });
        }
        let open = OpenScope { written, token };
        if is_first {
            self.open = Some(open)
        } else {
            self.more_open.push(open)
        }
    }

    /// Visits the references to a `Context`, the tokens, for the garbage collector.
    ///
    /// # Safety
    /// As [`VariableValue::traverse`].
    pub unsafe fn traverse(&self, visit: ffi::visitproc, argument: *mut c_void) -> c_int {
        // SAFETY: caller's contract.
        let visited =
            self.open.iter().chain(&self.more_open).map(|open| unsafe { open.token.traverse(visit, argument) });
        visited.into_iter().find(|stopped| *stopped != 0).unwrap_or(0)
    }

    /// Releases the references to a `Context`, for the garbage collector. The caller drops them after its borrow of the scope has
    /// ended: dropping a token may free a `Context` and everything it references.
    #[must_use]
    pub fn clear(&mut self) -> Vec<VariableValue> {
        self.open.iter_mut().chain(&mut self.more_open).map(|open| std::mem::take(&mut open.token)).collect()
    }

    /// The innermost open scope on `current`; if there is none, the only one that is open. Of several, the first is forgotten: if it
    /// ends later, its value is current then.
    #[must_use]
    pub fn take(&mut self, current: &VariableValue) -> Option<EndedScope> {
        let is_own = |value: &VariableValue| value.parts().is_some_and(|value| value.scope.get() == self.number);
        if let Some(written) = current.chain().find(is_own) {
            let token = self.remove(&written).map(|open| open.token).unwrap_or_default();
            let is_current = written.is(current);
            let open = OpenScope { written, token };
            return Some(if is_current { EndedScope::Current(open) } else { EndedScope::Below(open) });
        }
        let first = self.open.take();
        if self.more_open.is_empty() {
            first.map(EndedScope::Elsewhere)
        } else {
            Some(EndedScope::Unknown { forgotten: first })
        }
    }

    fn remove(&mut self, written: &VariableValue) -> Option<OpenScope> {
        let index = written.parts()?.index.get();
        if index == 0 {
            return self.open.take_if(|open| open.written.is(written));
        }
        if !self.more_open.get(index - 1)?.written.is(written) {
            return None;
        }
        let removed = self.more_open.swap_remove(index - 1);
        if let Some(moved) = self.more_open.get(index - 1).and_then(|open| open.written.parts()) {
            moved.index.set(index);
        }
        Some(removed)
    }
}

impl Drop for ScopeState {
    fn drop(&mut self) {
        for open in self.open.iter().chain(&self.more_open) {
            open.written.end_scope();
        }
    }
}

/// Ends a scope. Runs Python code, so no scope is borrowed.
pub fn end(py: Python<'_>, ended: EndedScope, current: &VariableValue) {
    let open = match ended {
        EndedScope::Current(open) => {
            if !variable::reset(&open.token, &open.written.below()) {
                end_where_entered(py, &open);
            }
            open
        }
        EndedScope::Below(open) => {
            variable::set(&context::without_scope(current, &open.written));
            end_where_entered(py, &open);
            context::unlink(current, &open.written);
            open
        }
        EndedScope::Elsewhere(open) => {
            end_where_entered(py, &open);
            open
        }
        EndedScope::Unknown { forgotten } => return drop(forgotten),
    };
    open.written.end_scope();
}

/// Ends the scope in the `Context` of its token, unless a thread runs in that.
fn end_where_entered(py: Python<'_>, open: &OpenScope) {
    let end = || -> PyResult<()> {
        let Some(token) = open.token.as_object(py) else { return Ok(()) };
        let Some(variable) = variable::object(py) else { return Ok(()) };
        let context_class = py.import("contextvars")?.getattr("Context")?;
        // A token has no public attribute with its `Context`.
        for referent in py.import("gc")?.call_method1("get_referents", (&token,))?.try_iter()? {
            let context_object = referent?;
            if !context_object.get_type().is(&context_class) {
                continue;
            }
            let there = VariableValue::of(&context_object.call_method1("get", (&variable,))?);
            if there.is(&open.written) {
                context_object.call_method1("run", (variable.getattr("reset")?, &token))?;
            } else if there.chain().any(|value| value.is(&open.written)) {
                let without = variable::into_object(context::without_scope(&there, &open.written), py);
                context_object.call_method1("run", (variable.getattr("set")?, without))?;
                context::unlink(&there, &open.written);
            }
        }
        Ok(())
    };
    // A `RuntimeError`: a thread runs in it.
    interruption::ok(py, end());
}
