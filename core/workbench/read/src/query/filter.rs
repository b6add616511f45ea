//! Selects samples by service, type, labels, span link and time.

use hashbrown::HashSet;

use super::LabelMatcher;
use spanprof_profile::encode::pprof::names;
use spanprof_profile::Transfer;
use spanprof_profile::*;

/// Conditions, combined by AND; the default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// `service.name` of the resource, or of the sample where it has one.
    pub service: Option<String>,
    /// [`spanprof_profile::Profile::type_name`].
    pub type_name: Option<String>,
    /// Conditions on labels of the sample, or attributes of its resource, as text.
    pub labels: Vec<LabelMatcher>,
    /// Trace of the sample's link.
    pub trace_id: Option<[u8; 16]>,
    /// Span of the sample's link.
    pub span_id: Option<[u8; 8]>,
    /// Start of the range of windows (or timestamps), Unix nanoseconds, inclusive.
    pub from_unix_nano: Option<u64>,
    /// End of the range, exclusive.
    pub to_unix_nano: Option<u64>,
}

impl Filter {
    /// The selected samples, with a dictionary of their entries only. Omits profiles without a selected sample, except for
    /// gauges: that a newer one has no such sample replaces an older one in a merge.
    pub fn apply(&self, data: &ProfilesData) -> ProfilesData {
        let mut passed = ProfilesData { resources: self.select(data), ..ProfilesData::default() };
        let mut transfer = Transfer::new(&data.dictionary, &mut passed.dictionary);
        transfer.mappings();
        for profile in passed.resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
            profile.attributes = transfer.attribute_set(profile.attributes);
            if self.type_name.is_some() {
                profile.attributes = without_sample_types(transfer.to, profile.attributes);
            }
            profile.samples.iter_mut().for_each(|sample| transfer.renumber(sample));
        }
        passed
    }

    /// The selected samples as [`Self::apply`], with ids of the dictionary of `data`. For a merge, which copies the entries.
    pub fn select(&self, data: &ProfilesData) -> Vec<ResourceProfiles> {
        let links = self.matching_links(&data.dictionary);
        let mut passed = Vec::new();
        for resource in &data.resources {
            let mut samples = SampleFilter::new(self, &links, &data.dictionary, &resource.resource);
            let mut profiles = Vec::new();
            for profile in resource.profiles.iter().filter(|profile| self.matches_profile(profile)) {
                let selected = profile.samples.iter().filter(|sample| samples.accepts(sample)).cloned();
                let mut kept = Profile {
                    sample_type: profile.sample_type.clone(),
                    period_type: profile.period_type.clone(),
                    exact_type: profile.exact_type.clone(),
                    samples: selected.collect(),
                    ..*profile
                };
                if self.narrow(resource, &mut kept) {
                    profiles.push(kept);
                }
            }
            if !profiles.is_empty() {
                let dropped_attributes_count = resource.dropped_attributes_count;
                let (resource, scope) = (resource.resource.clone(), resource.scope.clone());
                passed.push(ResourceProfiles { resource, scope, profiles, dropped_attributes_count });
            }
        }
        passed
    }

    /// Removes what [`Self::select`] does not select.
    pub fn retain(&self, data: &mut ProfilesData) {
        let ProfilesData { dictionary, resources } = data;
        let links = self.matching_links(dictionary);
        resources.retain_mut(|resource| {
            let mut profiles = std::mem::take(&mut resource.profiles);
            let mut samples = SampleFilter::new(self, &links, dictionary, &resource.resource);
            profiles.retain_mut(|profile| {
                self.matches_profile(profile) && {
                    profile.samples.retain(|sample| samples.accepts(sample));
                    self.narrow(resource, profile)
                }
            });
            resource.profiles = profiles;
            !resource.profiles.is_empty()
        });
    }

    /// Removes what is outside the time range from a profile; whether the profile is selected.
    fn narrow(&self, resource: &ResourceProfiles, profile: &mut Profile) -> bool {
        let has_exact_values = profile.exact_type.is_some();
        profile.samples.retain_mut(|sample| self.narrow_sample(has_exact_values, sample));
        !profile.samples.is_empty() || (profile.is_gauge() && self.matches_service_of(resource))
    }

    fn matching_links(&self, dictionary: &Dictionary) -> Vec<bool> {
        let of_trace = dictionary.links().iter().filter(|span| self.trace_id == Some(span.link.trace_id));
        let roots: HashSet<[u8; 8]> = of_trace.map(|span| span.root().span_id).chain(self.span_id).collect();
        dictionary.links().iter().map(|span| self.matches_span(*span, &roots)).collect()
    }

    /// The span of a request selects its whole tree. `roots`: the local roots of the trace, whose samples before the SDK's span began
    /// have a trace of our own.
    fn matches_span(&self, span: TreeSpan, roots: &HashSet<[u8; 8]>) -> bool {
        let root = span.root().span_id;
        self.trace_id.is_none_or(|id| id == span.link.trace_id || span.has_own_trace() && roots.contains(&root))
            && self.span_id.is_none_or(|id| id == span.link.span_id || id == root)
    }

    fn matches_profile(&self, profile: &Profile) -> bool {
        let overlaps = self.to_unix_nano.is_none_or(|to| profile.time_unix_nano < to)
            && self.from_unix_nano.is_none_or(|from| profile.end_unix_nano() > from || profile.time_unix_nano == from);
        overlaps && self.type_name.as_ref().is_none_or(|name| name == profile.type_name())
    }

    fn matches_service_of(&self, resource: &ResourceProfiles) -> bool {
        self.service.as_ref().is_none_or(|name| name == resource.service_name())
    }

    fn matches_labels(&self, dictionary: &Dictionary, set: AttributeSetId, resource: &[Attribute]) -> bool {
        let value_of = |key: &str| {
            let of_sample = dictionary.attributes_of(set).find(|attribute| attribute.key == key);
            let of_resource =
                || resource.iter().find(|attribute| attribute.key == key).map(|found| found.value.as_ref());
            of_sample.map(|found| found.value).or_else(of_resource).map(|value| value.to_string()).unwrap_or_default()
        };
        self.service.as_ref().is_none_or(|service| *service == value_of("service.name"))
            && self.labels.iter().all(|label| label.accepts(&value_of(&label.key)))
    }

    /// Reduces a sample with timestamps to the part within the range; false if there is none.
    fn narrow_sample(&self, has_exact_values: bool, sample: &mut Sample) -> bool {
        let inside = |time: &u64| {
            self.from_unix_nano.is_none_or(|from| *time >= from) && self.to_unix_nano.is_none_or(|to| *time < to)
        };
        let times = &sample.timestamps_unix_nano;
        if times.iter().all(inside) {
            return true;
        }
        let kept: Vec<usize> = (0..times.len()).filter(|at| inside(&times[*at])).collect();
        if kept.is_empty() {
            return false;
        }
        let whole = sample.total();
        let paired = sample.values.len() == times.len();
        sample.values = if paired { kept.iter().map(|at| sample.values[*at]).collect() } else { Vec::new() };
        sample.timestamps_unix_nano = kept.iter().map(|at| times[*at]).collect();
        // The exact value belongs to the whole sample; the part gets a proportional share.
        if has_exact_values && whole != 0 {
            let share = i128::from(sample.exact_value) * i128::from(sample.total()) / i128::from(whole);
            sample.exact_value = i64::try_from(share).unwrap_or(i64::MAX);
        }
        true
    }
}

/// Selects samples of one resource by link and labels; each attribute set is evaluated once.
struct SampleFilter<'f> {
    filter: &'f Filter,
    links: &'f [bool],
    dictionary: &'f Dictionary,
    resource: &'f [Attribute],
    sets: Vec<Option<bool>>,
}

impl<'f> SampleFilter<'f> {
    fn new(filter: &'f Filter, links: &'f [bool], dictionary: &'f Dictionary, resource: &'f [Attribute]) -> Self {
        Self { filter, links, dictionary, resource, sets: vec![None; dictionary.lens().attribute_sets] }
    }

    fn accepts(&mut self, sample: &Sample) -> bool {
        let Self { filter, links, dictionary, resource, sets } = self;
        let is_linked = links.get(sample.link.index()).copied();
        let evaluate = || filter.matches_labels(dictionary, sample.attributes, resource);
        is_linked.unwrap_or_else(|| filter.matches_span(TreeSpan::default(), &HashSet::new()))
            && match sets.get_mut(sample.attributes.index()) {
                Some(known) => *known.get_or_insert_with(evaluate),
                None => evaluate(),
            }
    }
}

/// The list of a file's types would bring the other types back as columns of zeros.
fn without_sample_types(dictionary: &mut Dictionary, set: AttributeSetId) -> AttributeSetId {
    let is_kept = |id: &AttributeId| dictionary.get_attribute(*id).key != names::SAMPLE_TYPES;
    let kept: Vec<AttributeId> = dictionary.get_attribute_set(set).iter().copied().filter(is_kept).collect();
    dictionary.attribute_set(&kept)
}
