//! The argument of a setter of `ConfigBuilder`, as a program writes it. Integer literals are `i32` without a suffix; text is
//! `&str` or `String`; maps are arrays, vectors or maps of pairs.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::redaction::RedactionRules;
use super::retention::{CpuShare, TailDuration};
use crate::types::choices::Headers;
use spanprof_export::Secret;
use spanprof_profile::redact::RedactionRule;

/// The value of a key, made from what the setter takes. A value of the key's own type is always possible.
pub struct SettingValue<T>(pub(crate) T);

impl<T> From<T> for SettingValue<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl<T> From<T> for SettingValue<Option<T>> {
    fn from(value: T) -> Self {
        Self(Some(value))
    }
}

macro_rules! from_literals {
    ($($literal:ty => $type:ty: $convert:expr;)+) => {
        $(impl From<$literal> for SettingValue<$type> {
            fn from(value: $literal) -> Self {
                Self($convert(value))
            }
        }

        impl From<$literal> for SettingValue<Option<$type>> {
            fn from(value: $literal) -> Self {
                Self(Some($convert(value)))
            }
        })+
    };
}

from_literals! {
    &str => String: str::to_owned;
    &str => Secret: Secret::from;
    // No integer key accepts 0, so a negative number is outside its bounds.
    i32 => u32: |value| u32::try_from(value).unwrap_or(0);
    i32 => u64: |value| u64::try_from(value).unwrap_or(0);
    u32 => u64: u64::from;
    i32 => f64: f64::from;
    f64 => CpuShare: CpuShare;
    Duration => TailDuration: TailDuration::AtLeast;
    Vec<RedactionRule> => RedactionRules: RedactionRules::from;
}

impl<T: Into<String>, const N: usize> From<[T; N]> for SettingValue<Vec<String>> {
    fn from(texts: [T; N]) -> Self {
        Self(texts.into_iter().map(Into::into).collect())
    }
}

macro_rules! from_pairs {
    ($([$($generic:tt)*] $pairs:ty;)+) => {
        $(impl<K: Into<String>, V: Into<String>, $($generic)*> From<$pairs> for SettingValue<BTreeMap<String, String>> {
            fn from(pairs: $pairs) -> Self {
                Self(owned(pairs).collect())
            }
        }

        impl<K: Into<String>, V: Into<String>, $($generic)*> From<$pairs> for SettingValue<Headers> {
            fn from(pairs: $pairs) -> Self {
                Self(Headers::new(owned(pairs)))
            }
        })+
    };
}

from_pairs! {
    [const N: usize] [(K, V); N];
    [] Vec<(K, V)>;
    [S] HashMap<K, V, S>;
}

fn owned<K: Into<String>, V: Into<String>>(
    pairs: impl IntoIterator<Item = (K, V)>,
) -> impl Iterator<Item = (String, String)> {
    pairs.into_iter().map(|(key, value)| (key.into(), value.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::table::{Config, ConfigBuilder};
    use crate::layers::environment::Environment;

    fn built(builder: ConfigBuilder) -> Config {
        builder.load_with(&Environment::default()).unwrap()
    }

    #[test]
    fn setters_take_literals_text_and_pairs() {
        let config = built(
            Config::builder()
                .service_name("checkout")
                .output("flame.html")
                .sample_rate(250)
                .wall_rate(50)
                .heap_interval(65_536)
                .cpu_budget(0)
                .file_max_age(Duration::from_secs(60))
                .tags([("region", "eu")])
                .own_code(["/srv/shop", "com.example."])
                .headers(HashMap::from([("X-Scope-OrgID", "shop")])),
        );
        assert_eq!(config.output.as_deref(), Some("flame.html"));
        assert_eq!((config.sample_rate, config.wall_rate, config.heap_interval), (250, Some(50), 65_536));
        assert_eq!((config.cpu_budget, config.file_max_age), (0.0, Some(Duration::from_secs(60))));
        assert_eq!(config.tags["region"], "eu");
        assert_eq!(config.own_code, ["/srv/shop", "com.example."]);
        assert_eq!(config.headers.names().collect::<Vec<_>>(), ["x-scope-orgid"]);
    }

    #[test]
    fn setters_take_values_of_their_own_type_and_none() {
        let owned = BTreeMap::from([("region".to_owned(), "eu".to_owned())]);
        let builder = Config::builder().tags(owned.clone()).sample_rate(250u32).output(None).wall_rate(Some(50u32));
        let config = built(builder.resource_attributes(vec![("zone", String::from("a"))]));
        assert_eq!((config.tags, config.output, config.wall_rate), (owned, None, Some(50)));
        assert_eq!(config.resource_attributes["zone"], "a");
    }

    #[test]
    fn a_negative_number_is_outside_the_bounds_of_its_key() {
        let error = Config::builder().sample_rate(-5).load_with(&Environment::default()).unwrap_err();
        assert!(error.message.contains("sample_rate must lie between"), "{error}");
    }
}
