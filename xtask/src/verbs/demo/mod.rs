//! `cargo xtask demo`: the whole way in one command: real web services under load, one of each language, their profiles
//! received, linked to their spans and shown. Also called by `test`, with an end.

mod load;
mod prepared;
mod services;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Verb;
use crate::arguments::Known;
use crate::step::{Failure, Outcome, Running, Step};
use crate::{http, progress, scratch, workspace};

pub const VERB: Verb = Verb {
    name: "demo",
    usage: "demo [--service NAME,…] [--seconds N]",
    about: "real web services under load, their profiles linked to spans, shown on one page\n\n\
        Builds the command line and the packages, optimized as a user's are (output: target/demo-build.log), starts `spanprof\n\
        serve` (ports 4317 and 4318 where free) and services of examples/ under the OpenTelemetry SDK, drives load with trace\n\
        context, and prints for each its own top functions, the share of samples linked to spans, one slow request explained\n\
        and the profiler's own cost; then the page's address.\n\
        --service: fastapi, express, fastify, spring; without it one of each language whose tools are here.\n\
        --seconds N: ends by itself after N seconds of load, non-zero if any of that is missing. Without it: until Ctrl-C.",
    options: &[Known::Value("seconds"), Known::Value("service")],
    run: |given| {
        let examples = given.text("service").map(Example::named).transpose()?.unwrap_or_else(Example::usual);
        show(&examples, given.number("seconds")?, &Ports::usual()?, Packages::Optimized)
    },
};

use load::SlowRequest;
pub use services::{Example, Packages, USUAL};

/// Load before the first look when nobody says how long.
const FIRST_LOOK_SECONDS: u64 = 6;

/// Where `spanprof serve` listens.
pub struct Ports {
    /// OTLP/gRPC.
    pub grpc: u16,
    /// OTLP/HTTP and the page.
    pub http: u16,
}

impl Ports {
    /// OpenTelemetry's own where both are free, else free ones.
    pub fn usual() -> Outcome<Self> {
        let free = |port: u16| std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, port)).is_ok();
        if free(4317) && free(4318) {
            return Ok(Self { grpc: 4317, http: 4318 });
        }
        println!("ports 4317 and 4318 are taken; using free ones");
        Self::free()
    }

    /// Two free ones.
    pub fn free() -> Outcome<Self> {
        let port = || http::free_port().map_err(|error| Failure::new("free port", error.to_string()));
        Ok(Self { grpc: port()?, http: port()? })
    }
}

/// A running `spanprof serve`.
pub struct Server {
    /// Its HTTP port.
    pub http_port: u16,
    /// The address of its page.
    pub page: String,
    _running: Running,
}

impl Server {
    /// Starts it with a directory of its own and waits until it says where it listens.
    pub fn start(command: &Path, folder: &Path, ports: &Ports) -> Outcome<Self> {
        let mut running = Step::new("spanprof serve", command)
            .args(["serve", "--json", "--quiet", "--dir"])
            .arg(folder.join("profiles"))
            .args(["--grpc", &ports.grpc.to_string(), "--http", &ports.http.to_string()])
            .start(&folder.join("serve.log"))?;
        let place: Value =
            running.wait_until(Duration::from_secs(20), |log| serde_json::from_str(log.lines().next()?).ok())?;
        let page = place["url"].as_str().unwrap_or_default().to_owned();
        Ok(Self { http_port: ports.http, page, _running: running })
    }
}

/// A service under load.
struct Service {
    example: Example,
    port: u16,
    /// What its profiler said before the load.
    before: Value,
    load: load::Load,
    running: Running,
}

/// Shows everything; `seconds` of load and an end, or until Ctrl-C.
pub fn show(examples: &[Example], seconds: Option<u64>, ports: &Ports, packages: Packages) -> Outcome {
    let began = Instant::now();
    let folder = scratch::empty("demo")?;
    let prepare = || {
        let command = packages.command_line()?;
        let programs = examples.iter().map(|example| example.prepare(packages)).collect::<Outcome<Vec<_>>>()?;
        Ok((command, programs))
    };
    let (command, programs) = match packages {
        Packages::ForTests => prepare()?,
        Packages::Optimized => progress::into_log(&emptied_log()?, prepare)?,
    };
    let server = Server::start(&command, &folder, ports)?;
    let mut started = Vec::new();
    for (example, program) in examples.iter().zip(&programs) {
        let (running, port) = program.start(&folder, &server)?;
        println!("{} answers on 127.0.0.1:{port}", example.service_name());
        started.push((*example, running, port));
    }
    println!("built and started in {} s", began.elapsed().as_secs());
    let mut services = Vec::new();
    for (example, running, port) in started {
        services.push(Service { example, port, before: own_stats(port)?, load: load::Load::start(port), running });
    }
    std::thread::sleep(Duration::from_secs(seconds.unwrap_or(FIRST_LOOK_SECONDS)));
    for service in &services {
        println!("\n══ {}", service.example.service_name());
        service.show(&command, &server)?;
    }
    page_answers(&server)?;
    println!("\npage: {}", server.page);
    if seconds.is_none() {
        println!("load goes on; Ctrl-C ends everything");
        wait_for_the_end(services)?;
    }
    Ok(())
}

/// Where the output of the build goes.
fn emptied_log() -> Outcome<PathBuf> {
    let log = workspace::target().join("demo-build.log");
    scratch::write(&log, "")?;
    Ok(log)
}

impl Service {
    fn show(&self, command: &Path, server: &Server) -> Outcome {
        let slow = self.load.one_slow_request()?;
        let address = format!("http://127.0.0.1:{}", server.http_port);
        let look = Look { command: command.to_owned(), example: self.example, address };
        look.wait_for(&["--trace-id", &slow.trace_id])?;
        let stats = own_stats(self.port)?;
        look.own_functions()?;
        look.print("top functions, libraries and runtime included", &["-n", "8"])?;
        print_linked_share(self.example, &self.before, &stats)?;
        look.explain(&slow)?;
        print_own_cost(&stats)?;
        println!("requests answered: {}, failed: {}", self.load.answered(), self.load.failed());
        if self.load.answered() == 0 || self.load.failed() > 0 {
            return Err(Failure::new("load", "requests failed; the profiler must not change what the service answers"));
        }
        Ok(())
    }
}

/// What the service's own profiler says of itself.
fn own_stats(service_port: u16) -> Outcome<Value> {
    let answer = http::get(service_port, "/profiler");
    match &answer {
        Ok((200, body)) => {
            serde_json::from_str(body).map_err(|error| Failure::new("own statistics", error.to_string()))
        }
        other => Err(Failure::new("own statistics", format!("the service answered {other:?}"))),
    }
}

fn print_own_cost(stats: &Value) -> Outcome {
    let number = |name: &str| stats[name].as_f64().unwrap_or_default();
    let own = number("cost.own_cpu_ns") + number("clock.handler_ns");
    let process = number("cost.process_cpu_ns");
    if own <= 0.0 || process <= 0.0 {
        return Err(Failure::new("own cost", format!("stats() does not tell it: {stats}")));
    }
    println!(
        "\n── the profiler's own cost\n{:.1} ms of CPU (own threads and signal handler) of {:.1} s that the service used: {:.2} %\n\
         {:.1} ms in which the kernel delivered samples: {:.2} %; clock: {}",
        own / 1e6,
        process / 1e9,
        own / process * 100.0,
        number("clock.delivery_ns") / 1e6,
        number("clock.delivery_ns") / process * 100.0,
        stats["clock.name"].as_str().unwrap_or("not told"),
    );
    Ok(())
}

/// Of the samples since the load began: starting is no request.
fn print_linked_share(example: Example, before: &Value, stats: &Value) -> Outcome {
    let since = |name: &str| stats[name].as_f64().unwrap_or_default() - before[name].as_f64().unwrap_or_default();
    let (linked, all) = (since("samples.linked"), since("samples.cpu"));
    let share = linked / all.max(1.0);
    println!("\n── samples linked to spans: {:.1} % of {all}", share * 100.0);
    if share < example.least_linked_share() {
        let message = format!("expected at least {:.0} %", example.least_linked_share() * 100.0);
        return Err(Failure::new("link to spans", message));
    }
    Ok(())
}

fn page_answers(server: &Server) -> Outcome {
    match http::get(server.http_port, "/") {
        Ok((200, page)) if page.contains("<html") => Ok(()),
        other => Err(Failure::new("page", format!("GET / answered {other:?}"))),
    }
}

/// Looks into what was received, with the command a user would type.
struct Look {
    command: PathBuf,
    example: Example,
    address: String,
}

impl Look {
    fn top(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.command);
        command
            .arg("top")
            .arg(&self.address)
            .args(["--service", &self.example.service_name(), "--type", "cpu"])
            .args(words);
        command
    }

    fn json(&self, words: &[&str]) -> Option<Value> {
        let output = self.top(words).args(["--json"]).output().ok()?;
        serde_json::from_slice(&output.stdout).ok()
    }

    fn wait_for(&self, words: &[&str]) -> Outcome {
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            if self.json(words).is_some_and(|table| table["total"].as_i64() > Some(0)) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(250));
        }
        Err(Failure::new(
            "delivery",
            format!("no sample of {} {words:?} arrived within 20 s", self.example.service_name()),
        ))
    }

    /// The service's own code first: callees included, so that time in libraries is charged to the function that uses them.
    fn own_functions(&self) -> Outcome {
        const SHOWN: usize = 6;
        println!("\n── its own functions, callees included");
        let table = self.json(&["-n", "0"]).unwrap_or_default();
        let total = table["total"].as_f64().unwrap_or_default().max(1.0);
        let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let mut own: Vec<_> = table["rows"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|row| self.example.is_own(&text(row, "function"), &text(row, "file")))
            .map(|row| (row["cum"].as_f64().unwrap_or_default(), text(row, "function"), text(row, "file")))
            .collect();
        own.sort_by(|left, right| right.0.total_cmp(&left.0));
        for (ns, function, file) in own.iter().take(SHOWN) {
            let file = file.rsplit('/').next().unwrap_or_default();
            println!("{:>7.2} s {:>5.1} %  {function}  {file}", ns / 1e9, 100.0 * ns / total);
        }
        match own.is_empty() {
            true => Err(Failure::new("own functions", "none of the service's functions is in the profile")),
            false => Ok(()),
        }
    }

    /// The slow request alone: what it did on the CPU, where, and how long it waited. Its profile has its own function, and
    /// none of another request.
    fn explain(&self, slow: &SlowRequest) -> Outcome {
        let profile = self.json(&["-n", "0", "--trace-id", &slow.trace_id]).unwrap_or_default();
        let rows = profile["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
        let ns_in = |function: &str| {
            let row = rows.iter().find(|row| row["function"].as_str().is_some_and(|name| name.ends_with(function)))?;
            row["cum"].as_f64()
        };
        let (report, cart) = self.example.functions();
        let (Some(report_ns), None) = (ns_in(report), ns_in(cart)) else {
            let names: Vec<_> = rows.iter().filter_map(|row| row["function"].as_str()).collect();
            return Err(Failure::new("one slow request", format!("expected {report} and not {cart}, got {names:?}")));
        };
        let cpu_ns = profile["total"].as_f64().unwrap_or_default().max(1.0);
        let took_ns = slow.took.as_nanos() as f64;
        println!(
            "\n── one slow request explained: {} took {:.0} ms, trace {}",
            slow.path,
            took_ns / 1e6,
            slow.trace_id
        );
        println!(
            "{:.0} ms on the CPU, {:.0} % of it in {report} and what it calls; {:.0} ms waiting",
            cpu_ns / 1e6,
            100.0 * report_ns / cpu_ns,
            (took_ns - cpu_ns).max(0.0) / 1e6
        );
        self.print("its functions", &["-n", "5", "--trace-id", &slow.trace_id])
    }

    fn print(&self, title: &str, words: &[&str]) -> Outcome {
        println!("\n── {title}");
        let output = self.top(words).output().map_err(|error| Failure::new(title, error.to_string()))?;
        print!("{}", String::from_utf8_lossy(&output.stdout));
        match output.status.success() && !output.stdout.is_empty() {
            true => Ok(()),
            false => Err(Failure::new(title, String::from_utf8_lossy(&output.stderr).into_owned())),
        }
    }
}

/// Ctrl-C reaches every process of the terminal's group, this one included.
fn wait_for_the_end(mut services: Vec<Service>) -> Outcome {
    loop {
        std::thread::sleep(Duration::from_secs(1));
        for service in &mut services {
            if let Some(status) = service.running.ended() {
                return Err(Failure::new(service.example.service_name(), format!("ended with {status}")));
            }
        }
    }
}
