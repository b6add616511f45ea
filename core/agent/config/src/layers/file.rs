//! The YAML configuration file: one map of keys. Values are typed by the key table.

use crate::error::{Error, ErrorKind};
use crate::keys::nested::{flattened, nested_names, WRAPPERS};
use crate::types::choices::ConfigSource;
use crate::types::value::{ConfigValue, Setting};
use crate::types::yaml::value;
use serde_norway::Value;
use std::path::Path;

/// Maximum size of the file; a configuration is far smaller.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The settings of the file at `path`. Appends a warning for each key that is set twice.
pub(crate) fn settings(path: &str, warnings: &mut Vec<String>) -> Result<Vec<Setting>, Error> {
    let hint = "correct config_file or SPANPROF_CONFIG_FILE, or remove it";
    let unreadable = |cause: String| {
        Error::new(ErrorKind::ConfigFile, format!("the configuration file `{path}` could not be read: {cause}"), hint)
    };
    let (pairs, conflicts) = read_settings(Path::new(path)).map_err(unreadable)?;
    warnings
        .extend(conflicts.into_iter().map(|conflict| format!("{conflict} (file {path}); the nested one is ignored")));
    let source = ConfigSource::File(path.to_owned());
    Ok(pairs.into_iter().map(|(key, value)| Setting { key, value, source: source.clone() }).collect())
}

/// Keys with their values, and the keys that are set twice.
type KeysAndConflicts = (Vec<(String, ConfigValue)>, Vec<String>);

/// Keys and values of the file; the error is the reason why it cannot be read.
pub fn read_settings(path: &Path) -> Result<KeysAndConflicts, String> {
    Ok(flattened(read_map(path)?))
}

/// The map that a file contains.
pub(super) fn read_map(path: &Path) -> Result<Vec<(String, ConfigValue)>, String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        // Reading a pipe would block the start of the program.
        return Err("it is not a regular file".to_owned());
    }
    let size = metadata.len();
    if size > MAX_FILE_BYTES {
        return Err(format!("it has {size} bytes, expected at most {MAX_FILE_BYTES}"));
    }
    parse(&std::fs::read_to_string(path).map_err(|error| error.to_string())?)
}

/// The number of the line that sets a key, in either spelling.
pub fn line_of_key(path: &Path, key: &str) -> Option<usize> {
    let text = std::fs::read_to_string(path).ok()?;
    let lines = without_wrapper(&text);
    let name_of = |line: &str| {
        let name = line.split_once(':').map_or("", |(name, _)| name.trim_end());
        name.trim_matches(['"', '\'']).to_owned()
    };
    let top_level = |wanted: &str| lines.iter().position(|line| name_of(line) == wanted);
    let nested = || {
        let (section, name, _) = nested_names().find(|(_, _, known)| *known == key)?;
        let first = top_level(section)?;
        let mut lines = lines.iter().enumerate().skip(first + 1);
        lines.find(|(_, line)| name_of(line.trim_start()) == name).map(|(index, _)| index)
    };
    // A section may have the name of its switch: `cpu: {enabled: true}`.
    let index = if nested_names().any(|nested| nested.0 == key) {
        nested().or_else(|| top_level(key))
    } else {
        top_level(key).or_else(nested)
    };
    index.map(|index| index + 1)
}

/// The lines of the file. If a map encloses all keys, its lines are returned without its indentation.
fn without_wrapper<'a>(text: &'a str) -> Vec<&'a str> {
    let mut indentation = None;
    let line_of = |line: &'a str| {
        let is_wrapper = |name: &&str| line.strip_prefix(*name).is_some_and(|rest| rest.trim_start().starts_with(':'));
        if WRAPPERS.iter().any(is_wrapper) {
            indentation = Some(usize::MAX);
        } else if let Some(of_wrapper) = &mut indentation {
            let of_line = line.len() - line.trim_start().len();
            if !line.trim().is_empty() && *of_wrapper == usize::MAX {
                *of_wrapper = of_line;
            }
            return &line[of_line.min(*of_wrapper)..];
        }
        line
    };
    text.lines().map(line_of).collect()
}

fn parse(text: &str) -> Result<Vec<(String, ConfigValue)>, String> {
    let document: Value = serde_norway::from_str(text).map_err(|error| error.to_string())?;
    match value(&document) {
        ConfigValue::Null => Ok(Vec::new()),
        ConfigValue::Map(pairs) => Ok(pairs),
        other => Err(format!("expected a map of keys, got {}", other.shown())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_one_map_of_keys() {
        let settings = parse("sample_rate: 19\ntags: {team: a}\nservice_name: 12\n").unwrap();
        assert_eq!(settings[0].1, ConfigValue::Int(19));
        assert_eq!(settings[1].1, ConfigValue::Map(vec![("team".to_owned(), "a".into())]));
        assert!(parse("").unwrap().is_empty());
        assert_eq!(parse("- a\n- b").err().unwrap(), "expected a map of keys, got a list of 2");
    }

    #[test]
    fn the_line_of_a_key_is_found_below_a_map_around_all_keys() {
        let path = std::env::temp_dir().join(format!("spanprof-line-{}.yaml", std::process::id()));
        std::fs::write(&path, "profiling:\n\n  cpu:\n    sample_rate: x\n  max_stack_depth: y\nwall: z\n").unwrap();
        let lines = ["sample_rate", "max_stack_depth", "wall", "gc"].map(|key| line_of_key(&path, key));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(lines, [Some(4), Some(5), Some(6), None]);
    }

    #[test]
    fn a_missing_file_is_an_error_with_its_path() {
        let error = settings("/nonexistent/spanprof.yaml", &mut Vec::new()).err().unwrap();
        assert_eq!(error.kind, ErrorKind::ConfigFile);
        assert!(error.message.contains("/nonexistent/spanprof.yaml"), "{}", error.message);
    }
}
