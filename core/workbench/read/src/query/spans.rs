//! Traces, spans and endpoints by the weight of their samples: CPU time, allocated bytes, waits. Windows are added one at a time.
//!
//! A row is a request: the local root with its whole tree of spans. It belongs to one endpoint, that of its end, else that of its
//! heaviest sample with an endpoint label: a framework has the route late, so the first samples of a request have no such label.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};
use spanprof_profile::kinds::REQUESTS;
use spanprof_profile::{AttributeSetId, Dictionary, Link, Profile, ProfilesData, ResourceProfiles, TreeSpan};

use super::generated_names;
use super::request_times::{awaits, request_duration, FirstTime, RequestDurations, REQUEST_TIME};
use super::time_category::{StackCategories, TimeCategory};
use super::tracked_functions::TrackedFunctions;
use super::weights::{visit_samples, Granularity, Weight};
use super::window_sums::estimated_samples;

/// Spans in memory; samples of further ones are counted as left out. About 200 bytes each.
const MAX_SPANS: usize = 200_000;
/// Labels that name an endpoint, best first: those of the middlewares, of Pyroscope's users, and of local root spans.
pub(crate) const ENDPOINT_LABELS: [&str; 3] = ["http.route", "endpoint", "span_name"];
/// Quality of the name that the end of a request has.
const NAMED_BY_END: u8 = u8::MAX;
const METHOD_LABEL: &str = "http.request.method";

/// The unit of a row of [`SpanTable`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpanGrouping {
    /// One span.
    #[default]
    Span,
    /// All spans of one trace.
    Trace,
    /// All spans of one endpoint of a service, and samples that have its label but no span.
    Endpoint,
}

/// The samples of one profile type in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TypeTotal {
    /// Sum of the weights, in the unit of the type.
    pub weight: i64,
    /// Number of samples: the weight by the sampling interval, or without one the number of aggregated samples.
    pub samples: f64,
}

impl TypeTotal {
    pub(super) fn add(&mut self, more: Self) {
        self.weight = self.weight.saturating_add(more.weight);
        self.samples += more.samples;
    }
}

/// One trace, span or endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpanRow {
    /// Trace and span; of a trace without the span, of an endpoint without both.
    pub link: Link,
    /// `service.name` of the endpoint, "" when unknown.
    pub service: String,
    /// Such as `GET /cart`, "" when unknown.
    pub endpoint: String,
    /// Number of spans that have samples, failed, or were slow.
    pub spans: usize,
    /// By profile type; types without samples are absent.
    pub types: BTreeMap<String, TypeTotal>,
    /// Of an endpoint: median and 99th percentile of the weights of its spans, by type. Of the spans with samples only, hence
    /// too high where most spans are shorter than the sampling interval.
    pub quantiles: BTreeMap<String, [i64; 2]>,
    /// Of an endpoint with reported ends: median and 99th percentile of the durations of all its requests, rounded by less than 7 %.
    pub durations: Option<[i64; 2]>,
    /// Of an endpoint: the request with the longest known duration, and its nanoseconds.
    pub slowest: Option<(i64, Link)>,
    /// Unix nanoseconds: the start of a request with a known duration, else its first sample with a timestamp, else the start of
    /// the first window; 0 without a span.
    pub first_unix_nano: u64,
    /// What time was used for, by profile type: of [`SpanTotals::with_categories`].
    pub categories: BTreeMap<String, BTreeMap<TimeCategory, TypeTotal>>,
}

impl SpanRow {
    /// Weight of one type, 0 without samples.
    pub fn weight(&self, type_name: &str) -> i64 {
        self.types.get(type_name).map_or(0, |total| total.weight)
    }
}

/// Rows by descending weight of one type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpanTable {
    /// The rows.
    pub rows: Vec<SpanRow>,
    /// All samples by type, also those without a span.
    pub totals: BTreeMap<String, TypeTotal>,
    /// Weight of the samples with a span, by type.
    pub linked: BTreeMap<String, i64>,
    /// Unit of the weights, by type.
    pub units: BTreeMap<String, String>,
    /// Number of spans that have samples, failed, or were slow.
    pub spans: usize,
    /// Whether all services await on an event loop: durations less CPU time are waits.
    pub awaits: bool,
    /// Samples of spans beyond the limit of 200,000.
    pub left_out: usize,
}

/// Sums of the spans of all windows.
#[derive(Clone, Debug, Default)]
pub struct SpanTotals {
    endpoint_label: Option<String>,
    pub(super) tracked: Option<TrackedFunctions>,
    has_categories: bool,
    pub(super) types: Vec<String>,
    pub(super) units: Vec<String>,
    pub(super) totals: Vec<TypeTotal>,
    /// Services and endpoints; the names of a span's are stored once.
    pub(super) endpoints: Vec<(String, String)>,
    pub(super) known_endpoints: HashMap<(String, String), u32>,
    /// By local root, of any trace; of a trace without spans by the trace. See [`key_of`].
    pub(super) spans: HashMap<Link, SpanSums>,
    /// Samples without a span, by endpoint.
    pub(super) unlinked: HashMap<u32, Vec<TypeTotal>>,
    pub(super) durations: RequestDurations,
    /// Services whose requests await on an event loop.
    awaiting: HashSet<String>,
    pub(super) left_out: usize,
}

/// Sums by index of the type and category.
type CategorySums = HashMap<(usize, TimeCategory), TypeTotal>;

/// The sums of one span.
#[derive(Clone, Debug, Default)]
pub(super) struct SpanSums {
    /// The trace of its link.
    trace_id: [u8; 16],
    /// Index of its endpoint.
    pub endpoint: u32,
    /// Quality of the label that named the endpoint, then the weight of that sample.
    pub(super) named_by: (u8, i64),
    pub(super) totals: Vec<TypeTotal>,
    /// Of the tracked type, by index of the function.
    pub functions: HashMap<u32, Weight>,
    /// By index of the type.
    categories: CategorySums,
    pub(super) first: Option<FirstTime>,
}

impl SpanTotals {
    /// No windows yet. `endpoint_label` replaces the labels `http.route`, `endpoint` and `span_name`.
    pub fn new(endpoint_label: Option<String>) -> Self {
        Self { endpoint_label, ..Self::default() }
    }

    /// As [`Self::new`], of one profile type; also sums the functions of each span.
    pub fn with_functions(endpoint_label: Option<String>, type_name: &str, by: Granularity) -> Self {
        Self { tracked: Some(TrackedFunctions::new(type_name, by)), ..Self::new(endpoint_label) }
    }

    /// As [`Self::new`]; also sums what the time of each span was used for.
    pub fn with_categories(endpoint_label: Option<String>) -> Self {
        Self { has_categories: true, ..Self::new(endpoint_label) }
    }

    /// Adds the samples of a window. Profiles of a state, such as memory in use, belong to no span.
    pub fn add(&mut self, data: &ProfilesData) {
        let mut categories = StackCategories::new(&data.dictionary);
        for resource in &data.resources {
            if awaits(resource) {
                self.awaiting.insert(resource.service_name().to_owned());
            }
            // Endpoint of each label set, with the quality of its label.
            let mut endpoints: HashMap<AttributeSetId, (u32, u8)> = HashMap::new();
            let is_summed = |name: &str| self.tracked.as_ref().is_none_or(|tracked| tracked.type_name == name);
            let summed =
                resource.profiles.iter().filter(|profile| !profile.is_gauge() && is_summed(profile.type_name()));
            for profile in summed.collect::<Vec<_>>() {
                self.add_profile(data, resource, profile, &mut endpoints, &mut categories);
            }
        }
    }

    fn add_profile(
        &mut self,
        data: &ProfilesData,
        resource: &ResourceProfiles,
        profile: &Profile,
        endpoints: &mut HashMap<AttributeSetId, (u32, u8)>,
        categories: &mut StackCategories<'_>,
    ) {
        let type_index = self.type_index(profile.type_name(), profile.unit());
        let counts_requests = profile.type_name() == REQUESTS.default_type();
        let time_type = counts_requests.then(|| self.type_index(REQUEST_TIME, "nanoseconds"));
        let mut has_counts = true;
        for sample in &profile.samples {
            let weight = profile.weight(sample);
            let (samples, is_count) = estimated_samples(profile, weight);
            has_counts &= is_count;
            let set = sample.attributes;
            let (endpoint, quality) = match endpoints.get(&set) {
                Some(named) => *named,
                None => *endpoints.entry(set).or_insert(self.endpoint_of(data, resource, set)),
            };
            // The end of a request names the endpoint of its samples, also of those before the route was known.
            let quality = if counts_requests && quality > 0 { NAMED_BY_END } else { quality };
            let duration = time_type.and_then(|_| request_duration(&data.dictionary, sample));
            if let Some(duration) = duration {
                self.durations.add(endpoint, duration, weight);
            }
            let add = |totals: &mut Vec<TypeTotal>| {
                add_to(totals, type_index, weight, samples);
                if let (Some(time_type), Some(duration)) = (time_type, duration) {
                    add_to(totals, time_type, duration.saturating_mul(weight), samples);
                }
            };
            add(&mut self.totals);
            if sample.link.is_empty() {
                add(self.unlinked.entry(endpoint).or_default());
                continue;
            }
            let link = data.dictionary.get_span(sample.link).root();
            let Some(span) = span_entry(&mut self.spans, link) else {
                self.left_out += 1;
                continue;
            };
            add(&mut span.totals);
            if self.has_categories {
                for category in categories.of(profile.type_name(), sample.stack).into_iter().flatten() {
                    let total = span.categories.entry((type_index, category)).or_default();
                    total.add(TypeTotal { weight, samples });
                }
            }
            let first = match (sample.timestamps_unix_nano.iter().min(), duration) {
                (Some(end), Some(duration)) => FirstTime::Start(end.saturating_sub(duration.unsigned_abs())),
                (Some(time), None) => FirstTime::Sample(*time),
                (None, _) => FirstTime::Window(profile.time_unix_nano),
            };
            span.first = span.first.into_iter().chain([first]).min();
            // The label of the best quality names the span; of equal ones that of the heavier sample.
            if (quality, weight) >= span.named_by {
                (span.endpoint, span.named_by) = (endpoint, (quality, weight));
            }
        }
        let Some(tracked) = self.tracked.as_mut() else { return };
        tracked.has_counts &= has_counts;
        let mut by_link: HashMap<Link, HashMap<usize, Weight>> = HashMap::new();
        let (mut depths, mut callers): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        let rows = visit_samples(
            &data.dictionary,
            std::iter::once(profile),
            tracked.by,
            Some(generated_names::fold),
            |profile, sample, stack| {
                if sample.link.is_empty() {
                    return;
                }
                let weight = profile.weight(sample);
                let key = key_of(data.dictionary.get_span(sample.link).root());
                let functions = by_link.entry(key).or_default();
                // Requests of an older version of the profiler have no native code that managed code called.
                callers.clear();
                callers.extend(stack.callers());
                for (nth, row) in callers.iter().copied().enumerate() {
                    if row >= depths.len() {
                        depths.resize(row + 1, usize::MAX);
                    }
                    depths[row] = depths[row].min(callers.len() - 1 - nth);
                    let sum = functions.entry(row).or_default();
                    sum.cum = sum.cum.saturating_add(weight);
                    if nth == 0 {
                        sum.flat = sum.flat.saturating_add(weight);
                    }
                }
            },
        );
        let depths = depths.into_iter().chain(std::iter::repeat(usize::MAX));
        let numbers: Vec<u32> = rows.into_iter().zip(depths).map(|(row, depth)| tracked.number(row, depth)).collect();
        for (key, functions) in by_link {
            let Some(span) = self.spans.get_mut(&key) else { continue };
            for (row, weight) in functions {
                let sum = span.functions.entry(numbers[row]).or_default();
                sum.flat = sum.flat.saturating_add(weight.flat);
                sum.cum = sum.cum.saturating_add(weight.cum);
            }
        }
    }

    pub(super) fn type_index(&mut self, name: &str, unit: &str) -> usize {
        self.types.iter().position(|type_name| type_name == name).unwrap_or_else(|| {
            self.types.push(name.to_owned());
            self.units.push(unit.to_owned());
            self.types.len() - 1
        })
    }

    pub(super) fn endpoint_index(&mut self, service: String, endpoint: String) -> u32 {
        let endpoints = &mut self.endpoints;
        *self.known_endpoints.entry((service, endpoint)).or_insert_with_key(|names| {
            endpoints.push(names.clone());
            endpoints.len() as u32 - 1
        })
    }

    /// Index of the endpoint that a label set names, and the quality of its label: 0 for none.
    fn endpoint_of(&mut self, data: &ProfilesData, resource: &ResourceProfiles, set: AttributeSetId) -> (u32, u8) {
        let label = |key: &str| {
            let label = data.dictionary.attributes_of(set).find(|attribute| attribute.key == key);
            label.map(|attribute| attribute.value.to_string())
        };
        let service = label("service.name").unwrap_or_else(|| resource.service_name().to_owned());
        let keys = self.endpoint_label.as_deref().map_or(ENDPOINT_LABELS.to_vec(), |key| vec![key]);
        let (quality, endpoint) = named_endpoint(&keys, label).unwrap_or_default();
        (self.endpoint_index(service, endpoint), quality)
    }

    /// The profile types of all windows.
    pub fn type_names(&self) -> Vec<String> {
        self.types.clone()
    }

    /// The table of one grouping, by descending `order`.
    pub fn table(&self, grouping: SpanGrouping, order: impl Fn(&SpanRow) -> i64) -> SpanTable {
        let named = |totals: &[TypeTotal]| {
            let with_samples = self.types.iter().zip(totals).filter(|(_, total)| total.samples != 0.0);
            with_samples.map(|(name, total)| (name.clone(), *total)).collect::<BTreeMap<_, _>>()
        };
        let time_index = self.types.iter().position(|name| name == REQUEST_TIME);
        let mut linked = vec![TypeTotal::default(); self.types.len()];
        let mut groups: HashMap<(Link, u32), GroupSums> = HashMap::new();
        for (link, span) in self.spans() {
            merge_into(&mut linked, &span.totals);
            let key = match grouping {
                SpanGrouping::Span => (link, 0),
                SpanGrouping::Trace => (Link { span_id: [0; 8], ..link }, 0),
                SpanGrouping::Endpoint => (Link::default(), span.endpoint),
            };
            let group = groups.entry(key).or_default();
            group.spans += 1;
            merge_into(&mut group.totals, &span.totals);
            for (key, total) in &span.categories {
                group.categories.entry(*key).or_default().add(*total);
            }
            group.first = group.first.into_iter().chain(span.first).min();
            if grouping == SpanGrouping::Endpoint {
                let duration =
                    time_index.and_then(|type_index| span.totals.get(type_index)).filter(|total| total.samples != 0.0);
                group.slowest = group.slowest.max(duration.map(|total| (total.weight, link)));
                group.weights.resize(self.types.len(), Vec::new());
                for (weights, total) in group.weights.iter_mut().zip(&span.totals) {
                    weights.extend((total.samples != 0.0).then_some(total.weight));
                }
            }
            // The smaller index decides between equals, since the order of a map is random.
            let named_by = (span.named_by, Reverse(span.endpoint));
            if group.named_by.is_none_or(|best| named_by > best) {
                group.named_by = Some(named_by);
            }
        }
        if grouping == SpanGrouping::Endpoint {
            for (endpoint, totals) in &self.unlinked {
                let group = groups.entry((Link::default(), *endpoint)).or_default();
                merge_into(&mut group.totals, totals);
                group.named_by.get_or_insert(((0, 0), Reverse(*endpoint)));
            }
        }
        let row = |((link, _), group): ((Link, u32), GroupSums)| {
            let of_endpoint = group.named_by.filter(|_| grouping == SpanGrouping::Endpoint);
            let durations = of_endpoint.and_then(|(_, Reverse(endpoint))| self.durations.median_and_p99(endpoint));
            let endpoint = group.named_by.and_then(|(_, Reverse(endpoint))| self.endpoints.get(endpoint as usize));
            let (service, endpoint) = endpoint.cloned().unwrap_or_default();
            let mut categories: BTreeMap<String, BTreeMap<TimeCategory, TypeTotal>> = BTreeMap::new();
            for ((type_index, category), total) in group.categories {
                categories.entry(self.types[type_index].clone()).or_default().insert(category, total);
            }
            let with_spans = self.types.iter().zip(group.weights).filter(|(_, weights)| !weights.is_empty());
            SpanRow {
                link,
                service,
                endpoint,
                spans: group.spans,
                types: named(&group.totals),
                quantiles: with_spans.map(|(name, weights)| (name.clone(), median_and_p99(weights))).collect(),
                durations,
                slowest: group.slowest,
                first_unix_nano: group.first.map_or(0, FirstTime::unix_nano),
                categories,
            }
        };
        let mut rows: Vec<SpanRow> = groups.into_iter().map(row).collect();
        rows.sort_by_cached_key(|row| (Reverse(order(row)), row.link, row.service.clone(), row.endpoint.clone()));
        SpanTable {
            awaits: rows.iter().all(|row| self.awaits(&row.service)),
            rows,
            totals: named(&self.totals),
            linked: named(&linked).into_iter().map(|(name, total)| (name, total.weight)).collect(),
            units: self.types.iter().cloned().zip(self.units.iter().cloned()).collect(),
            spans: self.spans.len(),
            left_out: self.left_out,
        }
    }

    /// Number of ended requests of an endpoint.
    pub(super) fn ended_requests(&self, service: &str, endpoint: &str) -> usize {
        let endpoint = self.known_endpoints.get(&(service.to_owned(), endpoint.to_owned()));
        endpoint.map_or(0, |endpoint| self.durations.requests(*endpoint))
    }

    /// Whether the requests of a service await on an event loop, without a thread.
    pub(crate) fn awaits(&self, service: &str) -> bool {
        self.awaiting.contains(service)
    }

    pub(super) fn spans(&self) -> impl Iterator<Item = (Link, &SpanSums)> {
        self.spans.iter().map(|(key, span)| (Link { trace_id: span.trace_id, ..*key }, span))
    }
}

/// The sums of a row.
#[derive(Default)]
struct GroupSums {
    spans: usize,
    totals: Vec<TypeTotal>,
    categories: CategorySums,
    /// The best name of an endpoint in it, and that endpoint.
    named_by: Option<((u8, i64), Reverse<u32>)>,
    /// Of an endpoint: the weights of its spans, by type.
    weights: Vec<Vec<i64>>,
    slowest: Option<(i64, Link)>,
    first: Option<FirstTime>,
}

/// The endpoint that a label set names, such as `GET /cart`, and the quality of its label: the higher the better. `None` without
/// such a label.
pub fn endpoint_of_labels(dictionary: &Dictionary, set: AttributeSetId) -> Option<(u8, String)> {
    let label = |key: &str| dictionary.attributes_of(set).find(|it| it.key == key).map(|it| it.value.to_string());
    named_endpoint(&ENDPOINT_LABELS, label)
}

/// The endpoint by the first of `keys` that is a label, and its quality.
fn named_endpoint(keys: &[&str], label: impl Fn(&str) -> Option<String>) -> Option<(u8, String)> {
    let named = keys.iter().enumerate().find_map(|(nth, key)| Some(((keys.len() - nth) as u8, *key, label(key)?)));
    named.map(|(quality, key, name)| match (key, label(METHOD_LABEL)) {
        ("http.route", Some(method)) if !name.starts_with(&format!("{method} ")) => {
            (quality, format!("{method} {name}"))
        }
        _ => (quality, name),
    })
}

/// By nearest rank. `weights` is not empty.
fn median_and_p99(mut weights: Vec<i64>) -> [i64; 2] {
    weights.sort_unstable();
    [50, 99].map(|percent| weights[(weights.len() * percent).div_ceil(100) - 1])
}

/// A request is its local root: its samples have a trace of our own before the SDK's span begins inside of it
/// (`spanprof_aggregate::context::in_request`).
pub(super) fn key_of(link: Link) -> Link {
    let trace_id = if link.span_id == [0; 8] { link.trace_id } else { [0; 16] };
    Link { trace_id, ..link }
}

/// The sums of a span, whose trace is that of the SDK if it is known; `None` if there are too many spans.
pub(super) fn span_entry(spans: &mut HashMap<Link, SpanSums>, link: Link) -> Option<&mut SpanSums> {
    let key = key_of(link);
    if spans.len() >= MAX_SPANS && !spans.contains_key(&key) {
        return None;
    }
    let span = spans.entry(key).or_default();
    let is_of_sdk = |trace_id| trace_id != [0; 16] && !TreeSpan::from(Link { trace_id, ..link }).has_own_trace();
    span.trace_id = std::cmp::max_by_key(span.trace_id, link.trace_id, |id| (is_of_sdk(*id), *id));
    Some(span)
}

pub(super) fn add_to(totals: &mut Vec<TypeTotal>, type_index: usize, weight: i64, samples: f64) {
    if totals.len() <= type_index {
        totals.resize(type_index + 1, TypeTotal::default());
    }
    totals[type_index].add(TypeTotal { weight, samples });
}

pub(super) fn merge_into(totals: &mut Vec<TypeTotal>, more: &[TypeTotal]) {
    for (type_index, total) in more.iter().enumerate() {
        add_to(totals, type_index, total.weight, total.samples);
    }
}
