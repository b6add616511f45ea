//! Weight by trace and span, with the labels of their samples, and the linked share of the total. The store adds each window,
//! since merged results have no links. Read by `/api/traces`.

use std::collections::{BTreeMap, HashMap};

use serde_json::{json, Map, Value};
use spanprof_profile::{AttributeSetId, Dictionary, Link, LinkId, ResourceProfiles};

use super::rollup_facts::SampleCounts;

/// Spans per profile type and result. Windows are added newest first; further spans count in the sums only.
const MAX_SPANS: usize = 100_000;

/// Spans by profile type.
#[derive(Debug, Default)]
pub(crate) struct Spans(BTreeMap<String, TypeSpans>);

#[derive(Debug, Default)]
struct TypeSpans {
    unit: String,
    total: i64,
    samples: usize,
    linked_total: i64,
    linked_samples: usize,
    by_link: HashMap<Link, SpanWeight>,
}

/// Sum of the samples of one span.
#[derive(Debug, Default)]
struct SpanWeight {
    weight: i64,
    samples: usize,
    /// Labels of its heaviest sample.
    labels: Vec<(String, String)>,
    /// Weight of that sample.
    heaviest: i64,
}

impl Spans {
    /// Adds the samples of one window that passed the filter.
    pub(crate) fn add(&mut self, dictionary: &Dictionary, resources: &[ResourceProfiles]) {
        for profile in resources.iter().flat_map(|resource| &resource.profiles) {
            let type_spans = self.0.entry(profile.type_name().to_owned()).or_default();
            profile.unit().clone_into(&mut type_spans.unit);
            // Grouped by id within a window, so that names are resolved once per span.
            let mut by_id: HashMap<LinkId, (i64, usize, AttributeSetId, i64)> = HashMap::new();
            for sample in &profile.samples {
                let weight = profile.weight(sample);
                type_spans.total = type_spans.total.saturating_add(weight);
                type_spans.samples += 1;
                if sample.link.is_empty() {
                    continue;
                }
                type_spans.linked_total = type_spans.linked_total.saturating_add(weight);
                type_spans.linked_samples += 1;
                let (total, samples, labels, heaviest) = by_id.entry(sample.link).or_default();
                *total = total.saturating_add(weight);
                *samples += 1;
                if weight >= *heaviest {
                    (*labels, *heaviest) = (sample.attributes, weight);
                }
            }
            for (link, (weight, samples, labels, heaviest)) in by_id {
                let link = dictionary.get_link(link);
                if type_spans.by_link.len() >= MAX_SPANS && !type_spans.by_link.contains_key(&link) {
                    continue;
                }
                let span = type_spans.by_link.entry(link).or_default();
                span.weight = span.weight.saturating_add(weight);
                span.samples += samples;
                if heaviest >= span.heaviest {
                    span.heaviest = heaviest;
                    let attributes = dictionary.attributes_of(labels);
                    span.labels =
                        attributes.map(|attribute| (attribute.key.to_owned(), attribute.value.to_string())).collect();
                }
            }
        }
    }

    /// Corrects sums over a roll-up, which has the links of few spans, by those of the windows that it merges: `all` instead of
    /// `read`, both before the filter. With a filter that selects a part of the samples, the result is an estimate.
    pub(crate) fn scale(&mut self, type_name: &str, read: SampleCounts, all: SampleCounts) {
        let Some(type_spans) = self.0.get_mut(type_name) else { return };
        let scaled = |part: i64, read: i64, all: i64| match read {
            0 => part,
            _ => (i128::from(part) * i128::from(all) / i128::from(read)) as i64,
        };
        type_spans.samples = scaled(type_spans.samples as i64, read.samples, all.samples) as usize;
        type_spans.linked_samples =
            scaled(type_spans.linked_samples as i64, read.linked_samples, all.linked_samples) as usize;
        type_spans.linked_total = scaled(type_spans.linked_total, read.linked_weight, all.linked_weight);
    }

    /// Adds the spans of older windows.
    pub(crate) fn merge(&mut self, older: &Spans) {
        for (name, other) in &older.0 {
            let type_spans = self.0.entry(name.clone()).or_default();
            other.unit.clone_into(&mut type_spans.unit);
            type_spans.total = type_spans.total.saturating_add(other.total);
            type_spans.samples += other.samples;
            type_spans.linked_total = type_spans.linked_total.saturating_add(other.linked_total);
            type_spans.linked_samples += other.linked_samples;
            for (link, more) in &other.by_link {
                if type_spans.by_link.len() >= MAX_SPANS && !type_spans.by_link.contains_key(link) {
                    continue;
                }
                let span = type_spans.by_link.entry(*link).or_default();
                span.weight = span.weight.saturating_add(more.weight);
                span.samples += more.samples;
                if more.heaviest >= span.heaviest {
                    span.heaviest = more.heaviest;
                    span.labels.clone_from(&more.labels);
                }
            }
        }
    }

    /// Approximate memory, to bound a cache: a span has a few short labels, and the table has spare capacity.
    pub(crate) fn memory_bytes(&self) -> usize {
        let spans: usize = self.0.values().map(|type_spans| type_spans.by_link.len()).sum();
        spans * (2 * std::mem::size_of::<(Link, SpanWeight)>() + 240)
    }

    /// The members of the response for profiles of one type, heaviest spans first.
    pub(crate) fn members(&self, type_name: &str, limit: usize) -> Map<String, Value> {
        let none = TypeSpans::default();
        let type_spans = self.0.get(type_name).unwrap_or(&none);
        let mut rows: Vec<(&Link, &SpanWeight)> = type_spans.by_link.iter().collect();
        rows.sort_by_key(|(link, span)| (std::cmp::Reverse(span.weight), link.trace_id, link.span_id));
        rows.truncate(limit);
        let row = |(link, span): (&Link, &SpanWeight)| {
            let labels: Map<String, Value> =
                span.labels.iter().map(|(key, value)| (key.to_string(), value.as_str().into())).collect();
            json!({
                "trace_id": hex::encode(link.trace_id), "span_id": hex::encode(link.span_id),
                "weight": span.weight, "samples": span.samples, "labels": labels,
            })
        };
        Map::from_iter([
            ("type".to_owned(), type_name.into()),
            ("unit".to_owned(), type_spans.unit.as_str().into()),
            ("total".to_owned(), type_spans.total.into()),
            ("samples".to_owned(), type_spans.samples.into()),
            ("linked_total".to_owned(), type_spans.linked_total.into()),
            ("linked_samples".to_owned(), type_spans.linked_samples.into()),
            ("spans".to_owned(), type_spans.by_link.len().into()),
            ("rows".to_owned(), rows.into_iter().map(row).collect()),
        ])
    }

    /// Number of samples of one type in the windows.
    pub(crate) fn samples(&self, type_name: &str) -> usize {
        self.0.get(type_name).map_or(0, |type_spans| type_spans.samples)
    }
}
