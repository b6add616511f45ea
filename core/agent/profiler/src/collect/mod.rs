//! Samples of one piece of work or of one request, collected beside the open window.

pub mod capture;
mod cpu;
pub mod wall;
