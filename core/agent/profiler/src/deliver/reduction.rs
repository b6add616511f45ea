//! The detail that each destination receives: the key `link`, and the age of objects in use. Not here: the reduction itself
//! (`spanprof_profile::transform`), encoding and sending (`windows`).
//!
//! Pyroscope 1.20 to 2.0 stores a series for each trace id: 500 requests made 427 series, and 5,000 is a tenant's default limit.
//! `link=span` is not the default, since links without a trace id break the navigation from a trace to its profile in every other
//! receiver. `service.name` is on each sample too, because Collectors rewrite resource attributes to references (`otlp_http` from
//! 0.161, `otlp_grpc` from 0.163) that Pyroscope does not resolve; attributes of the scope are rewritten too.

use spanprof_config::{Config, DestinationConfig, DestinationType, LinkDetail};
use spanprof_profile::transform::Reduction;

/// The reduction of a destination whose keys are filled in from the top level.
pub(crate) fn of_destination(destination: &DestinationConfig, config: &Config) -> Reduction {
    let link = destination.link.unwrap_or(config.link);
    Reduction {
        without_trace_ids: link != LinkDetail::TraceAndSpan,
        without_span_ids: link == LinkDetail::Omitted,
        without_heap_age: !has_heap_age(destination),
    }
}

/// Files have the age: their readers filter by it. Some receivers store a series for each label.
fn has_heap_age(destination: &DestinationConfig) -> bool {
    destination.destination_type == DestinationType::File
}

/// Whether any destination or the output file receives the age of objects in use.
pub(crate) fn is_heap_age_used(config: &Config) -> bool {
    config.output.is_some() || config.effective_destinations().iter().any(has_heap_age)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_overrides_the_top_level() {
        let config = Config { link: LinkDetail::Omitted, ..Config::default() };
        let mut entry = DestinationConfig::new(DestinationType::Otlp);
        let inherited = of_destination(&entry, &config);
        assert!(inherited.without_trace_ids && inherited.without_span_ids);
        entry.link = Some(LinkDetail::TraceAndSpan);
        assert_eq!(of_destination(&entry, &config), Reduction { without_heap_age: true, ..Reduction::default() });
    }

    #[test]
    fn objects_in_use_are_divided_by_age_only_in_files() {
        assert!(!is_heap_age_used(&Config::default()));
        assert!(is_heap_age_used(&Config { file_directory: Some("d".to_owned()), ..Config::default() }));
        assert!(is_heap_age_used(&Config { output: Some("run.pb.gz".to_owned()), ..Config::default() }));
    }
}
