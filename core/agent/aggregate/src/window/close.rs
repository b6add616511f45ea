//! Turns an open window into immutable profiles over a dictionary without unused entries. Pure: times and random ids
//! are arguments.

use super::{DetailedSample, Division, SampleKey, SampleTotals, SampledThread, Series, Window, KINDS};
use crate::context::{labels_of, LabelSetId};
use crate::hash::WordMap;
use crate::resolve::locations::{LocationIndex, LocationTable};
use crate::resolve::stacks::{StackIndex, StackTable};
use crate::resource::ResourceAttribute;
use crate::runtime::{Frame, NativeMapping};
use spanprof_profile::code_origin::OwnCode;
use spanprof_profile::encode::pprof::names;
use spanprof_profile::kinds::{self, ProfileKind, TypeShape};
use spanprof_profile::redact::{ProfileRedactor, UnredactedProfiles};
use spanprof_profile::{
    AttributeSetId, Dictionary, Function, HeapAge, Line, LinkId, Location, LocationId, Mapping, MappingId, Profile,
    ProfilesData, RequestDuration, ResourceProfiles, Sample, Scope, StackId, Value, ValueType,
};
use spanprof_signal::SampleKind;

/// Arguments of [`Window::close`].
pub(crate) struct CloseInput<'a> {
    pub locations: &'a LocationTable,
    pub stacks: &'a StackTable,
    pub resource: &'a [ResourceAttribute],
    /// Attributes of the resource beyond the limit.
    pub dropped_attributes: u32,
    /// Static labels of every sample.
    pub tags: &'a [(String, String)],
    /// Added to every sample when not empty.
    pub service_name: &'a str,
    /// Comment on each profile; empty for none.
    pub comment: &'a str,
    pub now_monotonic_ns: u64,
    /// Unix time minus monotonic time.
    pub unix_offset_ns: i128,
    /// Generates a random id for each profile.
    pub profile_id: fn() -> [u8; 16],
    /// Text of the duty cycle of each kind that has one.
    pub duty_cycles: &'a [(SampleKind, String)],
    /// Own code by configuration.
    pub own_code: &'a OwnCode,
}

/// A closed window. Its profiles can be encoded after [`ClosedWindow::redacted`] only.
#[derive(Clone, Debug)]
pub struct ClosedWindow<Data = ProfilesData> {
    pub data: Data,
    pub start_unix_ns: u64,
    pub duration_ns: u64,
    /// Number of raw samples.
    pub samples: u64,
    /// Number of distinct stacks.
    pub stacks: u64,
}

impl ClosedWindow {
    /// Redacted profiles that were closed before, from the first start to the last end.
    pub fn of_profiles(data: ProfilesData) -> Self {
        let times = || data.profiles().map(|(_, profile)| profile);
        let start_unix_ns = times().map(|profile| profile.time_unix_nano).min().unwrap_or_default();
        let end_unix_ns = times().map(Profile::end_unix_nano).max().unwrap_or_default();
        let samples = data.sample_count() as u64;
        ClosedWindow { data, start_unix_ns, duration_ns: end_unix_ns - start_unix_ns, samples, stacks: 0 }
    }
}

impl ClosedWindow<UnredactedProfiles> {
    /// The window without the texts that the redactor removes.
    pub fn redacted(self, redactor: &mut ProfileRedactor) -> ClosedWindow {
        let Self { data, start_unix_ns, duration_ns, samples, stacks } = self;
        ClosedWindow { data: data.redacted(redactor), start_unix_ns, duration_ns, samples, stacks }
    }
}

/// The profiles of a kind of samples.
pub(super) fn profile_kind(kind: SampleKind) -> &'static ProfileKind {
    match kind {
        SampleKind::Cpu => &kinds::CPU,
        SampleKind::Wall => &kinds::WALL,
        SampleKind::Alloc => &kinds::ALLOCATIONS,
        SampleKind::InUse => &kinds::IN_USE,
        SampleKind::Lock => &kinds::LOCK,
        SampleKind::EventLoop => &kinds::EVENT_LOOP,
        SampleKind::OffCpu => &kinds::OFF_CPU,
        SampleKind::Gc => &kinds::GC,
        SampleKind::Threads => &kinds::THREADS,
        SampleKind::RequestEnd => &kinds::REQUESTS,
        SampleKind::Awaited => &kinds::AWAITED,
    }
}

impl Window {
    /// Closes the window; `None` when it has no samples.
    pub fn close(&mut self, input: CloseInput<'_>) -> Option<ClosedWindow<UnredactedProfiles>> {
        let opened_ns = self.opened_ns?;
        self.add_slowest_requests();
        self.sampled.end_window();
        let now_ns = input.now_monotonic_ns;
        let raw_samples = std::mem::take(&mut self.samples);
        let mut builder = ProfileBuilder {
            input,
            links: &self.links,
            threads: &self.threads,
            dictionary: Dictionary::new(),
            location_ids: WordMap::default(),
            stack_ids: WordMap::default(),
            attribute_ids: WordMap::default(),
        };
        let mut profiles = Vec::new();
        for code in 1..KINDS as u8 {
            let Some(kind) = SampleKind::from_code(code) else { continue };
            let series = std::mem::take(&mut self.series[code as usize]);
            if series.is_empty() {
                continue;
            }
            let period = self.settings.period(kind);
            let attributes = builder.profile_attributes(kind, series.longest_block_ns);
            // Samples that were held since an earlier window.
            let detailed_start_ns = series.detailed.iter().map(|sample| sample.time_ns).fold(opened_ns, u64::min);
            let of_kind = profile_kind(kind);
            for shape in of_kind.shapes() {
                let mut add_profile = |samples: Vec<Sample>, start_ns: u64, profile_id: [u8; 16], unix_ns: u64| {
                    profiles.push(Profile {
                        sample_type: value_type(shape.sample_type),
                        period_type: value_type(of_kind.period_type),
                        period: period as i64,
                        time_unix_nano: unix_ns,
                        duration_nano: now_ns.saturating_sub(start_ns).max(1),
                        profile_id,
                        samples,
                        exact_type: shape.exact.map(|(exact, _)| value_type(exact)),
                        attributes,
                        ..Profile::default()
                    });
                };
                let samples = builder.samples(&series, shape);
                if !samples.is_empty() {
                    let id = (builder.input.profile_id)();
                    add_profile(samples, opened_ns, id, builder.unix_ns(opened_ns));
                }
                // A profile of their own, because all samples of a profile should have timestamps, or none.
                if !series.detailed.is_empty() {
                    let samples = builder.detailed_samples(&series, shape);
                    let id = (builder.input.profile_id)();
                    add_profile(samples, detailed_start_ns, id, builder.unix_ns(detailed_start_ns));
                }
            }
        }
        let resource = builder.input.resource.iter().map(Into::into).collect();
        let dropped_attributes_count = builder.input.dropped_attributes;
        let resource = ResourceProfiles { resource, dropped_attributes_count, scope: Scope::spanprof(), profiles };
        let stacks = builder.stack_ids.len() as u64;
        let start_unix_ns = builder.unix_ns(opened_ns);
        let duration_ns = now_ns.saturating_sub(opened_ns).max(1);
        let data = ProfilesData { dictionary: builder.dictionary, resources: vec![resource] };
        self.after_close(now_ns);
        (data.sample_count() > 0).then(|| ClosedWindow {
            data: UnredactedProfiles::new(data),
            start_unix_ns,
            duration_ns,
            samples: raw_samples,
            stacks,
        })
    }

    fn after_close(&mut self, now_ns: u64) {
        self.opened_ns = None;
        self.timestamps = 0;
        self.links.truncate(1);
        self.link_ids.retain(|_, id| *id == 0);
        self.threads.clear();
        self.thread_indices.clear();
        self.kernel_names.clear();
        self.first_of_thread.clear();
        self.previous_end_ns = now_ns;
    }
}

struct ProfileBuilder<'a, 'w> {
    input: CloseInput<'a>,
    links: &'w [spanprof_profile::TreeSpan],
    threads: &'w [SampledThread],
    dictionary: Dictionary,
    location_ids: WordMap<LocationIndex, LocationId>,
    stack_ids: WordMap<StackIndex, StackId>,
    attribute_ids: WordMap<(LabelSetId, u32, Option<Division>), AttributeSetId>,
}

impl ProfileBuilder<'_, '_> {
    /// The attributes of the profiles of a kind. pprof files write these attributes as comments.
    fn profile_attributes(&mut self, kind: SampleKind, longest_block_ns: u64) -> AttributeSetId {
        let duty_cycle = self.input.duty_cycles.iter().find(|(paused, _)| *paused == kind);
        let duty_cycle = duty_cycle.map(|(_, text)| format!("duty_cycle={text}"));
        let longest = (longest_block_ns > 0).then(|| format!("{}{longest_block_ns}", names::LONGEST_BLOCK));
        let own_code = own_code_comment(self.input.own_code);
        // The prefixes end with their line.
        let others = [duty_cycle, longest, own_code].into_iter().flatten();
        let comments = [self.input.comment.to_owned()].into_iter().chain(others).filter(|text| !text.is_empty());
        match comments.collect::<Vec<_>>().join("; ").as_str() {
            "" => AttributeSetId::default(),
            comment => {
                let comment = self.dictionary.attribute(names::COMMENT, Value::String(comment), "");
                self.dictionary.attribute_set(&[comment])
            }
        }
    }

    fn samples(&mut self, series: &Series, shape: TypeShape) -> Vec<Sample> {
        let is_present = |(_, totals): &(_, &SampleTotals)| is_present(shape, &totals.values);
        let mut entries: Vec<_> = series.entries.iter().filter(is_present).collect();
        // Sorted, so that equal windows have equal bytes.
        entries.sort_unstable_by_key(|(key, _)| **key);
        entries.into_iter().map(|(key, totals)| self.sample(key, totals, shape)).collect()
    }

    fn sample(&mut self, key: &SampleKey, totals: &SampleTotals, shape: TypeShape) -> Sample {
        let observed: Vec<_> = totals
            .observations
            .iter()
            .filter(|(_, values)| values[shape.value] > 0)
            .map(|(time_ns, values)| (self.unix_ns(*time_ns), signed(values[shape.value])))
            .collect();
        let (timestamps_unix_nano, values) = if observed.is_empty() {
            (Vec::new(), vec![signed(totals.values[shape.value])])
        } else {
            observed.into_iter().unzip()
        };
        Sample {
            stack: self.stack(key.stack),
            attributes: self.attributes(key),
            link: self.link(key.link),
            values,
            timestamps_unix_nano,
            exact_value: exact_value(shape, &totals.values),
        }
    }

    /// One sample for each raw sample: some receivers refuse several values with timestamps in one sample.
    fn detailed_samples(&mut self, series: &Series, shape: TypeShape) -> Vec<Sample> {
        let mut detailed: Vec<_> = series.detailed.iter().collect();
        detailed.sort_by_key(|sample| (sample.key, sample.time_ns));
        detailed.retain(|sample| is_present(shape, &sample.values));
        let sample = |sample: &DetailedSample| Sample {
            stack: self.stack(sample.key.stack),
            attributes: self.attributes(&sample.key),
            link: self.link(sample.key.link),
            values: vec![signed(sample.values[shape.value])],
            timestamps_unix_nano: vec![self.unix_ns(sample.time_ns)],
            exact_value: exact_value(shape, &sample.values),
        };
        detailed.into_iter().map(sample).collect()
    }

    fn unix_ns(&self, monotonic_ns: u64) -> u64 {
        (i128::from(monotonic_ns) + self.input.unix_offset_ns).clamp(0, i128::from(u64::MAX)) as u64
    }

    fn link(&mut self, link: u32) -> LinkId {
        self.dictionary.link(self.links.get(link as usize).copied().unwrap_or_default())
    }

    fn stack(&mut self, stack: StackIndex) -> StackId {
        if let Some(id) = self.stack_ids.get(&stack) {
            return *id;
        }
        let locations: Vec<_> =
            self.input.stacks.locations(stack).iter().map(|location| self.location(*location)).collect();
        let id = self.dictionary.stack(&locations);
        self.stack_ids.insert(stack, id);
        id
    }

    fn location(&mut self, location: LocationIndex) -> LocationId {
        if let Some(id) = self.location_ids.get(&location) {
            return *id;
        }
        let frames = self.input.locations.frames(location);
        let id = frames_location(&mut self.dictionary, frames, self.input.own_code);
        self.location_ids.insert(location, id);
        id
    }

    fn attributes(&mut self, key: &SampleKey) -> AttributeSetId {
        let SampleKey { label_set, thread, division, .. } = *key;
        if let Some(id) = self.attribute_ids.get(&(label_set, thread, division)) {
            return *id;
        }
        let labels = labels_of(label_set);
        let is_label = |key: &str| labels.iter().any(|(name, _)| name == key);
        let tags: Vec<_> = self.input.tags.iter().filter(|(key, _)| !is_label(key)).collect();
        let dictionary = &mut self.dictionary;
        let mut ids = Vec::with_capacity(labels.len() + tags.len() + 4);
        let service_name = self.input.service_name;
        let has_service_name = is_label("service.name") || tags.iter().any(|(key, _)| key == "service.name");
        if !service_name.is_empty() && !has_service_name {
            ids.push(dictionary.attribute("service.name", Value::String(service_name), ""));
        }
        for (key, value) in &tags {
            ids.push(dictionary.attribute(key, Value::String(value), ""));
        }
        let thread = thread.checked_sub(1).and_then(|index| self.threads.get(index as usize));
        if let Some((thread_id, name)) = thread {
            ids.push(dictionary.attribute("thread.id", Value::Int(i64::from(*thread_id)), ""));
            if !name.is_empty() {
                ids.push(dictionary.attribute("thread.name", Value::String(name), ""));
            }
        }
        for (key, value) in &labels {
            if thread.is_some() && (key == "thread.id" || key == "thread.name") {
                continue;
            }
            ids.push(dictionary.attribute(key, Value::String(value), ""));
        }
        match division {
            Some(Division::Age(age)) => ids.push(dictionary.attribute(HeapAge::LABEL, Value::String(age.text()), "")),
            Some(Division::Duration(duration))
                if !self.input.tags.iter().any(|(key, _)| key == RequestDuration::LABEL) =>
            {
                let ns = Value::Int(i64::try_from(duration.ns()).unwrap_or(i64::MAX));
                ids.push(dictionary.attribute(RequestDuration::LABEL, ns, RequestDuration::UNIT));
            }
            Some(Division::Duration(_)) | None => {}
        }
        let id = dictionary.attribute_set(&ids);
        self.attribute_ids.insert((label_set, key.thread, division), id);
        id
    }
}

/// The comment with the prefixes of own code, from which readers of pprof files separate it.
pub(crate) fn own_code_comment(own_code: &OwnCode) -> Option<String> {
    let prefixes = own_code.to_text();
    (!prefixes.is_empty()).then(|| format!("{}{prefixes}", names::OWN_CODE))
}

/// The location of frames, innermost first.
pub(crate) fn frames_location(dictionary: &mut Dictionary, frames: &[Frame], own_code: &OwnCode) -> LocationId {
    let lines: Vec<_> = frames.iter().map(|frame| frame_line(dictionary, frame)).collect();
    let frame_type = frames.first().map(|frame| frame.frame_type).unwrap_or_default();
    let attributes = own_code.attributes(dictionary, &lines, frame_type);
    let place = frames.iter().rev().find_map(|frame| frame.native.as_ref());
    let (mapping, address) =
        place.map(|place| (native_mapping(dictionary, &place.mapping), place.address)).unwrap_or_default();
    dictionary.location(Location { mapping, address, lines: &lines, attributes })
}

fn native_mapping(dictionary: &mut Dictionary, mapping: &NativeMapping) -> MappingId {
    let build_ids = [(names::BUILD_ID, &mapping.build_id), (names::HTLHASH, &mapping.htlhash)];
    let present = build_ids.into_iter().filter(|(_, build_id)| !build_id.is_empty());
    let attributes: Vec<_> =
        present.map(|(key, build_id)| dictionary.attribute(key, Value::String(build_id), "")).collect();
    let (filename, attributes) = (dictionary.string(&mapping.file), dictionary.attribute_set(&attributes));
    dictionary.mapping(Mapping {
        memory_start: mapping.start,
        memory_limit: mapping.limit,
        file_offset: mapping.file_offset,
        filename,
        attributes,
    })
}

/// A frame as a line of a location.
fn frame_line(dictionary: &mut Dictionary, frame: &Frame) -> Line {
    let name = dictionary.string(&frame.function);
    let filename = dictionary.string(&frame.file);
    let start_line = i64::from(frame.start_line);
    let function = dictionary.function(Function { name, filename, start_line, ..Function::default() });
    Line { function, line: i64::from(frame.line), column: i64::from(frame.column) }
}

pub(super) fn value_type((kind, unit): (&str, &str)) -> ValueType {
    ValueType::new(kind, unit)
}

/// Whether a sample has a value of the type: of a request without an error only the count.
fn is_present(shape: TypeShape, values: &[u64; 2]) -> bool {
    values[shape.value] > 0 || exact_value(shape, values) > 0
}

/// 0 for a type without an exact measurement.
fn exact_value(shape: TypeShape, values: &[u64; 2]) -> i64 {
    shape.exact.map_or(0, |(_, index)| signed(values[index]))
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
