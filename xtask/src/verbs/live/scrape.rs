//! `spanprof scrape` with a real Go service: the forwarded allocations are those that the service was ordered to make, also
//! over a restart; CPU, contention and goroutines arrive; a receiver and a directory have the same.

use std::path::Path;
use std::time::Duration;

use super::go_program;
use crate::arguments::LiveArguments;
use crate::artifact;
use crate::http;
use crate::scratch;
use crate::step::{ProcessStep, Running, StepFailure, StepResult};
use crate::verbs::demo::{self, DemoServer};

const SERVICE: &str = "live-scrape";
/// The module has no dependencies; the version is that of its sources.
pub const VERSION: &str = "v1";
/// Bytes of one block, and the blocks that each process allocates at its start, from main.go.
pub const BLOCK_BYTES: i64 = 1 << 16;
const INITIAL_BLOCKS: i64 = 16;
/// Orders to the first process, and one to its successor.
const ORDERS: [i64; 3] = [100, 100, 100];
const ORDER_AFTER_RESTART: i64 = 50;
/// Far beyond any interval of this suite on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn run(_: &LiveArguments) -> StepResult {
    let program = go_program("scrape", ".", VERSION)?;
    let command = artifact::command_line()?;
    let directory = scratch::empty("live-scrape")?;
    let server = DemoServer::start(&command, &directory, &demo::Ports::free()?)?;
    let url = format!("http://127.0.0.1:{}", server.http_port);
    let port = super::free_port()?;
    let config = directory.join("scrape.yaml");
    let files = directory.join("files");
    // A collection before each heap profile makes it complete.
    let text = format!(
        "interval: 2s\ntargets:\n- url: http://127.0.0.1:{port}\n  attributes: {{service.name: {SERVICE}}}\n  profiles: [cpu, \
         {{name: heap, path: '/debug/pprof/heap?gc=1', interval: 1s}}, block, mutex, goroutine]\ndestinations:\n- endpoint: {url}\n\
         - {{directory: {}, keep: 10000}}\n",
        files.display()
    );
    scratch::write(&config, &text)?;

    let service = service(&program, port, &directory)?;
    let mut scrape = ProcessStep::new("spanprof scrape", &command)
        .args(["scrape", "--json", "--config"])
        .arg(&config)
        .start(&directory.join("scrape.log"))?;
    let allocated = |scrape: &mut Running, blocks: i64| {
        let total = || total(&command, &url, "alloc_space", "main.allocateKnown");
        scrape.wait_until(PATIENCE, |_| (total() >= blocks * BLOCK_BYTES).then_some(()))
    };
    // Objects in use arrive with the first pull, the base of the totals.
    scrape.wait_until(PATIENCE, |_| {
        (total(&command, &url, "inuse_space", "main.allocateKnown") >= INITIAL_BLOCKS * BLOCK_BYTES).then_some(())
    })?;
    let mut expected = 0;
    for blocks in ORDERS {
        order(port, blocks)?;
        expected += blocks;
        allocated(&mut scrape, expected)?;
    }
    drop(service);
    scrape.wait_until(PATIENCE, |log| log.contains("is unreachable").then_some(()))?;
    let successor = self::service(&program, port, &directory)?;
    order(port, ORDER_AFTER_RESTART)?;
    expected += INITIAL_BLOCKS + ORDER_AFTER_RESTART;
    allocated(&mut scrape, expected)?;
    scrape.wait_until(PATIENCE, |log| log.contains("is reachable again").then_some(()))?;
    for (type_name, function) in [
        ("cpu", "main.burnCPU"),
        ("delay", "sync.(*Mutex).Lock"),
        ("mutex_delay", "sync.(*Mutex).Unlock"),
        ("goroutine", "runtime.gopark"),
    ] {
        scrape.wait_until(PATIENCE, |_| (total(&command, &url, type_name, function) > 0).then_some(()))?;
        println!("{type_name}: {function} is in it");
    }
    // SIGTERM, which delivers the queue.
    drop(scrape);
    drop(successor);
    for source in [url.as_str(), &files.to_string_lossy()] {
        let allocated = total(&command, source, "alloc_space", "main.allocateKnown");
        if allocated != expected * BLOCK_BYTES {
            let message = format!("{allocated} bytes in {source}, expected {expected} blocks of {BLOCK_BYTES}");
            return Err(StepFailure::new("allocations of the Go service", message));
        }
    }
    ProcessStep::new("spanprof check", &command).args(["check", "--strict", &url]).capture()?;
    println!("alloc_space: {expected} blocks over a restart, exactly those ordered");
    Ok(())
}

pub fn service(program: &Path, port: u16, directory: &Path) -> StepResult<Running> {
    let mut running = ProcessStep::new("the Go service", program)
        .arg(format!("127.0.0.1:{port}"))
        .start(&directory.join("service.log"))?;
    running.wait_until(PATIENCE, |_| http::get(port, "/debug/pprof/cmdline").ok())?;
    Ok(running)
}

pub fn order(port: u16, blocks: i64) -> StepResult {
    let answer = http::get(port, &format!("/allocate?blocks={blocks}"));
    match answer {
        Ok((200, _)) => Ok(()),
        other => Err(StepFailure::new("order allocations", format!("{other:?}"))),
    }
}

/// Value of a function without its callees; 0 when it is absent. Of memory only the blocks: Go attributes allocations of its
/// own runtime, such as those at the start of a collection, to the function that caused them.
fn total(command: &Path, source: &str, type_name: &str, function: &str) -> i64 {
    let blocks = type_name.ends_with("_space").then(|| format!("--label=bytes={BLOCK_BYTES}"));
    let output = std::process::Command::new(command)
        .args(["top", source, "--service", SERVICE, "--type", type_name, "--limit", "0", "--json"])
        .args(blocks)
        .output();
    let json = output.ok().and_then(|output| serde_json::from_slice::<serde_json::Value>(&output.stdout).ok());
    let rows = json.as_ref().and_then(|json| json["rows"].as_array()).into_iter().flatten();
    rows.filter(|row| row["function"] == function).filter_map(|row| row["flat"].as_i64()).sum()
}
