//! Engines in tests: settings as by default, and native functions at scripted addresses.

use std::sync::Arc;

use crate::counters::Counters;
use crate::engine::WindowEnd;
use crate::engine::{Engine, EngineSettings, SystemAccess, MAX_STACKS};
use crate::resolve::native_symbols::{NativeCode, NativeFunction, NativeSymbols};
use crate::resource::Resource;
use crate::retention::{SlowLimit, TailPolicy};
use crate::runtime::NativeMapping;
use crate::testing::FakeRuntime;
use crate::window::WindowSettings;
use spanprof_profile::code_origin::OwnCode;
use spanprof_profile::redact::{ProfileRedactor, RedactionRule, RedactionSettings};
use spanprof_profile::ProfilesData;
use spanprof_signal::heap::HeapSampling;
use spanprof_signal::Ring;

/// Addresses of functions in the program.
pub const PROGRAM: u64 = 0x100_0000;
/// Addresses of functions in a library.
pub const LIBRARY: u64 = 0x200_0000;
/// Addresses in that library without a symbol.
pub const LIBRARY_PART: u64 = 0x208_0000;
/// Addresses of functions in an unloaded library.
pub const UNLOADED: u64 = 0x300_0000;
/// Addresses at which several libraries were loaded.
pub const DOUBTFUL: u64 = 0x400_0000;

/// `main` in the program and `getenv` in libraries.
pub struct ScriptedSymbols;

impl NativeSymbols for ScriptedSymbols {
    fn code(&self, pc: u64, _position: u64) -> NativeCode {
        match pc {
            DOUBTFUL.. => NativeCode::Doubtful,
            UNLOADED.. => NativeCode::Unloaded,
            LIBRARY.. => NativeCode::Loaded,
            PROGRAM.. => NativeCode::Program,
            _ => NativeCode::Loaded,
        }
    }

    fn function(&mut self, pc: u64, _position: u64) -> Option<NativeFunction> {
        let (symbol, start, file) = match pc {
            LIBRARY_PART..UNLOADED => (None, None, "/lib/libc.so.6"),
            LIBRARY.. => (Some("getenv"), Some(LIBRARY), "/lib/libc.so.6"),
            PROGRAM.. => (Some("main"), Some(PROGRAM), "/bin/program"),
            _ => return None,
        };
        Some(NativeFunction { symbol: symbol.map(Into::into), start, file: file.into(), is_own: false })
    }

    fn place(&mut self, pc: u64, _position: u64, start: Option<u64>) -> Option<(Arc<NativeMapping>, u64)> {
        let (first, file) = match pc {
            LIBRARY.. => (LIBRARY, "/lib/libc.so.6"),
            PROGRAM.. => (PROGRAM, "/bin/program"),
            _ => return None,
        };
        let mapping = NativeMapping {
            start: 0x1000,
            limit: 0x101_0000,
            file_offset: 0x800,
            file: file.into(),
            build_id: "c0ffee".into(),
            htlhash: "0123".into(),
        };
        Some((mapping.into(), start.unwrap_or(pc) - first + 0x1000))
    }

    fn refresh(&mut self, _ring: &Ring) -> bool {
        false
    }

    fn notices_unloads(&self) -> bool {
        true
    }
}

pub const WINDOW: WindowSettings = WindowSettings {
    cpu_period_ns: 10_000_000,
    wall_period_ns: 10_000_000,
    heap_interval_bytes: 524_288,
    interval_ns: 10_000_000_000,
    keep_timestamps: false,
    thread_labels: false,
    thread_name: |_| None,
    wall: true,
    strips_links: false,
};

pub fn settings() -> EngineSettings {
    EngineSettings {
        window: WINDOW,
        max_stacks: MAX_STACKS,
        heap_interval: 524_288,
        heap_rate_limit: false,
        heap_live_samples: 65_536,
        heap_age: false,
        retention: None,
        tags: Vec::new(),
        duty_cycles: Vec::new(),
        own_code: OwnCode::default(),
        sums_since_start: false,
    }
}

/// Retention as by default.
pub fn tail_policy() -> TailPolicy {
    TailPolicy {
        duration: Some(SlowLimit::Percentile),
        cpu_share: None,
        allocated_bytes: None,
        errors: true,
        max_bytes: 8 << 20,
    }
}

/// Settings with retention.
pub fn with_retention(policy: TailPolicy) -> EngineSettings {
    EngineSettings { window: WindowSettings { strips_links: true, ..WINDOW }, retention: Some(policy), ..settings() }
}

pub fn redactor() -> ProfileRedactor {
    redactor_of(Vec::new())
}

fn redactor_of(rules: Vec<RedactionRule>) -> ProfileRedactor {
    ProfileRedactor::new(RedactionSettings { default_patterns: true, rules, hash_key: Vec::new() })
}

pub fn engine(settings: EngineSettings, runtime: &Arc<FakeRuntime>, counters: &Arc<Counters>) -> Engine {
    redacting_engine(settings, runtime, counters, Vec::new())
}

/// An engine with rules of redaction beside the default patterns.
pub fn redacting_engine(
    settings: EngineSettings,
    runtime: &Arc<FakeRuntime>,
    counters: &Arc<Counters>,
    rules: Vec<RedactionRule>,
) -> Engine {
    let heap: &'static HeapSampling = Box::leak(Box::new(HeapSampling::new()));
    let native_symbols = Box::new(ScriptedSymbols);
    let system = SystemAccess { profile_id: || [1; 16], seed: 7, heap, native_symbols };
    Engine::new(settings, system, runtime.clone(), Resource::default(), redactor_of(rules), counters.clone(), 0)
}

/// The counter of a name.
/// Closes a window of all kinds without objects in use; its data.
pub fn closed(engine: &mut Engine, now_monotonic_ns: u64) -> Option<ProfilesData> {
    let end = WindowEnd {
        now_monotonic_ns,
        unix_offset_ns: 0,
        unattributed_ns: None,
        is_alive: &mut |_| true,
        in_use: false,
        sums_since_start: false,
    };
    engine.close(end).map(|closed| closed.data)
}

pub fn counter(counters: &Counters, name: &str) -> u64 {
    counters.values().find(|(known, _)| *known == name).map_or(0, |(_, value)| value)
}
