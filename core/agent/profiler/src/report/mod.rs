//! What the profiler reports of itself: log lines, statistics and metrics.

pub mod delivery_log;
pub mod first_line;
pub mod health;
pub mod metrics;
pub mod metrics_report;
pub mod outcome;
