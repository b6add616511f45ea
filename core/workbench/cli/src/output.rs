//! Writes to stdout, stderr and files. A closed pipe on stdout (`| head`) is not an error.

use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use spanprof_answers::failure::Failure;
use spanprof_answers::quantity::format_quantity;
use spanprof_answers::terminal;

use crate::object_storage::{path_of_file_url, ObjectStorage, ObjectUrl};

/// What a verb prints.
pub(crate) enum Printed {
    Text(String),
    /// The flag `--json`, and the tools of `mcp`.
    Json(serde_json::Value),
}

impl Printed {
    pub(crate) fn print(&self) -> Result<(), Failure> {
        match self {
            Self::Text(text) => print(text.as_bytes()),
            Self::Json(value) => print(format!("{value}\n").as_bytes()),
        }
    }

    pub(crate) fn into_json(self) -> serde_json::Value {
        match self {
            Self::Text(text) => text.into(),
            Self::Json(value) => value,
        }
    }
}

/// Writes the result of a verb to stdout.
pub(crate) fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a line to stdout at once, for a process that waits for it; errors are ignored.
pub(crate) fn print_and_flush(line: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}

/// Writes a line to stderr.
pub(crate) fn note(line: &str) {
    let _ = writeln!(io::stderr().lock(), "spanprof: {line}");
}

/// Writes a hint to stderr, if a person reads the result: stdout and stderr are terminals.
pub(crate) fn hint(text: impl FnOnce() -> Option<String>) {
    if !terminal::is_terminal() || !io::stderr().is_terminal() {
        return;
    }
    if let Some(text) = text() {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }
}

/// Time after which work shows its progress, and between two lines of it.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Progress of long work, on one line of stderr if that is a terminal. The line is erased at the end.
pub(crate) struct Progress {
    total: Option<usize>,
    done: usize,
    shown_at: Instant,
    is_shown: bool,
    is_terminal: bool,
}

impl Progress {
    /// `total` is the number of steps, where it is known.
    pub(crate) fn new(total: Option<usize>) -> Self {
        let is_terminal = io::stderr().is_terminal();
        Progress { total, done: 0, shown_at: Instant::now(), is_shown: false, is_terminal }
    }

    /// One step is done.
    pub(crate) fn step(&mut self) {
        self.done += 1;
        if !self.is_terminal || self.shown_at.elapsed() < PROGRESS_INTERVAL {
            return;
        }
        (self.shown_at, self.is_shown) = (Instant::now(), true);
        let of = self.total.map_or_else(String::new, |total| format!(" of {total}"));
        let _ = write!(io::stderr().lock(), "\r\x1b[Kspanprof: read {}{of} profiles", self.done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

/// An error if the result would be written to a terminal, and is not for people. `example` names a file instead.
pub(crate) fn refuse_on_terminal(path: &str, content: &str, example: &str) -> Result<(), Failure> {
    match path == "-" && terminal::is_terminal() {
        true => Err(Failure::usage(format!("{content} is not written to a terminal"))
            .hint(format!("name a file with {example}, or pipe it to another program"))),
        false => Ok(()),
    }
}

/// Writes the result of a verb to `path`, to an object, or to stdout for `-`. The file is replaced atomically. A line on
/// stderr has its name and size.
pub(crate) fn write(path: &str, bytes: &[u8]) -> Result<(), Failure> {
    if path == "-" {
        return print(bytes);
    }
    write_file(path, bytes)?;
    let size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
    note(&format!("wrote {path} ({})", format_quantity(size, "bytes")));
    Ok(())
}

fn write_file(path: &str, bytes: &[u8]) -> Result<(), Failure> {
    if let Some(url) = ObjectUrl::parse(path) {
        return write_object(&url?, bytes);
    }
    let target = path_of_file_url(path).unwrap_or_else(|| Ok(PathBuf::from(path)))?;
    let target = target.as_path();
    let failed = |error: io::Error| Failure::new(format!("cannot write {path}: {error}"));
    let is_special = std::fs::metadata(target).is_ok_and(|meta| !meta.is_file());
    if is_special {
        // A device or a pipe, such as /dev/null.
        let written = OpenOptions::new().write(true).open(target).and_then(|mut file| file.write_all(bytes));
        return written.map_err(failed);
    }
    let name = target.file_name().ok_or_else(|| Failure::usage(format!("`{path}` is not a file name")))?;
    let temporary = target.with_file_name(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&temporary)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| std::fs::rename(&temporary, target));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&temporary);
        failed(error)
    })
}

fn write_object(url: &ObjectUrl, bytes: &[u8]) -> Result<(), Failure> {
    if url.is_prefix() {
        return Err(
            Failure::usage(format!("`{url}` is a prefix")).hint("name the object, such as s3://BUCKET/cpu.pb.gz")
        );
    }
    Ok(ObjectStorage::open(url)?.put(&url.key, bytes.to_vec())?)
}
