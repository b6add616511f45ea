//! Reports: the samples of a guard as counts per stack, as a flame graph and as pprof.

use std::collections::HashMap;
use std::fmt::{self, Debug, Formatter};
use std::io::Write;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::frames::{Frames, Symbol, UnresolvedFrames};
use super::samples::GuardSamples;
use super::{protos, Result};
use spanprof_profile::{
    transform, Dictionary, Function, Line, Location, LocationId, Profile, ProfilesData, ResourceProfiles, Sample,
    StackId, Value, ValueType,
};
use spanprof_view::svg;

/// When and how the samples of a report were taken.
#[derive(Clone, Debug)]
pub struct ReportTiming {
    /// Samples per second of CPU time.
    pub frequency: i32,
    /// Start of the guard.
    pub start_time: SystemTime,
    /// Time from the start of the guard to the report.
    pub duration: Duration,
}

impl Default for ReportTiming {
    fn default() -> Self {
        Self { frequency: 1, start_time: SystemTime::UNIX_EPOCH, duration: Duration::ZERO }
    }
}

/// Samples per stack.
pub struct CpuReport {
    /// Number of samples of each stack. A sample is one period of CPU time; the remainders of a thread are carried over, so
    /// totals are exact to one period per thread.
    pub data: HashMap<Frames, isize>,
    /// When and how they were taken.
    pub timing: ReportTiming,
}

/// As [`CpuReport`], before [`ReportBuilder::frames_post_processor`].
pub struct UnresolvedReport {
    /// Number of samples of each stack.
    pub data: HashMap<UnresolvedFrames, isize>,
    /// When and how they were taken.
    pub timing: ReportTiming,
}

type FramesPostProcessor = Box<dyn Fn(&mut Frames)>;

/// Builds a report of a guard.
pub struct ReportBuilder<'a> {
    samples: &'a GuardSamples,
    frames_post_processor: Option<FramesPostProcessor>,
}

impl<'a> ReportBuilder<'a> {
    pub(super) fn new(samples: &'a GuardSamples) -> Self {
        Self { samples, frames_post_processor: None }
    }

    /// Changes every stack before stacks are counted.
    pub fn frames_post_processor<T>(&mut self, frames_post_processor: T) -> &mut Self
    where
        T: Fn(&mut Frames) + 'static,
    {
        self.frames_post_processor = Some(Box::new(frames_post_processor));
        self
    }

    /// The report so far. The guard continues.
    ///
    /// # Errors
    /// [`super::Error::NotRunning`] when the profiler has stopped.
    pub fn build(&self) -> Result<CpuReport> {
        let (samples, timing) = self.read()?;
        let mut data = HashMap::new();
        for (mut frames, count) in samples {
            if let Some(process) = &self.frames_post_processor {
                process(&mut frames);
            }
            *data.entry(frames).or_default() += count;
        }
        Ok(CpuReport { data, timing })
    }

    /// As [`ReportBuilder::build`], without the post-processor.
    ///
    /// # Errors
    /// As [`ReportBuilder::build`].
    pub fn build_unresolved(&self) -> Result<UnresolvedReport> {
        let (samples, timing) = self.read()?;
        let mut data = HashMap::new();
        for (frames, count) in samples {
            *data.entry(UnresolvedFrames(frames)).or_default() += count;
        }
        Ok(UnresolvedReport { data, timing })
    }

    fn read(&self) -> Result<(Vec<(Frames, isize)>, ReportTiming)> {
        let data = self.samples.read()?;
        let (start_time, duration) = self.samples.times();
        let profiles = || data.profiles().map(|(_, profile)| profile).filter(|profile| profile.period > 0);
        // The governor may change the rate of a running profiler: counts are those of the shortest period.
        let period = profiles().map(|profile| profile.period).min();
        let frequency = period.map_or(self.samples.frequency, |period| (1_000_000_000 / period) as i32);
        let mut stacks = StackReader { dictionary: &data.dictionary, frames: HashMap::new(), start_time };
        let mut samples = Vec::new();
        for profile in profiles() {
            let mut carried = 0;
            for sample in &profile.samples {
                let total = sample.total().saturating_mul(profile.period) + carried;
                let count = total / period.unwrap_or(1);
                carried = total % period.unwrap_or(1);
                if count > 0 {
                    samples.push((stacks.read(sample), count as isize));
                }
            }
        }
        Ok((samples, ReportTiming { frequency, start_time, duration }))
    }
}

struct StackReader<'d> {
    dictionary: &'d Dictionary,
    /// Samples of different labels have the same stack.
    frames: HashMap<u32, Vec<Vec<Symbol>>>,
    start_time: SystemTime,
}

impl StackReader<'_> {
    fn read(&mut self, sample: &Sample) -> Frames {
        let dictionary = self.dictionary;
        let stack = self.frames.entry(sample.stack.index() as u32).or_insert_with(|| {
            let locations = dictionary.get_stack(sample.stack).iter();
            locations.map(|location| symbols(dictionary, *location)).collect()
        });
        let mut read = Frames {
            frames: stack.clone(),
            thread_name: String::new(),
            thread_id: 0,
            sample_timestamp: self.start_time,
        };
        for attribute in dictionary.attributes_of(sample.attributes) {
            match (attribute.key, attribute.value) {
                ("thread.id", Value::Int(id)) => read.thread_id = id.unsigned_abs(),
                ("thread.name", Value::String(name)) => name.clone_into(&mut read.thread_name),
                _ => {}
            }
        }
        read
    }
}

fn symbols(dictionary: &Dictionary, location: LocationId) -> Vec<Symbol> {
    let symbol = |line: &Line| {
        let function = dictionary.get_function(line.function);
        let file = dictionary.get_string(function.filename);
        Symbol {
            name: Some(dictionary.get_string(function.name).as_bytes().to_vec()),
            addr: None,
            lineno: u32::try_from(line.line).ok().filter(|line| *line > 0),
            filename: (!file.is_empty()).then(|| PathBuf::from(file)),
        }
    };
    dictionary.get_location(location).lines.iter().map(symbol).collect()
}

impl Debug for CpuReport {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.data.iter().try_for_each(|(frames, count)| writeln!(formatter, "{frames:?} {count}"))
    }
}

/// Options of a flame graph: those of `inferno::flamegraph::Options` that its images have here.
#[derive(Clone, Debug)]
pub struct FlameGraphOptions<'a> {
    /// Title. Default: `Flame Graph`.
    pub title: String,
    /// Unit of the counts. Default: `samples`.
    pub count_name: String,
    /// Width of the image in pixels; 1200 when not set.
    pub image_width: Option<usize>,
    /// Other options have references.
    #[doc(hidden)]
    pub references: PhantomData<&'a ()>,
}

impl Default for FlameGraphOptions<'_> {
    fn default() -> Self {
        Self {
            title: "Flame Graph".to_owned(),
            count_name: "samples".to_owned(),
            image_width: None,
            references: PhantomData,
        }
    }
}

impl CpuReport {
    /// Writes a flame graph as SVG; nothing without samples.
    ///
    /// # Errors
    /// When the image cannot be written.
    pub fn flamegraph<W: Write>(&self, writer: W) -> Result<()> {
        self.flamegraph_with_options(writer, &mut FlameGraphOptions::default())
    }

    /// As [`CpuReport::flamegraph`], with options.
    ///
    /// # Errors
    /// As [`CpuReport::flamegraph`].
    pub fn flamegraph_with_options<W: Write>(&self, mut writer: W, options: &mut FlameGraphOptions<'_>) -> Result<()> {
        if self.data.is_empty() {
            return Ok(());
        }
        let tree = transform::tree(&self.profiles(), "samples");
        let width = options.image_width.unwrap_or(svg::DEFAULT_WIDTH);
        let image = svg::encode(&tree, &options.title, width, |count| format!("{count} {}", options.count_name));
        Ok(writer.write_all(image.as_bytes())?)
    }

    /// The counts as profiles; the root of each stack is its thread.
    fn profiles(&self) -> ProfilesData {
        let mut data = ProfilesData::default();
        let mut samples = Vec::new();
        for (frames, count) in &self.data {
            let mut locations: Vec<_> =
                frames.frames.iter().map(|frame| location(&mut data.dictionary, frame)).collect();
            let name = Some(frames.thread_name_or_id().into_bytes());
            let thread = Symbol { name, addr: None, lineno: None, filename: None };
            locations.push(location(&mut data.dictionary, &[thread]));
            let stack: StackId = data.dictionary.stack(&locations);
            samples.push(Sample { stack, values: vec![*count as i64], ..Sample::default() });
        }
        let profile = Profile { sample_type: ValueType::new("samples", "count"), samples, ..Profile::default() };
        data.resources.push(ResourceProfiles { profiles: vec![profile], ..ResourceProfiles::default() });
        data
    }

    /// The report as a message of google/pprof: the counts and the CPU time by stack, with the label `thread`.
    ///
    /// # Errors
    /// Never; the crate `pprof` has this signature.
    pub fn pprof(&self) -> Result<protos::Profile> {
        let mut message = MessageBuilder::default();
        let ReportTiming { frequency, start_time, duration } = self.timing;
        let period = 1_000_000_000 / i64::from(frequency.max(1));
        message.index("");
        let [counted, cpu] = [("samples", "count"), ("cpu", "nanoseconds")]
            .map(|(ty, unit)| protos::ValueType { ty: message.index(ty), unit: message.index(unit) });
        let thread = message.index("thread");
        for (frames, count) in &self.data {
            let location_id = frames.frames.iter().map(|frame| message.location(frame)).collect();
            let name = message.index(&frames.thread_name_or_id());
            let label = vec![protos::Label { key: thread, str: name, ..protos::Label::default() }];
            let value = vec![*count as i64, *count as i64 * period];
            message.profile.sample.push(protos::Sample { location_id, value, label });
        }
        let since_epoch = start_time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(protos::Profile {
            sample_type: vec![counted, cpu],
            time_nanos: since_epoch.as_nanos() as i64,
            duration_nanos: duration.as_nanos() as i64,
            period_type: Some(cpu),
            period,
            ..message.profile
        })
    }
}

fn location(dictionary: &mut Dictionary, frame: &[Symbol]) -> LocationId {
    let line = |symbol: &Symbol| {
        let name = dictionary.string(&symbol.sys_name());
        let filename = dictionary.string(&symbol.filename.as_ref().map_or("".into(), |path| path.to_string_lossy()));
        let function = dictionary.function(Function { name, filename, ..Function::default() });
        Line { function, line: i64::from(symbol.lineno()), ..Line::default() }
    };
    let lines: Vec<_> = frame.iter().map(line).collect();
    dictionary.location(Location { lines: &lines, ..Location::default() })
}

/// Numbers the tables of a message.
#[derive(Default)]
struct MessageBuilder {
    profile: protos::Profile,
    strings: HashMap<String, i64>,
    functions: HashMap<(i64, i64), u64>,
    /// By function and line of each symbol.
    locations: HashMap<Vec<(u64, i64)>, u64>,
}

impl MessageBuilder {
    fn index(&mut self, text: &str) -> i64 {
        if let Some(index) = self.strings.get(text) {
            return *index;
        }
        let index = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), index);
        index
    }

    fn location(&mut self, frame: &[Symbol]) -> u64 {
        let lines: Vec<_> = frame.iter().map(|symbol| (self.function(symbol), i64::from(symbol.lineno()))).collect();
        let table = &mut self.profile.location;
        *self.locations.entry(lines).or_insert_with_key(|lines| {
            let id = table.len() as u64 + 1;
            let line = lines.iter().map(|(function_id, line)| protos::Line { function_id: *function_id, line: *line });
            table.push(protos::Location { id, line: line.collect(), ..protos::Location::default() });
            id
        })
    }

    fn function(&mut self, symbol: &Symbol) -> u64 {
        let (name, filename) = (self.index(&symbol.sys_name()), self.index(&symbol.filename()));
        let table = &mut self.profile.function;
        *self.functions.entry((name, filename)).or_insert_with(|| {
            let id = table.len() as u64 + 1;
            table.push(protos::Function { id, name, system_name: name, filename, ..protos::Function::default() });
            id
        })
    }
}
