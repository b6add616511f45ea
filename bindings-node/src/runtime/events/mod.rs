//! Samples of events that the process reports itself: pauses for garbage collection, turns of event loops. Runs on the JavaScript
//! thread of the event.

pub mod block_watch;
pub mod event_loop;
pub mod gc_pauses;
