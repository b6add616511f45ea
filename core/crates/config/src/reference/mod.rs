//! Documents that are generated from the table of keys.

mod reference;
mod schema;
