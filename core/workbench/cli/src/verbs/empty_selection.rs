//! The error for a selection without samples: which of its conditions no sample meets, and what there is.

use std::collections::{BTreeMap, BTreeSet};

use spanprof_answers::failure::Failure;
use spanprof_profile::ProfilesData;
use spanprof_read::query::{self, Detail, Filter, LabelMatcher, MatchOperator};

use super::{contents, merged, missing};
use crate::nearest::nearest;
use crate::source::Source;

/// Names of labels, or values of one, in a hint.
const NAMED_IN_HINT: usize = 12;

/// The error for sources of which no sample passes the filter.
pub(super) fn nothing_passes(names: &str, sources: &[Source], filter: &Filter) -> Failure {
    if *filter == Filter::default() {
        return Failure::new(format!("no samples in {names}"));
    }
    let detail = if filter.labels.is_empty() { Detail::Stacks } else { Detail::Everything };
    match merged(sources, |source| source.read(&source.widest(filter), detail.clone())) {
        Ok(all) if all.sample_count() > 0 => match filter.type_name.as_deref() {
            Some(name) if query::types(&all).iter().all(|summary| summary.type_name != name) => {
                missing(names, name, &all)
            }
            _ => {
                let (reason, remedy) = unmet(&all, filter);
                Failure::new(format!("no samples in {names} match{reason}")).hint(remedy)
            }
        },
        _ => Failure::new(format!("no samples in {names} match")).hint("there are no samples yet"),
    }
}

/// The condition that no sample meets, and the nearest name or what is available instead.
fn unmet(all: &ProfilesData, filter: &Filter) -> (String, String) {
    let of_service = Filter { service: filter.service.clone(), ..Filter::default() }.apply(all);
    if let Some(name) = filter.service.as_ref().filter(|_| of_service.sample_count() == 0) {
        let types = query::types(all);
        let remedy = match nearest(name, types.iter().map(|summary| summary.service.as_str())) {
            Some(service) => format!("did you mean {service:?}?"),
            None => format!("available: {}", contents(all)),
        };
        return (format!(": there is no service {name:?}"), remedy);
    }
    let passes = |label: &LabelMatcher| {
        Filter { labels: vec![label.clone()], ..Filter::default() }.apply(&of_service).sample_count() > 0
    };
    let Some(label) = filter.labels.iter().find(|label| !passes(label)) else {
        return (String::new(), format!("available: {}", contents(all)));
    };
    let labels = labels_of(&of_service);
    let listed = |names: &mut dyn Iterator<Item = &String>| {
        let names: Vec<String> = names.map(|name| format!("{name:.60}")).collect();
        let more = names.len().saturating_sub(NAMED_IN_HINT);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{}{more}", names[..names.len().min(NAMED_IN_HINT)].join(", "))
    };
    match labels.get(&label.key) {
        None => {
            let remedy = match nearest(&label.key, labels.keys().map(String::as_str)) {
                Some(key) => format!("did you mean the label `{key}`?"),
                None => format!("available: the labels {}", listed(&mut labels.keys())),
            };
            (format!(": no sample has the label `{}`", label.key), remedy)
        }
        Some(values) => {
            let is_literal = label.operator == MatchOperator::Equal;
            let similar = nearest(&label.value, values.iter().map(String::as_str)).filter(|_| is_literal);
            let remedy = match similar {
                Some(value) => format!("did you mean `{}={value}`?", label.key),
                None => format!("available: {} = {}", label.key, listed(&mut values.iter())),
            };
            (format!(": no sample has `{label}`"), remedy)
        }
    }
}

/// The labels of samples and the attributes of resources, with their values.
fn labels_of(data: &ProfilesData) -> BTreeMap<String, BTreeSet<String>> {
    let mut labels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut add = |key: &str, value: String| {
        labels.entry(key.to_owned()).or_default().insert(value);
    };
    for (resource, profile) in data.profiles() {
        for attribute in &resource.resource {
            add(&attribute.key, attribute.value.as_ref().to_string());
        }
        let sets: BTreeSet<_> = profile.samples.iter().map(|sample| sample.attributes).collect();
        for attribute in sets.into_iter().flat_map(|set| data.dictionary.attributes_of(set)) {
            add(attribute.key, attribute.value.to_string());
        }
    }
    labels
}
