//! The bounded queue of a destination, and the time between attempts.

pub mod backoff;
pub mod bounded_queue;
pub mod buffered_request;
