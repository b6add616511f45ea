//! The diagnosis: rules that find known problems in profiles. Each rule is a function of the samples of one service. It reports
//! only what the number of samples supports, and nothing about a healthy profile.
//!
//! # Decisions
//! 1. A wrong finding costs more than a missing one. For shares, the lower end of Wilson's 95 % interval must exceed the limit: with 100
//!    samples, a function of 15 % exceeds 20 % in one of ten profiles.
//! 2. The hottest own code is an observation: in a healthy service, eight equal parts had 2 to 26 % of the CPU time. A sample is charged to
//!    the innermost function of own code, with the libraries that it calls. Native code counts for the managed code that called it.
//! 3. Growth needs three points, since a cache that fills grows too: 4 standard errors over all windows, 2.5 in the second half with at
//!    least a quarter of it (2 gives 160 instead of 47 false alarms of 18,000, 3 finds 88 instead of 96 % of the leaks), and half of it
//!    older than a window. Its error counts changes by age; as independent samples, 8 of 12 leaks in Node.js were found.
//! 4. Waits are those of requests: idle threads wait all the time. asyncio is judged by its stack. No profile has the holder of a lock.

mod cpu;
mod memory;
mod quality;
mod service;
mod slow_request;
mod versions;
mod waits;

use std::collections::BTreeMap;

use spanprof_profile::ProfilesData;

use crate::query::FunctionLine;
use service::ServiceProfile;
use slow_request::RequestWaits;

/// Fewer samples support no statement on a part of a profile. Measured totals need none.
pub const MIN_FINDING_SAMPLES: f64 = 20.0;

/// Fewer CPU samples leave a share of 50 % uncertain by more than 7 percent points.
const FEW_SAMPLES: f64 = 200.0;
/// Functions listed as callers, or as allocating most, and slow requests.
const LISTED: usize = 3;

/// The meaning of a finding for the reader. The order is that of the findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingSeverity {
    /// The profile is unreliable or incomplete.
    Limitation,
    /// The program has a problem.
    Problem,
    /// A property of the program that healthy programs have too.
    Observation,
}

impl FindingSeverity {
    /// Stable name, such as `problem`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Limitation => "limitation",
            Self::Problem => "problem",
            Self::Observation => "observation",
        }
    }
}

/// The subject of a finding. The order is that of findings with equal cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// The profile has too few samples for shares of functions.
    FewSamples,
    /// Stacks are missing, for one or several reasons.
    MissingStacks,
    /// The profiler took fewer samples than configured: the overhead governor, or a duty cycle.
    LimitedSampling,
    /// The functions of the program's own code that use most CPU time.
    HotCode,
    /// Garbage collection takes a large part of the CPU time, or of the time.
    GarbageCollection,
    /// Threads wait for each other at one place.
    LockConvoy,
    /// Code blocks the event loop.
    EventLoopBlock,
    /// Requests wait at one place for most of their time.
    WaitingRequests,
    /// A request took much longer than the others of its endpoint, and waited for most of it.
    SlowRequest,
    /// The objects in use of a function increase, and grow old.
    MemoryGrowth,
    /// A function has a larger share of the CPU time than in the previous version.
    Regression,
}

impl Rule {
    /// Stable name, such as `hot_code`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FewSamples => "few_samples",
            Self::MissingStacks => "missing_stacks",
            Self::LimitedSampling => "limited_sampling",
            Self::HotCode => "hot_code",
            Self::GarbageCollection => "garbage_collection",
            Self::LockConvoy => "lock_convoy",
            Self::EventLoopBlock => "event_loop_block",
            Self::WaitingRequests => "waiting_requests",
            Self::SlowRequest => "slow_request",
            Self::MemoryGrowth => "memory_growth",
            Self::Regression => "regression",
        }
    }

    /// The severity of its findings. CPU time is no problem by itself: some function of every busy program uses most of it.
    pub const fn severity(self) -> FindingSeverity {
        match self {
            Self::FewSamples | Self::MissingStacks | Self::LimitedSampling => FindingSeverity::Limitation,
            Self::HotCode => FindingSeverity::Observation,
            _ => FindingSeverity::Problem,
        }
    }
}

/// A share between 0 and 1, or a relative growth, with its 95 % confidence interval. Both ends are the value where it is measured and not
/// sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EstimatedShare {
    /// The estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
}

impl EstimatedShare {
    /// A measured value.
    fn exact(value: f64) -> Self {
        Self { value, low: value, high: value }
    }

    /// The share of `part` in `whole`, of which there are `samples`: Wilson's interval.
    fn of(part: f64, whole: f64, samples: f64) -> Self {
        const Z: f64 = 1.96;
        let value = (part / whole).clamp(0.0, 1.0);
        let scale = 1.0 + Z * Z / samples;
        let center = value + Z * Z / (2.0 * samples);
        let margin = Z * (value * (1.0 - value) / samples + Z * Z / (4.0 * samples * samples)).sqrt();
        Self { value, low: ((center - margin) / scale).max(0.0), high: ((center + margin) / scale).min(1.0) }
    }
}

/// A figure of the evidence.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A weight: nanoseconds or bytes.
    Quantity(i64, &'static str),
    /// A number.
    Number(f64),
    /// A line number.
    Line(i64),
    /// A part of a whole.
    Part(f64),
    /// Text that comes from the profile.
    Text(String),
    /// Functions with their weight, largest first, and the weight of which they are parts.
    Functions(Vec<(FunctionLine, i64)>, i64),
}

/// One finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The rule that fired.
    pub rule: Rule,
    /// `service.name`, "" when there is none.
    pub service: String,
    /// The profile type that shows it; "" where it is about all.
    pub type_name: &'static str,
    /// The function that it is about.
    pub function: Option<FunctionLine>,
    /// Size of the problem: the share or growth that the rule judges.
    pub share: EstimatedShare,
    /// Order of findings: seconds of CPU or waiting per second, or the growing part of the memory in use.
    pub cost: f64,
    /// Samples that support it; 0 where it is measured and not sampled.
    pub samples: f64,
    /// The evidence, with stable names.
    pub facts: Vec<(&'static str, Fact)>,
}

/// A service whose requests took much longer than its CPU time, without a profile of waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownWaits<'d> {
    /// `service.name`, "" when there is none.
    pub service: &'d str,
    /// Durations of all requests.
    pub request_time_ns: i64,
    /// CPU time, also of work for no request.
    pub cpu_ns: i64,
}

/// Profiles to be diagnosed. Windows are added one at a time; memory depends on the number of distinct stacks.
#[derive(Debug, Default)]
pub struct Diagnosis {
    services: BTreeMap<String, ServiceProfile>,
    requests: RequestWaits,
    samples: usize,
}

impl Diagnosis {
    /// Adds the profiles of a window.
    pub fn add(&mut self, data: &ProfilesData) {
        self.requests.add(data);
        for (resource, profile) in data.profiles() {
            self.samples += profile.samples.len();
            let service = self.services.entry(resource.service_name().to_owned()).or_default();
            service.add(&data.dictionary, resource, profile);
        }
    }

    /// Number of aggregated samples so far.
    pub fn sample_count(&self) -> usize {
        self.samples
    }

    /// The services and their profile types with the number of samples.
    pub fn services(&self) -> impl Iterator<Item = (&str, Vec<(&str, f64)>)> {
        self.services.iter().map(|(name, service)| (name.as_str(), service.type_samples()))
    }

    /// The services whose waits are unknown, and matter.
    pub fn unknown_waits(&self) -> impl Iterator<Item = UnknownWaits<'_>> {
        let services = self.services.iter();
        services.filter_map(|(name, service)| Some(UnknownWaits { service: name, ..waits::unknown_waits(service)? }))
    }

    /// The findings: limitations, problems, observations; each by descending cost.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = self.requests.slow_requests();
        for finding in &mut findings {
            finding.cost /= self.services.get(&finding.service).map_or(f64::INFINITY, ServiceProfile::observed_ns);
        }
        for (name, service) in &self.services {
            let rules = [
                quality::rules(service),
                cpu::hot_code(service),
                cpu::garbage_collection(service).into_iter().collect(),
                waits::lock_convoy(service).into_iter().collect(),
                waits::event_loop_block(service).into_iter().collect(),
                waits::waiting_requests(service).into_iter().collect(),
                memory::growth(service),
                versions::regressions(service),
            ];
            findings.extend(rules.into_iter().flatten().map(|finding| Finding { service: name.clone(), ..finding }));
        }
        findings.sort_by(|one, other| {
            let by_severity = one.rule.severity().cmp(&other.rule.severity());
            by_severity.then_with(|| other.cost.total_cmp(&one.cost)).then_with(|| {
                (one.rule, &one.service, &one.function).cmp(&(other.rule, &other.service, &other.function))
            })
        });
        findings
    }
}
