//! The wall sampler: observes threads at a rate, whether they run or wait.

pub mod off_cpu;
pub mod pace;
pub mod repeats;
pub mod sampler;
pub mod thread;
pub mod torn_stack;
