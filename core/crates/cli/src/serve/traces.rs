//! Which requests cost most: weight by trace and span, with the labels their samples carry, and how much of the whole is
//! linked at all. Called by the API for `/api/traces`.

use std::collections::HashMap;

use spanprof_profile::{AttributeSetId, LinkId, ProfilesData};

use crate::json::Json;
use crate::selection::hex;

/// What one span's samples add up to.
#[derive(Clone, Copy, Default)]
struct Spent {
    weight: i64,
    samples: usize,
    /// Labels of its heaviest sample.
    labels: AttributeSetId,
    heaviest: i64,
}

/// The members of the answer for profiles of one type.
pub(crate) fn fields(json: &mut Json, data: &ProfilesData, type_name: &str, limit: usize) {
    let mut spent: HashMap<LinkId, Spent> = HashMap::new();
    let (mut total, mut samples) = (0i64, 0usize);
    let mut unit = String::new();
    for (_, profile) in data.profiles().filter(|(_, profile)| profile.type_name() == type_name) {
        profile.unit().clone_into(&mut unit);
        for sample in &profile.samples {
            let weight = profile.weight(sample);
            total = total.saturating_add(weight);
            samples += 1;
            if !sample.link.is_empty() {
                let of = spent.entry(sample.link).or_default();
                of.weight = of.weight.saturating_add(weight);
                of.samples += 1;
                if weight >= of.heaviest {
                    (of.heaviest, of.labels) = (weight, sample.attributes);
                }
            }
        }
    }
    let linked = spent
        .values()
        .fold((0i64, 0usize), |(weight, samples), of| (weight.saturating_add(of.weight), samples + of.samples));
    let spans = spent.len();
    let mut rows: Vec<(LinkId, Spent)> = spent.into_iter().collect();
    rows.sort_by_key(|(link, of)| (std::cmp::Reverse(of.weight), *link));
    rows.truncate(limit);

    json.key("type").string(type_name).key("unit").string(&unit);
    json.key("total").number(total).key("samples").number(samples as u64);
    json.key("linked_total").number(linked.0).key("linked_samples").number(linked.1 as u64);
    json.key("spans").number(spans as u64);
    json.key("rows").array(|json| {
        for (link, of) in rows {
            let link = data.dictionary.get_link(link);
            json.object(|json| {
                json.key("trace_id").string(&hex(&link.trace_id)).key("span_id").string(&hex(&link.span_id));
                json.key("weight").number(of.weight).key("samples").number(of.samples as u64);
                json.key("labels").object(|json| {
                    for attribute in data.dictionary.attributes_of(of.labels) {
                        json.key(attribute.key).string(&attribute.value.to_string());
                    }
                });
            });
        }
    });
}
