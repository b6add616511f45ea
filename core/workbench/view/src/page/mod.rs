//! The exported page: one HTML file with the page of `spanprof serve`, its data, and a script that answers the page's requests from
//! them. It loads no external resources. Text of a profile is escaped and can become neither markup nor script.

mod sources;

pub use sources::PageSource;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use hashbrown::{HashMap, HashSet};

use crate::compact::compact;
use crate::flamegraph::{self, escape_markup, write_functions, write_numbers, write_text};
use spanprof_profile::kinds::{self, ProfileKind};
use spanprof_profile::transform::{self, CallPaths, FoldableFunctions};
use spanprof_profile::{AttributeSetId, Dictionary, ProfilesData, ResourceProfiles};

/// The style sheet of the page, without that of the flame graph.
const STYLE: &str = compact!(include_str!("page.css"));

/// The scripts of the page, of which the last one shows it: Preact, the flame graph and the page's own parts, which share their
/// declarations as parts of one function but add none to the document. `embedded` is null in the page of a server.
const SCRIPT: [&str; 3] = [PREACT, flamegraph::SCRIPT, PARTS];

/// Preact 10.29.8 (MIT) as its npm package has it: forms, tables and history. The browser tests compare it with the package.
const PREACT: &str = include_str!("preact.min.umd.js");
const PARTS: &str = compact!(concat!(
    "\"use strict\";\n(() => {\nconst { h, render, Component } = preact;\nconst root = document.documentElement;\n",
    include_str!("quantities.js"),
    include_str!("address.js"),
    include_str!("stacks.js"),
    include_str!("embedded.js"),
    include_str!("store.js"),
    include_str!("header.js"),
    include_str!("labels.js"),
    include_str!("filters.js"),
    include_str!("timeline.js"),
    include_str!("table.js"),
    include_str!("flame.js"),
    include_str!("function.js"),
    include_str!("requests.js"),
    include_str!("compare.js"),
    include_str!("waiting.js"),
    include_str!("about.js"),
    include_str!("keys.js"),
    include_str!("page.js"),
    "})();\n"
));
const DOCUMENT: &str = include_str!("page.html");
/// An exported page may load nothing.
const POLICY: &str = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">";
const ICON: &str = r#"<link rel="icon" href="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath fill='%23e8590c' d='M1 12h14v3H1z'/%3E%3Cpath fill='%23f08c00' d='M2 8h9v3H2z'/%3E%3Cpath fill='%23fab005' d='M4 4h5v3H4z'/%3E%3Cpath fill='%23ffe066' d='M5 1h2v2H5z'/%3E%3C/svg%3E">"#;

/// Values of a label in a page. Labels with more values, such as ids of users, would make most of it and select little.
const MAX_VALUES: usize = 1000;

/// The types of which the page shows the first that has samples. At the end of a run, few objects are in use.
const PREFERRED: [&ProfileKind; 4] = [&kinds::CPU, &kinds::WALL, &kinds::ALLOCATIONS, &kinds::IN_USE];

/// The type that a page of these profiles shows first, "" without profiles.
pub fn type_shown(data: &ProfilesData) -> &str {
    let has_type = |name: &str| data.profiles().any(|(_, profile)| profile.type_name() == name);
    let preferred = PREFERRED.into_iter().map(ProfileKind::default_type).find(|name| has_type(name));
    preferred.or_else(|| data.profiles().map(|(_, profile)| profile.type_name()).min()).unwrap_or_default()
}

/// What a page has beside its profiles.
#[derive(Clone, Debug, Default)]
pub struct PageContext {
    /// Samples that the run lost, by reason; `None` if that is unknown.
    pub losses: Option<Vec<(&'static str, u64)>>,
    /// Source text of functions.
    pub sources: Vec<PageSource>,
}

/// A complete page of all types, which shows `type_name` first. Works offline.
pub fn html(data: &ProfilesData, type_name: &str, title: &str) -> String {
    html_with(data, type_name, title, &PageContext::default())
}

/// As [`html`], with what is known beside the profiles.
pub fn html_with(data: &ProfilesData, type_name: &str, title: &str, context: &PageContext) -> String {
    exported(title, |page| write_data(page, data, type_name, title, context))
}

/// A complete page of a comparison: the response of `/api/diff`, which is JSON.
pub fn comparison_html(response: &str, title: &str) -> String {
    exported(title, |page| {
        page.push_str("{\"title\":");
        write_text(page, title);
        page.push_str(",\"comparison\":");
        // These characters occur in texts only, in which the escapes mean the same.
        for character in response.chars() {
            match character {
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                    let _ = write!(page, "\\u{:04x}", u32::from(character));
                }
                _ => page.push(character),
            }
        }
        page.push('}');
    })
}

/// The page of a server, which its scripts ask. Only scripts with the nonce may run.
pub fn served(nonce: &str) -> String {
    document("spanprof", ICON, &format!(" nonce=\"{nonce}\""), |_| {})
}

fn exported(title: &str, write_data: impl Fn(&mut String)) -> String {
    document(title, POLICY, "", |page| {
        page.push_str("<script type=\"application/json\" id=\"data\">");
        write_data(page);
        page.push_str("</script>");
    })
}

fn document(title: &str, head: &str, nonce: &str, write_content: impl Fn(&mut String)) -> String {
    let mut page = String::with_capacity(256 << 10);
    // One pass over the template: inserted text is not searched for placeholders.
    let mut pieces = DOCUMENT.split("{{");
    page.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (placeholder, rest) = piece.split_once("}}").unwrap_or(("", piece));
        match placeholder {
            "version" => page.push_str(env!("CARGO_PKG_VERSION")),
            "title" => page.push_str(&escape_markup(title)),
            "style" => page.extend([flamegraph::STYLE, "\n", STYLE]),
            "script" => page.extend(SCRIPT),
            "head" => page.push_str(head),
            "nonce" => page.push_str(nonce),
            "content" => write_content(&mut page),
            _ => {}
        }
        page.push_str(rest);
    }
    page
}

/// The data as JSON. Functions are in the order of siblings; `fold` is the frame of a function in folded trees, `priority` whether
/// it names its run ([`FoldableFunctions`]), `code` who executes it ([`FunctionKey::kind`](transform::FunctionKey::kind)). `nodes` are level and function of the call paths, depth first; `samples` of a profile
/// are node, label set, weight and number of observations; a label set is a list of indices into `labels`.
fn write_data(out: &mut String, data: &ProfilesData, type_name: &str, title: &str, context: &PageContext) {
    let CallPaths { functions, nodes, of_stack } = transform::call_paths(data);
    let FoldableFunctions { rows: functions, numbers, frames, priorities } = FoldableFunctions::of(functions);
    let mut services: Vec<&str> = data.resources.iter().map(ResourceProfiles::service_name).collect();
    services.sort_unstable();
    services.dedup();
    out.push_str("{\"title\":");
    write_text(out, title);
    out.push_str(",\"type\":");
    write_text(out, type_name);
    // Writing to a String cannot fail.
    let _ = write!(out, ",\"functions\":{{\"count\":{}", functions.len());
    write_functions(out, &functions);
    write_numbers(out, "fold", frames.into_iter().map(i64::from));
    write_numbers(out, "priority", priorities.into_iter().map(i64::from));
    write_numbers(out, "code", functions.iter().map(|function| function.kind() as i64));
    out.push('}');
    let nodes = nodes.into_iter().flat_map(|(level, function)| [level, numbers[function as usize]]);
    write_numbers(out, "nodes", nodes.map(i64::from));
    let mut labels = PageLabels::of(data);
    out.push_str(",\"profiles\":[");
    for (nth, (resource, profile)) in data.profiles().enumerate() {
        out.push_str(if nth > 0 { ",{" } else { "{" });
        let service = services.binary_search(&resource.service_name()).unwrap_or_default();
        let _ = write!(out, "\"service\":{service},\"gauge\":{},\"type\":", profile.is_gauge());
        write_text(out, profile.type_name());
        out.push_str(",\"unit\":");
        write_text(out, profile.unit());
        let _ = write!(out, ",\"from_ms\":{}", profile.time_unix_nano / 1_000_000);
        let _ = write!(
            out,
            ",\"to_ms\":{},\"period\":{},\"period_unit\":",
            profile.end_unix_nano() / 1_000_000,
            profile.period
        );
        write_text(out, &profile.period_type.unit);
        let mut sums: BTreeMap<(u32, usize), [i64; 2]> = BTreeMap::new();
        for sample in &profile.samples {
            let node = of_stack.get(&sample.stack).copied().unwrap_or_default();
            let sum = sums.entry((node, labels.set(sample.attributes))).or_default();
            sum[0] = sum[0].saturating_add(profile.weight(sample));
            sum[1] = sum[1].saturating_add(profile.observations(sample));
        }
        let members =
            |((node, set), [weight, count]): ((u32, usize), [i64; 2])| [i64::from(node), set as i64, weight, count];
        write_numbers(out, "samples", sums.into_iter().flat_map(members));
        out.push('}');
    }
    out.push(']');
    labels.write(out);
    write_list(out, "services", services.iter(), |out, name| write_text(out, name));
    write_resources(out, data);
    if let Some(losses) = &context.losses {
        write_list(out, "losses", losses.iter(), |out, (reason, count)| write_pair(out, reason, &count.to_string()));
    }
    sources::write(out, &context.sources, &functions);
    out.push('}');
}

/// Labels, and label sets in order of first use.
struct PageLabels<'d> {
    dictionary: &'d Dictionary,
    /// Numbers of the labels.
    label_numbers: BTreeMap<(&'d str, String), usize>,
    /// Keys with more than [`MAX_VALUES`] values, which the page leaves out, and their number.
    left_out: BTreeMap<&'d str, usize>,
    of_id: HashMap<AttributeSetId, usize>,
    sets: Vec<Vec<usize>>,
    numbers: HashMap<Vec<usize>, usize>,
}

impl<'d> PageLabels<'d> {
    fn of(data: &'d ProfilesData) -> Self {
        let dictionary = &data.dictionary;
        let samples = data.profiles().flat_map(|(_, profile)| &profile.samples);
        let ids: HashSet<AttributeSetId> = samples.map(|sample| sample.attributes).collect();
        let mut values: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for attribute in ids.into_iter().flat_map(|id| dictionary.attributes_of(id)) {
            values.entry(attribute.key).or_default().insert(attribute.value.to_string());
        }
        let is_left_out = |(_, values): &(&str, BTreeSet<String>)| values.len() > MAX_VALUES;
        let (left_out, kept): (Vec<_>, Vec<_>) = values.into_iter().partition(is_left_out);
        let labels = kept.into_iter().flat_map(|(key, values)| values.into_iter().map(move |value| (key, value)));
        Self {
            dictionary,
            label_numbers: labels.enumerate().map(|(number, label)| (label, number)).collect(),
            left_out: left_out.into_iter().map(|(key, values)| (key, values.len())).collect(),
            of_id: HashMap::new(),
            sets: Vec::new(),
            numbers: HashMap::new(),
        }
    }

    /// The number of a label set.
    fn set(&mut self, id: AttributeSetId) -> usize {
        if let Some(number) = self.of_id.get(&id) {
            return *number;
        }
        let attributes = self.dictionary.attributes_of(id);
        let mut labels: Vec<usize> = attributes
            .filter_map(|attribute| self.label_numbers.get(&(attribute.key, attribute.value.to_string())).copied())
            .collect();
        labels.sort_unstable();
        let number = *self.numbers.entry(labels).or_insert_with_key(|labels| {
            self.sets.push(labels.clone());
            self.sets.len() - 1
        });
        self.of_id.insert(id, number);
        number
    }

    fn write(&self, out: &mut String) {
        write_list(out, "labels", self.label_numbers.keys(), |out, (key, value)| write_pair(out, key, value));
        write_list(out, "sets", self.sets.iter(), |out, labels| {
            let _ = write!(out, "{labels:?}");
        });
        write_list(out, "left_out", self.left_out.iter(), |out, (key, values)| {
            write_pair(out, key, &values.to_string())
        });
    }
}

/// Attributes of the resources, each once.
fn write_resources(out: &mut String, data: &ProfilesData) {
    let mut attributes: Vec<(&str, String)> = Vec::new();
    for attribute in data.resources.iter().flat_map(|resource| &resource.resource) {
        attributes.push((&attribute.key, attribute.value.as_ref().to_string()));
    }
    attributes.sort_unstable();
    attributes.dedup();
    write_list(out, "resource", attributes.iter(), |out, (key, value)| write_pair(out, key, value));
}

fn write_pair(out: &mut String, key: &str, value: &str) {
    out.push('[');
    write_text(out, key);
    out.push(',');
    write_text(out, value);
    out.push(']');
}

/// A member with a list, after another member.
fn write_list<T>(out: &mut String, name: &str, items: impl Iterator<Item = T>, write: impl Fn(&mut String, T)) {
    let _ = write!(out, ",\"{name}\":[");
    for (nth, item) in items.enumerate() {
        if nth > 0 {
            out.push(',');
        }
        write(out, item);
    }
    out.push(']');
}

#[cfg(test)]
mod tests {
    use serde_json::{json, Value};

    use super::*;
    use spanprof_profile::{Attribute, AttributeValue, Function, Line, Location, Profile, Sample, ValueType};

    /// Profiles of a service with a sample for each function, weight and route.
    fn profiles(samples: &[(&str, i64, &str)]) -> ProfilesData {
        let mut data = ProfilesData::default();
        let cpu = ValueType::new("cpu", "nanoseconds");
        let mut profile = Profile {
            sample_type: ValueType::new("samples", "count"),
            period_type: cpu,
            period: 10,
            time_unix_nano: 2_000_000,
            duration_nano: 3_000_000,
            ..Profile::default()
        };
        for (name, count, route) in samples {
            let name = data.dictionary.string(name);
            let function = data.dictionary.function(Function { name, ..Function::default() });
            let lines = [Line { function, ..Line::default() }];
            let location = data.dictionary.location(Location { lines: &lines, ..Location::default() });
            let stack = data.dictionary.stack(&[location]);
            let label = Attribute::string("http.route", *route);
            let label = data.dictionary.attribute("http.route", label.value.as_ref(), "");
            let attributes = data.dictionary.attribute_set(&[label]);
            profile.samples.push(Sample { stack, attributes, values: vec![*count], ..Sample::default() });
        }
        let name = |name: &str| Attribute {
            key: "service.name".to_owned(),
            value: AttributeValue::String(name.to_owned()),
            unit: String::new(),
        };
        data.resources.push(ResourceProfiles {
            resource: vec![name("shop")],
            profiles: vec![profile],
            ..ResourceProfiles::default()
        });
        data
    }

    fn embedded(page: &str) -> Value {
        let (_, rest) = page.split_once("id=\"data\">").expect("data");
        serde_json::from_str(rest.split_once("</script>").expect("end").0).expect("valid JSON")
    }

    #[test]
    fn the_page_has_each_stack_by_labels_and_adds_equal_ones() {
        let data = profiles(&[("cart", 3, "/cart"), ("cart", 1, "/pay"), ("cart", 2, "/cart"), ("main", 1, "/cart")]);
        let read = embedded(&html(&data, type_shown(&data), "title"));
        assert_eq!(read["functions"]["names"], json!(["root", "cart", "main"]));
        assert_eq!(read["nodes"], json!([0, 0, 1, 1, 1, 2]));
        assert_eq!(read["labels"], json!([["http.route", "/cart"], ["http.route", "/pay"]]));
        assert_eq!(read["sets"], json!([[0], [1]]));
        let profile = &read["profiles"][0];
        assert_eq!(profile["samples"], json!([1, 0, 50, 5, 1, 1, 10, 1, 2, 0, 10, 1]));
        assert_eq!((&profile["type"], &profile["from_ms"], &profile["to_ms"]), (&json!("cpu"), &json!(2), &json!(5)));
        assert_eq!((&read["type"], &read["services"]), (&json!("cpu"), &json!(["shop"])));
        assert_eq!(read["resource"], json!([["service.name", "shop"]]));
    }

    #[test]
    fn losses_are_in_the_page_of_a_run_only() {
        let data = profiles(&[("cart", 3, "/cart")]);
        let read = |losses: Option<Vec<(&'static str, u64)>>| {
            embedded(&html_with(&data, "cpu", "title", &PageContext { losses, ..PageContext::default() }))
        };
        assert_eq!(read(Some(vec![("queue_full", 3)]))["losses"], json!([["queue_full", "3"]]));
        assert_eq!((&read(Some(Vec::new()))["losses"], &read(None)["losses"]), (&json!([]), &Value::Null));
    }

    #[test]
    fn functions_are_in_the_order_of_siblings_and_have_the_frames_into_which_they_fold() {
        let names = ["java.util.HashMap.get", "com.acme.Shop.run", "java.util.List.add", "main"];
        let mut data = profiles(&names.map(|name| (name, 1, "/cart")));
        let jvm = Attribute::string("profile.frame.type", "jvm");
        let attribute = data.dictionary.attribute("profile.frame.type", jvm.value.as_ref(), "");
        let attributes = data.dictionary.attribute_set(&[attribute]);
        for sample in &mut data.resources[0].profiles[0].samples[..3] {
            let location = data.dictionary.get_stack(sample.stack)[0];
            let lines = data.dictionary.get_location(location).lines.to_vec();
            let location = Location { lines: &lines, attributes, ..Location::default() };
            let location = data.dictionary.location(location);
            sample.stack = data.dictionary.stack(&[location]);
        }
        let functions = &embedded(&html(&data, "cpu", "title"))["functions"];
        let names = [
            "root",
            "com.acme",
            "com.acme.Shop.run",
            "java.util",
            "java.util.HashMap.get",
            "java.util.List.add",
            "main",
        ];
        assert_eq!(functions["names"], json!(names));
        assert_eq!(functions["fold"], json!([0, 0, 1, 0, 3, 3, 0]));
        assert_eq!(functions["priority"], json!([0, 0, 2, 0, 1, 1, 0]));
    }

    #[test]
    fn a_label_with_too_many_values_is_left_out_and_named() {
        let routes: Vec<String> = (0..=MAX_VALUES).map(|number| format!("/{number}")).collect();
        let samples: Vec<_> = routes.iter().map(|route| ("cart", 1, route.as_str())).collect();
        let read = embedded(&html(&profiles(&samples), "cpu", "title"));
        assert_eq!(read["left_out"], json!([["http.route", "1001"]]));
        assert_eq!(read["profiles"][0]["samples"], json!([1, 0, 10_010, 1001]));
    }

    #[test]
    fn text_of_a_profile_becomes_neither_markup_nor_script() {
        let name = "</script><script>alert(1)</script><!--{{script}}";
        let page = html(&profiles(&[(name, 1, name)]), "cpu", "<img src=x onerror=alert(1)> {{data}}");
        assert!(!page.contains("<img src") && !page.contains("alert(1)</script>") && !page.contains("<!--"));
        assert!(page.contains("&lt;img src=x onerror=alert(1)&gt; {{data}}"));
        assert_eq!(page.matches("<script").count(), 2);
    }

    #[test]
    fn a_comparison_is_embedded_as_it_is_without_markup() {
        let response = json!({"type": "cpu", "rows": [{"function": "</script><b>&\u{2028}\\\""}]});
        let page = comparison_html(&response.to_string(), "a and b");
        assert_eq!(embedded(&page), json!({"title": "a and b", "comparison": response}));
        assert!(!page.contains("</script><b>"));
    }

    #[test]
    fn the_page_may_load_nothing() {
        let page = html(&ProfilesData::default(), "", "title");
        assert!(page.contains("default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"));
        assert!(SCRIPT.into_iter().chain([STYLE]).all(|text| !text.contains("{{") && !text.contains("</script")));
    }
}
