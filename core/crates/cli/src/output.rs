//! Writes to stdout, stderr and files. A closed pipe on stdout (`| head`) is not an error.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use crate::failure::Failure;

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

/// Writes the result of a verb to `path`, or to stdout for `-`. The file is replaced atomically.
pub(crate) fn write(path: &str, bytes: &[u8]) -> Result<(), Failure> {
    if path == "-" {
        return print(bytes);
    }
    let target = Path::new(path);
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
