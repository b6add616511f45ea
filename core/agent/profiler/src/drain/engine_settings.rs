//! The settings of the engine from the configuration, and its access to the process: names of threads and of native functions,
//! random numbers, the hooks of the heap profile.

use std::collections::HashMap;
use std::sync::Arc;

use spanprof_aggregate::runtime::NativeMapping;
use spanprof_aggregate::{
    EngineSettings, NativeCode, NativeFunction, NativeSymbols, SlowLimit, SystemAccess, TailPolicy, WindowSettings,
    MAX_STACKS,
};
use spanprof_config::{Config, SampleRetention, TailDuration};
use spanprof_os::{CodeState, FileSymbols, LoadedObject, NativeObject, ObjectFile};
use spanprof_profile::code_origin::OwnCode;
use spanprof_profile::HeapAge;
use spanprof_signal::heap::HEAP;
use spanprof_signal::Ring;

use crate::deliver::reduction;
use crate::wall::pace;

/// Memory for samples of unfinished requests with `retention=tail`: about 100,000 samples.
const TAIL_MAX_BYTES: usize = 8 << 20;

/// What `config` sets, in a process with a CPU quota of `processors`.
pub(crate) fn engine_settings(config: &Config, processors: Option<f64>) -> EngineSettings {
    EngineSettings {
        window: window_settings(config, processors),
        max_stacks: MAX_STACKS,
        heap_interval: config.heap_interval,
        heap_rate_limit: config.cpu_budget > 0.0,
        heap_live_samples: config.heap_live_samples as usize,
        heap_age: reduction::is_heap_age_used(config) && !config.tags.contains_key(HeapAge::LABEL),
        retention: (config.retention == SampleRetention::Tail).then(|| tail_policy(config)),
        tags: config.tags.clone().into_iter().collect(),
        duty_cycles: config.duty_cycles().into_iter().map(|(kind, cycle)| (kind, cycle.text())).collect(),
        own_code: OwnCode::new(&config.own_code),
        sums_since_start: config.pull.is_some() || crate::session::pull_handlers::has_handler(),
    }
}

fn window_settings(config: &Config, processors: Option<f64>) -> WindowSettings {
    WindowSettings {
        cpu_period_ns: 1_000_000_000 / u64::from(config.sample_rate.max(1)),
        wall_period_ns: pace::base_ns(config, processors),
        heap_interval_bytes: config.heap_interval,
        interval_ns: config.upload_interval.as_nanos() as u64,
        keep_timestamps: config.keep_timestamps,
        thread_labels: config.thread_labels,
        thread_name: spanprof_os::thread_name,
        wall: config.wall || !config.off_cpu,
        strips_links: config.retention == SampleRetention::Tail,
    }
}

fn tail_policy(config: &Config) -> TailPolicy {
    TailPolicy {
        duration: match config.tail_duration {
            TailDuration::Ignored => None,
            TailDuration::Percentile => Some(SlowLimit::Percentile),
            TailDuration::AtLeast(duration) => Some(SlowLimit::AtLeast(duration)),
        },
        cpu_share: config.tail_cpu_share.map(|share| share.0),
        allocated_bytes: config.tail_allocated_bytes,
        errors: config.tail_errors,
        max_bytes: TAIL_MAX_BYTES,
    }
}

/// Files whose mappings are kept; each takes some 500 bytes.
const MAX_FILES: usize = 1024;

/// The engine's access to this process.
pub(crate) fn system_access() -> SystemAccess {
    // Its ring positions are those of an earlier engine.
    spanprof_os::forget_objects();
    spanprof_unwind::install_fork_reset();
    SystemAccess {
        profile_id: spanprof_os::random::bytes,
        seed: spanprof_os::random::number(),
        heap: &HEAP,
        native_symbols: Box::<ProcessSymbols>::default(),
    }
}

/// Functions of this process by the symbol tables of its files.
#[derive(Default)]
struct ProcessSymbols {
    symbols: FileSymbols,
    /// By load address and first page, which identify the object.
    files: HashMap<(u64, u64), Option<MappedObject>>,
}

/// A loaded file, and the mapping of each of its segments.
struct MappedObject {
    file: ObjectFile,
    mappings: Vec<Arc<NativeMapping>>,
}

impl NativeSymbols for ProcessSymbols {
    fn code(&self, pc: u64, position: u64) -> NativeCode {
        match spanprof_os::code_state(pc, position) {
            CodeState::Program => NativeCode::Program,
            CodeState::Loaded => NativeCode::Loaded,
            CodeState::Unloaded => NativeCode::Unloaded,
            CodeState::Doubtful => NativeCode::Doubtful,
        }
    }

    fn function(&mut self, pc: u64, position: u64) -> Option<NativeFunction> {
        let object = spanprof_os::native_object(pc, position)?;
        let mut function = function_of_object(&object, pc);
        if !function.is_own {
            let of_file = self.symbols.function(&object.object(pc), pc);
            function.start = of_file.as_ref().map(|of_file| of_file.start);
            // A file may have been replaced or be unreadable.
            let exported = || object.exported_symbol(pc).map(Into::into);
            function.symbol = of_file.map(|of_file| of_file.symbol).or_else(exported);
        }
        Some(function)
    }

    fn place(&mut self, pc: u64, position: u64, start: Option<u64>) -> Option<(Arc<NativeMapping>, u64)> {
        let native = spanprof_os::native_object(pc, position)?;
        let object = native.object(pc);
        let key = (object.base, object.first_page);
        if self.files.len() >= MAX_FILES && !self.files.contains_key(&key) {
            self.files.clear();
        }
        let mapped = self.files.entry(key).or_insert_with(|| MappedObject::read(&native, &object)).as_ref()?;
        let address = mapped.file.address(object.base, pc);
        let is_code = |mapping: &&Arc<NativeMapping>| (mapping.start..mapping.limit).contains(&address);
        let mapping = mapped.mappings.iter().find(is_code)?.clone();
        let by_unwind_table = || mapped.file.function_start(object.base, pc).filter(|_| native.is_loaded);
        let start = start.or_else(by_unwind_table).unwrap_or(pc);
        Some((mapping, mapped.file.address(object.base, start)))
    }

    fn refresh(&mut self, ring: &Ring) -> bool {
        spanprof_os::refresh_objects(ring.tail(), &|| ring.head())
    }

    fn notices_unloads(&self) -> bool {
        spanprof_os::are_objects_listed()
    }
}

impl MappedObject {
    fn read(native: &NativeObject, object: &LoadedObject) -> Option<Self> {
        let file = ObjectFile::read(object)?;
        let path = if native.is_of_program { std::fs::read_link(&object.path).ok()? } else { native.file.clone() };
        let path: Arc<str> = path.to_string_lossy().into();
        let build_id: Arc<str> = file.build_id.as_deref().unwrap_or_default().into();
        let htlhash: Arc<str> = file.htlhash.as_str().into();
        let mappings = file.code.iter().map(|segment| {
            Arc::new(NativeMapping {
                start: segment.addresses.start,
                limit: segment.addresses.end,
                file_offset: segment.file_offset,
                file: path.clone(),
                build_id: build_id.clone(),
                htlhash: htlhash.clone(),
            })
        });
        Some(Self { mappings: mappings.collect(), file })
    }
}

/// A function without its symbol.
fn function_of_object(object: &NativeObject, pc: u64) -> NativeFunction {
    NativeFunction {
        symbol: None,
        start: None,
        file: object.file.clone(),
        is_own: spanprof_os::is_own_code(object, pc),
    }
}

/// The frame of the native code that was at `pc` at ring position `position`, from exported symbols only. `None` outside of
/// loaded files.
pub fn native_frame(pc: u64, position: u64) -> Option<spanprof_aggregate::runtime::Frame> {
    let object = spanprof_os::native_object(pc, position)?;
    let symbol = object.exported_symbol(pc).map(Into::into);
    Some(spanprof_aggregate::native_frame(NativeFunction { symbol, ..function_of_object(&object, pc) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_of_wall_samples_is_the_interval_of_the_sampler() {
        let period_ns = |config: &Config, quota| engine_settings(config, quota).window.wall_period_ns;
        let fast = Config { sample_rate: 10_000, wall: true, ..Config::default() };
        assert_eq!(period_ns(&fast, None), 1_000_000, "the wall sampler takes at most 1,000 samples per second");
        let own = Config { wall_rate: Some(50), ..fast };
        assert_eq!(period_ns(&own, None), 20_000_000);
        assert_eq!(period_ns(&own, Some(0.5)), 40_000_000, "half as many under a quota of half a processor");
        assert_eq!(period_ns(&own, Some(4.0)), 20_000_000);
    }

    #[test]
    #[cfg_attr(target_feature = "crt-static", ignore = "a static program has no libraries")]
    fn native_code_has_the_name_of_its_exported_symbol() {
        let mut symbols = ProcessSymbols::default();
        let pc = libc::getenv as *const () as u64;
        let function = symbols.function(pc, 0).unwrap();
        assert_eq!((function.symbol.as_deref(), symbols.code(pc, 0)), (Some("getenv"), NativeCode::Loaded));
        assert_eq!(&*native_frame(pc, 0).unwrap().function, "getenv");
        assert_eq!((symbols.function(16, 0), native_frame(16, 0)), (None, None));
    }

    #[test]
    fn a_function_that_is_not_exported_has_the_name_of_its_file_s_symbol_table() {
        let (mut symbols, pc) = (ProcessSymbols::default(), tail_policy as *const () as u64);
        assert!(symbols.function(pc, 0).unwrap().symbol.unwrap().contains("tail_policy"));
        assert_eq!(symbols.code(pc, 0), NativeCode::Program);
    }

    #[test]
    fn native_code_is_in_a_mapping_of_its_file_at_the_address_of_its_function() {
        let mut symbols = ProcessSymbols::default();
        for function in [libc::getenv as *const () as u64, tail_policy as *const () as u64] {
            let start = symbols.function(function + 4, 0).unwrap().start;
            assert_eq!(start, Some(function));
            let place = |symbols: &mut ProcessSymbols, start| symbols.place(function + 4, 0, start).expect("a file");
            let (mapping, address) = place(&mut symbols, start);
            let by_unwind_table = place(&mut symbols, None);
            assert_eq!((by_unwind_table.1, by_unwind_table.0), (address, mapping.clone()));
            assert!((mapping.start..mapping.limit).contains(&address), "{mapping:x?} {address:x}");
            assert!(mapping.file.starts_with('/') && mapping.htlhash.len() == 32, "{mapping:?}");
        }
        assert_eq!(symbols.place(16, 0, None), None);
    }
}
