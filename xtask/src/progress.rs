//! Long work whose output goes to a file, while one line of the terminal names the step and its time. Called by verbs whose
//! own output is for people.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::step::Outcome;

/// Lines of the file that a failure shows.
const SHOWN_LINES: usize = 25;

thread_local! {
    static LOG: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// Runs `work`; the steps that it runs on this thread write to the end of `log`.
pub fn into_log<T>(log: &Path, work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    LOG.set(Some(log.to_owned()));
    let outcome = work();
    LOG.set(None);
    outcome
}

/// Where the steps of this thread write.
pub fn log() -> Option<PathBuf> {
    LOG.with_borrow(Clone::clone)
}

/// The end of a log, for the message of a step that failed.
pub fn end_of(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    format!("{}\nthe whole output: {}", lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n"), log.display())
}

/// The file, to be written at its end, with a line that begins a step.
pub fn opened(log: &Path, step: &str) -> io::Result<File> {
    let mut file = File::options().create(true).append(true).open(log)?;
    writeln!(file, "── {step}")?;
    Ok(file)
}

/// The line of one step. On a terminal its time goes on; elsewhere the line is written once, at the end.
pub struct ProgressLine<'a> {
    step: &'a str,
    begun: Instant,
    is_terminal: bool,
}

impl<'a> ProgressLine<'a> {
    /// Shows the line.
    pub fn begin(step: &'a str) -> Self {
        let line = Self { step, begun: Instant::now(), is_terminal: io::stdout().is_terminal() };
        line.advance();
        line
    }

    /// Shows the time so far.
    pub fn advance(&self) {
        if self.is_terminal {
            print!("\r\x1b[K{}", self.text());
            let _ = io::stdout().flush();
        }
    }

    /// The last state of the line stays.
    pub fn end(self) {
        if self.is_terminal {
            print!("\r\x1b[K");
        }
        println!("{}", self.text());
    }

    fn text(&self) -> String {
        text(self.step, self.begun.elapsed())
    }
}

fn text(step: &str, passed: Duration) -> String {
    format!("{:>4} s  {step}", passed.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::Step;

    #[test]
    fn steps_write_to_the_log_and_a_failure_shows_its_end() {
        let log = std::env::temp_dir().join(format!("xtask-progress-{}", std::process::id()));
        let run = |script: &str| Step::new("speaks", "sh").args(["-c", script]).run();
        assert!(into_log(&log, || run("echo of the first; echo of both >&2")).is_ok());
        let failed = into_log(&log, || run("echo what went wrong; exit 3")).unwrap_err().to_string();
        assert!(failed.contains("what went wrong") && failed.contains(&log.display().to_string()), "{failed}");
        let written = std::fs::read_to_string(&log).unwrap();
        assert_eq!(written, "── speaks\nof the first\nof both\n── speaks\nwhat went wrong\n");
        assert_eq!(super::log(), None);
        let _ = std::fs::remove_file(log);
    }

    #[test]
    fn a_line_begins_with_the_seconds() {
        assert_eq!(text("build the wheel", Duration::from_millis(12_900)), "  12 s  build the wheel");
    }
}
