//! Reads and writes the values that OTLP/JSON encodes differently from plain JSON: 64-bit numbers as strings, ids as hex,
//! bytes as base64, an empty object for an absent value.

use std::fmt;

use prost::bytes::Bytes;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::messages::HasSchema;
use super::otlp::any_value::Value;
use super::otlp::AnyValue;

/// Whether a field has its default value, which is not written.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The functions that serde's `with` calls for every field.
pub(crate) mod field {
    use super::{Deserializer, JsonField, Serializer};

    pub(crate) fn deserialize<'de, T: JsonField, D: Deserializer<'de>>(source: D) -> Result<T, D::Error> {
        T::read(source)
    }

    pub(crate) fn serialize<T: JsonField, S: Serializer>(value: &T, out: S) -> Result<S::Ok, S::Error> {
        value.write(out)
    }
}

/// A type of a field, with its form in JSON.
pub(crate) trait JsonField: Sized {
    fn read<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error>;
    fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error>;
}

macro_rules! plain {
    ($($type:ty $(, where $message:ident)?;)*) => { $(
        impl$(<$message: HasSchema + DeserializeOwned + Serialize>)? JsonField for $type {
            fn read<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                Self::deserialize(source)
            }

            fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                self.serialize(out)
            }
        }
    )* };
}
plain! { i32; u32; String; Vec<i32>; Vec<String>; Option<M>, where M; Vec<M>, where M; }

/// 64-bit numbers are written as strings.
macro_rules! number {
    ($($type:ty;)*) => { $(
        impl JsonField for $type {
            fn read<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                Whole::deserialize(source).map(|Whole(number)| number)
            }

            fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                out.collect_str(self)
            }
        }

        impl JsonField for Vec<$type> {
            fn read<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                let numbers: Vec<Whole<$type>> = Deserialize::deserialize(source)?;
                Ok(numbers.into_iter().map(|Whole(number)| number).collect())
            }

            fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                out.collect_seq(self.iter().map(<$type>::to_string))
            }
        }
    )* };
}
number! { i64; u64; }

/// Ids are hex digits.
impl JsonField for Vec<u8> {
    fn read<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        hex::decode(&text).map_err(|_| D::Error::custom(format!("expected an id in hex digits, got {text:.40?}")))
    }

    fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&hex::encode(self))
    }
}

/// Other bytes are base64. Our encoder has none.
impl JsonField for Bytes {
    fn read<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        base64(&String::deserialize(source)?).map(Self::from)
    }

    fn write<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("original payloads are not written"))
    }
}

/// A number, possibly as a string.
enum Number {
    Whole(i128),
    Double(f64),
}

struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = Number;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a number, or text of one")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Number, E> {
        Ok(Number::Whole(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Number, E> {
        Ok(Number::Whole(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Number, E> {
        Ok(Number::Double(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Number, E> {
        let number = value.parse().map(Number::Whole).or_else(|_| value.parse().map(Number::Double));
        number.map_err(|_| E::custom(format!("expected a number, got {value:.40?}")))
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(NumberVisitor)
    }
}

struct Whole<T>(T);

impl<'de, T: TryFrom<i128>> Deserialize<'de> for Whole<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let value = match Number::deserialize(source)? {
            Number::Whole(value) => value,
            Number::Double(value) if value.fract() == 0.0 && value.abs() < 9.1e18 => value as i128,
            Number::Double(value) => return Err(D::Error::custom(format!("expected a whole number, got {value}"))),
        };
        T::try_from(value).map(Self).map_err(|_| D::Error::custom(format!("number {value} is out of range")))
    }
}

/// Either alphabet, with or without padding.
fn base64<E: Error>(text: &str) -> Result<Vec<u8>, E> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut bit_count) = (0u32, 0u32);
    for byte in text.trim_end_matches('=').bytes() {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return Err(E::custom("expected bytes in base64")),
        };
        bits = bits << 6 | u32::from(six);
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            bytes.push((bits >> bit_count) as u8);
        }
    }
    Ok(bytes)
}

/// The oneof: an object with one known member or none. Unknown members are ignored, as in protobuf.
struct AnyValueVisitor;

impl<'de> Visitor<'de> for AnyValueVisitor {
    type Value = AnyValue;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an attribute value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AnyValue, A::Error> {
        let mut value = None;
        while let Some(member) = map.next_key::<String>()? {
            value = Some(match member.as_str() {
                "stringValue" => Value::StringValue(map.next_value()?),
                "boolValue" => Value::BoolValue(map.next_value()?),
                "intValue" => Value::IntValue(map.next_value::<Whole<i64>>()?.0),
                "doubleValue" => Value::DoubleValue(match map.next_value()? {
                    Number::Whole(value) => value as f64,
                    Number::Double(value) => value,
                }),
                "arrayValue" => Value::ArrayValue(map.next_value()?),
                "kvlistValue" => Value::KvlistValue(map.next_value()?),
                "bytesValue" => Value::BytesValue(base64(&map.next_value::<String>()?)?),
                "stringValueStrindex" => Value::StringValueStrindex(map.next_value::<Whole<i32>>()?.0),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            });
        }
        Ok(AnyValue { value })
    }
}

impl<'de> Deserialize<'de> for AnyValue {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_map(AnyValueVisitor)
    }
}

impl Serialize for AnyValue {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut map = out.serialize_map(None)?;
        match &self.value {
            None => {}
            Some(Value::StringValue(text)) => map.serialize_entry("stringValue", text)?,
            Some(Value::BoolValue(flag)) => map.serialize_entry("boolValue", flag)?,
            Some(Value::IntValue(number)) => map.serialize_entry("intValue", &number.to_string())?,
            Some(Value::DoubleValue(number)) if number.is_finite() => map.serialize_entry("doubleValue", number)?,
            Some(Value::DoubleValue(number)) => {
                let names = ["NaN", "Infinity", "-Infinity"];
                let name = names[usize::from(number.is_infinite()) + usize::from(*number == f64::NEG_INFINITY)];
                map.serialize_entry("doubleValue", name)?;
            }
            Some(Value::ArrayValue(array)) => map.serialize_entry("arrayValue", array)?,
            Some(Value::KvlistValue(list)) => map.serialize_entry("kvlistValue", list)?,
            Some(Value::BytesValue(_)) => {
                return Err(serde::ser::Error::custom("attribute values of bytes are not written"))
            }
            Some(Value::StringValueStrindex(index)) => map.serialize_entry("stringValueStrindex", index)?,
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::otlp::{KeyValue, Profile};

    #[test]
    fn integers_are_read_from_strings_and_numbers() {
        let text = r#"{"period":"10000000","timeUnixNano":"18446744073709551615","durationNano":5,"samples":
            [{"values":["1",-2],"timestampsUnixNano":["3"]}],"profileId":"00fF"}"#;
        let profile: Profile = serde_json::from_str(text).unwrap();
        assert_eq!((profile.period, profile.time_unix_nano, profile.duration_nano), (10_000_000, u64::MAX, 5));
        assert_eq!(
            (&profile.samples[0].values[..], &profile.samples[0].timestamps_unix_nano[..]),
            (&[1, -2][..], &[3][..])
        );
        assert_eq!(profile.profile_id, [0x00, 0xff]);
    }

    #[test]
    fn every_type_of_attribute_value_is_read() {
        for (text, expected) in [
            (r#"{"stringValue":"x"}"#, Some(Value::StringValue("x".into()))),
            (r#"{"boolValue":true}"#, Some(Value::BoolValue(true))),
            (r#"{"intValue":"-7"}"#, Some(Value::IntValue(-7))),
            (r#"{"intValue":7}"#, Some(Value::IntValue(7))),
            (r#"{"doubleValue":1.5}"#, Some(Value::DoubleValue(1.5))),
            (r#"{"doubleValue":"-Infinity"}"#, Some(Value::DoubleValue(f64::NEG_INFINITY))),
            (r#"{"bytesValue":"/+8="}"#, Some(Value::BytesValue(vec![0xff, 0xef]))),
            (r#"{"stringValueStrindex":17}"#, Some(Value::StringValueStrindex(17))),
            (r#"{"somethingNew":{"a":[1]}}"#, None),
            ("{}", None),
        ] {
            let pair: KeyValue = serde_json::from_str(&format!(r#"{{"value":{text},"keyStrindex":16}}"#)).unwrap();
            assert_eq!(pair.value.unwrap().value, expected, "{text}");
            assert_eq!(pair.key_strindex, 16);
        }
    }

    #[test]
    fn values_are_written_in_the_form_that_is_read() {
        for (value, expected) in [
            (Value::StringValue("x".into()), r#"{"stringValue":"x"}"#),
            (Value::BoolValue(false), r#"{"boolValue":false}"#),
            (Value::IntValue(-7), r#"{"intValue":"-7"}"#),
            (Value::DoubleValue(1.5), r#"{"doubleValue":1.5}"#),
            (Value::DoubleValue(f64::NAN), r#"{"doubleValue":"NaN"}"#),
            (Value::DoubleValue(f64::INFINITY), r#"{"doubleValue":"Infinity"}"#),
            (Value::DoubleValue(f64::NEG_INFINITY), r#"{"doubleValue":"-Infinity"}"#),
        ] {
            assert_eq!(serde_json::to_string(&AnyValue { value: Some(value) }).unwrap(), expected);
        }
        let profile = Profile { period: 10_000_000, profile_id: vec![0, 0xff], ..Profile::default() };
        assert_eq!(serde_json::to_string(&profile).unwrap(), r#"{"period":"10000000","profileId":"00ff"}"#);
    }

    #[test]
    fn the_error_of_a_number_out_of_range_contains_it() {
        let error = serde_json::from_str::<Profile>(r#"{"timeUnixNano":"-1"}"#).unwrap_err().to_string();
        assert!(error.contains("number -1 is out of range"), "{error}");
        let error = serde_json::from_str::<Profile>(r#"{"profileId":"xyz"}"#).unwrap_err().to_string();
        assert!(error.contains("expected an id in hex digits"), "{error}");
    }
}
