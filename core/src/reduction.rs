//! The detail that each destination receives: keys `link`, `instance_attributes` and `label_names`. Not here: the reduction
//! itself (`spanprof_profile::transform`), encoding and sending (`delivery`).

use crate::config::{Config, DestinationConfig, LabelNames, LinkDetail};
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DestinationType;

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
        assert_eq!(own, Reduction { accepted_label_names: true, ..Reduction::default() });
    }

    #[test]
    fn an_instance_id_that_the_user_set_is_kept() {
        let attributes = [("service.instance.id".to_owned(), "shop-1".to_owned())].into_iter().collect();
        let config = Config { resource_attributes: attributes, instance_attributes: false, ..Config::default() };
        let reduction = of_destination(&DestinationConfig::new(DestinationType::Otlp), &config);
        assert_eq!(reduction.without_attributes, ["process.pid"]);
    }
}
