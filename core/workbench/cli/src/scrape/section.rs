//! A map of the YAML configuration, read key by key. Each error names the path of its key; a key that was not read is an
//! error with the nearest name. Values are never quoted, since they may be secrets.

use std::time::Duration;

use serde_norway::{Mapping, Value};
use spanprof_answers::failure::Failure;
use spanprof_answers::quantity::ByteCount;
use spanprof_answers::selection::moment;

use crate::nearest::nearest;

/// One map of the configuration, with the keys that were read.
pub(super) struct ConfigSection {
    path: String,
    entries: Mapping,
    read: Vec<&'static str>,
}

impl ConfigSection {
    /// The map `value` at `path`; the path of the document is "".
    pub fn of(value: Value, path: impl Into<String>) -> Result<Self, Failure> {
        let path = path.into();
        match value {
            Value::Mapping(entries) => Ok(Self { path, entries, read: Vec::new() }),
            Value::Null => Ok(Self { path, entries: Mapping::new(), read: Vec::new() }),
            other => Err(wrong(&path, "a map of keys", &other)),
        }
    }

    /// The path of `key`: `targets[0].url`.
    pub fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// The value of `key`; `None` when it is absent or null.
    pub fn value(&mut self, key: &'static str) -> Option<Value> {
        self.read.push(key);
        self.entries.remove(key).filter(|value| !value.is_null())
    }

    /// A text; numbers and booleans are accepted as YAML writes them.
    pub fn text(&mut self, key: &'static str) -> Result<Option<String>, Failure> {
        let path = self.path_of(key);
        self.value(key).map(|value| text(&path, value)).transpose()
    }

    /// A time such as `15s`, or a number of seconds, of at least `min`.
    pub fn duration(&mut self, key: &'static str, min: Duration) -> Result<Option<Duration>, Failure> {
        let path = self.path_of(key);
        let Some(value) = self.value(key) else { return Ok(None) };
        let parsed = match &value {
            Value::Number(number) => number.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            Value::String(text) => moment::parse_duration_ns(text).map(Duration::from_nanos),
            _ => None,
        };
        let year = Duration::from_secs(365 * 86_400);
        match parsed.filter(|duration| (min..=year).contains(duration)) {
            Some(duration) => Ok(Some(duration)),
            None => Err(invalid(&path, &format!("expected a time of at least {min:?}, such as 15s"))),
        }
    }

    /// A size such as `32MiB`.
    pub fn bytes(&mut self, key: &'static str) -> Result<Option<u64>, Failure> {
        let path = self.path_of(key);
        let parsed = self.text(key)?.map(|text| text.parse::<ByteCount>());
        parsed.transpose().map(|count| count.map(|count| count.0)).map_err(|expected| invalid(&path, expected))
    }

    /// A whole number of at least 1.
    pub fn count(&mut self, key: &'static str) -> Result<Option<usize>, Failure> {
        let path = self.path_of(key);
        let Some(value) = self.value(key) else { return Ok(None) };
        let count = value.as_u64().filter(|count| *count > 0).and_then(|count| usize::try_from(count).ok());
        count.map(Some).ok_or_else(|| invalid(&path, "expected a whole number of at least 1"))
    }

    /// The items of a list, each with its path.
    pub fn list(&mut self, key: &'static str) -> Result<Option<Vec<(String, Value)>>, Failure> {
        let path = self.path_of(key);
        match self.value(key) {
            None => Ok(None),
            Some(Value::Sequence(items)) => {
                let at = |(nth, item)| (format!("{path}[{nth}]"), item);
                Ok(Some(items.into_iter().enumerate().map(at).collect()))
            }
            Some(other) => Err(wrong(&path, "a list", &other)),
        }
    }

    /// The entries of a map with free names, each with its path.
    pub fn pairs(&mut self, key: &'static str) -> Result<Vec<(String, String, Value)>, Failure> {
        let path = self.path_of(key);
        match self.value(key) {
            None => Ok(Vec::new()),
            Some(Value::Mapping(entries)) => entries
                .into_iter()
                .map(|(name, value)| match name {
                    Value::String(name) => Ok((format!("{path}.{name}"), name, value)),
                    other => Err(wrong(&path, "names as text", &other)),
                })
                .collect(),
            Some(other) => Err(wrong(&path, "a map", &other)),
        }
    }

    /// Fails when a key was not read.
    pub fn finish(self) -> Result<(), Failure> {
        let Some(unknown) = self.entries.keys().next() else { return Ok(()) };
        let name = unknown.as_str().unwrap_or("?");
        let failure = Failure::new(format!("unknown key `{}`", self.path_of(name)));
        Err(match nearest(name, self.read.iter().copied()) {
            Some(known) => failure.hint(format!("did you mean `{known}`?")),
            None => failure.hint(format!("the keys here are: {}", self.read.join(", "))),
        })
    }
}

/// The text of a scalar value.
pub(super) fn text(path: &str, value: Value) -> Result<String, Failure> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        other => Err(wrong(path, "a text", &other)),
    }
}

/// The error of an invalid value at `path`.
pub(super) fn invalid(path: &str, problem: &str) -> Failure {
    Failure::new(format!("`{path}`: {problem}"))
}

fn wrong(path: &str, expected: &str, got: &Value) -> Failure {
    let got = match got {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Sequence(_) => "a list",
        Value::Mapping(_) => "a map",
        Value::Tagged(_) => "a tag",
    };
    let path = if path.is_empty() { "the document" } else { path };
    invalid(path, &format!("expected {expected}, got {got}"))
}
