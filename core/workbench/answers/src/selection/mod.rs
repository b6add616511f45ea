//! Parses the sample filter: the flags `--service --type --label --trace-id --span-id --from --to` and the query parameters
//! of `serve`, which have the same names. Called by every verb that reads profiles and by the HTTP API.

pub mod moment;
pub mod query_string;

use spanprof_profile::{kinds, ProfilesData};
use spanprof_read::query::{self, Filter, LabelMatcher, MatchOperator};

use crate::failure::Failure;

/// Flags of the filter, except for the end of the time range: `convert --to` also accepts a format.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct FilterArguments {
    /// only this service (service.name): "" selects profiles without a name, "*" all services
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// only this profile type: cpu, wall, alloc_space, …
    #[arg(long = "type", value_name = "TYPE")]
    pub type_name: Option<String>,
    /// only samples with this label, also KEY!=VALUE, KEY=~REGEX, KEY!~REGEX; repeat for more
    #[arg(long, value_name = "KEY=VALUE")]
    pub label: Vec<String>,
    /// only samples of this trace (32 hex digits)
    #[arg(long, value_name = "HEX")]
    pub trace_id: Option<String>,
    /// only samples of this span (16 hex digits)
    #[arg(long, value_name = "HEX")]
    pub span_id: Option<String>,
    /// only from this time on: RFC 3339, unix s or ms, or relative such as -5m
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
}

/// The end of the time range.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct EndArguments {
    /// only up to this time; same forms as --from
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
}

/// Formats of `convert --to`. None of them parses as a time, so that `--to` accepts both.
pub const FORMATS: [&str; 8] = ["otlp", "pprof", "folded", "flamegraph", "svg", "speedscope", "firefox", "json"];

impl FilterArguments {
    /// The flags that are set, with their values.
    pub fn flags(&self) -> Vec<(&'static str, &str)> {
        let single = [
            ("--service", &self.service),
            ("--type", &self.type_name),
            ("--trace-id", &self.trace_id),
            ("--span-id", &self.span_id),
            ("--from", &self.from),
        ];
        let single = single.into_iter().filter_map(|(flag, value)| Some((flag, value.as_deref()?)));
        single.chain(self.label.iter().map(|label| ("--label", label.as_str()))).collect()
    }

    /// The filter up to the time `to`.
    pub fn filter(&self, to: Option<&str>, now_unix_ns: u64) -> Result<Filter, Failure> {
        let single = [
            ("service", self.service.as_deref()),
            ("type", self.type_name.as_deref()),
            ("trace_id", self.trace_id.as_deref()),
            ("span_id", self.span_id.as_deref()),
            ("from", self.from.as_deref()),
            ("to", to),
        ];
        let labels = self.label.iter().map(|label| ("label", label.as_str()));
        let mut filter = Filter::default();
        for (name, value) in single.into_iter().filter_map(|(name, value)| Some((name, value?))).chain(labels) {
            set(&mut filter, name, value, now_unix_ns).map_err(Failure::usage)?;
        }
        check(&filter).map_err(Failure::usage)?;
        Ok(filter)
    }
}

/// Narrows `filter` by a selector such as `checkout{service.version=1.2,region="eu"}`: a service, attributes, or both.
pub fn narrow(filter: &mut Filter, selector: &str) -> Result<(), String> {
    let expected = || format!("expected a selector such as `checkout{{service.version=1.2}}`, got `{selector}`");
    let (service, attributes) = match selector.split_once('{') {
        Some((service, rest)) => (service, rest.strip_suffix('}').ok_or_else(expected)?),
        None => (selector, ""),
    };
    if !service.trim().is_empty() {
        filter.service = Some(service.trim().to_owned());
    }
    // Quoted values may contain commas.
    let mut is_quoted = false;
    let separators = attributes.split(|character| {
        is_quoted ^= character == '"';
        character == ',' && !is_quoted
    });
    for attribute in separators.filter(|attribute| !attribute.trim().is_empty()) {
        add_label(filter, attribute).map_err(|message| format!("{}: {message}", expected()))?;
    }
    Ok(())
}

/// Adds a condition on a label. Conditions on `trace_id` and `span_id`, the span link's labels in pprof files, select by the
/// link.
fn add_label(filter: &mut Filter, text: &str) -> Result<(), String> {
    let label = LabelMatcher::parse(text)?;
    match (label.key.as_str(), label.operator) {
        ("trace_id", MatchOperator::Equal) => filter.trace_id = Some(id("trace_id", &label.value)?),
        ("span_id", MatchOperator::Equal) => filter.span_id = Some(id("span_id", &label.value)?),
        (key @ ("trace_id" | "span_id"), _) => return Err(format!("`{key}` is compared with `=` only, got `{text}`")),
        _ => filter.labels.push(label),
    }
    Ok(())
}

/// The query parameters that [`of_parameters`] parses.
pub const PARAMETERS: [&str; 7] = ["service", "type", "label", "trace_id", "span_id", "from", "to"];

/// In a link to the page, where an absent service is the largest one.
const ALL_SERVICES: &str = "*";

/// Parses the query parameters of a request; the caller checks other names.
pub fn of_parameters(parameters: &[(String, String)], now_unix_ns: u64) -> Result<Filter, String> {
    let mut filter = Filter::default();
    for (name, value) in parameters {
        // An empty field of a form is no condition; a service may have no name.
        if !value.is_empty() || name == "service" {
            set(&mut filter, name, value, now_unix_ns)?;
        }
    }
    check(&filter)?;
    Ok(filter)
}

/// Formats `filter` as query parameters. Times are absolute, so that two requests have the same range.
pub fn to_parameters(filter: &Filter) -> Vec<(&'static str, String)> {
    let mut parameters = Vec::new();
    let mut add = |name, value: Option<String>| parameters.extend(value.map(|value| (name, value)));
    add("service", filter.service.clone());
    add("type", filter.type_name.clone());
    for label in &filter.labels {
        add("label", Some(label.to_string()));
    }
    add("trace_id", filter.trace_id.map(hex::encode));
    add("span_id", filter.span_id.map(hex::encode));
    // Large enough from 1973 on to parse as nanoseconds; no profile is older.
    add("from", filter.from_unix_nano.map(|nanos| nanos.to_string()));
    add("to", filter.to_unix_nano.map(|nanos| nanos.to_string()));
    parameters
}

fn set(filter: &mut Filter, name: &str, value: &str, now_unix_ns: u64) -> Result<(), String> {
    let time = |value: &str| {
        moment::parse(value, now_unix_ns).ok_or_else(|| format!("`{name}`: expected {}, got `{value}`", moment::FORMS))
    };
    match name {
        "service" => filter.service = (value != ALL_SERVICES).then(|| value.to_owned()),
        "type" => filter.type_name = Some(value.to_owned()),
        "label" => add_label(filter, value).map_err(|message| format!("`label`: {message}"))?,
        "trace_id" => filter.trace_id = Some(id(name, value)?),
        "span_id" => filter.span_id = Some(id(name, value)?),
        "from" => filter.from_unix_nano = Some(time(value)?),
        "to" => filter.to_unix_nano = Some(time(value)?),
        _ => (),
    }
    Ok(())
}

fn check(filter: &Filter) -> Result<(), String> {
    match (filter.from_unix_nano, filter.to_unix_nano) {
        (Some(from), Some(to)) if from >= to => Err(format!(
            "`from` ({}) must be before `to` ({})",
            moment::format_rfc3339(from),
            moment::format_rfc3339(to)
        )),
        _ => Ok(()),
    }
}

fn id<const LENGTH: usize>(name: &str, text: &str) -> Result<[u8; LENGTH], String> {
    let mut id = [0; LENGTH];
    hex::decode_to_slice(text, &mut id)
        .map_err(|_| format!("`{}`: expected {} hex digits, got `{text}`", name, 2 * LENGTH))?;
    Ok(id)
}

/// The type to show: the type of the filter, else the default of the file, else the preferred type among the types with
/// samples, else among all types. "" when there is none.
pub fn type_to_show(data: &ProfilesData, filter: &Filter) -> String {
    if let Some(name) = &filter.type_name {
        return name.clone();
    }
    if let Some(name) = query::default_type(data) {
        return name;
    }
    let mut types = query::types(data);
    if data.sample_count() > 0 {
        types.retain(|summary| summary.samples > 0);
    }
    preferred_type(types.iter().map(|summary| summary.type_name.as_str()))
}

/// The first of the types that users usually want, else the first type. "" when there is none.
pub fn preferred_type<'t>(types: impl Iterator<Item = &'t str> + Clone) -> String {
    let is_present = |name: &str| types.clone().any(|present| present == name);
    let preferred = kinds::ALL.into_iter().map(|kind| kind.default_type()).find(|name| is_present(name));
    preferred.or_else(|| types.clone().next()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_profile::{Profile, ResourceProfiles, Value, ValueType};

    const NOW: u64 = 1_769_860_800_000_000_000;

    fn read(pairs: &[(&str, &str)]) -> Result<Filter, String> {
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        of_parameters(&pairs, NOW)
    }

    #[test]
    fn formatted_parameters_parse_back() {
        let filter = read(&[
            ("service", "cart & co"),
            ("type", "cpu"),
            ("label", "endpoint=/a=b"),
            ("label", "k="),
            ("label", "route!~/a, \"b\""),
            ("label", "route=\" ~a\""),
            ("trace_id", "0AF7651916CD43DD8448EB211C80319C"),
            ("span_id", "b7ad6b7169203331"),
            ("from", "-5m"),
            ("to", "now"),
            ("unknown", "x"),
        ])
        .unwrap();
        assert_eq!(filter.labels[0], LabelMatcher::equal("endpoint", "/a=b"));
        assert_eq!(filter.to_unix_nano, Some(NOW));
        let written = to_parameters(&filter);
        assert!(written.contains(&("trace_id", "0af7651916cd43dd8448eb211c80319c".to_owned())));
        let pairs: Vec<_> = written.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(read(&pairs).unwrap(), filter);
    }

    #[test]
    fn an_empty_service_selects_profiles_without_a_name_and_an_absent_one_all() {
        let service = |pairs: &[(&str, &str)]| read(pairs).unwrap().service;
        assert_eq!(service(&[("service", "")]), Some(String::new()));
        assert_eq!((service(&[]), service(&[("service", "*")])), (None, None));
        assert_eq!(to_parameters(&read(&[("service", "")]).unwrap()), [("service", String::new())]);
        assert_eq!(read(&[("type", ""), ("label", ""), ("from", "")]).unwrap(), Filter::default());
    }

    #[test]
    fn the_default_type_is_that_of_pprof() {
        let shown = |types: &[&str], default: &str| {
            let mut data = ProfilesData::default();
            let setting = Value::String(default);
            let setting = data.dictionary.attribute("pprof.scope.default_sample_type", setting, "");
            let attributes =
                data.dictionary.attribute_set(if default.is_empty() { &[] } else { std::slice::from_ref(&setting) });
            let of_type =
                |kind: &&str| Profile { sample_type: ValueType::new(*kind, ""), attributes, ..Profile::default() };
            let profiles = types.iter().map(of_type).collect();
            data.resources.push(ResourceProfiles { profiles, ..ResourceProfiles::default() });
            type_to_show(&data, &Filter::default())
        };
        let heap = ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"];
        assert_eq!(shown(&heap, ""), "inuse_space");
        assert_eq!(shown(&heap, "alloc_space"), "alloc_space", "the file's default has precedence");
        assert_eq!(shown(&heap, "elsewhere"), "inuse_space");
        assert_eq!(shown(&["contentions", "delay"], ""), "delay");
        assert_eq!(shown(&["wall", "cpu"], ""), "cpu");
    }

    #[test]
    fn a_selector_has_a_service_and_attributes() {
        let narrowed = |selector: &str| {
            let mut filter = Filter::default();
            narrow(&mut filter, selector).map(|()| (filter.service.unwrap_or_default(), filter.labels))
        };
        assert_eq!(narrowed("checkout"), Ok(("checkout".to_owned(), vec![])));
        let version = vec![LabelMatcher::equal("service.version", "1.2"), LabelMatcher::equal("env", "a b")];
        assert_eq!(narrowed(r#"checkout{service.version=1.2, env="a b"}"#), Ok(("checkout".to_owned(), version)));
        assert_eq!(
            narrowed("{service.version=1.3}"),
            Ok((String::new(), vec![LabelMatcher::equal("service.version", "1.3")]))
        );
        let (_, labels) = narrowed(r#"checkout{route=~"/a{1,2}", version!=1.2}"#).unwrap();
        assert_eq!(labels.iter().map(ToString::to_string).collect::<Vec<_>>(), ["route=~/a{1,2}", "version!=1.2"]);
        for wrong in ["checkout{", "checkout{version}", "{=1}", "{route=~(}"] {
            assert!(narrowed(wrong).unwrap_err().contains(wrong));
        }
    }

    #[test]
    fn the_labels_of_pprof_for_a_span_select_its_samples() {
        let of_labels = read(&[("label", "span_id=b7ad6b7169203331")]).unwrap();
        assert_eq!(of_labels, read(&[("span_id", "b7ad6b7169203331")]).unwrap());
        assert!(read(&[("label", "trace_id!=0AF7651916CD43DD8448EB211C80319C")]).unwrap_err().contains("`=` only"));
    }

    #[test]
    fn a_wrong_value_names_the_expected_form() {
        for (name, value, words) in [
            ("trace_id", "b7ad6b7169203331", "32 hex digits"),
            ("span_id", "ü7ad6b716920333", "16 hex digits"),
            ("label", "novalue", "KEY=VALUE"),
            ("from", "yesterday", "RFC 3339"),
        ] {
            let message = read(&[(name, value)]).unwrap_err();
            assert!(message.contains(words) && message.contains(value), "{message}");
        }
        assert!(read(&[("from", "now"), ("to", "-1m")]).unwrap_err().contains("must be before"));
    }
}
