//! Rules on waiting: locks, blocked event loops, requests.

use std::collections::BTreeMap;

use spanprof_profile::code_origin::is_activity;

use super::cpu::heaviest_line;
use super::service::{Charged, ServiceProfile, StackSum};
use super::{EstimatedShare, Fact, Finding, Rule, UnknownWaits, LISTED, MIN_FINDING_SAMPLES};

/// Threads that wait at one place at a time, on average.
const WAITING_THREADS: f64 = 0.1;
/// Total of waits for a lock, nanoseconds, that is a finding also if they are few: then the threshold of waits has not risen, so they are
/// all recorded with their length, and their total has no error of sampling. The start of a program waits for less.
const MIN_DELAY_NS: f64 = 5e9;
/// Smallest share of the time in which an event loop is blocked.
const BLOCKED_SHARE: f64 = 0.05;
/// Shortest total of blocks, nanoseconds: the start of a program blocks once.
const MIN_BLOCKED_NS: f64 = 2e8;
/// Smallest share of the time of requests that they wait at one place.
const WAITING_SHARE: f64 = 0.5;

/// The place where threads wait longest for a lock, by `delay` and `contentions`.
pub(super) fn lock_convoy(service: &ServiceProfile) -> Option<Finding> {
    let (delay, contentions) = (service.of_type("delay")?, service.of_type("contentions")?);
    let row = service.charge(delay.stacks.iter()).into_iter().next()?;
    let counted = service.charge(contentions.stacks.iter());
    let waits = counted.iter().find(|other| other.function == row.function).map_or(0.0, |row| row.weight as f64);
    let waiting = row.weight as f64 / service.observed_ns();
    let is_supported = waits >= MIN_FINDING_SAMPLES || (waits >= 1.0 && row.weight as f64 >= MIN_DELAY_NS);
    if !is_supported || waiting < WAITING_THREADS {
        return None;
    }
    let mut facts = vec![
        ("waits", Fact::Number(waits)),
        ("delay", Fact::Quantity(row.weight, "nanoseconds")),
        ("mean_wait", Fact::Quantity((row.weight as f64 / waits) as i64, "nanoseconds")),
        ("waiting_threads", Fact::Number(waiting)),
    ];
    if !row.threads.is_empty() {
        facts.push(("threads", Fact::Number(row.threads.len() as f64)));
    }
    // In Java the leaf is the class of the lock.
    facts.push(("locks", Fact::Functions(service.heaviest(&row.leaves, LISTED), row.weight)));
    Some(at(
        service,
        Rule::LockConvoy,
        "delay",
        &row,
        EstimatedShare::exact(row.weight as f64 / delay.total as f64),
        waits,
        facts,
    ))
}

/// Whether a stack loads the modules of the program. Its start blocks the event loop, but no request. Node.js calls the main module of
/// CommonJS and ESM from these files (lib/internal/main and lib/internal/modules, 18 to 26), possibly in a microtask; CPython imports
/// in `importlib._bootstrap`, which is frozen.
fn loads_modules(service: &ServiceProfile, stack: &[u32]) -> bool {
    let files = || service.functions_of(stack).map(|id| service.function(id).file.as_str());
    let of_node = |file: &&str| file.starts_with("node:") && *file != "node:internal/process/task_queues";
    let is_loader = |file: &str| file.starts_with("node:internal/main/") || file.starts_with("node:internal/modules/");
    files().filter(of_node).last().is_some_and(is_loader) || files().any(|file| file.starts_with("<frozen importlib"))
}

/// The code that blocks an event loop longest. Node.js measures its turns (`event_loop_lag`). In asyncio, waits inside a callback block
/// the loop (`off_cpu`): the stack then has `Handle._run`, which an idle loop does not have.
pub(super) fn event_loop_block(service: &ServiceProfile) -> Option<Finding> {
    if let Some(lag) = service.of_type("event_loop_lag") {
        // Without a stack it is unknown whether the code waited or the machine had no processor.
        let has_code = |((stack, _), _): &(&(Box<[u32]>, bool), &StackSum)| {
            let mut functions = service.functions_of(stack).map(|id| service.function(id));
            functions.any(|at| !is_activity(&at.function, &at.file)) && !loads_modules(service, stack)
        };
        let rows = service.charge(lag.stacks.iter().filter(has_code));
        let blocked: i64 = rows.iter().fold(0, |sum, row| row.weight.saturating_add(sum));
        let share = EstimatedShare::exact(blocked as f64 / service.observed_ns());
        if (blocked as f64) < MIN_BLOCKED_NS || share.value < BLOCKED_SHARE {
            return None;
        }
        let row = rows.first()?;
        let mut facts = vec![
            ("blocked", Fact::Quantity(blocked, "nanoseconds")),
            ("of_this_function", Fact::Part(row.weight as f64 / blocked as f64)),
            ("callees", Fact::Functions(service.heaviest(&row.leaves, LISTED), row.weight)),
        ];
        // A longer one was the start of the program.
        if (1..=blocked).contains(&service.longest_block_ns) {
            facts.insert(1, ("longest_block", Fact::Quantity(service.longest_block_ns, "nanoseconds")));
        }
        return Some(at(service, Rule::EventLoopBlock, "event_loop_lag", row, share, 0.0, facts));
    }
    let waits = service.of_type("off_cpu")?;
    let in_callback = |((stack, _), _): &(&(Box<[u32]>, bool), &StackSum)| {
        let is_handle = |id| {
            let function = service.function(id);
            function.function.ends_with("_run") && function.file.ends_with("asyncio/events.py")
        };
        let is_waiting = service.functions_of(stack).next().is_some_and(|leaf| !service.is_scheduled_out(leaf));
        is_waiting && service.functions_of(stack).any(is_handle) && !loads_modules(service, stack)
    };
    let rows = service.charge(waits.stacks.iter().filter(in_callback));
    let blocked: f64 = rows.iter().map(|row| row.weight as f64).sum();
    let samples: f64 = rows.iter().map(|row| row.samples).sum();
    let share = EstimatedShare::exact(blocked / service.observed_ns());
    if blocked < MIN_BLOCKED_NS || share.value < BLOCKED_SHARE {
        return None;
    }
    let row = rows.first()?;
    let facts = vec![
        ("blocked", Fact::Quantity(blocked as i64, "nanoseconds")),
        ("of_this_function", Fact::Part(row.weight as f64 / blocked)),
        ("reasons", Fact::Functions(service.heaviest(&row.leaves, LISTED), row.weight)),
    ];
    Some(at(service, Rule::EventLoopBlock, "off_cpu", row, share, samples, facts))
}

/// The place where requests wait for most of their time: by `off_cpu`, or by `wall` minus `cpu`. Samples belong to a request if they
/// have a span or an endpoint; idle threads have neither.
pub(super) fn waiting_requests(service: &ServiceProfile) -> Option<Finding> {
    let of_requests = |type_name: &str| {
        let stacks = service.of_type(type_name)?.stacks.iter().filter(|((_, is_request), _)| *is_request);
        Some(service.charge(stacks)).filter(|rows| !rows.is_empty())
    };
    let on_cpu: BTreeMap<u32, i64> =
        of_requests("cpu").unwrap_or_default().into_iter().map(|row| (row.function, row.weight)).collect();
    let cpu: f64 = on_cpu.values().map(|weight| *weight as f64).sum();
    let (mut rows, time, type_name) = match of_requests("off_cpu") {
        Some(rows) => {
            let waited: f64 = rows.iter().map(|row| row.weight as f64).sum();
            (rows, waited + cpu, "off_cpu")
        }
        None => {
            let mut rows = of_requests("wall")?;
            let time = rows.iter().map(|row| row.weight as f64).sum();
            for row in &mut rows {
                row.weight -= on_cpu.get(&row.function).copied().unwrap_or_default().min(row.weight);
            }
            rows.sort_by_key(|row| std::cmp::Reverse(row.weight));
            (rows, time, "wall")
        }
    };
    let samples: f64 = rows.iter().map(|row| row.samples).sum();
    let row = rows.drain(..).next()?;
    let share = EstimatedShare::of(row.weight as f64, time, samples);
    if row.samples < MIN_FINDING_SAMPLES || share.low < WAITING_SHARE {
        return None;
    }
    let facts = vec![
        ("waited", Fact::Quantity(row.weight, "nanoseconds")),
        ("reasons", Fact::Functions(service.heaviest(&row.leaves, LISTED), row.leaves.values().sum())),
    ];
    Some(at(service, Rule::WaitingRequests, type_name, &row, share, row.samples, facts))
}

/// The time of requests of which most is no CPU time, with the CPU time, if no profile shows how it was spent.
pub(super) fn unknown_waits(service: &ServiceProfile) -> Option<UnknownWaits<'_>> {
    let cpu_ns = service.of_type("cpu")?.total;
    let has_waits =
        service.awaits || ["off_cpu", "wall", "delay"].into_iter().any(|name| service.of_type(name).is_some());
    let is_known = has_waits || (cpu_ns as f64) > service.request_time_ns as f64 * (1.0 - WAITING_SHARE);
    (!is_known).then_some(UnknownWaits { service: "", request_time_ns: service.request_time_ns, cpu_ns })
}

/// A finding about the function of `row`, with its line and callers.
fn at(
    service: &ServiceProfile,
    rule: Rule,
    type_name: &'static str,
    row: &Charged,
    share: EstimatedShare,
    samples: f64,
    mut facts: Vec<(&'static str, Fact)>,
) -> Finding {
    let (line, of_line) = heaviest_line(row);
    if line > 0 {
        facts.push(("line", Fact::Line(line)));
        facts.push(("share_of_line", Fact::Part(of_line as f64 / row.lines.values().sum::<i64>().max(1) as f64)));
    }
    let sum = row.lines.values().sum();
    facts.push(("callers", Fact::Functions(service.heaviest(&row.callers, LISTED), sum)));
    Finding {
        rule,
        service: String::new(),
        type_name,
        function: Some(service.function(row.function).clone()),
        share,
        cost: row.weight as f64 / service.observed_ns(),
        samples,
        facts,
    }
}
