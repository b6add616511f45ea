//! The detail that each destination receives: keys `link`, `instance_attributes`, `label_names`
//! and `heap_age`. Not here: the reduction
//! itself (`spanprof_profile::transform`), encoding and sending (`delivery`).
//!
//! Pyroscope 1.20 to 2.0 stores a series for each trace id: 500 requests made 427 series, and 5,000 is a tenant's default limit.
//! `link=span` is not the default, since links without a trace id break the navigation from a trace to its profile in every other
//! receiver. `service.name` is on each sample too, because Collectors rewrite resource attributes to references (`otlp_http` from
//! 0.161, `otlp_grpc` from 0.163) that Pyroscope does not resolve; attributes of the scope are rewritten too.

use spanprof_config::{Config, DestinationConfig, DestinationType, LabelNames, LinkDetail};
use spanprof_profile::transform::Reduction;

/// Attributes that differ between the processes of one service on one host.
const INSTANCE_ATTRIBUTES: [&str; 2] = ["process.pid", "service.instance.id"];

/// The reduction of a destination whose keys are filled in from the top level.
pub(crate) fn of_destination(destination: &DestinationConfig, config: &Config) -> Reduction {
    let link = destination.link.unwrap_or(config.link);
    let by_user = |key: &&str| config.resource_attributes.contains_key(*key);
    let without_attributes = match destination.instance_attributes.unwrap_or(config.instance_attributes) {
        true => Vec::new(),
        // Attributes that the user set are kept.
        false => INSTANCE_ATTRIBUTES.iter().filter(|key| !by_user(key)).map(|key| (*key).to_owned()).collect(),
    };
    Reduction {
        without_trace_ids: link != LinkDetail::TraceAndSpan,
        without_span_ids: link == LinkDetail::Omitted,
        without_attributes,
        accepted_label_names: destination.label_names.unwrap_or(config.label_names) == LabelNames::Strict,
        without_heap_age: !has_heap_age(destination, config),
    }
}

/// Files have the age: their readers filter by it. For a receiver it must be set, since some store a series for each label.
fn has_heap_age(destination: &DestinationConfig, config: &Config) -> bool {
    let is_file = destination.destination_type == DestinationType::File;
    destination.heap_age.or(config.heap_age).unwrap_or(is_file)
}

/// Whether any destination or the output file receives the age of objects in use.
pub(crate) fn is_heap_age_used(config: &Config) -> bool {
    let in_output = config.output.is_some() && config.heap_age.unwrap_or(true);
    in_output || config.effective_destinations().iter().any(|destination| has_heap_age(destination, config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_config::DestinationType;

    #[test]
    fn a_destination_overrides_the_top_level() {
        let config = Config { link: LinkDetail::Omitted, instance_attributes: false, ..Config::default() };
        let mut entry = DestinationConfig::new(DestinationType::Otlp);
        let inherited = of_destination(&entry, &config);
        assert!(inherited.without_trace_ids && inherited.without_span_ids);
        assert_eq!(inherited.without_attributes, INSTANCE_ATTRIBUTES);
        entry.link = Some(LinkDetail::TraceAndSpan);
        entry.instance_attributes = Some(true);
        entry.label_names = Some(LabelNames::Strict);
        let own = of_destination(&entry, &config);
        assert_eq!(own, Reduction { accepted_label_names: true, without_heap_age: true, ..Reduction::default() });
    }

    #[test]
    fn the_age_of_objects_in_use_is_in_files_and_at_receivers_that_are_configured_for_it() {
        let config = |heap_age| Config { heap_age, ..Config::default() };
        let has_age = |destination_type, own, all| {
            let entry = DestinationConfig { heap_age: own, ..DestinationConfig::new(destination_type) };
            !of_destination(&entry, &config(all)).without_heap_age
        };
        let both = |own, all| [DestinationType::File, DestinationType::Otlp].map(|of_type| has_age(of_type, own, all));
        assert_eq!(both(None, None), [true, false]);
        assert_eq!(both(None, Some(true)), [true, true]);
        assert_eq!(both(None, Some(false)), [false, false]);
        assert_eq!(both(Some(false), Some(true)), [false, false]);
        assert_eq!(both(Some(true), Some(false)), [true, true]);
    }

    #[test]
    fn objects_in_use_are_divided_by_age_only_if_something_receives_it() {
        let used = |config: Config| is_heap_age_used(&config);
        assert!(!used(Config::default()));
        assert!(used(Config { heap_age: Some(true), ..Config::default() }));
        assert!(used(Config { file_directory: Some("d".to_owned()), ..Config::default() }));
        assert!(used(Config { output: Some("run.pb.gz".to_owned()), ..Config::default() }));
        let output = Some("run.pb.gz".to_owned());
        assert!(!used(Config { output, heap_age: Some(false), ..Config::default() }));
    }

    #[test]
    fn an_instance_id_that_the_user_set_is_kept() {
        let attributes = [("service.instance.id".to_owned(), "shop-1".to_owned())].into_iter().collect();
        let config = Config { resource_attributes: attributes, instance_attributes: false, ..Config::default() };
        let reduction = of_destination(&DestinationConfig::new(DestinationType::Otlp), &config);
        assert_eq!(reduction.without_attributes, ["process.pid"]);
    }
}
