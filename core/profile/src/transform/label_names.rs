//! Label names by the rules of Pyroscope 1.x (`pkg/validation/validate.go`, `SanitizeLegacyLabelName`, 1.21): ASCII letters,
//! `_`, `.` and, after the first character, digits. The server rejects a request with any other name.

use std::collections::BTreeSet;

use crate::*;

/// Whether Pyroscope 1.x accepts the name. It stores dots as `_`.
pub fn is_accepted_label_name(name: &str) -> bool {
    !name.is_empty() && name.char_indices().all(|(at, character)| is_accepted(at, character))
}

fn is_accepted(at: usize, character: char) -> bool {
    character.is_ascii_alphabetic() || matches!(character, '_' | '.') || (at > 0 && character.is_ascii_digit())
}

/// Names of sample labels and resource attributes that Pyroscope 1.x rejects, sorted.
pub fn refused_label_names(data: &ProfilesData) -> Vec<String> {
    let rejected = label_names(data).into_iter().filter(|name| !is_accepted_label_name(name));
    rejected.map(str::to_owned).collect()
}

fn label_names(data: &ProfilesData) -> BTreeSet<&str> {
    let samples = data.profiles().flat_map(|(_, profile)| &profile.samples);
    let sets: BTreeSet<AttributeSetId> = samples.map(|sample| sample.attributes).collect();
    let of_samples = sets.into_iter().flat_map(|set| data.dictionary.attributes_of(set)).map(|label| label.key);
    let of_resources = data.resources.iter().flat_map(|resource| &resource.resource).map(|label| label.key.as_str());
    of_samples.chain(of_resources).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled(names: &[&str]) -> ProfilesData {
        let mut data = ProfilesData::default();
        let attributes: Vec<_> =
            names.iter().map(|name| data.dictionary.attribute(name, Value::String("v"), "")).collect();
        let sample = Sample { attributes: data.dictionary.attribute_set(&attributes), ..Sample::default() };
        let profile = Profile { samples: vec![sample], ..Profile::default() };
        data.resources.push(ResourceProfiles { profiles: vec![profile], ..ResourceProfiles::default() });
        data
    }

    #[test]
    fn names_are_accepted_by_the_rules_of_pyroscope_1() {
        for accepted in ["route", "http.route", "_x", ".x", "a1", "A_b.C9"] {
            assert!(is_accepted_label_name(accepted), "{accepted}");
        }
        for rejected in ["", "user-tier", "équipe", "1st", "a b", "a/b", "a:b"] {
            assert!(!is_accepted_label_name(rejected), "{rejected}");
        }
        let mut data = labelled(&["route", "user-tier"]);
        data.resources[0].resource.push(Attribute::string("équipe", "a"));
        assert_eq!(refused_label_names(&data), ["user-tier", "équipe"]);
    }
}
