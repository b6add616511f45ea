//! Documents that are generated from the table of keys.

mod page;
mod schema;
