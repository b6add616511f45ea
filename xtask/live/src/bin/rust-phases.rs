//! Six phases of `PHASE_MS` of CPU time, each under a label and in a span whose id is the number of the phase. Prints `phase
//! NUMBER LEAST MOST`, the kernel's CPU time of the thread (schedstat, ns) within the label and around the span, then `stats JSON`. With
//! `SECTIONS`, three threads work in short phases instead. The settings are environment variables.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::time::Duration;

use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use opentelemetry::Context;
use spanprof::{tag_wrapper, Config, Profiler};
use spanprof_os::current_thread_cpu_ns;

/// The statistics that are compared.
const NAMES: [&str; 8] = [
    "clock.ticks.perf",
    "clock.ticks_due.perf",
    "clock.ticks.thread_timer",
    "clock.ticks_due.thread_timer",
    "clock.rearmed",
    "dropped.late_tick",
    "cost.process_cpu_ns",
    "cost.own_cpu_ns",
];

fn ran_ns() -> u64 {
    // The kernel's figure is of the last tick, or of the last wait.
    std::thread::sleep(Duration::from_millis(1));
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[inline(never)]
fn burn(ns: u64) -> u64 {
    let (end, mut total) = (current_thread_cpu_ns() + ns, 0u64);
    while current_thread_cpu_ns() < end {
        for number in 0..100 {
            total = black_box(total.wrapping_mul(31) ^ number);
        }
    }
    total
}

/// Burns CPU time; returns the kernel's figure of it.
fn ran_in(ns: u64) -> u64 {
    let before_ns = ran_ns();
    burn(ns);
    ran_ns() - before_ns
}

/// Works under the label and in the span of a phase.
fn phase(number: u32, work: impl FnOnce() -> u64) -> u64 {
    let (trace, span) = (TraceId::from(u128::from(number)), SpanId::from(u64::from(number)));
    let ids = SpanContext::new(trace, span, TraceFlags::SAMPLED, true, TraceState::default());
    let _span = Context::new().with_remote_span_context(ids).attach();
    tag_wrapper([("phase", number.to_string().as_str())], work)
}

/// Works in phases of the given µs in turn and waits after each turn, until the thread has used `ns`.
fn turns(phases: [(u32, u64); 2], ns: u64, mut wait: impl FnMut()) {
    let (end, mut used) = (current_thread_cpu_ns() + ns, [[0; 2]; 2]);
    while current_thread_cpu_ns() < end {
        for ([least, most], (number, us)) in used.iter_mut().zip(phases) {
            let before_ns = current_thread_cpu_ns();
            *least += phase(number, || {
                let begun_ns = current_thread_cpu_ns();
                black_box(burn(us * 1_000));
                current_thread_cpu_ns() - begun_ns
            });
            *most += current_thread_cpu_ns() - before_ns;
        }
        wait();
    }
    phases.iter().zip(used).for_each(|((number, _), [least, most])| println!("phase {number} {least} {most}"));
}

/// Threads that wake up by a timer, in step with the kernel's tick; by another thread; and never.
fn sections(ns: u64) {
    let ((there, other), (back, own)) = (channel(), channel());
    std::thread::scope(|scope| {
        scope.spawn(|| turns([(1, 100), (2, 100)], ns, || std::thread::sleep(Duration::from_micros(200))));
        scope.spawn(move || other.iter().for_each(|()| back.send(()).unwrap_or(())));
        scope.spawn(move || {
            turns([(3, 100), (4, 50)], ns, || {
                let _ = there.send(()).map(|()| own.recv());
            })
        });
        scope.spawn(|| turns([(5, 3_000), (6, 1_000)], ns, || {}));
    });
}

fn run() -> Result<(), spanprof::Error> {
    let phase_ms: u64 = std::env::var("PHASE_MS").ok().and_then(|text| text.parse().ok()).unwrap_or(250);
    let profiler = Profiler::start(Config::builder().load()?)?;
    // Resolves what scopes and spans need, outside of the phases.
    phase(99, || ran_in(1_000_000));
    if std::env::var_os("SECTIONS").is_some() {
        sections(20 * phase_ms * 1_000_000);
    } else {
        for number in 1..=6 {
            let before_ns = ran_ns();
            let least_ns = phase(number, || ran_in(phase_ms * 1_000_000));
            println!("phase {number} {least_ns} {}", ran_ns() - before_ns);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let stats = profiler.stats();
    let numbers: Vec<_> = NAMES.iter().map(|name| format!("\"{name}\":{}", stats.counter(name))).collect();
    println!("stats {{{}}}", numbers.join(","));
    profiler.stop();
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
