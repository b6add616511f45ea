//! Node.js: binaries, the npm package, the tests of Node's own runner.

pub mod bench;
pub mod live;
pub mod package;
pub mod runtimes;
pub mod suite;
