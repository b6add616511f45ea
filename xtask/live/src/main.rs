//! The Rust part of the live suites and the documents: prints the reference pages from the core's tables, sends profiles
//! through exporter and engine to a running receiver, and compares the receiver's output with them. Started by `cargo xtask`.

mod collector;
mod faults;
mod metrics;
mod payload;
mod profile_types;
mod requests;
mod surface;
mod system_calls;

use std::alloc::System;
use std::process::ExitCode;

/// Samples the heap of the programs that profile themselves.
#[global_allocator]
static ALLOCATOR: spanprof::alloc::Profiled<System> = spanprof::alloc::Profiled::new(System);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["collector", grpc, http, written @ ..] if !written.is_empty() => collector::run(grpc, http, written),
        ["reference", page] => reference(page),
        ["requests", endpoint, protocol, service, count, figure] => {
            requests::run(endpoint, protocol, service, count, figure)
        }
        ["metrics-refused", protocol, endpoint] => metrics::refused(protocol, endpoint),
        ["refused", protocol, endpoint] => collector::refused(protocol, endpoint),
        ["faults", run @ ("bare" | "profiled")] => faults::run(*run == "profiled"),
        ["system-calls", run @ ("bare" | "profiled")] => system_calls::run(*run == "profiled"),
        _ => Err("usage: spanprof-live collector GRPC_URL HTTP_URL FILE… | refused grpc|http URL | \
             metrics-refused grpc|http URL | \
             requests URL PROTOCOL SERVICE COUNT FILE | system-calls bare|profiled | faults bare|profiled | reference PAGE"
            .to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("spanprof-live: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Settings of the bindings, which are not in the table of the core.
const BINDING_OPTIONS: &[(&str, &str)] = &[
    ("stack_walk", "Node.js and Java: the stack walk to use."),
    ("event_loop_block", "Node.js: a longer turn of an event loop is reported, in milliseconds."),
    ("worker_threads", "Node.js: whether worker threads are profiled by their JavaScript stacks."),
    ("library_directory", "Java: directory in which the native library is unpacked."),
];

/// Prints a generated page of docs/.
fn reference(page: &str) -> Result<(), String> {
    match page {
        "configuration" => print!("{}", spanprof::Config::reference_markdown()),
        "statistics" => print!("{}", spanprof::Stats::reference_markdown()),
        "schema" => print!("{}", spanprof::Config::json_schema(BINDING_OPTIONS)),
        "api" => print!("{}", surface::page()?),
        "profile-types" => print!("{}", profile_types::page()),
        other => return Err(format!("no reference page `{other}`")),
    }
    Ok(())
}
