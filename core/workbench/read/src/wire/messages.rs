//! `messages!` declares the protobuf messages of a format, one row per field. A row gives the field's number and type, and the
//! memory that one occurrence (or one packed element) costs: prost decodes by it, and [`super::scan`] limits by it.
//!
//! ```text
//! messages! { json;
//!     Sample {
//!         [1 int32] stack_index: i32;
//!         [2 int32, repeated] attribute_indices: Vec<i32>, INDEX_BYTES;
//!     }
//! }
//! ```
//!
//! `INDEX_BYTES, StackDepth` in place of `INDEX_BYTES` selects another [`super::scan::ListLimit`] than `Entries`. Rows after
//! `scanned only` are limited but not decoded. `json;` in front adds the JSON form of OTLP, `protobuf;` adds none.

use super::scan::Schema;

/// Bytes per element of an integer list: message with growth, and the model's copy.
pub(super) const INDEX_BYTES: usize = 12;
pub(super) const NUMBER_BYTES: usize = 24;

/// A message, or a field that contains messages.
pub(crate) trait HasSchema {
    fn schema() -> &'static Schema;
}

impl<T: HasSchema> HasSchema for Option<T> {
    fn schema() -> &'static Schema {
        T::schema()
    }
}

impl<T: HasSchema> HasSchema for Vec<T> {
    fn schema() -> &'static Schema {
        T::schema()
    }
}

macro_rules! messages {
    (json; $($messages:tt)*) => {
        messages! {
            @ derive(serde::Deserialize, serde::Serialize);
            serde(default, rename_all = "camelCase");
            serde(with = "crate::wire::json::field", skip_serializing_if = "crate::wire::json::is_default");
            $($messages)*
        }
    };
    // Without serde: attributes without effect in place of its attributes.
    (protobuf; $($messages:tt)*) => {
        messages! { @ cfg(all()); cfg(all()); cfg(all()); $($messages)* }
    };
    (@ $derive:meta; $each_message:meta; $each_field:meta; $(
        $(#[$attribute:meta])* $message:ident {
            $([$tag:tt $($wire:tt)*] $field:ident: $type:ty $(, $bytes:expr $(, $limit:ident)?)?;)*
            $(scanned only $([$only_tag:tt $($only_wire:tt)*] $only:ident: $only_type:ty, $only_bytes:expr;)*)?
        }
    )*) => { $(
        $(#[$attribute])*
        #[derive(Clone, PartialEq, prost::Message)]
        #[$derive]
        #[$each_message]
        pub(crate) struct $message {
            $(#[prost($($wire)*, tag = $tag)] #[$each_field] pub $field: $type,)*
        }

        impl $crate::wire::messages::HasSchema for $message {
            $crate::wire::messages::schema! {
                $([$tag $($wire)*] $field: $type $(, $bytes $(, $limit)?)?;)*
                $($([$only_tag $($only_wire)*] $only: $only_type, $only_bytes;)*)?
            }
        }
    )* };
}

/// The function of [`HasSchema`], from the rows of `messages!`.
macro_rules! schema {
    ($([$tag:tt $($wire:tt)*] $field:ident: $type:ty $(, $bytes:expr $(, $limit:ident)?)?;)*) => {
        fn schema() -> &'static $crate::wire::scan::Schema {
            use $crate::wire::{messages::{kind, limit}, scan::{Schema, SchemaField}};
            static SCHEMA: Schema = Schema {
                fields: &[$(SchemaField {
                    number: $tag,
                    name: stringify!($field),
                    kind: kind!([$($wire)*] $type),
                    memory_bytes: 0 $(+ $bytes)?,
                    limit: limit!($($($limit)?)?),
                },)*],
            };
            &SCHEMA
        }
    };
}

/// The kind of a field from prost's words.
#[rustfmt::skip]
macro_rules! kind {
    ([message $($label:tt)*] $type:ty) => {
        $crate::wire::scan::FieldKind::Message(<$type as $crate::wire::messages::HasSchema>::schema)
    };
    ([string $($label:tt)*] $type:ty) => { $crate::wire::scan::FieldKind::Text };
    ([bytes $($label:tt)*] $type:ty) => { $crate::wire::scan::FieldKind::Bytes };
    ([fixed64] $type:ty) => { $crate::wire::scan::FieldKind::Fixed64 };
    ([double] $type:ty) => { $crate::wire::scan::FieldKind::Fixed64 };
    ([fixed64, repeated] $type:ty) => { $crate::wire::scan::FieldKind::Fixed64s };
    ([$varint:ident] $type:ty) => { $crate::wire::scan::FieldKind::Varint };
    ([$varint:ident, repeated] $type:ty) => { $crate::wire::scan::FieldKind::Varints };
}

#[rustfmt::skip]
macro_rules! limit {
    () => { $crate::wire::scan::ListLimit::Entries };
    ($limit:ident) => { $crate::wire::scan::ListLimit::$limit };
}

pub(crate) use {kind, limit, messages, schema};
