//! Attributes: key, value and unit. Owned ([`Attribute`]) on a resource, borrowed ([`AttributeRef`]) in a dictionary.

use std::fmt;

/// An owned attribute value. Floats are stored as bits, so that values can be compared and interned.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AttributeValue {
    /// Text.
    String(String),
    /// A whole number.
    Int(i64),
    /// true or false.
    Bool(bool),
    /// A number, as the bits of an `f64` ([`f64::to_bits`]).
    Double(u64),
}

/// An owned attribute: key, value and UCUM unit ("" when it has none).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attribute {
    /// Name.
    pub key: String,
    /// Value.
    pub value: AttributeValue,
    /// UCUM unit; "" when it has none.
    pub unit: String,
}

impl Attribute {
    /// A string attribute without unit.
    pub fn string(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self { key: key.into(), value: AttributeValue::String(value.into()), unit: String::new() }
    }

    /// A whole-number attribute without unit.
    pub fn int(key: impl Into<String>, value: i64) -> Self {
        Self { key: key.into(), value: AttributeValue::Int(value), unit: String::new() }
    }

    /// The same attribute, borrowed.
    pub fn as_ref(&self) -> AttributeRef<'_> {
        AttributeRef { key: &self.key, value: self.value.as_ref(), unit: &self.unit }
    }
}

impl AttributeValue {
    /// The same value, borrowed.
    pub fn as_ref(&self) -> Value<'_> {
        match self {
            Self::String(text) => Value::String(text),
            Self::Int(number) => Value::Int(*number),
            Self::Bool(flag) => Value::Bool(*flag),
            Self::Double(bits) => Value::Double(*bits),
        }
    }
}

/// A borrowed attribute value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value<'a> {
    /// Text.
    String(&'a str),
    /// A whole number.
    Int(i64),
    /// true or false.
    Bool(bool),
    /// A number, as the bits of an `f64` ([`f64::to_bits`]).
    Double(u64),
}

impl Value<'_> {
    /// The same value, owned.
    pub fn to_owned(self) -> AttributeValue {
        match self {
            Self::String(text) => AttributeValue::String(text.to_owned()),
            Self::Int(number) => AttributeValue::Int(number),
            Self::Bool(flag) => AttributeValue::Bool(flag),
            Self::Double(bits) => AttributeValue::Double(bits),
        }
    }
}

/// The text for display and for the comparison in filters.
impl fmt::Display for Value<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::String(text) => out.write_str(text),
            Self::Int(number) => number.fmt(out),
            Self::Bool(flag) => flag.fmt(out),
            Self::Double(bits) => f64::from_bits(*bits).fmt(out),
        }
    }
}

/// A borrowed attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttributeRef<'a> {
    /// Name.
    pub key: &'a str,
    /// Value.
    pub value: Value<'a>,
    /// UCUM unit; "" when it has none.
    pub unit: &'a str,
}

impl AttributeRef<'_> {
    /// The same attribute, owned.
    pub fn to_owned(self) -> Attribute {
        Attribute { key: self.key.to_owned(), value: self.value.to_owned(), unit: self.unit.to_owned() }
    }
}
