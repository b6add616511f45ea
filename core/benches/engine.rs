//! Cost of the engine per call: contexts and labels on the host's threads, draining and closing on the profiler's. Prints
//! the median of many rounds beside its budget. Run with `cargo bench -p spanprof --bench engine`.

use std::hint::black_box;

use spanprof::{tag_wrapper, Labels};
use spanprof_aggregate::context::{extend_labels, intern_labels, open_context, with_labels, ContextRow, LabelSetId};
use spanprof_config::Config;
use spanprof_os::current_thread_cpu_ns;
use spanprof_profile::encode::otlp;
use spanprof_profiler::conformance::{ScriptedEngine, TableLimits};
use spanprof_signal::{Context, RawFrame, RawSample, SampleFlags, SampleKind};

const ROUNDS: usize = 31;

fn measure(what: &str, budget: &str, calls: u32, mut call: impl FnMut()) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            // CPU time is independent of other load on the machine.
            let begun = current_thread_cpu_ns();
            for _ in 0..calls {
                call();
            }
            (current_thread_cpu_ns() - begun) as f64 / f64::from(calls)
        })
        .collect();
    show(what, budget, &mut rounds);
}

fn show(what: &str, budget: &str, rounds: &mut [f64]) {
    rounds.sort_by(f64::total_cmp);
    println!("{what:<58} {:>10.1} ns   budget {budget}", rounds[rounds.len() / 2]);
}

fn sample<'a>(frames: &'a [RawFrame], context: u64) -> RawSample<'a> {
    RawSample {
        kind: SampleKind::Cpu,
        flags: SampleFlags(0),
        thread_id: 7,
        time_ns: 1_000_000_000,
        values: [10_000_000, 1],
        key: 0,
        context: if context == 0 { Context::None } else { Context::Id(context) },
        frames,
    }
}

fn main() {
    let trace = [("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"), ("span_id", "00f067aa0ba902b7")];
    let three = [("http.route", "/cart/{id}"), ("http.method", "POST"), ("tenant", "blue")];
    let prebuilt = with_labels(with_labels(ContextRow::default(), &trace), &three);
    measure("open a context with a link from prebuilt labels", "≤ 50 ns", 10_000, || {
        black_box(open_context(black_box(prebuilt)));
    });
    let outer = intern_labels(&[("service", "shop")]);
    let inner = intern_labels(&three);
    measure("merge two label sets seen before", "≤ 50 ns", 10_000, || {
        black_box(spanprof_aggregate::context::merge_label_sets(black_box(outer), black_box(inner)));
    });
    measure("intern three labels seen before", "≤ 300 ns", 10_000, || {
        black_box(intern_labels(black_box(&three)));
    });
    measure("add three labels to a parent", "≤ 300 ns", 10_000, || {
        black_box(extend_labels(black_box(outer), black_box(&three)));
    });
    let mut number = 0u64;
    measure("intern a label set never seen (table full: `other`)", "–", 2_000, || {
        number += 1;
        black_box(extend_labels(LabelSetId::EMPTY, &[("id", number.to_string().as_str())]));
    });
    let labels = Labels::new(&three);
    measure("enter and leave tag_wrapper, prebuilt labels", "≤ 50 ns", 10_000, || {
        tag_wrapper(black_box(&labels), || black_box(()));
    });

    let mut engine = ScriptedEngine::new(&Config::default(), &TableLimits::default());
    let codes: Vec<_> = (0..100).map(|n| engine.code_of(&format!("function_{n}"))).collect();
    for depth in [20, 100] {
        let frames: Vec<_> = (0..depth).map(|n| RawFrame { code: codes[n], at: n as u64 }).collect();
        let context = open_context(prebuilt);
        measure(&format!("drain a stack of {depth} frames seen before"), "~100 ns at 100", 5_000, || {
            engine.process(&sample(&frames, context));
        });
        let mut changing = frames.clone();
        let mut at = 0;
        measure(&format!("drain a stack of {depth} frames, its leaf new"), "≤ 3 µs", 200, || {
            at += 1;
            changing[0].at = at;
            engine.process(&sample(&changing, context));
        });
    }
    let mut frames: Vec<_> = (0..30).map(|n| RawFrame { code: codes[n], at: n as u64 }).collect();
    let mut rounds: Vec<_> = (0..ROUNDS)
        .map(|_| {
            for at in 0..1_000 {
                frames[0].at = at;
                engine.process(&sample(&frames, 0));
            }
            let begun = current_thread_cpu_ns();
            let data = engine.close_in_memory(2_000_000_000).expect("samples");
            black_box(otlp::encode(&data, Default::default()));
            (current_thread_cpu_ns() - begun) as f64 / 1_000.0
        })
        .collect();
    show("close and encode 1,000 samples of 30 frames, per sample", "≤ 3 µs with drain", &mut rounds);
}
