//! One span against the others of its endpoint: how often equal spans differ, and which differences are found.

use crate::draws::Draws;
use crate::stacks::stack_of;
use spanprof_profile::{
    own_trace, AttributeSetId, Link, Profile, ProfilesData, ResourceProfiles, Sample, TreeSpan, Value, ValueType,
};
use spanprof_read::query::{
    span_baseline, span_time, Compared, Filter, Granularity, SpanBaseline, SpanGrouping, SpanSubject, SpanTotals,
};

const INTERVAL_NS: i64 = 10_000_000;
const FUNCTIONS: [(&str, f64); 6] =
    [("parse", 1.0), ("query", 6.0), ("price", 4.0), ("render", 2.0), ("log", 0.3), ("send", 0.7)];

impl Draws {
    /// A Poisson count, by Knuth's method.
    fn poisson(&mut self, mean: f64) -> i64 {
        let (limit, mut product, mut count) = ((-mean).exp(), self.next(), 0);
        while product > limit {
            product *= self.next();
            count += 1;
        }
        count
    }

    /// Spans 1, 2, … of one endpoint with counts of the means; span 1 has `extra` samples more in `retry`. `load` is how much the
    /// cost of a span varies.
    fn totals(&mut self, spans: u64, extra: i64, load: f64) -> SpanTotals {
        let mut totals = SpanTotals::with_functions(None, "cpu", Granularity::Function);
        self.add_window(&mut totals, 1..=spans, extra, load, 1);
        totals
    }

    /// Adds a window with spans, at `interval` times the usual sampling interval.
    fn add_window(
        &mut self,
        totals: &mut SpanTotals,
        spans: impl Iterator<Item = u64>,
        extra: i64,
        load: f64,
        interval: i64,
    ) {
        let mut data = ProfilesData::default();
        let dictionary = &mut data.dictionary;
        let route = dictionary.attribute("http.route", Value::String("/cart"), "");
        let attributes = dictionary.attribute_set(&[route]);
        let mut samples = Vec::new();
        for span in spans {
            let link = dictionary.link(link(span));
            let cost = 1.0 + load * (2.0 * self.next() - 1.0);
            let mut counts: Vec<(&str, i64)> =
                FUNCTIONS.iter().map(|(name, mean)| (*name, self.poisson(mean * cost / interval as f64))).collect();
            counts.push(("retry", if span == 1 { extra } else { 0 }));
            for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
                let stack = stack_of(dictionary, [(name, "", 0, 1)]);
                samples.push(Sample {
                    stack,
                    link,
                    attributes,
                    values: vec![count * interval * INTERVAL_NS],
                    ..Sample::default()
                });
            }
        }
        let value_type = ValueType::new("cpu", "nanoseconds");
        let profile = Profile {
            sample_type: value_type.clone(),
            period_type: value_type,
            period: interval * INTERVAL_NS,
            samples,
            ..Profile::default()
        };
        data.resources.push(ResourceProfiles { profiles: vec![profile], ..ResourceProfiles::default() });
        totals.add(&data);
    }
}

fn link(span: u64) -> Link {
    Link { trace_id: u128::from(span).to_be_bytes(), span_id: span.to_be_bytes() }
}

fn compared(totals: &SpanTotals, span: u64) -> SpanBaseline {
    compared_with(totals, totals, span)
}

/// `all` has the spans of all types.
fn compared_with(all: &SpanTotals, totals: &SpanTotals, span: u64) -> SpanBaseline {
    let time = span_time(all, SpanSubject::Span(link(span))).expect("a span with samples");
    span_baseline(totals, &time, Some(Compared::Flat)).expect("a span with samples of the type")
}

fn significant(baseline: &SpanBaseline) -> Vec<&str> {
    baseline.rows.iter().filter(|row| row.is_significant).map(|row| row.location.function.as_str()).collect()
}

#[test]
fn a_request_is_its_tree_of_spans_and_its_end_names_it() {
    let mut data = ProfilesData::default();
    let dictionary = &mut data.dictionary;
    let mut labels = |endpoint: &str, duration: Option<i64>| {
        let mut set = vec![dictionary.attribute("endpoint", Value::String(endpoint), "")];
        set.extend(duration.map(|ns| dictionary.attribute("duration", Value::Int(ns), "ns")));
        dictionary.attribute_set(&set)
    };
    let (handler, ended) = (labels("request handler", None), labels("GET /cart/{id}", Some(3_000_000_000)));
    let below = |dictionary: &mut spanprof_profile::Dictionary, span| {
        dictionary.link(TreeSpan::below(Link { span_id: [span; 8], ..link(1) }, link(1).span_id))
    };
    let [root, query, render] = [dictionary.link(link(1)), below(dictionary, 7), below(dictionary, 8)];
    let sample = |link, attributes, value| Sample { link, attributes, values: vec![value], ..Sample::default() };
    let profile =
        |name, unit, samples| Profile { sample_type: ValueType::new(name, unit), samples, ..Profile::default() };
    let cpu = vec![sample(query, handler, 30), sample(render, handler, 40), sample(root, AttributeSetId::EMPTY, 5)];
    let requests = vec![sample(root, ended, 1)];
    let profiles = vec![profile("cpu", "nanoseconds", cpu), profile("requests", "count", requests)];
    data.resources.push(ResourceProfiles { profiles, ..ResourceProfiles::default() });
    let mut totals = SpanTotals::new(None);
    totals.add(&data);
    for grouping in [SpanGrouping::Span, SpanGrouping::Endpoint] {
        let table = totals.table(grouping, |row| row.weight("cpu"));
        let rows: Vec<_> = table.rows.iter().map(|row| (row.endpoint.as_str(), row.weight("cpu"))).collect();
        assert_eq!(rows, [("GET /cart/{id}", 75)]);
    }
}

#[test]
fn samples_before_the_span_of_the_sdk_belong_to_its_request() {
    let [before, inside] = [
        TreeSpan::from(Link { trace_id: own_trace(link(1).span_id), ..link(1) }),
        TreeSpan::below(Link { trace_id: [9; 16], span_id: [7; 8] }, link(1).span_id),
    ];
    let window = |span: TreeSpan, also: Option<TreeSpan>| {
        let mut data = ProfilesData::default();
        let samples = [Some(span), also].into_iter().flatten().map(|span| Sample {
            link: data.dictionary.link(span),
            values: vec![10],
            ..Sample::default()
        });
        let profile = Profile {
            sample_type: ValueType::new("cpu", "nanoseconds"),
            samples: samples.collect(),
            ..Profile::default()
        };
        data.resources.push(ResourceProfiles { profiles: vec![profile], ..ResourceProfiles::default() });
        data
    };
    let windows = [window(before, None), window(inside, Some(before)), window(before, None)];
    let request = Link { trace_id: [9; 16], ..link(1) };
    for windows in [[0, 1, 2], [1, 0, 2]].map(|order| order.map(|nth| &windows[nth])) {
        let mut totals = SpanTotals::new(None);
        windows.into_iter().for_each(|window| totals.add(window));
        let mut stored = SpanTotals::new(None);
        stored.add_parts(&totals.parts(10), None, None);
        for table in [totals, stored].map(|totals| totals.table(SpanGrouping::Span, |row| row.weight("cpu"))) {
            let rows: Vec<_> = table.rows.iter().map(|row| (row.link, row.weight("cpu"))).collect();
            assert_eq!(rows, [(request, 40)]);
        }
    }
    let selected = |span_id: Option<[u8; 8]>, trace_id| {
        let filter = Filter { span_id, trace_id: Some(trace_id), ..Filter::default() };
        windows.each_ref().map(|window| filter.apply(window).sample_count())
    };
    assert_eq!(selected(Some(request.span_id), request.trace_id), [1, 2, 1]);
    assert_eq!(selected(None, request.trace_id), [0, 2, 0], "of a window with a sample of the trace");
    assert_eq!([selected(None, [8; 16]), selected(Some([7; 8]), [8; 16])], [[0; 3]; 2]);
}

#[test]
fn spans_of_equal_cost_rarely_have_a_significant_function() {
    let mut draws = Draws(11);
    let mut alarms = 0;
    for others in [4, 20, 200] {
        for _ in 0..(1_000 / others) {
            let totals = draws.totals(others + 1, 0, 0.0);
            alarms += (1..=others).filter(|span| !significant(&compared(&totals, *span)).is_empty()).count();
        }
    }
    // 0.5 % of 3,000 are 15; exact tests have fewer.
    assert!(alarms <= 20, "{alarms} of 3000");
}

#[test]
fn an_extra_function_of_eight_samples_is_found_and_the_interval_contains_it() {
    let mut draws = Draws(12);
    let found = (0..100)
        .filter(|_| {
            let totals = draws.totals(21, 8, 0.5);
            let baseline = compared(&totals, 1);
            let row = baseline.rows.iter().find(|row| row.location.function == "retry").expect("retry");
            let (low, high) = row.difference.interval.expect("an interval");
            assert!(low > 0.0 && low < 8.0 * INTERVAL_NS as f64 && high > 8.0 * INTERVAL_NS as f64);
            assert_eq!((row.difference.as_much, row.difference.mean), (0, 0.0));
            significant(&baseline).contains(&"retry")
        })
        .count();
    assert_eq!(found, 100);
}

#[test]
fn the_interval_covers_the_difference_in_95_of_100_spans() {
    let mut draws = Draws(13);
    let mut covered = 0;
    for _ in 0..20 {
        let totals = draws.totals(51, 0, 0.0);
        for span in 1..=50 {
            let baseline = compared(&totals, span);
            let row = baseline.rows.iter().find(|row| row.location.function == "price").expect("price");
            let (low, high) = row.difference.interval.expect("an interval");
            covered += usize::from(low <= 0.0 && high >= 0.0);
        }
    }
    assert!((930..=995).contains(&covered), "{covered} of 1000");
}

#[test]
fn spans_at_another_sampling_interval_are_compared_by_their_rates() {
    let mut draws = Draws(11);
    // Span 1 at the usual interval and most others at the fourfold, then the reverse.
    for (own, other) in [(1, 4), (4, 1)] {
        let mut falsely = 0;
        for extra in [0, 12] {
            for _ in 0..100 {
                let mut totals = SpanTotals::with_functions(None, "cpu", Granularity::Function);
                draws.add_window(&mut totals, 1..=10, extra, 0.0, own);
                draws.add_window(&mut totals, 11..=60, 0, 0.0, other);
                let baseline = compared(&totals, 1);
                assert!(baseline.samples.is_some() && baseline.tested > 0, "{baseline:?}");
                match extra {
                    0 => falsely += significant(&baseline).len(),
                    _ => assert!(significant(&baseline).contains(&"retry"), "{own}: {baseline:?}"),
                }
            }
        }
        assert!(falsely <= 10, "{falsely} of 100 equal spans differ");
    }
}

/// Totals of a type of which each of the spans has a count of `mean`, so that some have none, and totals of all types. Span 1 has
/// `extra` samples more.
fn rare_totals(draws: &mut Draws, spans: u64, mean: f64, extra: i64) -> [SpanTotals; 2] {
    let mut rare = SpanTotals::with_functions(None, "delay", Granularity::Function);
    let mut all = SpanTotals::new(None);
    for type_name in ["cpu", "delay"] {
        let mut data = ProfilesData::default();
        let dictionary = &mut data.dictionary;
        let route = dictionary.attribute("http.route", Value::String("/cart"), "");
        let attributes = dictionary.attribute_set(&[route]);
        let stack = stack_of(dictionary, [("lock", "", 0, 1)]);
        let mut samples = Vec::new();
        for span in 1..=spans {
            let count = match type_name {
                "cpu" => 1,
                _ => draws.poisson(mean) + if span == 1 { extra } else { 0 },
            };
            let sample = Sample {
                stack,
                link: dictionary.link(link(span)),
                attributes,
                values: vec![count * INTERVAL_NS],
                ..Sample::default()
            };
            samples.extend((count > 0).then_some(sample));
        }
        let value_type = ValueType::new(type_name, "nanoseconds");
        let (sample_type, period_type) = (value_type.clone(), value_type);
        let profile = Profile { sample_type, period_type, period: INTERVAL_NS, samples, ..Profile::default() };
        data.resources.push(ResourceProfiles { profiles: vec![profile], ..ResourceProfiles::default() });
        rare.add(&data);
        all.add(&data);
    }
    [all, rare]
}

#[test]
fn spans_without_samples_of_the_type_count_as_zero_in_mean_and_interval() {
    let mut draws = Draws(14);
    let (mut means, mut covered, mut falsely, mut compared) = (0.0, 0, 0, 0);
    for _ in 0..20 {
        let [all, rare] = rare_totals(&mut draws, 51, 2.0, 0);
        let with_samples: Vec<u64> = (1..=50)
            .filter(|span| {
                span_time(&all, SpanSubject::Span(link(*span))).is_some_and(|time| time.subject.weight("delay") > 0)
            })
            .collect();
        for span in with_samples {
            let baseline = compared_with(&all, &rare, span);
            assert_eq!(baseline.others, 50);
            let (low, high) = baseline.total.interval.expect("an interval");
            means += baseline.total.mean / INTERVAL_NS as f64;
            covered += usize::from(low <= 0.0 && high >= 0.0);
            falsely += usize::from(!significant(&baseline).is_empty());
            compared += 1;
        }
    }
    let mean = means / f64::from(compared);
    assert!(compared > 800 && (1.85..2.1).contains(&mean), "{mean} of {compared}");
    assert!(covered * 100 >= compared as usize * 93 && falsely <= 20, "{covered} and {falsely} of {compared}");
}

#[test]
fn the_only_span_of_its_endpoint_with_samples_of_the_type_differs_from_the_others() {
    let [all, rare] = rare_totals(&mut Draws(15), 11, 0.0, 8);
    let baseline = compared_with(&all, &rare, 1);
    assert_eq!((baseline.others, baseline.total.mean, baseline.samples), (10, 0.0, Some([8.0, 0.0])));
    // Eight samples in one span and none in ten: (1/11)⁸, twice.
    let p_value = baseline.rows[0].difference.p_value.expect("a test");
    assert!((p_value / (2.0 * (1.0f64 / 11.0).powi(8)) - 1.0).abs() < 1e-6, "{p_value}");
    assert_eq!(significant(&baseline), ["lock"]);
}
