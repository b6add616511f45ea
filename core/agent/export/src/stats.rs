//! Counters of one destination, as in `stats()` of the profiler.

macro_rules! discard_reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal;)+) => {
        /// The reason for which a payload was not delivered.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum DiscardReason { $($(#[doc = $doc])+ $variant,)+ }

        impl DiscardReason {
            /// Every reason, in the order of [`DiscardReason::name`].
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in statistics.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// A sentence for the reference page.
            pub const fn doc(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+),)+ }
            }
        }
    };
}

discard_reasons! {
    /// It was not delivered before the deadline of `stop`.
    Deadline = "deadline";
    /// The destination is off after an internal error.
    Disabled = "disabled";
    /// It was retried until its maximum age: 15 minutes, or 50 minutes in a disk buffer.
    Expired = "expired";
    /// The receiver accepted the request and rejected profiles inside it.
    Partial = "partial";
    /// The destination rejected it with a permanent error.
    Permanent = "permanent";
    /// The queue was full, and newer payloads replaced it.
    QueueFull = "queue_full";
    /// Larger than the receiver or OTLP allows, and it could not be split further.
    TooLarge = "too_large";
    /// Its file in the disk buffer had a wrong length or checksum, or could not be read. Its samples are unknown.
    Torn = "torn";
}

/// Loss of one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discarded {
    /// Payloads (parts of a split one count each).
    pub payloads: u64,
    /// Samples inside them; for [`DiscardReason::Partial`] an upper bound, since receivers count profiles.
    pub samples: u64,
}

/// Files removed from a directory, with their side-cars, by the limit that they exceeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovedFiles {
    /// [`FileDirectory::keep`](crate::FileDirectory::keep).
    pub keep: u64,
    /// [`FileDirectory::max_age`](crate::FileDirectory::max_age).
    pub max_age: u64,
    /// [`FileDirectory::max_bytes`](crate::FileDirectory::max_bytes).
    pub max_bytes: u64,
}

impl RemovedFiles {
    pub(crate) fn add(&mut self, other: Self) {
        self.keep += other.keep;
        self.max_age += other.max_age;
        self.max_bytes += other.max_bytes;
    }
}

/// One destination at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DestinationStats {
    /// `otlp_http`, `otlp_grpc`, `pyroscope` or `file`.
    pub kind: &'static str,
    /// URL without userinfo and query, or the directory.
    pub target: String,
    /// Payloads given to `enqueue`.
    pub enqueued: u64,
    /// Payloads (parts of a split one count each) that the destination accepted completely.
    pub sent: u64,
    /// Samples inside them.
    pub sent_samples: u64,
    /// Bytes of their bodies before compression.
    pub sent_bytes: u64,
    /// Attempts after a first one.
    pub retries: u64,
    /// Payloads split because they were too large.
    pub splits: u64,
    /// Profiles rejected by partial success.
    pub rejected_profiles: u64,
    /// Losses by reason, in the order of [`DiscardReason::ALL`].
    pub dropped: [Discarded; DiscardReason::ALL.len()],
    /// The last failure or rejection, without secrets.
    pub last_error: Option<String>,
    /// Time of `last_error`, in milliseconds since 1970.
    pub last_error_unix_ms: Option<u64>,
    /// The last warning of a receiver that accepted everything.
    pub last_warning: Option<String>,
    /// Time of the last accepted payload, in milliseconds since 1970.
    pub last_success_unix_ms: Option<u64>,
    /// Payloads waiting or in flight.
    pub queue_payloads: usize,
    /// Bytes of their bodies.
    pub queue_bytes: usize,
    /// Requests in the disk buffer, waiting or in flight.
    pub buffer_payloads: usize,
    /// Bytes of their bodies.
    pub buffer_bytes: u64,
    /// Requests of exited processes taken from the disk buffer; `enqueued` includes them.
    pub buffer_adopted: u64,
    /// Requests left in the disk buffer for another process, by `stop`.
    pub buffer_left: u64,
    /// Requests that could not be stored in the disk buffer and stayed in memory.
    pub buffer_errors: u64,
    /// Files that this exporter removed from its directory.
    pub files_removed: RemovedFiles,
    /// Panics caught; the destination is disabled after one.
    pub panics: u64,
    pub disabled: bool,
}

/// One receiver of the profiler's own metrics at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsStats {
    /// URL without userinfo and query.
    pub target: String,
    /// Requests that the receiver accepted completely.
    pub sent: u64,
    /// Requests that it did not accept completely, and those that a newer one replaced.
    pub failed: u64,
    /// Failed attempts since the last success.
    pub failed_in_a_row: u64,
    /// Whether the last attempt ended with a permanent error.
    pub refused: bool,
    /// The last failure, without secrets.
    pub last_error: Option<String>,
    pub panics: u64,
    /// Whether no more requests are sent: the receiver has no service for metrics, or after an internal error.
    pub stopped: bool,
}

impl DestinationStats {
    /// Loss of one reason.
    pub fn dropped(&self, reason: DiscardReason) -> Discarded {
        self.dropped[reason as usize]
    }

    /// Loss of all reasons.
    pub fn dropped_total(&self) -> Discarded {
        self.dropped.iter().fold(Discarded::default(), |sum, dropped| Discarded {
            payloads: sum.payloads + dropped.payloads,
            samples: sum.samples + dropped.samples,
        })
    }
}
