//! The languages with a binding: their runtimes, packages, test suites, benchmarks and live suites.

pub mod java;
pub mod node;
pub mod python;
