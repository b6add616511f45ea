//! Sums of spans in plain values, to be stored and added up again: those of a long time range, without its samples.

use std::cmp::Reverse;

use hashbrown::HashMap;
use spanprof_profile::kinds::REQUESTS;
use spanprof_profile::Link;

use super::request_times::FirstTime;
use super::spans::{add_to, key_of, merge_into, span_entry, SpanTotals, TypeTotal};

/// The sums of one span.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpanPart {
    /// The span.
    pub link: Link,
    /// Index of its endpoint in [`SpanParts::endpoints`].
    pub endpoint: u32,
    /// Quality of the label that named the endpoint, 0 for none, then the weight of that sample.
    pub named_by: (u8, i64),
    /// By index of the type; shorter where it has no samples of the last types.
    pub totals: Vec<TypeTotal>,
    /// Unix nanoseconds of its start, or of its first sample or window.
    pub first_unix_nano: Option<u64>,
}

/// The sums of all spans, and of the samples without one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpanParts {
    /// Name and unit of the profile types.
    pub types: Vec<(String, String)>,
    /// Service and endpoint.
    pub endpoints: Vec<(String, String)>,
    /// The spans.
    pub spans: Vec<SpanPart>,
    /// Sums of the samples that belong to no span, or to one that was left out, by index of the endpoint.
    pub unlinked: Vec<(u32, Vec<TypeTotal>)>,
    /// Number of ended requests by duration in nanoseconds, by index of the endpoint.
    pub durations: Vec<(u32, Vec<(i64, i64)>)>,
    /// Samples of spans that were left out.
    pub left_out: usize,
}

impl SpanTotals {
    /// The sums, with at most `max_spans` spans: the heaviest of each endpoint. The samples of the others stay in the sums of
    /// their endpoints.
    pub fn parts(&self, max_spans: usize) -> SpanParts {
        // A span is as heavy as its largest share of a type, so that types with other units count.
        let share = |totals: &[TypeTotal]| {
            let shares = totals.iter().zip(&self.totals);
            shares.fold(0.0, |max: f64, (own, all)| max.max(own.weight as f64 / all.weight.max(1) as f64))
        };
        let mut spans: Vec<_> = self.spans().map(|(link, span)| (share(&span.totals), link, span)).collect();
        spans.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
        let mut unlinked = self.unlinked.clone();
        let mut left_out = self.left_out;
        if spans.len() > max_spans {
            // In turn from each endpoint.
            let mut ranks: HashMap<u32, usize> = HashMap::new();
            let mut ranked: Vec<(usize, _)> = spans
                .into_iter()
                .map(|span| {
                    let rank = ranks.entry(span.2.endpoint).or_default();
                    *rank += 1;
                    (*rank, span)
                })
                .collect();
            ranked.sort_by_key(|(rank, _)| *rank);
            for (_, (_, _, span)) in ranked.drain(max_spans..) {
                merge_into(unlinked.entry(span.endpoint).or_default(), &span.totals);
                left_out += span.totals.iter().map(|total| total.samples).sum::<f64>().round() as usize;
            }
            spans = ranked.into_iter().map(|(_, span)| span).collect();
        }
        let part = |(_, link, span): (f64, Link, &super::spans::SpanSums)| SpanPart {
            link,
            endpoint: span.endpoint,
            named_by: span.named_by,
            totals: span.totals.clone(),
            first_unix_nano: span.first.map(FirstTime::unix_nano),
        };
        let mut unlinked: Vec<_> = unlinked.into_iter().collect();
        unlinked.sort_by_key(|(endpoint, _)| *endpoint);
        SpanParts {
            types: self.types.iter().cloned().zip(self.units.iter().cloned()).collect(),
            endpoints: self.endpoints.clone(),
            spans: spans.into_iter().map(part).collect(),
            unlinked,
            durations: self.durations.listed(),
            left_out,
        }
    }

    /// Adds the sums of other windows; with `service` or `type_name`, those of one. Not for totals with functions.
    pub fn add_parts(&mut self, parts: &SpanParts, service: Option<&str>, type_name: Option<&str>) {
        let is_added = |name: &str| type_name.is_none_or(|only| only == name);
        let types: Vec<Option<usize>> =
            parts.types.iter().map(|(name, unit)| is_added(name).then(|| self.type_index(name, unit))).collect();
        let endpoints: Vec<Option<u32>> = parts
            .endpoints
            .iter()
            .map(|(of, endpoint)| {
                service.is_none_or(|only| only == of).then(|| self.endpoint_index(of.clone(), endpoint.clone()))
            })
            .collect();
        let of_endpoint = |endpoint: u32| endpoints.get(endpoint as usize).copied().flatten();
        let add = |sums: &mut Vec<TypeTotal>, totals: &[TypeTotal]| {
            for (at, total) in types.iter().zip(totals) {
                if let Some(at) = at {
                    add_to(sums, *at, total.weight, total.samples);
                }
            }
        };
        for (endpoint, totals) in &parts.unlinked {
            let Some(endpoint) = of_endpoint(*endpoint) else { continue };
            add(self.unlinked.entry(endpoint).or_default(), totals);
            add(&mut self.totals, totals);
        }
        let counts_requests = is_added(REQUESTS.default_type());
        for (endpoint, counts) in parts.durations.iter().filter(|_| counts_requests) {
            let Some(endpoint) = of_endpoint(*endpoint) else { continue };
            counts.iter().for_each(|(duration, count)| self.durations.add(endpoint, *duration, *count));
        }
        for part in &parts.spans {
            let mut totals = Vec::new();
            add(&mut totals, &part.totals);
            let Some(endpoint) = of_endpoint(part.endpoint) else { continue };
            if totals.iter().all(|total| total.samples == 0.0) {
                continue;
            }
            merge_into(&mut self.totals, &totals);
            let is_new = !self.spans.contains_key(&key_of(part.link));
            let Some(span) = span_entry(&mut self.spans, part.link) else {
                self.left_out += totals.iter().map(|total| total.samples).sum::<f64>().round() as usize;
                continue;
            };
            merge_into(&mut span.totals, &totals);
            span.first = span.first.into_iter().chain(part.first_unix_nano.map(FirstTime::Window)).min();
            // By name between equals, in whatever order the parts are added.
            let name = |at: u32| Reverse(&self.endpoints[at as usize]);
            if is_new || (part.named_by, name(endpoint)) > (span.named_by, name(span.endpoint)) {
                (span.endpoint, span.named_by) = (endpoint, part.named_by);
            }
        }
        self.left_out += parts.left_out;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::SpanGrouping;
    use spanprof_profile::{Attribute, Profile, ProfilesData, ResourceProfiles, Sample, Value, ValueType};

    /// A window of one service: samples of (type, endpoint, span, weight); span 0 for none.
    fn window(service: &str, samples: &[(&str, &str, u64, i64)]) -> ProfilesData {
        let mut data = ProfilesData::default();
        let mut profiles: Vec<Profile> = Vec::new();
        for (type_name, endpoint, span, weight) in samples {
            let label = data.dictionary.attribute("endpoint", Value::String(endpoint), "");
            let attributes =
                data.dictionary.attribute_set(if endpoint.is_empty() { &[] } else { std::slice::from_ref(&label) });
            let span_id = span.to_be_bytes();
            let link = if *span == 0 { Link::default() } else { Link { trace_id: [1; 16], span_id } };
            let link = data.dictionary.link(link);
            let sample = Sample { attributes, link, values: vec![*weight], ..Sample::default() };
            match profiles.iter_mut().find(|profile| profile.type_name() == *type_name) {
                Some(profile) => profile.samples.push(sample),
                None => profiles.push(Profile {
                    sample_type: ValueType::new(*type_name, "nanoseconds"),
                    time_unix_nano: 5,
                    samples: vec![sample],
                    ..Profile::default()
                }),
            }
        }
        let resource = vec![Attribute::string("service.name", service)];
        data.resources.push(ResourceProfiles { resource, profiles, ..ResourceProfiles::default() });
        data
    }

    fn windows() -> [ProfilesData; 3] {
        [
            window(
                "shop",
                &[("cpu", "", 1, 5), ("cpu", "/cart", 2, 7), ("wall", "/cart", 2, 70), ("cpu", "/pay", 0, 3)],
            ),
            window("shop", &[("wall", "/pay", 3, 30), ("wall", "/cart", 1, 10), ("cpu", "/cart", 4, 1)]),
            window("cart", &[("cpu", "/add", 9, 100), ("cpu", "/add", 0, 1)]),
        ]
    }

    fn totals(windows: &[ProfilesData]) -> SpanTotals {
        let mut totals = SpanTotals::new(None);
        windows.iter().for_each(|window| totals.add(window));
        totals
    }

    fn of_parts(parts: &[SpanParts], service: Option<&str>, type_name: Option<&str>) -> SpanTotals {
        let mut totals = SpanTotals::new(None);
        parts.iter().for_each(|parts| totals.add_parts(parts, service, type_name));
        totals
    }

    #[test]
    fn stored_sums_add_up_to_the_tables_of_the_windows() {
        let parts = windows().map(|window| totals(&[window]).parts(100));
        for grouping in [SpanGrouping::Span, SpanGrouping::Trace, SpanGrouping::Endpoint] {
            let expected = totals(&windows()).table(grouping, |row| row.weight("cpu"));
            assert_eq!(of_parts(&parts, None, None).table(grouping, |row| row.weight("cpu")), expected);
            let again = of_parts(&parts, None, None).parts(100);
            assert_eq!(of_parts(&[again], None, None).table(grouping, |row| row.weight("cpu")), expected);
        }
    }

    #[test]
    fn one_service_and_type_are_those_of_filtered_windows() {
        let parts = windows().map(|window| totals(&[window]).parts(100));
        let filter = crate::query::Filter {
            service: Some("shop".to_owned()),
            type_name: Some("wall".to_owned()),
            ..Default::default()
        };
        let filtered = windows().map(|window| filter.apply(&window));
        let table = |totals: &SpanTotals| totals.table(SpanGrouping::Endpoint, |row| row.weight("wall"));
        let mut found = table(&of_parts(&parts, Some("shop"), Some("wall")));
        // Endpoints that have samples of other types only.
        found.rows.retain(|row| !row.types.is_empty());
        assert_eq!(found, table(&totals(&filtered)));
    }

    #[test]
    fn beyond_the_limit_the_heaviest_spans_of_each_endpoint_stay_and_endpoints_keep_their_sums() {
        let many: Vec<_> =
            (1..=20).map(|span| ("cpu", if span < 19 { "/cart" } else { "/pay" }, span, span as i64)).collect();
        let all = totals(&[window("shop", &many)]);
        let parts = all.parts(4);
        let mut kept: Vec<_> = parts.spans.iter().map(|span| span.link.span_id[7]).collect();
        kept.sort_unstable();
        assert_eq!((kept, parts.left_out), (vec![17, 18, 19, 20], 16));
        let weights = |totals: &SpanTotals| -> Vec<_> {
            let table = totals.table(SpanGrouping::Endpoint, |row| row.weight("cpu"));
            table.rows.iter().map(|row| (row.endpoint.clone(), row.weight("cpu"))).collect()
        };
        assert_eq!(weights(&of_parts(&[parts], None, None)), weights(&all));
    }
}
