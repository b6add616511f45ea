//! Converts attribute values of the wire to those of the model and resolves references. Limits the copied text: many small
//! references to one long string would otherwise need unbounded memory.

use super::super::{DecodeError, DecodeLimits};
use super::tables::{lookup, DecodedTables};
use super::WHAT;
use crate::wire::otlp as wire;
use crate::wire::otlp::any_value::Value as Wire;
use spanprof_profile::{Attribute, AttributeValue};

/// Remaining bytes of text that may be copied.
pub(super) struct CopyBudget {
    left: usize,
    limit: usize,
}

impl CopyBudget {
    pub fn new(limits: &DecodeLimits) -> Self {
        Self { left: limits.memory_bytes, limit: limits.memory_bytes }
    }

    pub fn copy(&mut self, text: &str, at: impl FnOnce() -> String) -> Result<String, DecodeError> {
        match self.left.checked_sub(text.len()) {
            Some(left) => {
                self.left = left;
                Ok(text.to_owned())
            }
            None => Err(DecodeError {
                what: WHAT,
                at: at(),
                expected: format!("references to at most {} bytes of text", self.limit),
                got: "more".to_owned(),
            }),
        }
    }
}

/// Owned attributes of a resource.
pub(super) fn owned_attributes(
    attributes: &[wire::KeyValue],
    tables: &DecodedTables<'_>,
    budget: &mut CopyBudget,
    at: impl Fn() -> String,
) -> Result<Vec<Attribute>, DecodeError> {
    let one = |(nth, attribute): (usize, &wire::KeyValue)| {
        let path = || format!("{}[{nth}]", at());
        let key = match attribute.key_strindex {
            0 => attribute.key.as_str(),
            index => lookup(tables.texts, index, || format!("{}.key_strindex", path()))?,
        };
        let key = budget.copy(key, path)?;
        let value = match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
            Some(Wire::StringValueStrindex(index)) => {
                let text = lookup(tables.texts, *index, || format!("{}.value.string_value_strindex", path()))?;
                AttributeValue::String(budget.copy(text, path)?)
            }
            None => AttributeValue::String(String::new()),
            Some(value) => match scalar(value) {
                Some(scalar) => scalar,
                None => {
                    let mut text = String::new();
                    write_text(value, tables, budget, &mut text, &path)?;
                    AttributeValue::String(text)
                }
            },
        };
        Ok(Attribute { key, value, unit: String::new() })
    };
    attributes.iter().enumerate().map(one).collect()
}

/// A scalar value; `None` for references, bytes, arrays and lists.
pub(super) fn scalar(value: &Wire) -> Option<AttributeValue> {
    Some(match value {
        Wire::StringValue(text) => AttributeValue::String(text.clone()),
        Wire::BoolValue(flag) => AttributeValue::Bool(*flag),
        Wire::IntValue(number) => AttributeValue::Int(*number),
        Wire::DoubleValue(number) => AttributeValue::Double(number.to_bits()),
        _ => return None,
    })
}

/// Any value as text: JSON for arrays and lists, hex digits for bytes.
pub(super) fn write_text(
    value: &Wire,
    tables: &DecodedTables<'_>,
    budget: &mut CopyBudget,
    out: &mut String,
    at: &dyn Fn() -> String,
) -> Result<(), DecodeError> {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let nested = |value: Option<&wire::AnyValue>, budget: &mut CopyBudget, out: &mut String| match value {
        Some(wire::AnyValue { value: Some(value) }) => write_text(value, tables, budget, out, at),
        _ => {
            out.push_str("null");
            Ok(())
        }
    };
    match value {
        Wire::StringValue(text) => out.push_str(&quoted(&budget.copy(text, at)?)),
        Wire::StringValueStrindex(index) => {
            let text = lookup(tables.texts, *index, || format!("{}.value.string_value_strindex", at()))?;
            out.push_str(&quoted(&budget.copy(text, at)?));
        }
        Wire::BoolValue(flag) => out.push_str(&flag.to_string()),
        Wire::IntValue(number) => out.push_str(&number.to_string()),
        Wire::DoubleValue(number) => out.push_str(&number.to_string()),
        Wire::BytesValue(bytes) => out.push_str(&hex::encode(bytes)),
        Wire::ArrayValue(array) => {
            for (nth, value) in array.values.iter().enumerate() {
                out.push(if nth == 0 { '[' } else { ',' });
                nested(Some(value), budget, out)?;
            }
            out.push_str(if array.values.is_empty() { "[]" } else { "]" });
        }
        Wire::KvlistValue(list) => {
            for (nth, pair) in list.values.iter().enumerate() {
                out.push(if nth == 0 { '{' } else { ',' });
                let key = match pair.key_strindex {
                    0 => pair.key.as_str(),
                    index => lookup(tables.texts, index, || format!("{}.key_strindex", at()))?,
                };
                out.push_str(&quoted(&budget.copy(key, at)?));
                out.push(':');
                nested(pair.value.as_ref(), budget, out)?;
            }
            out.push_str(if list.values.is_empty() { "{}" } else { "}" });
        }
    }
    Ok(())
}
