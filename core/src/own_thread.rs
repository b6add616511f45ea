//! What every thread of ours does first: it is exempt from sampling and its CPU time counts as the profiler's own.

use crate::sys::{Clocks, OwnThread};
use std::cell::RefCell;

thread_local! {
    static OWN: RefCell<Option<OwnThread>> = const { RefCell::new(None) };
}

/// First on the thread.
pub(crate) fn begin() {
    OWN.with(|own| *own.borrow_mut() = Some(Clocks::exempt_current_thread()));
}

/// Last on the thread.
pub(crate) fn end() {
    OWN.with(|own| drop(own.borrow_mut().take()));
}
