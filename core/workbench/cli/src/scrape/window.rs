//! From the bytes of a response to the profiles that are forwarded: decoding within limits, differences of totals, resource
//! attributes, names of types and the time range. Pure; time is an argument.

use std::hash::{BuildHasher, RandomState};

use spanprof_profile::{kinds, transform, Attribute, AttributeValue, ProfilesData, Scope};
use spanprof_read::decode::{self, DecodeLimits, Format};

use super::totals;

/// Largest difference between the target's clock and ours at which the target's times are used.
const MAX_CLOCK_DIFFERENCE_NS: u64 = 60_000_000_000;

/// The constant part of one endpoint's windows.
#[derive(Clone, Debug)]
pub(super) struct WindowShape {
    pub name: String,
    /// Resource attributes of the configuration.
    pub attributes: Vec<Attribute>,
    /// `service.instance.id`, unless the configuration or the profile has one.
    pub instance: String,
    pub interval_ns: u64,
    /// Whether the target measures an interval (`seconds`).
    pub is_measured: bool,
}

/// The state of one endpoint between two pulls.
#[derive(Debug, Default)]
pub(super) struct EndpointHistory {
    totals: Option<ProfilesData>,
    pulled_at_unix_ns: u64,
}

impl EndpointHistory {
    /// Whether the next pull has differences of totals.
    pub fn has_totals(&self) -> bool {
        self.totals.is_some()
    }
}

/// Profiles to forward.
#[derive(Debug, Default)]
pub(super) struct ScrapedWindow {
    pub data: ProfilesData,
    pub has_restarted: bool,
}

/// Decodes one response. The first totals of an endpoint are withheld: they are the base of the next difference.
pub(super) fn scraped_window(
    body: &[u8],
    shape: &WindowShape,
    history: &mut EndpointHistory,
    now_unix_ns: u64,
) -> Result<ScrapedWindow, String> {
    let (format, mut data) = decode::any(body, &DecodeLimits::default()).map_err(|error| error.to_string())?;
    if format != Format::Pprof || data.profiles().next().is_none() {
        return Err("the response is not a pprof profile".to_owned());
    }
    complete_resource(&mut data, shape);
    let current = totals::take_totals(&mut data, shape.is_measured);
    let mut has_restarted = false;
    if current.profiles().next().is_some() {
        if let Some(previous) = &history.totals {
            let difference = totals::difference(previous, &current);
            has_restarted = difference.has_restarted;
            data = transform::merge([&data, &difference.data]);
        }
        history.totals = Some(current);
    }
    let from = match history.pulled_at_unix_ns {
        0 => now_unix_ns.saturating_sub(shape.interval_ns),
        previous => previous.min(now_unix_ns),
    };
    history.pulled_at_unix_ns = now_unix_ns;
    for profile in data.resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
        let is_plausible = profile.end_unix_nano().abs_diff(now_unix_ns) <= MAX_CLOCK_DIFFERENCE_NS;
        if profile.duration_nano == 0 || (profile.is_gauge() && !shape.is_measured) {
            (profile.time_unix_nano, profile.duration_nano) = (from, now_unix_ns - from);
        } else if !is_plausible {
            profile.time_unix_nano = now_unix_ns.saturating_sub(profile.duration_nano);
        }
        if profile.period_type.is_empty() || profile.period == 0 {
            // Pyroscope rejects a profile without a period.
            (profile.period_type, profile.period) = (profile.sample_type.clone(), 1);
        }
        profile.profile_id = random_id();
        // Go's mutex profile has the stacks of lock holders, the block profile the stacks of waiting goroutines. Both report the
        // same waiting time, so they must not be added up.
        if shape.name == "mutex" && kinds::LOCK.has(&profile.sample_type.kind) {
            profile.sample_type.kind.insert_str(0, "mutex_");
        }
    }
    for resource in &mut data.resources {
        resource.profiles.retain(|profile| !profile.samples.is_empty());
        resource.scope = Scope::spanprof();
    }
    data.resources.retain(|resource| !resource.profiles.is_empty());
    Ok(ScrapedWindow { data, has_restarted })
}

/// Adds the attributes of the configuration, and those by which receivers distinguish services and processes.
fn complete_resource(data: &mut ProfilesData, shape: &WindowShape) {
    let program = data.dictionary.mappings().get(1).map(|mapping| data.dictionary.get_string(mapping.filename));
    let program = program.and_then(|path| path.rsplit('/').next()).filter(|name| !name.is_empty());
    let unknown_service = match program {
        Some(program) => format!("unknown_service:{program}"),
        None => "unknown_service".to_owned(),
    };
    for resource in &mut data.resources {
        let attributes = &mut resource.resource;
        attributes.retain(|stated| shape.attributes.iter().all(|attribute| attribute.key != stated.key));
        attributes.extend(shape.attributes.iter().cloned());
        for (key, value) in [("service.name", &unknown_service), ("service.instance.id", &shape.instance)] {
            let is_missing = |attribute: &Attribute| {
                attribute.key != key || attribute.value == AttributeValue::String(String::new())
            };
            if attributes.iter().all(is_missing) {
                attributes.retain(|attribute| attribute.key != key);
                attributes.push(Attribute::string(key, value));
            }
        }
    }
}

/// 16 random bytes, as each profile needs its own id.
fn random_id() -> [u8; 16] {
    let half = || RandomState::new().hash_one(0u8).to_be_bytes();
    let mut id = [0; 16];
    id[..8].copy_from_slice(&half());
    id[8..].copy_from_slice(&half());
    id
}
