//! The core's few lines on their way to the host's logger: queued on any thread, fetched by `js/`. A full queue drops the
//! new line. Not here: what is said (the core).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Once, PoisonError};

use spanprof::config::in_camel_case;
use spanprof::LogLevel;

use crate::door::OPTIONS;

const MAX_WAITING: usize = 64;
static WAITING: Mutex<VecDeque<(LogLevel, String)>> = Mutex::new(VecDeque::new());

/// Connects the core's log, once per process.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        spanprof::keep_panics();
        spanprof::set_log_callback(Some(Arc::new(|level, line: &str| {
            let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.len() < MAX_WAITING {
                waiting.push_back((level, in_camel_case(line, &OPTIONS)));
            }
        })));
    });
}

/// All lines that wait, flat.
pub fn take() -> Vec<String> {
    let lines = std::mem::take(&mut *WAITING.lock().unwrap_or_else(PoisonError::into_inner));
    let word = |level| if level == LogLevel::Info { "info" } else { "warning" };
    lines.into_iter().flat_map(|(level, line)| [word(level).to_owned(), line]).collect()
}
