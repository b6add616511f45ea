//! The core's log lines for the host's logger: queued on any thread, taken by `lib/` when it is called back and at each call. Not
//! here: the queue and the text of the lines (the core).

use std::sync::{Mutex, PoisonError};

use napi::bindgen_prelude::Function;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Result, Status};
use spanprof_profiler::binding::{install_log, LogQueue, PendingLines};

use crate::convert::BINDING;

static QUEUE: LogQueue = LogQueue::empty();

/// A function of an environment, which does not keep it alive.
type Callback = ThreadsafeFunction<(), (), (), Status, false, true>;

/// One per environment; the first that lives is called.
static CALLBACKS: Mutex<Vec<Callback>> = Mutex::new(Vec::new());

/// Connects the core's log, once per process.
pub fn install() {
    install_log(|level, line| {
        let line = BINDING.message(line);
        QUEUE.with(|pending| pending.push(level, line));
        notify();
    });
}

/// Calls `callback` on its thread after a line is queued.
pub fn call_back(callback: &Function<'_, (), ()>) -> Result<()> {
    let callback = callback.build_threadsafe_function().weak::<true>().build()?;
    CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner).push(callback);
    notify();
    Ok(())
}

fn notify() {
    let mut callbacks = CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner);
    // An environment that has ended takes no call.
    while callbacks.first().is_some_and(|first| first.call((), ThreadsafeFunctionCallMode::NonBlocking) != Status::Ok) {
        callbacks.remove(0);
    }
}

/// Takes all queued lines, flat.
pub fn take() -> Vec<String> {
    QUEUE.with(PendingLines::take)
}
