//! `spanprof::pprof` beside the crate `pprof` with the same calls: CPU time of a busy loop while it is sampled, and the time of
//! a report. Paired rounds in turn; medians, and 95 % intervals of the differences within a round. Needs
//! symbols: `CARGO_PROFILE_BENCH_STRIP=none cargo bench -p spanprof --bench pprof_crate`.

use std::hint::black_box;
use std::time::Instant;

use spanprof_os::{current_thread_cpu_ns, process_cpu_ns};

const RATES: [i32; 2] = [99, 1000];
const ROUNDS: usize = 15;
/// Iterations of the busy loop, about 0.6 s; a sixth of them before each measurement, for the work at the start of a guard.
const ITERATIONS: u64 = 300_000_000;
const STACKS: [u32; 2] = [100, 1000];
/// Longer than two ticks of a kernel with 250 Hz, which bound the timer of the crate `pprof`.
const CPU_PER_STACK_NS: u64 = 12_000_000;
const REPORTS: usize = 15;

#[inline(never)]
fn spin(iterations: u64) {
    let mut mixed = iterations | 1;
    for _ in 0..iterations {
        mixed ^= mixed << 13;
        mixed ^= mixed >> 7;
        mixed ^= mixed << 17;
    }
    black_box(mixed);
}

/// CPU time of this thread and of the process in a fixed amount of work, ns.
fn busy_loop() -> [f64; 2] {
    spin(ITERATIONS / 6);
    let begun = [current_thread_cpu_ns(), process_cpu_ns()];
    spin(ITERATIONS);
    let ended = [current_thread_cpu_ns(), process_cpu_ns()];
    [0, 1].map(|clock| (ended[clock] - begun[clock]) as f64)
}

/// Runs `work` under a guard of one of the crates, and returns its result and the number of samples.
macro_rules! guarded {
    ($crate_name:ident, $rate:expr, $work:expr) => {{
        let guard = $crate_name::ProfilerGuard::new($rate).unwrap();
        let result = $work;
        let samples: isize = guard.report().build().unwrap().data.values().sum();
        (result, samples)
    }};
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The 95 % interval of a median: order statistics of a binomial distribution, normal approximation.
fn interval(values: &mut [f64]) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let (count, half) = (values.len() as f64, 0.98 * (values.len() as f64).sqrt());
    (values[(count / 2.0 - half) as usize], values[((count / 2.0 + half) as usize).min(values.len() - 1)])
}

fn compare_cost(rate: i32) {
    use {pprof_crate as theirs, spanprof::pprof as ours};
    // [none, spanprof, pprof] of each round.
    let mut rounds = Vec::new();
    let mut samples = [0, 0];
    for round in 0..ROUNDS {
        let mut cpu_ns = [[0.0; 2]; 3];
        for turn in 0..3 {
            let which = (round + turn) % 3;
            cpu_ns[which] = match which {
                0 => busy_loop(),
                1 => {
                    let (ns, count) = guarded!(ours, rate, busy_loop());
                    samples[0] += count;
                    ns
                }
                _ => {
                    let (ns, count) = guarded!(theirs, rate, busy_loop());
                    samples[1] += count;
                    ns
                }
            };
        }
        rounds.push(cpu_ns);
    }
    for (which, name) in [(1, "spanprof::pprof"), (2, "pprof")] {
        let shown = [0, 1].map(|clock| {
            let cost = |round: &[[f64; 2]; 3]| (round[which][clock] / round[0][clock] - 1.0) * 100.0;
            let mut percent: Vec<f64> = rounds.iter().map(cost).collect();
            let (low, high) = interval(&mut percent);
            format!("{:+.2} % ({low:+.2} … {high:+.2})", median(&mut percent))
        });
        // The iterations before each measurement are sampled too.
        let seconds = rounds.iter().map(|round| round[which][1]).sum::<f64>() / 1e9 * 7.0 / 6.0;
        let rate_found = samples[which - 1] as f64 / seconds;
        let [thread, process] = shown;
        println!(
            "{rate:>5} Hz  {name:<16} its thread {thread}   process {process}   {rate_found:.0} samples per CPU second"
        );
    }
}

/// A stack for each number: one of two functions per bit.
#[inline(never)]
fn zero(number: u32, bits: u32) -> u64 {
    black_box(descend(number, bits)) ^ 1
}

#[inline(never)]
fn one(number: u32, bits: u32) -> u64 {
    black_box(descend(number, bits)) ^ 3
}

#[inline(always)]
fn descend(number: u32, bits: u32) -> u64 {
    match (bits, number & 1) {
        (0, _) => burn(),
        (_, 0) => zero(number >> 1, bits - 1),
        _ => one(number >> 1, bits - 1),
    }
}

#[inline(never)]
fn burn() -> u64 {
    let begun = current_thread_cpu_ns();
    let mut mixed = begun | 1;
    while current_thread_cpu_ns() - begun < CPU_PER_STACK_NS {
        for _ in 0..10_000 {
            mixed ^= mixed << 13;
            mixed ^= mixed >> 7;
            mixed ^= mixed << 17;
        }
    }
    mixed
}

/// Medians of the wall-clock time of a report, ms, and its number of stacks.
macro_rules! time_reports {
    ($crate_name:ident, $stacks:expr) => {{
        let guard = $crate_name::ProfilerGuard::new(1000).unwrap();
        for number in 0..$stacks {
            black_box(descend(number, 10));
        }
        let mut stacks = 0;
        let mut milliseconds: Vec<f64> = (0..REPORTS)
            .map(|_| {
                let begun = Instant::now();
                stacks = black_box(guard.report().build().unwrap()).data.len();
                begun.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        (median(&mut milliseconds), stacks)
    }};
}

fn compare_reports(stacks: u32) {
    use {pprof_crate as theirs, spanprof::pprof as ours};
    let (our_ms, our_stacks) = time_reports!(ours, stacks);
    let (their_ms, their_stacks) = time_reports!(theirs, stacks);
    println!("report     spanprof::pprof  {our_ms:>8.2} ms with {our_stacks} stacks");
    println!(
        "report     pprof            {their_ms:>8.2} ms with {their_stacks} stacks   ratio {:.3}",
        our_ms / their_ms
    );
}

fn main() {
    RATES.into_iter().for_each(compare_cost);
    STACKS.into_iter().for_each(compare_reports);
}
