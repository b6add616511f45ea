//! Label names by the rules of Pyroscope 1.x (`pkg/validation/validate.go`, `SanitizeLegacyLabelName`, 1.21): ASCII letters,
//! `_`, `.` and, after the first character, digits. The server rejects a request with any other name.

use std::collections::{BTreeMap, BTreeSet};

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

/// An accepted name for each rejected one. Names stay distinct: if the plain replacement is taken, a hash of the original is
/// appended.
pub(super) fn replacements(data: &ProfilesData) -> BTreeMap<String, String> {
    let names = label_names(data);
    let (accepted, rejected): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|name| is_accepted_label_name(name));
    // The names as the server stores them.
    let mut taken: BTreeSet<String> = accepted.iter().map(|name| name.replace('.', "_")).collect();
    let mut replacements = BTreeMap::new();
    for name in rejected {
        let mut replacement = replacement(name);
        if !taken.insert(replacement.replace('.', "_")) {
            replacement = format!("{replacement}_{:08x}", fnv1a(name));
            taken.insert(replacement.replace('.', "_"));
        }
        replacements.insert(name.to_owned(), replacement);
    }
    replacements
}

fn replacement(name: &str) -> String {
    let starts_with_digit = name.starts_with(|character: char| character.is_ascii_digit());
    let plain = name.chars().map(|character| if is_accepted(1, character) { character } else { '_' });
    let replaced: String = starts_with_digit.then_some('_').into_iter().chain(plain).collect();
    if replaced.is_empty() {
        return "_".to_owned();
    }
    replaced
}

/// FNV-1a, 32 bits: the same name has the same hash in every process and window.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
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

    #[test]
    fn a_rejected_name_gets_an_accepted_replacement_and_names_stay_distinct() {
        let replaced = replacements(&labelled(&["user-tier", "user.tier", "équipe", "1st", "a-b", "a/b", "用户"]));
        assert_eq!(replaced["équipe"], "_quipe");
        assert_eq!(replaced["1st"], "_1st");
        assert_eq!(replaced["用户"], "__");
        // `user.tier` is stored as `user_tier`.
        assert!(replaced["user-tier"].starts_with("user_tier_"), "{replaced:?}");
        assert_eq!(replaced["a-b"], "a_b");
        assert!(replaced["a/b"].starts_with("a_b_"), "{replaced:?}");
        assert!(replaced.values().all(|name| is_accepted_label_name(name)), "{replaced:?}");
    }
}
