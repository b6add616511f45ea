//! Work that may block for as long as it likes (the system's look-ups, disks), on a thread of its own: the export thread
//! never waits for it. Each destination has one such thread at a time. Called by the connector and the sender of files.

use crate::settings::StartThread;
use std::ffi::CStr;
use std::io;
use tokio::sync::oneshot;

/// Name of each thread of an exporter.
pub(crate) const THREAD_NAME: &CStr = c"spanprof-export";

/// What becomes of the work; an error when it panicked.
pub(crate) type Pending<T> = oneshot::Receiver<T>;

/// Begins the work. It is not cut short when nobody waits for it any more.
pub(crate) fn begin<T: Send + 'static>(
    start_thread: StartThread,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Pending<T>> {
    let (sender, pending) = oneshot::channel();
    // A panic drops `sender`, which ends the wait. It is no error if nobody waits any more.
    start_thread(THREAD_NAME, Box::new(move || drop(sender.send(work()))))?;
    Ok(pending)
}
