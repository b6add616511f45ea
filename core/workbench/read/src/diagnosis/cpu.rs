//! Rules on CPU time: hot functions of the program's own code, and garbage collection.

use std::collections::BTreeMap;

use spanprof_profile::code_origin::RuntimeBucket;
use spanprof_profile::FrameType;

use super::service::{Charged, ServiceProfile, StackSum, TypeStacks};
use super::{EstimatedShare, Fact, Finding, Rule, FEW_SAMPLES, LISTED, MIN_FINDING_SAMPLES};

/// Smallest share of the CPU time of further hot functions; the lower end of its interval must exceed it.
const HOT_SHARE: f64 = 0.2;
/// In a service that uses less of one processor, collections are no problem.
const MIN_PROCESSORS: f64 = 0.05;
/// Hot functions reported for a service.
const MAX_HOT: usize = 3;
/// Smallest share of the time or of the CPU time for garbage collection.
const GC_SHARE: f64 = 0.1;
/// Shortest total of pauses, nanoseconds.
const MIN_PAUSES_NS: f64 = 2e8;

/// The function of own code that uses most CPU time, and those with more than [`HOT_SHARE`] of it, with the libraries that they call.
pub(super) fn hot_code(service: &ServiceProfile) -> Vec<Finding> {
    let Some(cpu) = service.of_type("cpu") else { return Vec::new() };
    let total = cpu.total as f64;
    let own = service.charge(cpu.stacks.iter()).into_iter().filter(|row| service.is_own(row.function));
    let hot = own.enumerate().filter_map(|(nth, row)| {
        let share = EstimatedShare::of(row.weight as f64, total, cpu.samples);
        if row.samples < MIN_FINDING_SAMPLES || nth > 0 && share.low < HOT_SHARE {
            return None;
        }
        let (line, of_line) = heaviest_line(&row);
        let mut facts = vec![
            ("cpu", Fact::Quantity(row.weight, "nanoseconds")),
            ("self", Fact::Part(row.self_weight as f64 / total)),
            ("with_callees", Fact::Part(row.total as f64 / total)),
        ];
        if line > 0 {
            facts.push(("line", Fact::Line(line)));
            facts.push(("share_of_line", Fact::Part(of_line as f64 / row.weight as f64)));
        }
        facts.push(("callees", Fact::Functions(service.heaviest(&row.leaves, LISTED), row.weight)));
        facts.push(("native_code", Fact::Functions(service.heaviest(&row.native, LISTED), row.weight)));
        facts.push(("callers", Fact::Functions(service.heaviest(&row.callers, LISTED), row.weight)));
        Some(Finding {
            rule: Rule::HotCode,
            service: String::new(),
            type_name: "cpu",
            function: Some(service.function(row.function).clone()),
            share,
            cost: row.weight as f64 / service.observed_ns(),
            samples: row.samples,
            facts,
        })
    });
    hot.take(MAX_HOT).collect()
}

/// The line with most weight; 0 where lines are unknown.
pub(super) fn heaviest_line(row: &Charged) -> (i64, i64) {
    let (line, weight) = row.lines.iter().max_by_key(|(line, weight)| (**weight, -**line)).unwrap_or((&0, &0));
    (*line, *weight)
}

/// Whether a CPU sample is of a collector, by the names that the runtimes give it.
fn is_collector(service: &ServiceProfile, stack: &[u32]) -> bool {
    service.functions_of(stack).any(|id| {
        let function = service.function(id);
        let bucket = || RuntimeBucket::of(&function.function, &function.file, function.frame_type);
        !service.is_own(id)
            && (function.function == "runtime.gcBgMarkWorker" || bucket() == Some(RuntimeBucket::GarbageCollector))
    })
}

/// Garbage collection above [`GC_SHARE`]: of the CPU time by samples, or of the time by pauses. CPython collects on the thread that
/// allocates, so its pauses are CPU time, except for the part without a processor.
pub(super) fn garbage_collection(service: &ServiceProfile) -> Option<Finding> {
    let cpu = service.of_type("cpu");
    let pauses = service.of_type("gc");
    let mut candidates: Vec<(EstimatedShare, f64, f64, bool)> = Vec::new();
    if let Some(cpu) = cpu {
        let of_collector = |sums: (f64, f64), ((stack, _), sum): (&(Box<[u32]>, bool), &StackSum)| {
            if is_collector(service, stack) {
                (sums.0 + sum.weight as f64, sums.1 + sum.samples)
            } else {
                sums
            }
        };
        let (weight, samples) = cpu.stacks.iter().fold((0.0, 0.0), of_collector);
        if samples >= MIN_FINDING_SAMPLES
            && cpu.samples >= FEW_SAMPLES
            && cpu.total as f64 >= MIN_PROCESSORS * service.observed_ns()
        {
            candidates.push((EstimatedShare::of(weight, cpu.total as f64, cpu.samples), weight, samples, true));
        }
    }
    let has_processor =
        |stack: &[u32]| service.functions_of(stack).next().is_some_and(|leaf| !service.is_scheduled_out(leaf));
    let collected = pauses.map_or(0, |pauses| {
        let running = pauses.stacks.iter().filter(|((stack, _), _)| has_processor(stack));
        running.fold(0i64, |sum, (_, sums)| sum.saturating_add(sums.weight))
    }) as f64;
    if collected >= MIN_PAUSES_NS {
        candidates.push((EstimatedShare::exact(collected / service.observed_ns()), collected, 0.0, false));
        let on_python = |pauses: &TypeStacks| {
            pauses.stacks.keys().any(|(stack, _)| {
                service.functions_of(stack).any(|id| {
                    let function = service.function(id);
                    function.frame_type == FrameType::Cpython || function.file.ends_with(".py")
                })
            })
        };
        let busy =
            cpu.filter(|cpu| cpu.samples >= FEW_SAMPLES && cpu.total as f64 >= MIN_PROCESSORS * service.observed_ns());
        if let (Some(cpu), true) = (busy, pauses.is_some_and(on_python)) {
            candidates.push((EstimatedShare::of(collected, cpu.total as f64, cpu.samples), collected, 0.0, true));
        }
    }
    candidates.retain(|(share, ..)| share.low >= GC_SHARE);
    let (share, weight, samples, is_cpu) =
        candidates.into_iter().max_by(|one, other| one.0.value.total_cmp(&other.0.value))?;
    let mut facts = vec![("of", Fact::Text(if is_cpu { "CPU time" } else { "time" }.to_owned()))];
    if let Some(pauses) = pauses {
        facts.push(("pauses", Fact::Quantity(pauses.total, "nanoseconds")));
        facts.push(("pauses_of_time", Fact::Part(pauses.total as f64 / service.observed_ns())));
        // `[automatic]` or `[G1 young collection]`: the kinds of collections.
        let mut kinds = BTreeMap::new();
        for ((stack, _), sums) in &pauses.stacks {
            if let Some(kind) = service.functions_of(stack).find(|leaf| !service.is_scheduled_out(*leaf)) {
                *kinds.entry(kind).or_insert(0i64) += sums.weight;
            }
        }
        facts.push(("causes", Fact::Functions(service.heaviest(&kinds, LISTED), pauses.total)));
    }
    let mut function = None;
    if let Some(allocated) = service.of_type("alloc_space") {
        let rows = service.charge(allocated.stacks.iter());
        let rows: Vec<_> = rows.into_iter().filter(|row| row.samples >= MIN_FINDING_SAMPLES).take(LISTED).collect();
        function = rows.first().map(|row| service.function(row.function).clone());
        let rows = rows.iter().map(|row| (service.function(row.function).clone(), row.weight)).collect();
        facts.push(("allocated", Fact::Quantity(allocated.total, "bytes")));
        facts.push(("allocators", Fact::Functions(rows, allocated.total)));
    }
    Some(Finding {
        rule: Rule::GarbageCollection,
        service: String::new(),
        type_name: if function.is_some() { "alloc_space" } else { "gc" },
        function,
        share,
        cost: weight / service.observed_ns(),
        samples,
        facts,
    })
}
