//! Runs work that may block without limit (name resolution, disks) on a thread of its own, so that the export thread never
//! blocks. Each destination has one such thread at a time. Called by the connector and the file sender.

use crate::settings::StartThread;
use std::ffi::CStr;
use std::io;
use tokio::sync::oneshot;

/// Name of each thread of an exporter.
pub(crate) const THREAD_NAME: &CStr = c"spanprof-export";

/// Result of the work; an error when it panicked.
pub(crate) type Pending<T> = oneshot::Receiver<T>;

/// Starts the work. It runs to its end even when the receiver is dropped.
pub(crate) fn spawn<T: Send + 'static>(
    start_thread: StartThread,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Pending<T>> {
    let (sender, pending) = oneshot::channel();
    // A panic drops `sender`, which ends the wait. A dropped receiver is no error.
    start_thread(THREAD_NAME, Box::new(move || drop(sender.send(work()))))?;
    Ok(pending)
}
