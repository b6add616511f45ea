//! Index entry of one stored request: enough to decide whether a query must read the file. Built by the store for each
//! received request and each file found at start.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use spanprof_profile::{Link, ProfilesData, ResourceProfiles};
use spanprof_read::query::{self, Filter, TypeSummary};

use super::directory::{self, DirectoryFile};
use super::file_names::RollupName;
use super::received;
use super::rollup_facts::RollupFacts;

/// Label names indexed per window and service.
const MAX_LABEL_NAMES: usize = 64;
/// Values indexed per label name; filters accept further values, which are only not suggested.
const MAX_LABEL_VALUES: usize = 100;

/// One stored request.
#[derive(Debug)]
pub(crate) struct StoredWindow {
    pub path: PathBuf,
    pub bytes: u64,
    pub modified_unix_nano: u64,
    pub received_unix_ms: u64,
    /// Whether `serve` wrote the file, hence may remove it.
    pub is_owned: bool,
    /// Whether it is an hour that replaced its windows.
    pub is_rollup: bool,
    pub from_unix_nano: u64,
    pub to_unix_nano: u64,
    /// The end of its profiles, by which roll-ups divide windows, Unix milliseconds; the arrival if that is earlier, or if the
    /// profiles state no time.
    pub ended_unix_ms: u64,
    pub services: Vec<ServiceSummary>,
    /// Identities of its profiles, see `received`; of an hour, those of the replaced windows.
    pub identities: Vec<u64>,
    pub(crate) links: LinkFilter,
    /// Labels that the samples of an hour lack.
    pub omitted_labels: BTreeSet<String>,
}

/// Label name → values, of samples and of the resource.
pub(crate) type LabelValues = BTreeMap<String, BTreeSet<String>>;

/// Profiles of one service in a window.
#[derive(Debug)]
pub(crate) struct ServiceSummary {
    pub name: String,
    pub types: Vec<TypeSummary>,
    /// Shared by windows with equal labels, see [`StoredWindow::share_labels`].
    pub labels: Arc<LabelValues>,
}

impl StoredWindow {
    pub(crate) fn new(data: &ProfilesData, file: DirectoryFile) -> Self {
        Self::with_summaries(data, &query::types(data), file)
    }

    /// The entry of an hour, with the totals of its minutes.
    pub(crate) fn of_rollup(data: &ProfilesData, facts: RollupFacts, file: DirectoryFile) -> Self {
        let window = Self::with_summaries(data, &facts.minutes, file);
        StoredWindow { omitted_labels: facts.omitted_labels, ..window }
    }

    /// Reads the file.
    pub(crate) fn read(file: DirectoryFile) -> Result<Self, String> {
        let data = directory::read_profiles(&file.path)?;
        Ok(if file.is_rollup {
            let facts = RollupFacts::read(&file.path).unwrap_or_else(|| RollupFacts::of_window(&data));
            Self::of_rollup(&data, facts, file)
        } else {
            Self::new(&data, file)
        })
    }

    fn with_summaries(data: &ProfilesData, types: &[TypeSummary], file: DirectoryFile) -> Self {
        let mut services: Vec<ServiceSummary> = Vec::new();
        for resource in &data.resources {
            let name = resource.service_name();
            let service = match services.iter().position(|service| service.name == name) {
                Some(index) => &mut services[index],
                None => {
                    let types = types.iter().filter(|summary| summary.service == name).cloned().collect();
                    services.push(ServiceSummary { name: name.to_owned(), types, labels: Arc::default() });
                    let last = services.len() - 1;
                    &mut services[last]
                }
            };
            index_labels(Arc::make_mut(&mut service.labels), data, resource);
        }
        let mut links = LinkFilter::default();
        for (_, profile) in data.profiles() {
            for sample in profile.samples.iter().filter(|sample| !sample.link.is_empty()) {
                let span = data.dictionary.get_span(sample.link);
                [span.link, span.root()].into_iter().for_each(|link| links.insert(link));
            }
        }
        Self::from_parts(file, services, received::identities(data), links)
    }

    pub(crate) fn from_parts(
        file: DirectoryFile,
        services: Vec<ServiceSummary>,
        identities: Vec<u64>,
        links: LinkFilter,
    ) -> Self {
        let DirectoryFile { path, bytes, modified_unix_nano, received_unix_ms, is_owned, is_rollup } = file;
        let types = || services.iter().flat_map(|service| &service.types);
        let to_unix_nano = types().map(|summary| summary.to_unix_nano).max().unwrap_or(0);
        let ended_unix_ms = match RollupName::of_path(&path).filter(|_| is_rollup) {
            Some(hour) => hour.end_ms() - 1,
            None if to_unix_nano == 0 => received_unix_ms,
            None => received_unix_ms.min((to_unix_nano - 1) / 1_000_000),
        };
        StoredWindow {
            path,
            bytes,
            modified_unix_nano,
            received_unix_ms,
            is_owned,
            is_rollup,
            from_unix_nano: types().map(|summary| summary.from_unix_nano).min().unwrap_or(0),
            to_unix_nano,
            ended_unix_ms,
            services,
            identities,
            links,
            omitted_labels: BTreeSet::new(),
        }
    }

    pub(crate) fn remove_files(&self) {
        if self.is_rollup {
            return directory::remove_rollup(&self.path);
        }
        let _ = fs::remove_file(&self.path);
    }

    /// Whether the entry is of this version of the file.
    pub(crate) fn is_of(&self, file: &DirectoryFile) -> bool {
        (&self.path, self.bytes, self.modified_unix_nano) == (&file.path, file.bytes, file.modified_unix_nano)
    }

    /// Replaces labels by equal ones of other windows: consecutive windows mostly have equal labels, which would take more
    /// memory than the rest of their entries.
    pub(crate) fn share_labels(&mut self, shared: &mut HashSet<Arc<LabelValues>>) {
        for service in &mut self.services {
            match shared.get(&service.labels) {
                Some(labels) => service.labels = labels.clone(),
                None => drop(shared.insert(service.labels.clone())),
            }
        }
    }

    /// The file's name, which identifies the window in the API.
    pub(crate) fn name(&self) -> Cow<'_, str> {
        self.path.file_name().unwrap_or_default().to_string_lossy()
    }

    /// Hash of the file's name and size; the same in every process and version.
    pub(crate) fn digest(&self) -> u64 {
        let hash = fnv(self.name().as_bytes()) ^ self.bytes;
        let hash = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    /// `false` when the window certainly contains no sample that passes the filter.
    pub(crate) fn may_hold(&self, filter: &Filter) -> bool {
        filter.from_unix_nano.is_none_or(|from| self.to_unix_nano > from || self.from_unix_nano >= from)
            && filter.to_unix_nano.is_none_or(|to| self.from_unix_nano < to)
            // A request may have two traces: a span is enough.
            && match (filter.span_id, filter.trace_id) {
                (Some(span_id), _) => self.links.may_hold(&span_id),
                (None, Some(trace_id)) => self.links.may_hold(&trace_id),
                (None, None) => true,
            }
            && self.services.iter().any(|service| {
                filter.service.as_ref().is_none_or(|name| *name == service.name)
                    && filter
                        .type_name
                        .as_ref()
                        .is_none_or(|name| service.types.iter().any(|summary| summary.type_name == *name))
            })
    }
}

/// Identifies a set of windows: a sum, hence independent of their order.
pub(crate) fn digest(windows: &[Arc<StoredWindow>]) -> u64 {
    windows.iter().fold(0, |sum, window| sum.wrapping_add(window.digest()))
}

/// Whether the filter's time range includes all of these windows.
pub(crate) fn is_whole(windows: &[Arc<StoredWindow>], filter: &Filter) -> bool {
    windows.iter().all(|window| {
        filter.from_unix_nano.is_none_or(|from| window.from_unix_nano >= from)
            && filter.to_unix_nano.is_none_or(|to| window.to_unix_nano <= to)
    })
}

fn index_labels(labels: &mut LabelValues, data: &ProfilesData, resource: &ResourceProfiles) {
    let mut insert = |key: &str, value: String| {
        if !labels.contains_key(key) {
            if labels.len() >= MAX_LABEL_NAMES {
                return;
            }
            labels.insert(key.to_owned(), BTreeSet::new());
        }
        if let Some(values) = labels.get_mut(key) {
            if values.len() < MAX_LABEL_VALUES {
                values.insert(value);
            }
        }
    };
    // Labels of samples first, so that the limits drop attributes of the resource.
    let mut seen = BTreeSet::new();
    for sample in resource.profiles.iter().flat_map(|profile| &profile.samples) {
        if !sample.attributes.is_empty() && seen.insert(sample.attributes) {
            for attribute in data.dictionary.attributes_of(sample.attributes) {
                insert(attribute.key, attribute.value.to_string());
            }
        }
    }
    for attribute in &resource.resource {
        insert(&attribute.key, attribute.value.as_ref().to_string());
    }
}

/// FNV-1a.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Bloom filter of trace and span ids: 8,192 bits, four hashes per id.
pub(crate) struct LinkFilter(Box<[u64; 128]>);

impl Default for LinkFilter {
    fn default() -> Self {
        LinkFilter(Box::new([0; 128]))
    }
}

impl std::fmt::Debug for LinkFilter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "LinkFilter({} bits)", self.0.iter().map(|word| word.count_ones()).sum::<u32>())
    }
}

impl LinkFilter {
    fn insert(&mut self, link: Link) {
        for bit in Self::bits(&link.trace_id).into_iter().chain(Self::bits(&link.span_id)) {
            self.0[bit / 64] |= 1 << (bit % 64);
        }
    }

    /// Hex digits; empty for a filter without ids.
    pub(crate) fn to_hex(&self) -> String {
        if self.0.iter().all(|word| *word == 0) {
            String::new()
        } else {
            hex::encode(self.0.map(u64::to_be_bytes).as_flattened())
        }
    }

    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        let mut filter = LinkFilter::default();
        if !text.is_empty() {
            let mut bits = [[0; 8]; 128];
            hex::decode_to_slice(text, bits.as_flattened_mut()).ok()?;
            *filter.0 = bits.map(u64::from_be_bytes);
        }
        Some(filter)
    }

    fn may_hold(&self, id: &[u8]) -> bool {
        Self::bits(id).into_iter().all(|bit| self.0[bit / 64] & (1 << (bit % 64)) != 0)
    }

    fn bits(id: &[u8]) -> [usize; 4] {
        let hash = fnv(id);
        let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        [0, 13, 26, 39].map(|shift| (mixed >> shift) as usize & 8191)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_filter_has_no_false_negatives_and_few_false_positives() {
        let mut set = LinkFilter::default();
        let link = |number: u64| Link {
            trace_id: (u128::from(number) * 0x9e37_79b9_7f4a_7c15_f39c).to_be_bytes(),
            span_id: number.to_be_bytes(),
        };
        (0..200).for_each(|number| set.insert(link(number)));
        assert!((0..200).all(|number| set.may_hold(&link(number).trace_id) && set.may_hold(&link(number).span_id)));
        let wrong = (1000..11_000).filter(|number| set.may_hold(&link(*number).trace_id)).count();
        assert!(wrong < 500, "{wrong} of 10000 false positives");
    }

    #[test]
    fn windows_that_exceed_the_time_range_are_not_whole() {
        let file = DirectoryFile {
            path: PathBuf::new(),
            bytes: 1,
            modified_unix_nano: 0,
            received_unix_ms: 0,
            is_owned: true,
            is_rollup: false,
        };
        let window = StoredWindow::new(&ProfilesData::default(), file);
        let windows = [Arc::new(StoredWindow { from_unix_nano: 10, to_unix_nano: 20, ..window })];
        let range = |from, to| Filter { from_unix_nano: Some(from), to_unix_nano: Some(to), ..Filter::default() };
        assert_eq!(
            [(10, 20), (11, 20), (10, 19)].map(|(from, to)| is_whole(&windows, &range(from, to))),
            [true, false, false]
        );
    }
}
