//! Redirects the output of steps to a log file; the terminal shows each step with its duration. Labels the lines of steps that run
//! side by side.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Lines of the log in the message of a failure.
const SHOWN_LINES: usize = 25;

thread_local! {
    static LOG: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
    static LABEL: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Runs `work`; the lines of its steps on this thread begin with `label`.
pub fn labeled<T>(label: &'static str, work: impl FnOnce() -> T) -> T {
    LABEL.set(Some(label));
    let outcome = work();
    LABEL.set(None);
    outcome
}

/// Whether the lines of this thread have a label.
pub fn has_label() -> bool {
    LABEL.get().is_some()
}

/// Prints a line with the label of this thread. Waits while the reader of a pipe is slow: Node.js makes the pipe that it inherits
/// non-blocking for all of its users, and `println!` would panic.
pub fn print(line: &str) {
    let line = LABEL.get().map_or_else(|| format!("{line}\n"), |label| format!("{label}: {line}\n"));
    let mut rest = line.as_bytes();
    let mut output = io::stdout().lock();
    while !rest.is_empty() {
        match output.write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(5)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // As without a reader.
            Err(_) => return,
        }
    }
}

/// Runs `work`; its steps on this thread append to `log`.
pub fn into_log<T>(log: &Path, work: impl FnOnce() -> T) -> T {
    LOG.set(Some(log.to_owned()));
    let outcome = work();
    LOG.set(None);
    outcome
}

/// Log of the steps of this thread.
pub fn log() -> Option<PathBuf> {
    LOG.with_borrow(Clone::clone)
}

/// The last lines of a log, for the message of a failed step.
pub fn end_of(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    format!("{}\nfull output: {}", lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n"), log.display())
}

/// Opens the log for appending and writes the heading of a step.
pub fn opened(log: &Path, step: &str) -> io::Result<File> {
    let mut file = File::options().create(true).append(true).open(log)?;
    writeln!(file, "── {step}")?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::ProcessStep;

    #[test]
    fn steps_write_to_the_log_and_a_failure_shows_its_end() {
        let log = std::env::temp_dir().join(format!("xtask-progress-{}", std::process::id()));
        let run = |script: &str| ProcessStep::new("prints", "sh").args(["-c", script]).run();
        assert!(into_log(&log, || run("echo of the first; echo of both >&2")).is_ok());
        let failed = into_log(&log, || run("echo what went wrong; exit 3")).unwrap_err().to_string();
        assert!(failed.contains("what went wrong") && failed.contains(&log.display().to_string()), "{failed}");
        let written = std::fs::read_to_string(&log).unwrap();
        assert_eq!(written, "── prints\nof the first\nof both\n── prints\nwhat went wrong\n");
        assert_eq!(super::log(), None);
        let _ = std::fs::remove_file(log);
    }
}
