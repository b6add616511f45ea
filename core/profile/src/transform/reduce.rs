//! Reduces the detail of profiles for one receiver: parts of the span link, the age of objects in use. Samples that become
//! identical are merged; totals do not change.

use hashbrown::HashMap;

use super::merge::{sort_by_time, Merged};
use crate::*;

/// A reduction of detail. `Default` leaves profiles unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reduction {
    /// Removes the trace id of links.
    pub without_trace_ids: bool,
    /// Removes the span id of links.
    pub without_span_ids: bool,
    /// Removes the label [`HeapAge::LABEL`] of objects in use.
    pub without_heap_age: bool,
}

impl Reduction {
    /// The reduced profiles.
    pub fn apply(&self, mut data: ProfilesData) -> ProfilesData {
        if self.without_trace_ids || self.without_span_ids {
            self.reduce_links(&mut data);
        }
        if self.without_heap_age {
            remove_heap_age(&mut data);
        }
        data
    }

    fn reduce_links(&self, data: &mut ProfilesData) {
        let reduced: Vec<LinkId> = data
            .dictionary
            .links()
            .to_vec()
            .into_iter()
            .map(|span| if self.without_span_ids { self.link(span.link).into() } else { self.span(span) })
            .map(|link| data.dictionary.link(link))
            .collect();
        for profile in data.resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
            replace_samples(profile, |sample| {
                sample.link = reduced.get(sample.link.index()).copied().unwrap_or_default();
            });
        }
    }

    /// Without a trace, a span has no tree.
    fn span(&self, span: TreeSpan) -> TreeSpan {
        if self.without_trace_ids {
            self.link(span.link).into()
        } else {
            span
        }
    }

    fn link(&self, link: Link) -> Link {
        Link {
            trace_id: if self.without_trace_ids { [0; 16] } else { link.trace_id },
            span_id: if self.without_span_ids { [0; 8] } else { link.span_id },
        }
    }
}

/// Changes each sample; those that become identical are merged.
pub(super) fn replace_samples(profile: &mut Profile, mut change: impl FnMut(&mut Sample)) {
    let samples = std::mem::take(&mut profile.samples);
    let mut merged = Merged::new(std::mem::take(profile));
    for mut sample in samples {
        change(&mut sample);
        merged.add(sample);
    }
    *profile = merged.into_profile();
    profile.samples.iter_mut().for_each(sort_by_time);
}

fn remove_heap_age(data: &mut ProfilesData) {
    let ProfilesData { dictionary, resources } = data;
    let mut known: HashMap<AttributeSetId, AttributeSetId> = HashMap::new();
    let profiles = resources.iter_mut().flat_map(|resource| &mut resource.profiles);
    for profile in profiles.filter(|profile| profile.type_name().starts_with("inuse_")) {
        replace_samples(profile, |sample| {
            sample.attributes = *known.entry(sample.attributes).or_insert_with(|| {
                let ids = dictionary.get_attribute_set(sample.attributes).to_vec();
                let kept: Vec<_> = ids.into_iter().filter(|id| !is_heap_age(dictionary, *id)).collect();
                dictionary.attribute_set(&kept)
            });
        });
    }
}

fn is_heap_age(dictionary: &Dictionary, id: AttributeId) -> bool {
    let label = dictionary.get_attribute(id);
    label.key == HeapAge::LABEL && matches!(label.value, Value::String(text) if HeapAge::from_text(text).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: [u8; 16] = [0xab; 16];

    /// Two spans of one trace on one stack, with and without timestamps, and a sample without a link.
    fn linked() -> ProfilesData {
        let mut data = ProfilesData::default();
        let dictionary = &mut data.dictionary;
        let tier = dictionary.attribute("user-tier", Value::String("gold"), "");
        let attributes = dictionary.attribute_set(&[tier]);
        let first = dictionary.link(Link { trace_id: TRACE, span_id: [1; 8] });
        let second = dictionary.link(Link { trace_id: TRACE, span_id: [2; 8] });
        let sample = |link, value: i64| Sample {
            attributes,
            link,
            values: vec![value],
            exact_value: value * 10,
            ..Sample::default()
        };
        let timed = |link, value, time| Sample { timestamps_unix_nano: vec![time], ..sample(link, value) };
        let samples = vec![
            sample(first, 3),
            sample(second, 4),
            sample(LinkId::default(), 5),
            timed(first, 6, 200),
            timed(second, 7, 100),
        ];
        let profile = Profile { sample_type: ValueType::new("wall", "nanoseconds"), samples, ..Profile::default() };
        data.resources.push(ResourceProfiles {
            resource: vec![Attribute::string("service.name", "shop"), Attribute::string("process.pid", "7")],
            profiles: vec![profile],
            ..ResourceProfiles::default()
        });
        data
    }

    fn samples(data: &ProfilesData) -> &[Sample] {
        &data.resources[0].profiles[0].samples
    }

    #[test]
    fn links_without_trace_ids_keep_spans_distinct() {
        let data = Reduction { without_trace_ids: true, ..Reduction::default() }.apply(linked());
        let links: Vec<Link> = samples(&data).iter().map(|sample| data.dictionary.get_link(sample.link)).collect();
        let span = |span_id| Link { trace_id: [0; 16], span_id };
        assert_eq!(links, [span([1; 8]), span([2; 8]), Link::default(), span([1; 8]), span([2; 8])]);
    }

    #[test]
    fn samples_that_differ_only_in_their_link_are_merged_with_the_same_total() {
        let none = Reduction { without_trace_ids: true, without_span_ids: true, ..Reduction::default() };
        let data = none.apply(linked());
        let [summed, timed] = samples(&data) else { panic!("{:?}", samples(&data)) };
        assert_eq!((summed.values.as_slice(), summed.exact_value), (&[12][..], 120));
        assert_eq!((timed.values.as_slice(), timed.timestamps_unix_nano.as_slice()), (&[7, 6][..], &[100, 200][..]));
        assert_eq!(timed.exact_value, 130);
        assert_eq!(summed.link, LinkId::default());
    }

    #[test]
    fn objects_in_use_of_all_ages_are_merged_and_other_labels_and_types_stay() {
        let mut data = ProfilesData::default();
        let dictionary = &mut data.dictionary;
        let mut sample = |labels: &[(&str, &str)], value| {
            let ids: Vec<_> =
                labels.iter().map(|(key, value)| dictionary.attribute(key, Value::String(value), "")).collect();
            Sample { attributes: dictionary.attribute_set(&ids), values: vec![value], ..Sample::default() }
        };
        let samples = vec![
            sample(&[("tenant", "a"), ("age", "new")], 1),
            sample(&[("tenant", "a"), ("age", "old")], 2),
            sample(&[("age", "survived")], 4),
            // A label of the program.
            sample(&[("age", "42")], 8),
        ];
        let of_type =
            |name, samples| Profile { sample_type: ValueType::new(name, "bytes"), samples, ..Profile::default() };
        let profiles = vec![of_type("inuse_space", samples.clone()), of_type("alloc_space", samples)];
        data.resources.push(ResourceProfiles { profiles, ..ResourceProfiles::default() });
        let data = Reduction { without_heap_age: true, ..Reduction::default() }.apply(data);
        let lines = |profile: &Profile| -> Vec<String> {
            let line = |sample: &Sample| {
                let labels = data.dictionary.attributes_of(sample.attributes);
                let labels: Vec<_> = labels.map(|label| format!("{}={}", label.key, label.value)).collect();
                format!("{} {}", sample.total(), labels.join(","))
            };
            profile.samples.iter().map(line).collect()
        };
        let profiles = &data.resources[0].profiles;
        assert_eq!(lines(&profiles[0]), ["3 tenant=a", "4 ", "8 age=42"]);
        assert_eq!(lines(&profiles[1]), ["1 tenant=a,age=new", "2 tenant=a,age=old", "4 age=survived", "8 age=42"]);
    }
}
