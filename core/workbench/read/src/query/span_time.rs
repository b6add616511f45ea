//! Where the time of a span, or of a trace, went: its profile types beside the mean of the others of its endpoint, and the parts of CPU
//! time and of waits.

use std::collections::BTreeMap;

use spanprof_profile::code_origin::WaitReason;
use spanprof_profile::kinds::REQUEST_ERRORS;
use spanprof_profile::Link;

use super::request_times::{is_of_requests, REQUEST_TIME};
use super::spans::{SpanGrouping, SpanRow, SpanTable, SpanTotals, TypeTotal};
use super::time_category::TimeCategory;

/// Name of the row of waits that are the difference of wall and CPU time.
const WAITING: &str = "waiting";
/// Name of the row of the duration that is neither CPU time nor a wait of a thread.
const REST: &str = "rest";
/// Titles of the rows, in their order. Other types follow by name.
const TITLES: [(&str, &str); 12] = [
    ("cpu", "On the CPU"),
    ("off_cpu", "Waiting (off CPU)"),
    (WAITING, "Waiting (wall − CPU)"),
    (REST, "Awaiting, or not sampled"),
    ("awaited", "Awaited calls, by span"),
    ("wall", "Wall time on its threads"),
    ("delay", "Waiting for locks"),
    ("gc", "Garbage collection"),
    ("event_loop_lag", "Event loop blocked"),
    ("alloc_space", "Allocated"),
    ("alloc_objects", "Allocated objects"),
    ("contentions", "Waits for locks"),
];

/// The types from which the wait of a row is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitSource {
    /// Time off the CPU, as measured.
    OffCpu,
    /// Wall time less CPU time.
    WallMinusCpu,
    /// Calls that requests await, where no thread waits for them.
    Awaited,
    /// Waits for locks.
    Delay,
}

impl WaitSource {
    /// The best source among the types that are present.
    pub fn of<'t>(types: impl IntoIterator<Item = &'t String>) -> Option<Self> {
        let types: Vec<&String> = types.into_iter().collect();
        let has = |name: &str| types.iter().any(|known| *known == name);
        if has("off_cpu") {
            Some(Self::OffCpu)
        } else if has("wall") && has("cpu") {
            Some(Self::WallMinusCpu)
        } else if has("awaited") {
            Some(Self::Awaited)
        } else {
            has("delay").then_some(Self::Delay)
        }
    }

    /// Nanoseconds.
    pub fn weight(self, row: &SpanRow) -> i64 {
        match self {
            Self::OffCpu => row.weight("off_cpu"),
            // Both are estimates: of a span without waits, the difference may be negative.
            Self::WallMinusCpu => row.weight("wall").saturating_sub(row.weight("cpu")).max(0),
            Self::Awaited | Self::Delay => row.weight(self.type_name()),
        }
    }

    /// The profile type that has its functions.
    pub fn type_name(self) -> &'static str {
        match self {
            Self::OffCpu => "off_cpu",
            Self::WallMinusCpu => "wall",
            Self::Awaited => "awaited",
            Self::Delay => "delay",
        }
    }

    /// As the listings of spans name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::OffCpu => "off_cpu",
            Self::WallMinusCpu => "wall - cpu",
            Self::Awaited => "awaited",
            Self::Delay => "delay",
        }
    }
}

/// The span or trace to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanSubject {
    /// A span, whose trace may be left out: all zeros.
    Span(Link),
    /// All spans of a trace.
    Trace([u8; 16]),
}

/// Weight and samples of the span, and the mean weight of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ComparedTotal {
    /// Weight of the span.
    pub weight: i64,
    /// Samples of the span.
    pub samples: f64,
    /// Mean weight of the others, 0 without any.
    pub mean: f64,
}

/// A profile type.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanTimeRow {
    /// The profile type, or `waiting`: wall time less CPU time, of a service without the type `off_cpu`.
    pub name: String,
    /// The profile type whose samples the row counts.
    pub type_name: String,
    /// Unit of the weights.
    pub unit: String,
    /// All of it.
    pub total: ComparedTotal,
    /// What CPU time and waits were used for, heaviest first. Their weights and means add up to those of the row. Empty for other
    /// types, and if nothing is known.
    pub parts: Vec<(TimeCategory, ComparedTotal)>,
}

impl SpanTimeRow {
    /// Its name for people: for a type without one, its name.
    pub fn title(&self) -> &str {
        TITLES.iter().find(|(name, _)| *name == self.name).map_or(&self.name, |(_, title)| title)
    }
}

/// A span or trace beside the others of its endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanTime {
    /// The span or trace.
    pub subject: SpanRow,
    /// Whether it ended with an error: known for the first of each profile that failed.
    pub is_failed: bool,
    /// The other spans, or traces, of its service and endpoint that have samples.
    pub sampled_others: Vec<Link>,
    /// All others, of which those without samples are 0 in each mean: the other ended requests, where their ends are reported.
    pub others: usize,
    /// The source of its service's waits; `None` where they are unknown.
    pub wait: Option<WaitSource>,
    /// Whether its service awaits on an event loop: then the part of its duration that is no CPU time is a wait.
    pub awaits: bool,
    /// The profile types that the span or the others have.
    pub rows: Vec<SpanTimeRow>,
}

impl SpanTime {
    /// The type whose functions explain the span: [`SpanRow::main_type`], else the first one that it has.
    pub fn main_type(&self) -> Option<&str> {
        let sampled = || self.rows.iter().find(|row| row.total.samples > 0.0).map(|row| row.type_name.as_str());
        self.subject.main_type(self.wait).or_else(sampled)
    }

    /// Whether it took at least twice as long as its CPU time, and no profile shows waits.
    pub fn has_unknown_waits(&self) -> bool {
        let has_waits = self.awaits || self.wait.is_some() || self.rows.iter().any(|row| row.name == "wall");
        !has_waits && self.subject.weight(REQUEST_TIME) / 2 > self.subject.weight("cpu")
    }
}

impl SpanRow {
    /// The type of most of its time, CPU time or a wait; `None` without both. `wait` is the source of its service's waits.
    pub fn main_type(&self, wait: Option<WaitSource>) -> Option<&'static str> {
        let waiting = wait.map_or(0, |wait| wait.weight(self));
        // Threads that wait for a lock are off the CPU, except virtual ones.
        let delay = if waiting > self.weight("delay") / 2 { 0 } else { self.weight("delay") };
        let waits = wait.map(|wait| (wait.type_name(), waiting));
        // The threads of most requests wait in the calls that they await.
        let awaited = if waiting > self.weight("awaited") / 2 { 0 } else { self.weight("awaited") };
        let times =
            [("delay", delay), ("awaited", awaited)].into_iter().chain(waits).chain([("cpu", self.weight("cpu"))]);
        // Of equal ones, the last.
        times.filter(|(_, weight)| *weight > 0).max_by_key(|(_, weight)| *weight).map(|(name, _)| name)
    }
}

/// Where the time of a span or trace went. `None` if it has no samples. `totals` are those of [`SpanTotals::with_categories`].
pub fn span_time(totals: &SpanTotals, subject: SpanSubject) -> Option<SpanTime> {
    let grouping = match subject {
        SpanSubject::Span(_) => SpanGrouping::Span,
        SpanSubject::Trace(_) => SpanGrouping::Trace,
    };
    let table = totals.table(grouping, |row| row.weight("cpu"));
    let is_subject = |row: &&SpanRow| match subject {
        SpanSubject::Span(span) => {
            row.link.span_id == span.span_id && (span.trace_id == [0; 16] || row.link.trace_id == span.trace_id)
        }
        SpanSubject::Trace(trace_id) => row.link.trace_id == trace_id,
    };
    let own = table.rows.iter().find(is_subject)?;
    // An ended request is counted once. It is no amount to compare, and without other samples no span to compare with.
    let is_sampled = |row: &&SpanRow| row.types.keys().any(|name| !is_of_requests(name));
    let is_of_endpoint = |row: &&SpanRow| row.service == own.service && row.endpoint == own.endpoint;
    let is_other = |row: &&SpanRow| !is_subject(row) && is_of_endpoint(row) && is_sampled(row);
    let others: Vec<&SpanRow> = table.rows.iter().filter(is_other).collect();
    let of_service = table.rows.iter().filter(|row| row.service == own.service).flat_map(|row| row.types.keys());
    let wait = WaitSource::of(of_service);
    // Most short requests have no sample, so the sampled spans alone are no fair comparison.
    let ended = match subject {
        SpanSubject::Span(_) => totals.ended_requests(&own.service, &own.endpoint).saturating_sub(1),
        SpanSubject::Trace(_) => 0,
    };
    let count = ended.max(others.len());
    let sides = Sides { own: Sums::of([own]), others: Sums::of(others.iter().copied()), count };
    let mut names: Vec<&String> = sides.own.types.keys().chain(sides.others.types.keys()).collect();
    names.retain(|name| !is_of_requests(name));
    names.sort();
    names.dedup();
    let mut rows: Vec<SpanTimeRow> = names.into_iter().map(|name| sides.row(&table, name)).collect();
    if wait == Some(WaitSource::WallMinusCpu) && rows.iter().any(|row| row.name == "wall") {
        rows.push(sides.waiting(&table));
    }
    let awaits = totals.awaits(&own.service);
    if matches!(subject, SpanSubject::Span(_)) && (awaits || wait == Some(WaitSource::OffCpu)) {
        rows.extend(rest(own, &others));
    }
    let rank = |row: &SpanTimeRow| TITLES.iter().position(|(name, _)| *name == row.name).unwrap_or(TITLES.len());
    rows.sort_by(|one, other| rank(one).cmp(&rank(other)).then_with(|| one.name.cmp(&other.name)));
    let is_failed = own.weight(REQUEST_ERRORS) > 0;
    let sampled_others = others.iter().map(|row| row.link).collect();
    Some(SpanTime { subject: own.clone(), is_failed, sampled_others, others: count, wait, awaits, rows })
}

/// The duration of a request less its CPU time and the waits of its threads: what it awaited without a thread, or what was too short
/// for a sample. With it, the parts add up to the duration. `None` below a hundredth of it, and where the duration is not known.
fn rest(own: &SpanRow, others: &[&SpanRow]) -> Option<SpanTimeRow> {
    let of = |row: &SpanRow| {
        let known = row.weight("cpu").saturating_add(row.weight("off_cpu"));
        row.types.contains_key(REQUEST_TIME).then(|| row.weight(REQUEST_TIME).saturating_sub(known).max(0))
    };
    let weight = of(own).filter(|rest| *rest > own.weight(REQUEST_TIME) / 100)?;
    let of_others: Vec<i64> = others.iter().filter_map(|row| of(row)).collect();
    let mean = of_others.iter().sum::<i64>() as f64 / of_others.len().max(1) as f64;
    Some(SpanTimeRow {
        name: REST.to_owned(),
        type_name: "cpu".to_owned(),
        unit: "nanoseconds".to_owned(),
        total: ComparedTotal { weight, samples: 0.0, mean },
        parts: Vec::new(),
    })
}

/// Sums of spans.
#[derive(Default)]
struct Sums {
    types: BTreeMap<String, TypeTotal>,
    categories: BTreeMap<String, BTreeMap<TimeCategory, TypeTotal>>,
}

impl Sums {
    fn of<'r>(rows: impl IntoIterator<Item = &'r SpanRow>) -> Self {
        let mut sums = Self::default();
        for row in rows {
            for (name, total) in &row.types {
                sums.types.entry(name.clone()).or_default().add(*total);
            }
            for (name, categories) in &row.categories {
                let of_type = sums.categories.entry(name.clone()).or_default();
                categories.iter().for_each(|(category, total)| of_type.entry(*category).or_default().add(*total));
            }
        }
        sums
    }

    fn total(&self, type_name: &str) -> TypeTotal {
        self.types.get(type_name).copied().unwrap_or_default()
    }

    fn category(&self, type_name: &str, category: TimeCategory) -> TypeTotal {
        self.categories.get(type_name).and_then(|of_type| of_type.get(&category)).copied().unwrap_or_default()
    }

    /// Wall time less CPU time, and its parts. A function that waits has less CPU time than wall time. Both are estimates, so the
    /// known parts are reduced in proportion where their sum exceeds the difference.
    fn waiting(&self) -> (TypeTotal, BTreeMap<TimeCategory, TypeTotal>) {
        let (wall, cpu) = (self.total("wall"), self.total("cpu"));
        let total = TypeTotal { weight: wall.weight.saturating_sub(cpu.weight).max(0), samples: wall.samples };
        let reasons = self.categories.get("wall").into_iter().flatten();
        let mut parts: BTreeMap<TimeCategory, TypeTotal> = reasons
            .filter(|(category, _)| !category.is_unknown())
            .map(|(category, wall)| {
                let weight = wall.weight.saturating_sub(self.category("cpu", *category).weight).max(0);
                (*category, TypeTotal { weight, samples: wall.samples })
            })
            .collect();
        let known = parts.values().fold(0, |sum: i64, part| sum.saturating_add(part.weight));
        if known > total.weight {
            for part in parts.values_mut() {
                part.weight = (i128::from(part.weight) * i128::from(total.weight) / i128::from(known)) as i64;
            }
            let rounded_off = parts.values().fold(total.weight, |rest, part| rest - part.weight);
            if let Some(largest) = parts.values_mut().max_by_key(|part| part.weight) {
                largest.weight += rounded_off;
            }
        } else {
            let samples = parts.values().fold(total.samples, |rest, part| rest - part.samples).max(0.0);
            let rest = TypeTotal { weight: total.weight - known, samples };
            parts.insert(TimeCategory::Wait(WaitReason::Unknown), rest);
        }
        (total, parts)
    }
}

/// A span, and the sum of the others.
struct Sides {
    own: Sums,
    others: Sums,
    count: usize,
}

impl Sides {
    fn compared(&self, own: TypeTotal, others: TypeTotal) -> ComparedTotal {
        let mean = if self.count == 0 { 0.0 } else { others.weight as f64 / self.count as f64 };
        ComparedTotal { weight: own.weight, samples: own.samples, mean }
    }

    fn row(&self, table: &SpanTable, name: &str) -> SpanTimeRow {
        let none = BTreeMap::new();
        let [own, others] = [&self.own, &self.others].map(|sums| sums.categories.get(name).unwrap_or(&none));
        // CPU time has reasons of waits too, for its difference with wall time, of which there is no row.
        let is_shown = |category: &TimeCategory| match name {
            "cpu" => matches!(category, TimeCategory::Code(_)),
            "off_cpu" => matches!(category, TimeCategory::Wait(_)),
            _ => false,
        };
        SpanTimeRow {
            name: name.to_owned(),
            type_name: name.to_owned(),
            unit: table.units.get(name).cloned().unwrap_or_default(),
            total: self.compared(self.own.total(name), self.others.total(name)),
            parts: self.parts(own, others, is_shown),
        }
    }

    fn waiting(&self, table: &SpanTable) -> SpanTimeRow {
        let ((own, own_parts), (others, parts)) = (self.own.waiting(), self.others.waiting());
        SpanTimeRow {
            name: WAITING.to_owned(),
            type_name: "wall".to_owned(),
            unit: table.units.get("wall").cloned().unwrap_or_default(),
            total: self.compared(own, others),
            parts: self.parts(&own_parts, &parts, |_| true),
        }
    }

    /// Heaviest first, of the span or of the mean of the others.
    fn parts(
        &self,
        own: &BTreeMap<TimeCategory, TypeTotal>,
        others: &BTreeMap<TimeCategory, TypeTotal>,
        is_shown: impl Fn(&TimeCategory) -> bool,
    ) -> Vec<(TimeCategory, ComparedTotal)> {
        let mut categories: Vec<TimeCategory> = own.keys().chain(others.keys()).copied().filter(is_shown).collect();
        categories.sort();
        categories.dedup();
        let of = |side: &BTreeMap<TimeCategory, TypeTotal>, category| side.get(category).copied().unwrap_or_default();
        let compared = categories.iter().map(|it| (*it, self.compared(of(own, it), of(others, it))));
        let mut parts: Vec<_> = compared.filter(|(_, part)| part.weight != 0 || part.mean != 0.0).collect();
        parts.sort_by(|(_, one), (_, other)| {
            let size = |part: &ComparedTotal| part.mean.max(part.weight as f64);
            size(other).total_cmp(&size(one))
        });
        if parts.iter().all(|(category, _)| category.is_unknown()) {
            parts.clear();
        }
        parts
    }
}
