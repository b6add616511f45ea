//! The stack walker: from the registers of an interrupted Java thread to raw frames, leaf first. Generic over the memory that
//! it reads ([`environment::WalkEnvironment`]): process memory in handlers, recorded words in tests. Not here:
//! offsets and addresses of the VM (`vm::layout`), and names (`names`).
//!
//! This folder and `capture` import only each other, the layout folder `vm`, and code that is safe in handlers. Code that
//! installs, allocates or locks stands outside. `cargo xtask tidy` checks it.

mod attribution;
pub mod code_heap;
mod compiled;
pub mod environment;
pub mod frame_state;
pub mod instructions;
#[cfg(not(target_arch = "x86_64"))]
mod instructions_unsupported;
mod interpreted;
mod machine_code;
pub mod method;
mod native;
#[cfg(any(test, feature = "record-stacks"))]
pub mod observed;
mod pc_cache;
pub mod prefetch;
#[cfg(any(test, feature = "record-stacks"))]
pub mod recorded_shape;
pub mod registers;
pub mod scopes;
mod stack_pointer;
mod stub;
pub mod walker;
#[cfg(test)]
mod walker_tests;
