//! Differences of totals. Go's profiles of allocations and contention are totals since the start of the process; the
//! difference of two successive ones is the profile of the interval between them.
//!
//! The receiver cannot subtract: OTLP profiles have no temporality. `?seconds=N` is not requested for totals: Go
//! subtracts objects in use as well, which gives negative values, and keeps a goroutine and two heap profiles for each
//! request. A restart is found by the stacks that decreased, since a new process may have allocated more than its
//! predecessor. It is not found if the new process has more than 99 % of each total before the next pull.

use spanprof_profile::kinds::{self, ProfileKind};
use spanprof_profile::{transform, Profile, ProfilesData};

/// Kinds whose values are totals since the start of the process, unless the target has measured an interval (`?seconds=N`).
const TOTALS: [&ProfileKind; 2] = [&kinds::ALLOCATIONS, &kinds::LOCK];
/// A process has restarted if its totals have decreased by more than one part in this number. Totals never decrease; Go
/// scales them by estimates, whose rounding is far smaller.
const RESTART_FRACTION: i64 = 100;

/// Difference of two successive profiles of one endpoint.
#[derive(Debug)]
pub(super) struct TotalsDifference {
    pub data: ProfilesData,
    /// The totals are of another process than the previous ones; `data` has all of the new process.
    pub has_restarted: bool,
}

/// Splits off the totals; the rest stays. `is_measured` states that an interval was requested. A target that ignores the
/// request responds without a duration: Go states one for measurements only.
pub(super) fn take_totals(data: &mut ProfilesData, is_measured: bool) -> ProfilesData {
    let is_total = |profile: &Profile| {
        TOTALS.iter().any(|kind| kind.has(profile.type_name())) && !(is_measured && profile.duration_nano > 0)
    };
    let mut totals = ProfilesData { dictionary: data.dictionary.clone(), resources: data.resources.clone() };
    retain(data, |profile| !is_total(profile));
    retain(&mut totals, is_total);
    for profile in totals.resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
        profile.duration_nano = 0;
    }
    totals
}

/// The difference of two successive totals of one endpoint. A restarted process has been measured from its start.
pub(super) fn difference(previous: &ProfilesData, current: &ProfilesData) -> TotalsDifference {
    let resource = |data: &ProfilesData| data.resources.first().map(|resource| resource.resource.clone());
    let restarted = || TotalsDifference { data: current.clone(), has_restarted: true };
    if resource(previous) != resource(current) {
        return restarted();
    }
    let mut negated = previous.clone();
    for sample in samples(&mut negated) {
        sample.values = vec![sample.total().saturating_neg()];
    }
    // Adds up equal stacks and labels of both dictionaries.
    let mut data = transform::merge([current, &negated]);
    for profile in data.resources.iter().flat_map(|resource| &resource.profiles) {
        let decrease = profile.samples.iter().map(|sample| sample.total().min(0).saturating_neg());
        let before = previous.profiles().filter(|(_, other)| other.sample_type == profile.sample_type);
        let before = before.flat_map(|(_, other)| &other.samples).fold(0i64, |sum, it| sum.saturating_add(it.total()));
        if decrease.fold(0i64, i64::saturating_add) > before / RESTART_FRACTION {
            return restarted();
        }
    }
    for profile in data.resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
        // The merge has extended the time range to both moments.
        profile.duration_nano = 0;
        profile.samples.retain(|sample| sample.total() > 0);
    }
    TotalsDifference { data, has_restarted: false }
}

fn retain(data: &mut ProfilesData, is_kept: impl Fn(&Profile) -> bool) {
    for resource in &mut data.resources {
        resource.profiles.retain(&is_kept);
    }
}

fn samples(data: &mut ProfilesData) -> impl Iterator<Item = &mut spanprof_profile::Sample> {
    data.resources.iter_mut().flat_map(|resource| &mut resource.profiles).flat_map(|profile| &mut profile.samples)
}
