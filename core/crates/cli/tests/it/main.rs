//! The command as its users meet it: real processes, real sockets, real files.

mod client;
mod command_line;
mod fixture;
mod hostile;
mod keep;
mod query;
mod receive;
