//! The delivery of what a queue holds: attempts, retries, deadlines.

pub mod delivery_task;
pub mod metrics_delivery;
