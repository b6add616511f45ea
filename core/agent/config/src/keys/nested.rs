//! The nested spelling of keys in files and in code: `cpu: {sample_rate: 50}` is `sample_rate: 50`. Each nested name is one key
//! of the table. Not here: the values (`value`), the layers (`load`).

use crate::keys::table::KEYS;
use crate::types::value::ConfigValue;

/// Sections, with the first word of their keys.
const SECTIONS: &[(&str, &str)] = &[
    ("cpu", "cpu"),
    ("wall", "wall"),
    ("memory", "heap"),
    ("lock", "lock"),
    ("off_cpu", "off_cpu"),
    ("threads", "threads"),
    ("gc", "gc"),
    ("conditional", "tail"),
    ("load_shedding", "load_shedding"),
];

/// Nested names that are not the section's first word and the name.
const IRREGULAR: &[(&str, &str, &str)] = &[
    ("cpu", "enabled", "cpu"),
    ("cpu", "sample_rate", "sample_rate"),
    ("cpu", "max_sample_rate", "sample_rate_max"),
    ("cpu", "clock", "clock"),
    ("wall", "enabled", "wall"),
    ("wall", "sample_rate", "wall_rate"),
    ("memory", "enabled", "heap"),
    ("memory", "sample_rate", "heap_interval"),
    ("lock", "enabled", "lock"),
    ("off_cpu", "enabled", "off_cpu"),
    ("threads", "enabled", "threads"),
    ("gc", "enabled", "gc"),
    ("conditional", "enabled", "retention"),
    ("conditional", "duration_threshold", "tail_duration"),
    ("load_shedding", "enabled", "load_shedding"),
];

/// Further nested names, which articles about profiling in production use.
const ALIASES: &[(&str, &str, &str)] = &[
    ("conditional", "slow_request_threshold", "tail_duration"),
    ("conditional", CPU_PERCENT, "tail_cpu_share"),
    ("conditional", "profile_errors", "tail_errors"),
    ("load_shedding", "cpu_threshold", "load_shedding_threshold"),
];

/// The nested name whose number is in percent.
pub(crate) const CPU_PERCENT: &str = "cpu_threshold_percent";

/// Names of a map that may contain all keys, as in a file that several programs read.
pub(crate) const WRAPPERS: &[&str] = &["profiling", "spanprof"];

/// Every nested name with its key: section, name, key.
pub(crate) fn nested_names() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let is_key = |name: &str| KEYS.iter().any(|key| key.name == name);
    let irregular = IRREGULAR.iter().copied().filter(move |(_, _, key)| is_key(key));
    let is_irregular = |section: &str, key: &str| IRREGULAR.iter().any(|it| it.0 == section && it.2 == key);
    let regular = SECTIONS.iter().flat_map(move |(section, first_word)| {
        KEYS.iter().filter_map(move |key| {
            let name = key.name.strip_prefix(first_word)?.strip_prefix('_')?;
            (!is_irregular(section, key.name)).then_some((*section, name, key.name))
        })
    });
    irregular.chain(regular).chain(ALIASES.iter().copied())
}

/// The pairs without the map around them, and a message for each key that is both in it and beside it.
fn unwrapped(pairs: Vec<(String, ConfigValue)>) -> (Vec<(String, ConfigValue)>, Vec<String>) {
    let (mut keys, mut conflicts) = (Vec::new(), Vec::new());
    let mut wrapped = Vec::new();
    for (key, value) in pairs {
        match value {
            ConfigValue::Map(inner) if WRAPPERS.contains(&key.as_str()) => {
                wrapped.extend(inner.into_iter().map(|(name, value)| (key.clone(), name, value)));
            }
            value => keys.push((key, value)),
        }
    }
    for (wrapper, name, value) in wrapped {
        if !is_section(&name, &value) && keys.iter().any(|(key, _)| *key == name) {
            conflicts.push(format!("{wrapper}.{name} and {name} are the same key, and both are set"));
        } else {
            keys.push((name, value));
        }
    }
    (keys, conflicts)
}

fn is_section(key: &str, value: &ConfigValue) -> bool {
    matches!(value, ConfigValue::Map(_)) && SECTIONS.iter().any(|(section, _)| *section == key)
}

/// The pairs with sections replaced by their keys, and a message for each key that has two spellings, of which the first one in
/// the order of the table of keys (not nested) is used. Unknown names keep their section: `cpu.sampel_rate`.
pub fn flattened(pairs: Vec<(String, ConfigValue)>) -> (Vec<(String, ConfigValue)>, Vec<String>) {
    let (pairs, mut conflicts) = unwrapped(pairs);
    let mut flat: Vec<(String, ConfigValue)> = Vec::new();
    let mut nested: Vec<(String, String, ConfigValue)> = Vec::new();
    for (key, value) in pairs {
        match value {
            ConfigValue::Map(names) if SECTIONS.iter().any(|(section, _)| *section == key) => {
                for (name, value) in names {
                    let spelling = format!("{key}.{name}");
                    let known = nested_names().find(|known| known.0 == key && known.1 == name);
                    let of_table = known.map_or_else(|| spelling.clone(), |(_, _, key)| key.to_owned());
                    let value = converted(&of_table, &name, value);
                    nested.push((spelling, of_table, value));
                }
            }
            value => flat.push((key, value)),
        }
    }
    for (spelling, key, value) in nested {
        if flat.iter().any(|(other, _)| *other == key) {
            conflicts.push(format!("{spelling} and {key} are the same key, and both are set"));
        } else {
            flat.push((key, value));
        }
    }
    (flat, conflicts)
}

/// The value of the key: `conditional.enabled` selects one of two, and one name has percents.
fn converted(key: &str, name: &str, value: ConfigValue) -> ConfigValue {
    match (key, name, &value) {
        ("retention", "enabled", ConfigValue::Bool(true)) => "tail".into(),
        ("retention", "enabled", ConfigValue::Bool(false)) => "all".into(),
        ("tail_cpu_share", CPU_PERCENT, ConfigValue::Int(percent)) => ConfigValue::Float(*percent as f64 / 100.0),
        ("tail_cpu_share", CPU_PERCENT, ConfigValue::Float(percent)) => ConfigValue::Float(percent / 100.0),
        ("tail_cpu_share", CPU_PERCENT, ConfigValue::Text(text)) if !text.contains('%') => {
            ConfigValue::Text(format!("{text}%"))
        }
        _ => value,
    }
}

/// The nested spelling closest to a misspelt one.
pub fn nearest_nested(name: &str) -> Option<String> {
    let (section, name) = name.split_once('.')?;
    let known = nested_names().filter(|known| known.0 == section).map(|(_, name, _)| name);
    super::nearest::nearest(name, known).map(|name| format!("{section}.{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, ConfigValue)]) -> ConfigValue {
        ConfigValue::Map(pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
    }

    #[test]
    fn each_nested_name_is_one_key_and_each_key_has_one_nested_name_besides_aliases() {
        let names: Vec<_> = nested_names().collect();
        for (index, (section, name, key)) in names.iter().enumerate() {
            let others = names.iter().skip(index + 1);
            for other in others {
                assert!((other.0, other.1) != (*section, *name), "{section}.{name}");
                assert!(other.2 != *key || ALIASES.contains(other), "{key}");
            }
        }
        assert!(names.contains(&("memory", "sample_rate", "heap_interval")));
        assert!(names.contains(&("memory", "live_samples", "heap_live_samples")));
    }

    #[test]
    fn a_section_becomes_its_keys_and_a_flat_key_takes_precedence() {
        let cpu = map(&[("enabled", true.into()), ("sample_rate", ConfigValue::Int(50)), ("sampel_rate", 1.into())]);
        let pairs = vec![("cpu".to_owned(), cpu), ("sample_rate".to_owned(), ConfigValue::Int(70))];
        let (flat, conflicts) = flattened(pairs);
        let expected = [("sample_rate", ConfigValue::Int(70)), ("cpu", true.into()), ("cpu.sampel_rate", 1.into())];
        assert_eq!(flat, expected.map(|(key, value)| (key.to_owned(), value)));
        assert_eq!(conflicts, ["cpu.sample_rate and sample_rate are the same key, and both are set"]);
        assert_eq!(nearest_nested("cpu.sampel_rate").as_deref(), Some("cpu.sample_rate"));
        let percent = map(&[("cpu_threshold_percent", ConfigValue::Int(80))]);
        let (flat, _) = flattened(vec![("conditional".to_owned(), percent)]);
        assert_eq!(flat, [("tail_cpu_share".to_owned(), ConfigValue::Float(0.8))]);
        let (flat, _) = flattened(vec![("cpu".to_owned(), true.into()), ("tags".to_owned(), map(&[("a", 1.into())]))]);
        assert_eq!(flat.len(), 2, "neither a switch nor a map of the user is a section");
    }

    #[test]
    fn a_map_around_all_keys_is_left_out() {
        let cpu = map(&[("sample_rate", ConfigValue::Int(50))]);
        for wrapper in WRAPPERS {
            let wrapped = map(&[("cpu", cpu.clone()), ("wall", true.into()), ("max_stack_depth", 5.into())]);
            let outside =
                [("cpu".to_owned(), map(&[("enabled", true.into())])), ("max_stack_depth".to_owned(), 7.into())];
            let pairs = [((*wrapper).to_owned(), wrapped)].into_iter().chain(outside).collect();
            let (flat, conflicts) = flattened(pairs);
            let expected = [
                ("max_stack_depth", ConfigValue::Int(7)),
                ("wall", true.into()),
                ("cpu", true.into()),
                ("sample_rate", ConfigValue::Int(50)),
            ];
            assert_eq!(flat, expected.map(|(key, value)| (key.to_owned(), value)));
            assert_eq!(
                conflicts,
                [format!("{wrapper}.max_stack_depth and max_stack_depth are the same key, and both are set")]
            );
        }
    }
}
