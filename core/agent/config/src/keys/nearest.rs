//! The nearest names for hints about misspelt keys. Pure.

use super::binding_options::BindingOption;
use crate::keys::table::KEYS;

/// The key closest to a misspelt one.
pub fn nearest_key(name: &str, options: &'static [BindingOption]) -> Option<&'static str> {
    nearest(name, KEYS.iter().map(|key| key.name).chain(options.iter().map(|option| option.name)))
}

/// The name in `known` closest to a misspelt one.
pub(crate) fn nearest(name: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    known
        .map(|known| (strsim::jaro_winkler(&name.to_ascii_lowercase(), known), known))
        .filter(|(similarity, _)| *similarity > 0.8)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, known)| known)
}
