//! The samples of one service, by type and stack, as the rules read them. Windows are added one at a time; labels, span links
//! and timestamps are not kept.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::{HashMap, HashSet};
use spanprof_profile::code_origin::{CodeOrigin, ExecutionKind, TYPE_FILE};
use spanprof_profile::encode::pprof::names::{COMMENT, LONGEST_BLOCK};
use spanprof_profile::kinds::REQUESTS;
use spanprof_profile::{AttributeSetId, Dictionary, HeapAge, Profile, ResourceProfiles, Sample};

use crate::query::{
    awaits, estimated_samples, process_identity, request_duration, visit_samples, Compared, FunctionLine, Granularity,
    WindowSums, ENDPOINT_LABELS,
};

/// Windows of objects in use that are kept for each process, spread over the time.
const MAX_HEAP_WINDOWS: usize = 24;

/// Index into [`ServiceProfile::function`].
pub(super) type FunctionId = u32;

/// Values by type, stack and function, summed over windows.
#[derive(Debug, Default)]
pub(super) struct ServiceProfile {
    /// Function of each line.
    lines: Vec<(FunctionId, i64)>,
    line_ids: HashMap<FunctionLine, u32>,
    /// With its origin and kind.
    functions: Vec<(FunctionLine, CodeOrigin, ExecutionKind)>,
    function_ids: HashMap<FunctionLine, FunctionId>,
    types: BTreeMap<String, TypeStacks>,
    /// Limits of the profiler that apply, such as `duty_cycle=15s/5m`.
    pub limits: BTreeSet<String>,
    /// Longest block of an event loop, nanoseconds; 0 where the profiles do not state it.
    pub longest_block_ns: i64,
    /// Durations of all ended requests, nanoseconds.
    pub request_time_ns: i64,
    /// Whether its requests await on an event loop: durations less CPU time are waits.
    pub awaits: bool,
    /// Objects in use at the ends of windows, by process, in the order of time.
    pub heap: BTreeMap<u64, Vec<HeapWindow>>,
    pub versions: BTreeMap<String, VersionSums>,
}

/// The samples of one type.
#[derive(Debug, Default)]
pub(super) struct TypeStacks {
    pub total: i64,
    /// Number of samples, by the sampling interval; without one the number of aggregated samples, which is at most that.
    pub samples: f64,
    /// Time in which processes were profiled, nanoseconds: ten seconds of two processes are 20 s.
    observed_ns: u64,
    windows: HashSet<(u64, u64)>,
    /// By lines, leaf first, and whether they are part of a request.
    pub stacks: BTreeMap<(Box<[u32]>, bool), StackSum>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct StackSum {
    pub weight: i64,
    pub samples: f64,
    /// Thread ids, where samples have them (`thread_labels`).
    pub threads: BTreeSet<String>,
}

/// Objects in use at the end of a window.
#[derive(Debug, Default)]
pub(super) struct HeapWindow {
    pub start_unix_nano: u64,
    pub end_unix_nano: u64,
    pub functions: BTreeMap<FunctionId, InUseSums>,
    pub total: i64,
    /// Whether samples have the label `age`.
    pub has_ages: bool,
}

/// The objects in use of one function at the end of a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InUseSums {
    pub bytes: i64,
    /// Estimated number of samples.
    pub samples: f64,
    /// Bytes and samples of objects that are older than the window.
    pub aged_bytes: i64,
    pub aged_samples: f64,
}

/// CPU samples of one `service.version`.
#[derive(Debug)]
pub(super) struct VersionSums {
    pub first_unix_nano: u64,
    pub sums: WindowSums,
}

/// A function with the samples that are charged to it: those in which it is the innermost frame of own code.
#[derive(Clone, Debug, Default)]
pub(super) struct Charged {
    pub function: FunctionId,
    pub weight: i64,
    pub samples: f64,
    /// Weight of samples with the function as leaf, or as the caller of the native code there.
    pub self_weight: i64,
    /// Weight of samples with the function anywhere.
    pub total: i64,
    pub lines: BTreeMap<i64, i64>,
    pub callers: BTreeMap<FunctionId, i64>,
    /// Leaf frames other than the function, without native code that managed code called.
    pub leaves: BTreeMap<FunctionId, i64>,
    /// Leaf frames of native code that managed code called.
    pub native: BTreeMap<FunctionId, i64>,
    pub threads: BTreeSet<String>,
}

impl TypeStacks {
    fn add(&mut self, dictionary: &Dictionary, profile: &Profile, process: u64, stacks: Vec<SampledStack<'_>>) {
        if self.windows.insert((process, profile.end_unix_nano())) {
            self.observed_ns = self.observed_ns.saturating_add(profile.duration_nano);
        }
        // By label set: whether it names an endpoint, and its thread.
        let mut label_sets: HashMap<AttributeSetId, (bool, Option<String>)> = HashMap::new();
        for SampledStack { sample, lines, weight, samples } in stacks {
            let (has_endpoint, thread) = label_sets.entry(sample.attributes).or_insert_with(|| {
                let labels = || dictionary.attributes_of(sample.attributes);
                let thread = labels().find(|label| label.key == "thread.id").map(|label| label.value.to_string());
                (labels().any(|label| ENDPOINT_LABELS.contains(&label.key)), thread)
            });
            let is_request = *has_endpoint || !dictionary.get_link(sample.link).is_empty();
            self.total = self.total.saturating_add(weight);
            self.samples += samples;
            let sums = self.stacks.entry((lines, is_request)).or_default();
            sums.weight = sums.weight.saturating_add(weight);
            sums.samples += samples;
            sums.threads.extend(thread.clone());
        }
    }
}

/// Adds a window in the order of time. Beyond [`MAX_HEAP_WINDOWS`] the one goes whose neighbors are closest, so that the others cover
/// the time evenly.
fn keep_spread(windows: &mut Vec<HeapWindow>, window: HeapWindow) {
    windows.push(window);
    windows.sort_by_key(|window| window.end_unix_nano);
    if windows.len() > MAX_HEAP_WINDOWS {
        let gap = |index: &usize| windows[index + 1].end_unix_nano - windows[index - 1].end_unix_nano;
        if let Some(index) = (1..windows.len() - 1).min_by_key(gap) {
            windows.remove(index);
        }
    }
}

/// The limits in a comment, which joins parts by `; `. That of the governor has two parts: the effective values, and the key that
/// caused them. A rate that is raised is no limit.
fn limits(comment: &str) -> Vec<String> {
    let mut limits = Vec::new();
    for line in comment.lines() {
        let mut parts = line.split(';').map(str::trim);
        while let Some(part) = parts.next() {
            if let Some((_, values)) = part.split_once("spanprof governor: ") {
                let reason = parts.next().filter(|reason| reason.starts_with("limited by "));
                limits.extend(reason.map(|reason| format!("{values}, {reason}")));
            } else if part.starts_with("duty_cycle=") {
                limits.push(part.to_owned());
            }
        }
    }
    limits
}

/// A sample with its lines, leaf first.
struct SampledStack<'d> {
    sample: &'d Sample,
    lines: Box<[u32]>,
    weight: i64,
    /// Estimated number of samples.
    samples: f64,
}

impl ServiceProfile {
    pub fn add(&mut self, dictionary: &Dictionary, resource: &ResourceProfiles, profile: &Profile) {
        self.awaits |= awaits(resource);
        let process = process_identity(resource).unwrap_or_default();
        let stacks = self.sampled_stacks(dictionary, profile);
        if profile.is_gauge() {
            if profile.type_name() == "inuse_space" {
                let window = self.heap_window(dictionary, profile, &stacks);
                keep_spread(self.heap.entry(process).or_default(), window);
            }
            return;
        }
        if profile.type_name() == REQUESTS.default_type() {
            for sample in &profile.samples {
                let duration_ns = request_duration(dictionary, sample).unwrap_or_default();
                let time_ns = duration_ns.saturating_mul(profile.weight(sample));
                self.request_time_ns = self.request_time_ns.saturating_add(time_ns);
            }
        }
        let sums = self.types.entry(profile.type_name().to_owned()).or_default();
        sums.add(dictionary, profile, process, stacks);
        self.add_comments(dictionary, profile);
        if profile.type_name() == "cpu" {
            self.add_version(dictionary, resource, profile);
        }
    }

    fn sampled_stacks<'d>(&mut self, dictionary: &'d Dictionary, profile: &'d Profile) -> Vec<SampledStack<'d>> {
        let mut samples: Vec<(&Sample, Box<[usize]>)> = Vec::with_capacity(profile.samples.len());
        let rows = visit_samples(dictionary, std::iter::once(profile), Granularity::Line, None, |_, sample, stack| {
            samples.push((sample, stack.rows.into()))
        });
        let lines: Vec<u32> = rows.into_iter().map(|row| self.line(row)).collect();
        let stack = |(sample, rows): (_, Box<[usize]>)| {
            let weight = profile.weight(sample);
            let (samples, _) = estimated_samples(profile, weight);
            SampledStack { sample, lines: rows.iter().map(|row| lines[*row]).collect(), weight, samples }
        };
        samples.into_iter().map(stack).collect()
    }

    fn heap_window(&self, dictionary: &Dictionary, profile: &Profile, stacks: &[SampledStack<'_>]) -> HeapWindow {
        let mut window = HeapWindow {
            start_unix_nano: profile.time_unix_nano,
            end_unix_nano: profile.end_unix_nano(),
            ..HeapWindow::default()
        };
        for SampledStack { sample, lines, weight, samples } in stacks {
            let age = dictionary.attributes_of(sample.attributes).find(|label| label.key == HeapAge::LABEL);
            let age = age.and_then(|label| HeapAge::from_text(&label.value.to_string()));
            let [_, frame] = self.charged(lines);
            let function = self.functions_of(lines).nth(frame).unwrap_or_default();
            let sums = window.functions.entry(function).or_default();
            sums.bytes = sums.bytes.saturating_add(*weight);
            sums.samples += samples;
            window.total = window.total.saturating_add(*weight);
            window.has_ages |= age.is_some();
            if age.is_some_and(|age| age != HeapAge::New) {
                sums.aged_bytes = sums.aged_bytes.saturating_add(*weight);
                sums.aged_samples += samples;
            }
        }
        window
    }

    /// Limits and longest blocks are comments of a profile.
    fn add_comments(&mut self, dictionary: &Dictionary, profile: &Profile) {
        for comment in dictionary.attributes_of(profile.attributes).filter(|attribute| attribute.key == COMMENT) {
            let text = comment.value.to_string();
            let blocks_ns =
                text.split(['\n', ';']).filter_map(|part| part.trim().strip_prefix(LONGEST_BLOCK)?.parse().ok());
            self.longest_block_ns = blocks_ns.fold(self.longest_block_ns, i64::max);
            self.limits.extend(limits(&text));
        }
    }

    fn add_version(&mut self, dictionary: &Dictionary, resource: &ResourceProfiles, profile: &Profile) {
        let of_resource = resource.resource.iter().map(|attribute| attribute.as_ref());
        // A tag of the profiler is a label of each sample.
        let labels = profile.samples.first().map_or(AttributeSetId::EMPTY, |sample| sample.attributes);
        let mut attributes = of_resource.chain(dictionary.attributes_of(labels));
        let Some(version) = attributes.find(|attribute| attribute.key == "service.version") else { return };
        let version = self.versions.entry(version.value.to_string()).or_insert_with(|| VersionSums {
            first_unix_nano: u64::MAX,
            sums: WindowSums::new(Granularity::Function, Compared::Flat),
        });
        version.first_unix_nano = version.first_unix_nano.min(profile.time_unix_nano);
        version.sums.add_profile(dictionary, resource, profile);
    }

    fn line(&mut self, row: FunctionLine) -> u32 {
        let Self { lines, line_ids, functions, function_ids, .. } = self;
        *line_ids.entry(row).or_insert_with_key(|row| {
            let function = FunctionLine { line: 0, ..row.clone() };
            let function = *function_ids.entry(function).or_insert_with_key(|function| {
                functions.push((function.clone(), function.origin(), function.kind()));
                functions.len() as u32 - 1
            });
            lines.push((function, row.line));
            lines.len() as u32 - 1
        })
    }

    pub fn function(&self, id: FunctionId) -> &FunctionLine {
        &self.functions[id as usize].0
    }

    pub fn is_own(&self, id: FunctionId) -> bool {
        self.functions[id as usize].1 == CodeOrigin::Own
    }

    fn kind(&self, id: FunctionId) -> ExecutionKind {
        self.functions[id as usize].2
    }

    /// Whether a function is the reason of a wait for a processor.
    pub fn is_scheduled_out(&self, id: FunctionId) -> bool {
        self.function(id).function == "[scheduled out]"
    }

    /// Functions of a stack, leaf first.
    pub fn functions_of<'s>(&'s self, stack: &'s [u32]) -> impl Iterator<Item = FunctionId> + 's {
        stack.iter().map(|line| self.lines[*line as usize].0)
    }

    pub fn of_type(&self, type_name: &str) -> Option<&TypeStacks> {
        self.types.get(type_name).filter(|stacks| stacks.total > 0)
    }

    /// Each profile type with its number of samples.
    pub fn type_samples(&self) -> Vec<(&str, f64)> {
        self.types.iter().map(|(name, stacks)| (name.as_str(), stacks.samples)).collect()
    }

    /// Time in which processes were profiled, nanoseconds: that of the type with most windows. A window has no profile of a type
    /// without samples.
    pub fn observed_ns(&self) -> f64 {
        self.types.values().map(|stacks| stacks.observed_ns).max().unwrap_or_default().max(1) as f64
    }

    /// The frames of the leaf and of the function that a stack is charged to: the innermost of own code, else the innermost that is a
    /// function, else the leaf. The leaf is the managed code that called native code.
    fn charged(&self, stack: &[u32]) -> [usize; 2] {
        let functions: Vec<FunctionId> = self.functions_of(stack).collect();
        let is_native = |id: FunctionId| self.kind(id) == ExecutionKind::Native;
        let managed = functions.iter().rposition(|id| self.kind(*id) == ExecutionKind::Managed).unwrap_or(0);
        let leaf = functions.iter().take(managed).take_while(|id| is_native(**id)).count();
        let is_code = |id: &FunctionId| !matches!(self.function(*id).file.as_str(), "" | TYPE_FILE);
        let own = functions.iter().position(|id| self.is_own(*id) && !is_native(*id));
        let own = own.or_else(|| functions.iter().position(|id| self.is_own(*id)));
        let code = || functions.iter().skip(leaf).position(is_code).map(|offset| leaf + offset);
        [leaf, own.or_else(code).unwrap_or(leaf)]
    }

    /// Charges stacks to functions; by descending weight.
    pub fn charge<'s>(
        &self,
        stacks: impl Iterator<Item = (&'s (Box<[u32]>, bool), &'s StackSum)> + Clone,
    ) -> Vec<Charged> {
        let mut charged: BTreeMap<FunctionId, Charged> = BTreeMap::new();
        let add = |sums: &mut BTreeMap<FunctionId, i64>, id, weight: i64| {
            let sum = sums.entry(id).or_default();
            *sum = sum.saturating_add(weight);
        };
        for ((stack, _), sums) in stacks.clone().filter(|((stack, _), _)| !stack.is_empty()) {
            let [leaf, frame] = self.charged(stack);
            let function_at = |frame: usize| self.lines[stack[frame] as usize].0;
            let function = function_at(frame);
            let row = charged.entry(function).or_insert_with(|| Charged { function, ..Charged::default() });
            row.weight = row.weight.saturating_add(sums.weight);
            row.samples += sums.samples;
            row.threads.extend(sums.threads.iter().cloned());
            let line = row.lines.entry(self.lines[stack[frame] as usize].1).or_default();
            *line = line.saturating_add(sums.weight);
            if frame <= leaf {
                row.self_weight = row.self_weight.saturating_add(sums.weight);
            } else {
                add(&mut row.leaves, function_at(leaf), sums.weight);
            }
            if leaf > 0 {
                add(&mut row.native, function_at(0), sums.weight);
            }
            if let Some(caller) = self.functions_of(&stack[frame..]).find(|caller| *caller != function) {
                add(&mut row.callers, caller, sums.weight);
            }
        }
        for ((stack, _), sums) in stacks {
            let mut functions: Vec<FunctionId> = self.functions_of(stack).collect();
            functions.sort_unstable();
            functions.dedup();
            for id in functions {
                if let Some(row) = charged.get_mut(&id) {
                    row.total = row.total.saturating_add(sums.weight);
                }
            }
        }
        let mut rows: Vec<Charged> = charged.into_values().collect();
        rows.sort_by(|one, other| {
            let name = |row: &Charged| self.function(row.function);
            other.weight.cmp(&one.weight).then_with(|| name(one).cmp(name(other)))
        });
        rows
    }

    /// The functions with most weight.
    pub fn heaviest(&self, sums: &BTreeMap<FunctionId, i64>, count: usize) -> Vec<(FunctionLine, i64)> {
        let mut rows: Vec<_> = sums.iter().map(|(id, weight)| (self.function(*id).clone(), *weight)).collect();
        rows.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        rows.truncate(count);
        rows
    }
}
