//! `cargo xtask demo`: web services under load, one of each language, with their profiles received, linked to their spans and
//! shown. Also called by `test`, with a time limit.

mod leak;
mod load;
mod prepared;
mod services;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::languages::Packages;
use crate::parallel::side_by_side;
use crate::step::{ProcessStep, Running, StepFailure, StepResult};
use crate::{browser, http, progress, scratch, workspace};

/// real web services under load, their profiles linked to spans, shown on one page
///
/// Builds the command line and the packages, optimized (output: target/demo-*.log), starts `spanprof
/// serve` (ports 4317 and 4318 where free) and services of examples/ under the OpenTelemetry SDK, drives load with trace
/// context, and after a warm-up prints for each its own top functions, the share of samples linked to spans, the profile
/// of one slow request and the profiler's own cost; then a memory leak of a Python program, and the page's addresses.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct DemoArguments {
    /// without it one of each language with installed tools
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    service: Vec<Example>,
    /// ends after N seconds of load behind the warm-up, with a non-zero status if any of these is missing; until Ctrl-C by default
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// writes a picture of the first service's slow request, as the page shows it; needs Chromium
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
}

use load::SlowRequest;
use services::ServiceProgram;
pub use services::{build_command_line, Example, DEFAULT};

pub fn run(arguments: &DemoArguments) -> StepResult {
    let examples = if arguments.service.is_empty() { Example::available() } else { arguments.service.clone() };
    show(&examples, arguments.seconds, &Ports::usual()?, Packages::Optimized, arguments.picture.as_deref())
}

/// Load before the measured range: the start of the services and the first compilations are not in the report.
const WARM_UP: Duration = Duration::from_secs(5);
/// Length of the measured range without `--seconds`.
const DEFAULT_LOAD_SECONDS: u64 = 10;
/// Length of a window of the services.
const UPLOAD_INTERVAL: Duration = Duration::from_secs(2);
/// CPU time of the slow request, so that its profile has 50 samples at the default rate of 100 per second.
const SLOW_CPU_NS: f64 = 0.5e9;
/// Rows of the first attempt at it: half of this time in Python.
const SLOW_ROWS: u64 = 60_000;
/// Attempts at it, each with more rows.
const SLOW_ATTEMPTS: u32 = 4;

/// Ports of `spanprof serve`.
pub struct Ports {
    /// OTLP/gRPC.
    pub grpc: u16,
    /// OTLP/HTTP and the page.
    pub http: u16,
}

impl Ports {
    /// OpenTelemetry's default ports where both are free, else free ones.
    pub fn usual() -> StepResult<Self> {
        let free = |port: u16| std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, port)).is_ok();
        if free(4317) && free(4318) {
            return Ok(Self { grpc: 4317, http: 4318 });
        }
        println!("ports 4317 and 4318 are in use; using free ones");
        Self::free()
    }

    /// Two free ones.
    pub fn free() -> StepResult<Self> {
        let port = || http::free_port().map_err(|error| StepFailure::new("free port", error.to_string()));
        Ok(Self { grpc: port()?, http: port()? })
    }
}

/// A running `spanprof serve`.
pub struct DemoServer {
    /// Its HTTP port.
    pub http_port: u16,
    /// The address of its page.
    pub page: String,
    _running: Running,
}

impl DemoServer {
    /// Starts it with its own directory and waits until it prints its addresses.
    pub fn start(command: &Path, directory: &Path, ports: &Ports) -> StepResult<Self> {
        let mut running = ProcessStep::new("spanprof serve", command)
            .args(["serve", "--json", "--quiet", "--dir"])
            .arg(directory.join("profiles"))
            .args(["--grpc", &ports.grpc.to_string(), "--http", &ports.http.to_string()])
            .start(&directory.join("serve.log"))?;
        let addresses: Value =
            running.wait_until(Duration::from_secs(20), |log| serde_json::from_str(log.lines().next()?).ok())?;
        let page = addresses["url"].as_str().unwrap_or_default().to_owned();
        Ok(Self { http_port: ports.http, page, _running: running })
    }
}

struct LoadedService {
    example: Example,
    port: u16,
    load: load::Load,
    running: Running,
}

/// Runs the demo for `seconds` of load, or until Ctrl-C.
pub fn show(
    examples: &[Example],
    seconds: Option<u64>,
    ports: &Ports,
    packages: Packages,
    picture: Option<&Path>,
) -> StepResult {
    let began = Instant::now();
    let directory = scratch::empty("demo")?;
    let command = logged(packages, "build", || services::build_command_line(packages))?;
    let prepare = |example: &Example| logged(packages, &example.service_name(), || example.prepare(packages));
    let programs: Vec<_> = side_by_side(examples, language, prepare).into_iter().collect::<StepResult<_>>()?;
    let server = DemoServer::start(&command, &directory, ports)?;
    let start = |program: &ServiceProgram| program.start(&directory, &server, packages);
    let started: Vec<_> = programs.iter().map(start).collect::<StepResult<_>>()?;
    let mut listening = Vec::new();
    for (example, (mut running, port)) in examples.iter().zip(started) {
        services::wait_until_it_responds(&mut running, port)?;
        println!("{} listens on 127.0.0.1:{port}", example.service_name());
        listening.push((*example, port, running));
    }
    println!("built and started in {} s; the load begins", began.elapsed().as_secs());
    let loaded = |(example, port, running)| LoadedService { example, port, load: load::Load::start(port), running };
    let services: Vec<_> = listening.into_iter().map(loaded).collect();
    std::thread::sleep(WARM_UP);
    let (begun, from_ms) = (Instant::now(), unix_ms());
    let before: Vec<_> = services.iter().map(|service| own_stats(service.port)).collect::<StepResult<_>>()?;
    let python = programs.iter().find(|program| program.example() == Example::FastApi);
    let leak = python.map(|program| {
        let python = program.executable().to_owned();
        std::thread::spawn(move || leak::record(&python))
    });
    let queries: Vec<_> =
        examples.iter().map(|example| ProfileQuery::new(*example, &command, &server, from_ms)).collect();
    let both: Vec<_> = services.iter().zip(&queries).collect();
    let slow_requests =
        side_by_side(&both, |(service, _)| language(&service.example), |(service, query)| service.slow_request(query));
    let slow_requests: Vec<_> = slow_requests.into_iter().collect::<StepResult<_>>()?;
    let load_time = Duration::from_secs(seconds.unwrap_or(DEFAULT_LOAD_SECONDS));
    std::thread::sleep(load_time.saturating_sub(begun.elapsed()));
    for (((service, query), before), slow) in both.iter().zip(&before).zip(&slow_requests) {
        println!("\n══ {}", service.example.service_name());
        service.show(query, before, slow)?;
    }
    if let Some(leak) = leak {
        let panicked = |_| Err(StepFailure::new("memory leak", "panicked; the message is above"));
        leak::show(&command, &leak.join().unwrap_or_else(panicked)?)?;
    }
    check_page(&server)?;
    println!("\none slow request, beside the others of its endpoint:");
    for (service, slow) in services.iter().zip(&slow_requests) {
        println!("  {:<18} {}?trace_id={}", service.example.service_name(), server.page, slow.trace_id);
    }
    println!("all services: {}", server.page);
    if let (Some(picture), Some(slow)) = (picture, slow_requests.first()) {
        let address = format!("{}?trace_id={}", server.page, slow.trace_id);
        // Without the functions below, whose files have the paths of this machine.
        browser::screenshot(&directory, &address, picture, 655)?;
        println!("picture of the first: {}", picture.display());
    }
    if seconds.is_none() {
        println!("The load continues. Press Ctrl-C to end the demo.");
        wait_for_interrupt(services)?;
    }
    Ok(())
}

/// Name of an example's language in messages.
fn language(example: &Example) -> &'static str {
    example.language().title()
}

/// Does `work` with its output in a log, or on the terminal with the packages for tests.
fn logged<T>(packages: Packages, part: &str, work: impl FnOnce() -> StepResult<T>) -> StepResult<T> {
    match packages {
        Packages::ForTests => work(),
        Packages::Optimized => {
            let log = workspace::target().join(format!("demo-{part}.log"));
            scratch::write(&log, "")?;
            progress::into_log(&log, work)
        }
    }
}

impl LoadedService {
    fn show(&self, query: &ProfileQuery, before: &Value, slow: &SlowRequest) -> StepResult {
        let stats = own_stats(self.port)?;
        query.own_functions()?;
        query.print("most expensive functions, with libraries and the runtime", &["-n", "8"])?;
        print_linked_share(self.example, before, &stats)?;
        query.explain(slow)?;
        print_own_cost(&stats)?;
        println!("requests succeeded: {}, failed: {}", self.load.succeeded(), self.load.failed());
        match self.load.succeeded() > 0 && self.load.failed() == 0 {
            true => Ok(()),
            false => Err(StepFailure::new(
                "load",
                "requests failed; the profiler must not change the responses of the service",
            )),
        }
    }

    /// A request with enough samples for a profile of its own, however fast the language and the machine are.
    fn slow_request(&self, query: &ProfileQuery) -> StepResult<SlowRequest> {
        let (mut rows, mut attempts) = (SLOW_ROWS, SLOW_ATTEMPTS);
        loop {
            let slow = self.load.slow_request(rows)?;
            let cpu_ns = query.wait_for(&["--trace-id", &slow.trace_id])?;
            attempts -= 1;
            if cpu_ns >= SLOW_CPU_NS || attempts == 0 {
                return Ok(slow);
            }
            rows = (rows as f64 * (1.2 * SLOW_CPU_NS / cpu_ns).clamp(1.5, 20.0)) as u64;
        }
    }
}

fn unix_ms() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis()
}

/// Statistics of the service's profiler.
fn own_stats(service_port: u16) -> StepResult<Value> {
    let response = http::get(service_port, "/profiler");
    match &response {
        Ok((200, body)) => {
            serde_json::from_str(body).map_err(|error| StepFailure::new("own statistics", error.to_string()))
        }
        other => Err(StepFailure::new("own statistics", format!("the service returned {other:?}"))),
    }
}

fn print_own_cost(stats: &Value) -> StepResult {
    let number = |name: &str| stats[name].as_f64().unwrap_or_default();
    let own = number("cost.own_cpu_ns") + number("clock.handler_ns");
    let process = number("cost.process_cpu_ns");
    if own <= 0.0 || process <= 0.0 {
        return Err(StepFailure::new("own cost", format!("stats() has no cost: {stats}")));
    }
    println!(
        "\n── cost of the profiler, in CPU time of the service ({:.1} s)\n\
         {:.2} % ({:.1} ms) in the profiler's threads and its signal handler\n\
         {:.2} % ({:.1} ms) in the kernel, for the delivery of samples (clock: {})",
        process / 1e9,
        own / process * 100.0,
        own / 1e6,
        number("clock.delivery_ns") / process * 100.0,
        number("clock.delivery_ns") / 1e6,
        stats["clock.name"].as_str().unwrap_or("unknown"),
    );
    Ok(())
}

/// Share of the samples since the warm-up.
fn print_linked_share(example: Example, before: &Value, stats: &Value) -> StepResult {
    let since = |name: &str| stats[name].as_f64().unwrap_or_default() - before[name].as_f64().unwrap_or_default();
    let (linked, all) = (since("samples.linked"), since("samples.cpu"));
    let share = linked / all.max(1.0);
    println!("\n── samples linked to spans: {:.1} % of {all}", share * 100.0);
    println!("the others ran outside requests: compiler, garbage collector, event loop");
    if share < example.least_linked_share() {
        let message = format!("expected at least {:.0} %", example.least_linked_share() * 100.0);
        return Err(StepFailure::new("link to spans", message));
    }
    Ok(())
}

fn check_page(server: &DemoServer) -> StepResult {
    match http::get(server.http_port, "/") {
        Ok((200, page)) if page.contains("<html") => Ok(()),
        other => Err(StepFailure::new("page", format!("GET / returned {other:?}"))),
    }
}

/// Queries the received profiles of one service with `spanprof top`.
struct ProfileQuery {
    command: PathBuf,
    example: Example,
    address: String,
    /// Begin of the range, in Unix milliseconds.
    from: String,
}

impl ProfileQuery {
    fn new(example: Example, command: &Path, server: &DemoServer, from_ms: u128) -> Self {
        let address = format!("http://127.0.0.1:{}", server.http_port);
        Self { command: command.to_owned(), example, address, from: from_ms.to_string() }
    }

    fn top(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.command);
        command
            .arg("top")
            .arg(&self.address)
            .args(["--service", &self.example.service_name(), "--type", "cpu", "--from", &self.from])
            .args(words);
        command
    }

    fn json(&self, words: &[&str]) -> Option<Value> {
        let output = self.top(words).args(["--json"]).output().ok()?;
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Waits until the samples of a completed request are received; their sum. It may be in two windows.
    fn wait_for(&self, words: &[&str]) -> StepResult<f64> {
        std::thread::sleep(UPLOAD_INTERVAL);
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            match self.json(words).and_then(|table| table["total"].as_f64()) {
                Some(total) if total > 0.0 => return Ok(total),
                _ => {}
            }
            std::thread::sleep(Duration::from_millis(250));
        }
        Err(StepFailure::new(
            "delivery",
            format!("no sample of {} {words:?} arrived within 20 s", self.example.service_name()),
        ))
    }

    /// Functions of the service, charged with the libraries and the runtime that they call.
    fn own_functions(&self) -> StepResult {
        const SHOWN: usize = 6;
        println!("\n── functions of the service, with the CPU time of the libraries and the runtime that they call");
        let table = self.json(&["-n", "0", "--sort", "own"]).unwrap_or_default();
        let total = table["total"].as_f64().unwrap_or_default().max(1.0);
        let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let rows = table["rows"].as_array().into_iter().flatten();
        let own = rows.map(|row| (row["own"].as_f64().unwrap_or_default(), text(row, "function"), text(row, "file")));
        let own: Vec<_> = own.take(SHOWN).filter(|(ns, ..)| *ns > 0.0).collect();
        for (ns, function, file) in &own {
            let file = file.rsplit('/').next().unwrap_or_default();
            println!("{:>7.2} s {:>5.1} %  {function}  {file}", ns / 1e9, 100.0 * ns / total);
        }
        if own.is_empty() {
            Err(StepFailure::new("own functions", "none of the service's functions is in the profile"))
        } else {
            Ok(())
        }
    }

    /// Prints CPU time by function and waiting time of the slow request. Its profile must contain its own function and none of
    /// other requests.
    fn explain(&self, slow: &SlowRequest) -> StepResult {
        let profile = self.json(&["-n", "0", "--trace-id", &slow.trace_id]).unwrap_or_default();
        let rows = profile["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
        let ns_in = |function: &str| {
            let row = rows.iter().find(|row| row["function"].as_str().is_some_and(|name| name.ends_with(function)))?;
            row["cum"].as_f64()
        };
        let (report, cart) = self.example.functions();
        let (Some(report_ns), None) = (ns_in(report), ns_in(cart)) else {
            let names: Vec<_> = rows.iter().filter_map(|row| row["function"].as_str()).collect();
            return Err(StepFailure::new(
                "one slow request",
                format!("expected {report} and not {cart}, got {names:?}"),
            ));
        };
        let cpu_ns = profile["total"].as_f64().unwrap_or_default().max(1.0);
        let took_ns = slow.took.as_nanos() as f64;
        println!(
            "\n── profile of one slow request: {} took {:.0} ms, trace {}",
            slow.path,
            took_ns / 1e6,
            slow.trace_id
        );
        println!(
            "{:.0} ms on the CPU, {:.0} % of it in {report} and its callees; {:.0} ms not on a CPU",
            cpu_ns / 1e6,
            100.0 * report_ns / cpu_ns,
            (took_ns - cpu_ns).max(0.0) / 1e6
        );
        self.print("functions of this request", &["-n", "5", "--sort", "own", "--trace-id", &slow.trace_id])
    }

    fn print(&self, title: &str, words: &[&str]) -> StepResult {
        println!("\n── {title}");
        let output = self.top(words).output().map_err(|error| StepFailure::new(title, error.to_string()))?;
        print!("{}", String::from_utf8_lossy(&output.stdout));
        if output.status.success() && !output.stdout.is_empty() {
            Ok(())
        } else {
            Err(StepFailure::new(title, String::from_utf8_lossy(&output.stderr).into_owned()))
        }
    }
}

/// Waits for Ctrl-C, which ends this process; the services and the server end with it.
fn wait_for_interrupt(mut services: Vec<LoadedService>) -> StepResult {
    loop {
        std::thread::sleep(Duration::from_secs(1));
        for service in &mut services {
            if let Some(status) = service.running.ended() {
                return Err(StepFailure::new(service.example.service_name(), format!("ended with {status}")));
            }
        }
    }
}
