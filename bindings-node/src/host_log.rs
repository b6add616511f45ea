//! The core's log lines for the host's logger: queued on any thread, taken by `lib/`. A full queue drops the new line. Not
//! here: the text of the lines (the core).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Once, PoisonError};

use spanprof::config::in_camel_case;
use spanprof::LogLevel;

use crate::api::OPTIONS;

const MAX_QUEUED: usize = 64;
static QUEUE: Mutex<VecDeque<(LogLevel, String)>> = Mutex::new(VecDeque::new());

/// Installs the callback of the core's log, once per process.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        spanprof::keep_panics();
        spanprof::set_log_callback(Some(Arc::new(|level, line: &str| {
            let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
            if queue.len() < MAX_QUEUED {
                queue.push_back((level, in_camel_case(line, &OPTIONS)));
            }
        })));
    });
}

/// Takes all queued lines, flat.
pub fn take() -> Vec<String> {
    let lines = std::mem::take(&mut *QUEUE.lock().unwrap_or_else(PoisonError::into_inner));
    let level_name = |level| if level == LogLevel::Info { "info" } else { "warning" };
    lines.into_iter().flat_map(|(level, line)| [level_name(level).to_owned(), line]).collect()
}
