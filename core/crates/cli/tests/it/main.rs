//! Integration tests of the command: real processes, sockets and files.

mod client;
mod command_line;
mod comparison;
mod fixture;
mod heap;
mod hostile;
mod query;
mod receive;
mod storage;
