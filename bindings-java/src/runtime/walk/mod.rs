//! The stack walker: from the registers of an interrupted Java thread to raw frames, leaf first. Generic over the memory that
//! it reads ([`environment_signal::WalkEnvironment`]): that of this process in handlers, recorded words in tests. Not here:
//! offsets and addresses of the VM (`layout`), and names (`names`).

mod attribution_signal;
pub mod code_heap_signal;
mod compiled_signal;
pub mod environment_signal;
pub mod frame_state_signal;
pub mod instructions_signal;
#[cfg(not(target_arch = "x86_64"))]
mod instructions_unsupported_signal;
mod interpreted_signal;
mod machine_code_signal;
pub mod method_signal;
mod native_signal;
#[cfg(any(test, feature = "record-stacks"))]
pub mod observed_signal;
mod pc_cache_signal;
pub mod prefetch_signal;
#[cfg(any(test, feature = "record-stacks"))]
pub mod recorded_shape_signal;
pub mod registers_signal;
#[cfg(all(test, target_arch = "x86_64"))]
mod replay_tests;
pub mod scopes_signal;
mod stub_signal;
pub mod walker_signal;
#[cfg(test)]
mod walker_tests;
