//! Integration tests of the command: real processes, sockets and files.

mod client;
mod command_line;
mod comparison;
mod conversion;
mod directories;
#[cfg(target_os = "linux")]
mod doctor;
mod explain;
mod exploring;
mod firefox;
mod fixture;
mod heap;
mod hostile;
mod kill;
mod mcp;
#[cfg(feature = "object-storage")]
mod objects;
mod query;
mod receive;
mod redaction;
mod scrape;
mod spans;
mod storage;
#[cfg(target_os = "linux")]
mod symbolize;
mod terminal;
mod tls;
mod view;
mod viewer;
