//! The `spanprof` command: a client of the public API.
#![forbid(unsafe_code)]

/// Runs the command line; `arguments` without the program's name. Returns the exit code.
pub fn run(arguments: &[String]) -> i32 {
    let _ = arguments;
    0
}
