//! Types of values, and their conversion from text, YAML and code.

pub mod basic_auth;
pub mod choices;
pub mod duty_cycle;
pub mod endpoint;
pub mod output_format;
pub mod pull;
pub mod redaction;
pub mod retention;
pub mod setting;
pub mod shape;
pub mod share;
mod text_list;
pub mod value;
pub mod yaml;
