//! Python: CPython interpreters, the wheel, pytest.

pub mod bench;
pub mod debian;
pub mod live;
pub mod package;
pub mod runtimes;
pub mod suite;
mod venv;

pub use venv::Venv;
