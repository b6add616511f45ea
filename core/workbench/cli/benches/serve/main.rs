//! A day of one service in `spanprof serve`: disk, start, memory, and the time of each answer of the page; and an answer from a
//! profile of a million stacks. `cargo xtask bench serve` writes the output into its page of results.
//!
//! Without arguments: everything, in the directory for temporary files of the build, half an hour. `write DIR default|cpu WINDOWS`
//! and `stacks DIR COUNT` write a directory; `measure DIR` measures the answers from one, with `--keep-windows` of its arguments.
//!
//! The first answer is that of a server that has just read its index, so that none of its caches has anything.

mod day;
mod server;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use server::{directory_bytes, Server};

const DAY_WINDOWS: u64 = 86_400_000 / day::WINDOW_MS;
const MANY_STACKS: u64 = 1_000_000;
/// Windows sent to a server for the cost of the intake.
const SENT_WINDOWS: u64 = 120;
const HOUR_S: u64 = 3600;
const TABLE_HEAD: &str =
    "| answer | first, s | CPU, s | again, s | CPU, s | kB | windows left out |\n|---|---|---|---|---|---|---|";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => everything(DAY_WINDOWS, MANY_STACKS),
        ["short"] => everything(720, 50_000),
        ["write", directory, types, windows] => {
            let windows = windows.parse().expect("a number of windows");
            day::write(Path::new(directory), windows, now_ms(), types == "default");
        }
        ["stacks", directory, count] => {
            day::write_stacks(Path::new(directory), count.parse().expect("a number of stacks"), now_ms());
        }
        ["measure", directory, ref more @ ..] => answers(Path::new(directory), more),
        ["measure-stacks", directory] => answers_of_stacks(Path::new(directory)),
        _ => panic!("unexpected arguments: {arguments:?}"),
    }
}

fn everything(windows: u64, stacks: u64) {
    let home = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("serve-day");
    for (types, name) in [("cpu", "CPU time only"), ("default", "the default profile types")] {
        println!("\n### {windows} windows, {name}\n");
        let directory = home.join(types);
        let _ = std::fs::remove_dir_all(&directory);
        day::write(&directory, windows, now_ms(), types == "default");
        intake(&home.join("sent"), types == "default");
        println!("\nAll windows kept:\n");
        answers(&directory, &["--keep-windows", "7d"]);
        println!("\nWindows older than two hours replaced by hours:\n");
        answers(&directory, &[]);
    }
    println!("\n### {stacks} distinct stacks\n");
    let directory = home.join("stacks");
    let _ = std::fs::remove_dir_all(&directory);
    day::write_stacks(&directory, stacks, now_ms());
    answers_of_stacks(&directory);
    let _ = std::fs::remove_dir_all(&home);
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

/// Cost of receiving a window.
fn intake(directory: &Path, has_all_types: bool) {
    let _ = std::fs::remove_dir_all(directory);
    let server = Server::start(directory, &[]);
    let now = now_ms();
    let requests: Vec<_> = (0..SENT_WINDOWS)
        .map(|number| day::request(day::window(now - number * day::WINDOW_MS - day::WINDOW_MS, has_all_types)))
        .collect();
    let before = server.cpu();
    let started = Instant::now();
    requests.iter().for_each(|request| server.send(request));
    let each = |time: Duration| time.as_secs_f64() * 1e3 / SENT_WINDOWS as f64;
    println!(
        "Intake of a window: {:.1} ms, {:.1} ms of CPU time; {} bytes in gzip.",
        each(started.elapsed()),
        each(server.cpu() - before),
        requests[0].len()
    );
}

/// A request of the page.
struct PageRequest {
    name: &'static str,
    path: String,
}

fn requests(from_s: u64, to_s: u64) -> Vec<PageRequest> {
    let service = day::SERVICE;
    let range = format!("service={service}&from={from_s}&to={to_s}");
    let filter = format!("{range}&type=cpu");
    let label = "label=endpoint%3D%2Fapi%2Fv1%2Fresource_3";
    let between = |from: u64, to: u64| format!("service={service}&type=cpu&from={from}&to={to}");
    let middle = (from_s + to_s) / 2;
    let link = day::link((to_s - 600) * 1000, 3);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let rows = [
        ("flame graph", format!("flamegraph?{filter}&width=1500")),
        ("flame graph, folded", format!("flamegraph?{filter}&width=1500&fold=libraries")),
        ("flame graph, one endpoint", format!("flamegraph?{filter}&width=1500&{label}")),
        ("table", format!("top?{filter}&limit=100")),
        ("table, searched", format!("top?{filter}&limit=100&search=handle_1")),
        ("table, sorted", format!("top?{filter}&limit=100&sort=cum")),
        ("timeline", format!("timeline?{filter}")),
        ("timeline by endpoint", format!("timeline?{filter}&group=endpoint")),
        ("labels", format!("labels?{filter}")),
        ("labels with weights", format!("labels?{filter}&weights=1")),
        ("function", format!("function?{filter}&name=OrderService8.handle_8")),
        ("requests", format!("requests?{range}")),
        ("requests, one endpoint", format!("requests?{range}&{label}")),
        (
            "one request, last hour",
            format!(
                "request?service={service}&from={}&to={to_s}&trace_id={}&span_id={}",
                to_s - HOUR_S,
                hex(&link.trace_id),
                hex(&link.span_id)
            ),
        ),
        ("findings", format!("explain?{range}")),
        (
            "comparison with the hour before",
            format!(
                "diff?{}&baseline_from={}&baseline_to={}",
                between(to_s - HOUR_S, to_s),
                to_s - 2 * HOUR_S,
                to_s - HOUR_S
            ),
        ),
        (
            "comparison of the halves",
            format!("diff?{}&baseline_from={from_s}&baseline_to={middle}", between(middle, to_s)),
        ),
    ];
    rows.into_iter().map(|(name, path)| PageRequest { name, path: format!("/api/{path}") }).collect()
}

/// Prints the figures of a directory.
fn answers(directory: &Path, more: &[&str]) {
    let more = [&["--max-bytes", "8GiB"], more].concat();
    let server = Server::start(directory, &more);
    let started = Instant::now();
    server.wait_for_rollups();
    let (wall, cpu) = (started.elapsed(), server.cpu());
    let (from_s, to_s) = server.range_s();
    println!("Index and roll-ups: {:.0} s, {:.0} s of CPU time.", wall.as_secs_f64(), cpu.as_secs_f64());
    drop(server);
    println!("Disk: {:.1} MB.", directory_bytes(directory) as f64 / 1e6);
    println!("\n{TABLE_HEAD}");
    let (mut starts, requests) = (Vec::new(), requests(from_s, to_s));
    for request in &requests {
        let server = Server::start(directory, &more);
        starts.push(server.start_time);
        row(&server, request);
    }
    starts.sort();
    println!("\nRestart: median {:.2} s.", starts[starts.len() / 2].as_secs_f64());
    let server = Server::start(directory, &more);
    requests.iter().for_each(|request| drop(server.get(&request.path)));
    println!("Memory after all of these answers: {}.", server.memory());
}

fn answers_of_stacks(directory: &Path) {
    drop(Server::start(directory, &[]));
    println!("{TABLE_HEAD}");
    let answers = ["flame graph", "flame graph, folded", "table", "function"];
    let now_s = now_ms() / 1000;
    let mut memory = Vec::new();
    for request in requests(now_s - 24 * HOUR_S, now_s).iter().filter(|request| answers.contains(&request.name)) {
        let server = Server::start(directory, &[]);
        row(&server, request);
        memory.push(format!("{}: {}", request.name, server.memory()));
    }
    println!("\nMemory after the answer: {}.", memory.join("; "));
}

fn row(server: &Server, request: &PageRequest) {
    let [first, again] = [(); 2].map(|()| server.get(&request.path));
    println!(
        "| {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.0} | {} |",
        request.name,
        first.wall.as_secs_f64(),
        first.cpu.as_secs_f64(),
        again.wall.as_secs_f64(),
        again.cpu.as_secs_f64(),
        first.bytes as f64 / 1e3,
        first.windows_left_out
    );
}
