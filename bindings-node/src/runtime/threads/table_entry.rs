//! Claims an entry in the table of JavaScript threads, with the memory for the stacks that its handlers record.

use crate::runtime::walk::js_thread::{self, JsThread};
use crate::runtime::walk::turn_stacks::{ObservedWaits, TurnStacks};

/// Claims a free entry, which the handler does not see yet. `None` when all are in use.
pub fn claim() -> Option<&'static JsThread> {
    let thread = js_thread::claim()?;
    // Allocated once per entry: entries are used again and never freed.
    if thread.turn_stacks().is_none() {
        thread.set_turn_stacks(Box::leak(Box::new(TurnStacks::new())));
    }
    if thread.waits().is_none() {
        thread.set_waits(Box::leak(Box::new(ObservedWaits::new())));
    }
    Some(thread)
}
