//! The only place with network and files. Knows bytes, not samples.
#![forbid(unsafe_code)]
