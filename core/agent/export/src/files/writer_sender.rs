//! Sends payloads to a [`PayloadWriter`]. Each write has a thread of its own, since it may block.

use crate::connect::blocking;
use crate::files::file_name;
use crate::outcome::{AttemptOutcome, RetryReason};
use crate::payload_writer::{PayloadWriter, WriteError, WriteErrorKind};
use crate::queue::bounded_queue::QueuedPayload;
use crate::settings::StartThread;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

pub(crate) struct WriterSender {
    writer: Arc<dyn PayloadWriter>,
    start_thread: StartThread,
    /// Random per process.
    hash: RandomState,
}

impl WriterSender {
    pub fn new(writer: Arc<dyn PayloadWriter>, start_thread: StartThread) -> Self {
        Self { writer, start_thread, hash: RandomState::new() }
    }

    pub async fn attempt(&mut self, payload: &QueuedPayload) -> AttemptOutcome {
        let (writer, body, name) = (self.writer.clone(), payload.body.clone(), self.name(payload));
        let written = match blocking::spawn(self.start_thread, move || writer.write(&name, &body)) {
            Ok(pending) => pending.await,
            Err(error) => {
                let message = format!("no thread for a write to {}: {error}", self.writer.shown());
                return AttemptOutcome::Retry { reason: RetryReason::NoResponse, message };
            }
        };
        match written {
            Ok(Ok(())) => AttemptOutcome::Accepted { warning: None },
            Ok(Err(WriteError { message, kind })) => match kind {
                WriteErrorKind::Permanent => AttemptOutcome::Rejected { message },
                WriteErrorKind::NotConnected => AttemptOutcome::Retry { reason: RetryReason::NotConnected, message },
                WriteErrorKind::Temporary => AttemptOutcome::Retry { reason: RetryReason::NoResponse, message },
            },
            Err(_) => AttemptOutcome::Rejected { message: "the write ended by an internal error".to_owned() },
        }
    }

    /// `<type>-<unix ms>-<n>.pb.gz`, the same in each attempt. Writers cannot see which names others take, so `n` is random per
    /// process and body instead of a count.
    fn name(&self, payload: &QueuedPayload) -> String {
        let number = (self.hash.hash_one(&payload.body) as u32).max(1);
        let stem = file_name::stem(payload.profile_type.as_deref(), payload.time_unix_ms, number);
        stem + file_name::FINISHED
    }
}
