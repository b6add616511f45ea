//! Untyped configuration values, and their conversion to each type. Every type accepts text, for environment variables.
//! Called by the layers of `load`; independent of the keys. Not here: the list of destinations (`destinations`).

use std::collections::BTreeMap;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use super::shape::Shape;
use crate::types::choices::{
    Clock, Compression, ConfigSource, DestinationType, Headers, LinkDetail, NativeFrames, Profiles, Protocol,
};

/// An untyped value of a binding, a file or the environment.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigValue {
    /// Absent: the key is taken from the lower layers.
    Null,
    /// true or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<ConfigValue>),
    /// Pairs in their order.
    Map(Vec<(String, ConfigValue)>),
}

/// One value of a layer.
pub(crate) struct Setting {
    pub key: String,
    pub value: ConfigValue,
    pub source: ConfigSource,
}

impl From<&str> for ConfigValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i32> for ConfigValue {
    fn from(value: i32) -> Self {
        Self::Int(value.into())
    }
}

impl From<bool> for ConfigValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl ConfigValue {
    /// The value in an error message. Maps may contain secrets, so only their keys are shown.
    #[doc(hidden)]
    pub fn shown(&self) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => value.to_string(),
            Self::Text(text) => format!("`{}`", spanprof_profile::redact::without_secrets(text)),
            Self::List(list) => format!("a list of {}", list.len()),
            Self::Map(pairs) => {
                let keys: Vec<_> = pairs.iter().map(|(key, _)| key.as_str()).collect();
                format!("a map with the keys {}", keys.join(", "))
            }
        }
    }

    pub(crate) fn scalar_text(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Bool(value) => Some(value.to_string()),
            Self::Int(value) => Some(value.to_string()),
            Self::Float(value) => Some(value.to_string()),
            Self::Null | Self::List(_) | Self::Map(_) => None,
        }
    }
}

/// A type of a configuration key.
pub(crate) trait ConfigType: Sized {
    /// The values that it accepts.
    const SHAPE: Shape;
    /// Whether error messages must not contain the value.
    const SECRET: bool = false;
    /// The typed value, or `None` when `value` is not of this type.
    fn from_value(value: &ConfigValue) -> Option<Self>;
    /// The problem inside an invalid value, for types whose name does not explain it. Contains no secret.
    fn problem(_value: &ConfigValue) -> Option<String> {
        None
    }
    /// The value as text in a configuration; secrets are masked.
    fn to_text(&self) -> String;
    /// The number that bounds are checked against, in the key's unit.
    fn magnitude(&self) -> Option<f64> {
        None
    }
}

impl ConfigType for bool {
    const SHAPE: Shape = Shape::Switch;

    fn from_value(value: &ConfigValue) -> Option<Self> {
        match value {
            ConfigValue::Bool(value) => Some(*value),
            ConfigValue::Int(0) => Some(false),
            ConfigValue::Int(1) => Some(true),
            ConfigValue::Text(text) => match text.trim().to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" | "on" => Some(true),
                "false" | "0" | "no" | "off" => Some(false),
                _ => None,
            },
            _ => None,
        }
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}

macro_rules! whole_numbers {
    ($($type:ty),+) => {$(
        impl ConfigType for $type {
            const SHAPE: Shape = Shape::WholeNumber;

            fn from_value(value: &ConfigValue) -> Option<Self> {
                match value {
                    ConfigValue::Int(number) => <$type>::try_from(*number).ok(),
                    ConfigValue::Float(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
                        <$type>::try_from(*number as i64).ok()
                    }
                    ConfigValue::Text(text) => whole_number(text).and_then(|number| <$type>::try_from(number).ok()),
                    _ => None,
                }
            }

            fn to_text(&self) -> String {
                self.to_string()
            }

            fn magnitude(&self) -> Option<f64> {
                Some(*self as f64)
            }
        }
    )+};
}

whole_numbers!(u32, u64);

/// Units of byte counts. `KB` is 1024 bytes, as in the settings of other profilers.
const BYTE_UNITS: [(&str, u32); 6] = [("kib", 10), ("mib", 20), ("gib", 30), ("kb", 10), ("mb", 20), ("gb", 30)];
/// Units of durations, per second.
const TIME_UNITS: [(&str, f64); 9] = [
    ("ms", 1e3),
    ("us", 1e6),
    ("µs", 1e6),
    ("s", 1.0),
    ("min", 1.0 / 60.0),
    ("m", 1.0 / 60.0),
    ("h", 1.0 / 3600.0),
    ("d", 1.0 / 86_400.0),
    ("", 1.0),
];

/// A number with an optional unit of bytes.
fn whole_number(text: &str) -> Option<i64> {
    let text = text.trim().to_ascii_lowercase();
    let with_unit = BYTE_UNITS.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, 1i64 << shift)));
    let (digits, factor) = with_unit.unwrap_or((&text, 1));
    digits.trim().parse::<i64>().ok()?.checked_mul(factor)
}

impl ConfigType for Duration {
    const SHAPE: Shape = Shape::Number;

    fn from_value(value: &ConfigValue) -> Option<Self> {
        let seconds = match value {
            ConfigValue::Int(number) => *number as f64,
            ConfigValue::Float(number) => *number,
            ConfigValue::Text(text) => {
                let text = text.trim();
                let (number, per_second) = TIME_UNITS
                    .iter()
                    .find_map(|(unit, per_second)| text.strip_suffix(unit).map(|number| (number, per_second)))?;
                number.trim().parse::<f64>().ok()? / per_second
            }
            _ => return None,
        };
        Duration::try_from_secs_f64(seconds).ok()
    }

    fn to_text(&self) -> String {
        self.as_secs_f64().to_string()
    }

    fn magnitude(&self) -> Option<f64> {
        Some(self.as_secs_f64())
    }
}

impl ConfigType for String {
    const SHAPE: Shape = Shape::Text;

    fn from_value(value: &ConfigValue) -> Option<Self> {
        value.scalar_text()
    }

    fn to_text(&self) -> String {
        self.clone()
    }
}

impl<T: ConfigType> ConfigType for Option<T> {
    const SHAPE: Shape = T::SHAPE;
    const SECRET: bool = T::SECRET;

    fn from_value(value: &ConfigValue) -> Option<Self> {
        T::from_value(value).map(Some)
    }

    fn problem(value: &ConfigValue) -> Option<String> {
        T::problem(value)
    }

    fn to_text(&self) -> String {
        self.as_ref().map(T::to_text).unwrap_or_default()
    }

    fn magnitude(&self) -> Option<f64> {
        self.as_ref().and_then(T::magnitude)
    }
}

macro_rules! choice_types {
    ($($type:ty),+ $(,)?) => {$(
        impl ConfigType for $type {
            const SHAPE: Shape = Shape::Choice(<$type>::TEXTS);

            fn from_value(value: &ConfigValue) -> Option<Self> {
                match value {
                    ConfigValue::Text(text) => Self::from_text(text),
                    _ => None,
                }
            }

            fn to_text(&self) -> String {
                self.text().to_owned()
            }
        }
    )+};
}

choice_types!(Clock, NativeFrames, Profiles, Protocol, Compression, LinkDetail, DestinationType);

impl ConfigType for BTreeMap<String, String> {
    const SHAPE: Shape = Shape::TextMap;

    fn from_value(value: &ConfigValue) -> Option<Self> {
        pairs(value).map(|pairs| pairs.into_iter().collect())
    }

    fn to_text(&self) -> String {
        let pairs: Vec<_> = self.iter().map(|(key, value)| format!("{key}={value}")).collect();
        pairs.join(",")
    }
}

impl ConfigType for Headers {
    const SHAPE: Shape = Shape::TextMap;
    const SECRET: bool = true;

    fn from_value(value: &ConfigValue) -> Option<Self> {
        pairs(value).map(Self::new)
    }

    fn to_text(&self) -> String {
        let pairs: Vec<_> = self.names().map(|name| format!("{name}=***")).collect();
        pairs.join(",")
    }
}

fn pairs(value: &ConfigValue) -> Option<Vec<(String, String)>> {
    match value {
        ConfigValue::Map(pairs) => {
            pairs.iter().map(|(key, value)| Some((key.clone(), value.scalar_text()?))).collect::<Option<Vec<_>>>()
        }
        ConfigValue::Text(text) => baggage_pairs(text),
        _ => None,
    }
}

/// Parses W3C Baggage without properties: `k=v,k2=v2`, names and values percent-decoded.
pub(crate) fn baggage_pairs(text: &str) -> Option<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    for member in text.split(',') {
        let member = member.trim();
        if member.is_empty() {
            continue;
        }
        let (key, value) = member.split_once('=')?;
        let key = percent_decoded(key.trim())?;
        if key.is_empty() {
            return None;
        }
        pairs.push((key, percent_decoded(value.trim())?));
    }
    Some(pairs)
}

fn percent_decoded(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(|text| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_values_are_percent_decoded_as_w3c_baggage() {
        let pairs = baggage_pairs("Authorization=Basic%20dXNlcjpwYXNz%3D%3D, x-scope-orgid = team%2Ca ,").unwrap();
        assert_eq!(pairs[0], ("Authorization".to_owned(), "Basic dXNlcjpwYXNz==".to_owned()));
        assert_eq!(pairs[1], ("x-scope-orgid".to_owned(), "team,a".to_owned()));
        assert_eq!(baggage_pairs("no-equals-sign"), None);
    }

    #[test]
    fn a_percent_sign_without_two_hex_digits_is_literal() {
        assert_eq!(percent_decoded("100%"), Some("100%".to_owned()));
        assert_eq!(percent_decoded("%zz%41"), Some("%zzA".to_owned()));
    }

    #[test]
    fn sizes_and_durations_may_have_a_unit() {
        assert_eq!(u64::from_value(&"16 MiB".into()), Some(16 << 20));
        assert_eq!(u64::from_value(&"512KB".into()), Some(512 << 10));
        assert_eq!(u64::from_value(&"2MB".into()), Some(2 << 20));
        assert_eq!(Duration::from_value(&"250ms".into()), Some(Duration::from_millis(250)));
        assert_eq!(Duration::from_value(&"5m".into()), Some(Duration::from_secs(300)));
        assert_eq!(Duration::from_value(&"1.5h".into()), Some(Duration::from_secs(5400)));
        assert_eq!(Duration::from_value(&"2s".into()), Some(Duration::from_secs(2)));
        assert_eq!(Duration::from_value(&"15 us".into()), Some(Duration::from_micros(15)));
        assert_eq!(Duration::from_value(&ConfigValue::Float(-1.0)), None);
    }

    #[test]
    fn headers_as_text_or_debug_output_contain_no_secret() {
        let headers = Headers::new([("Authorization".to_owned(), "Bearer marker".to_owned())]);
        assert!(!format!("{headers:?}{}", headers.to_text()).contains("marker"));
    }
}
