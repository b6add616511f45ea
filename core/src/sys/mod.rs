//! All access to the operating system: clocks, the list of threads, fork, seccomp probes, native symbols, detection
//! of a second copy of the library. Independent of languages and profiles. Used by the engine, and by bindings for
//! threads and process data.

#[cfg(all(test, feature = "native"))]
pub(crate) mod allocator_run;
#[cfg(all(test, feature = "native"))]
mod allocator_tests;
#[cfg(test)]
mod blocked_signal_tests;
#[cfg(feature = "native")]
mod calling_thread_walk_signal;
mod cgroups;
mod children;
mod clock_choice;
mod clock_snapshot;
mod clock_state;
mod clock_types;
mod clocks;
#[cfg(test)]
mod cost_tests;
mod crash_marker;
#[cfg(all(test, feature = "native"))]
mod debug_info_tests;
mod exported_symbols;
mod file_symbols;
mod fork;
#[cfg(test)]
mod fork_delivery_tests;
#[cfg(test)]
mod fork_live_tests;
#[cfg(test)]
pub(crate) mod fork_tests;
mod inboxes;
mod inherited_listener;
mod library_copies;
mod live_sets;
#[cfg(test)]
pub(crate) mod live_tests;
#[cfg(feature = "native")]
mod mapped_file;
mod mapping;
mod memory_limit;
mod native_signal;
#[cfg(feature = "native")]
mod other_thread_walk;
mod own_threads;
mod peak_file;
mod per_process;
mod perf;
#[cfg(test)]
mod perf_tests;
mod process;
#[cfg(feature = "native")]
mod profiled_allocator_signal;
mod quota;
mod registry;
mod reserve_allocator;
mod scan_schedule;
#[cfg(test)]
mod scan_tests;
#[cfg(test)]
mod signal_claim_tests;
mod state_file;
mod system_calls;
mod termination_signal;
pub mod thread_context;
#[cfg(feature = "native")]
mod thread_sampling;
mod thread_start;
mod thread_state;
mod threads;
mod time;
mod timer;
#[cfg(feature = "native")]
mod unwind_tables;
mod walk;

#[cfg(feature = "native")]
pub(crate) use calling_thread_walk_signal::{walk_calling_thread, WalkStart};
pub use children::{children_cut_off, register_child, unregister_child};
pub use clock_types::{ClockChoice, ClockCounters, ClockError, ClockInUse, ClockSettings, CpuAccount, LiveThread};
pub use clocks::Clocks;
pub use crash_marker::{
    begin_crash_marker, crash_marker_directory, end_crash_marker, keep_crash_marker, sweep_crash_markers,
};
pub use file_symbols::FileSymbols;
#[cfg(feature = "native")]
pub(crate) use file_symbols::{first_page_hash, is_loaded_from};
pub use fork::{fork_generation, install_fork_hook};
pub use inboxes::{inbox, inbox_in_use, use_inbox};
pub use inherited_listener::{close_in_children, forget_close_in_children};
pub use library_copies::{announce_copy, withdraw_copy, OtherCopy};
pub use live_sets::{live_set, new_live_set};
#[cfg(feature = "native")]
pub(crate) use mapped_file::MappedFile;
pub use mapping::has_address_space;
pub use memory_limit::{memory_limit, MemoryLimit};
pub use native_signal::{capture_native, copy_stack};
#[cfg(feature = "native")]
pub use other_thread_walk::{walk_copied_stack, walk_waiting_thread};
#[cfg(feature = "native")]
pub use own_threads::host_thread_ids;
pub use own_threads::{own_cpu_ns, OwnThread};
pub use peak_file::{
    is_process_running, is_unlocked, peak_files, pid_namespace, process_start_ticks, PeakFile, CRASH_EXTENSION,
    PEAK_EXTENSION,
};
pub use per_process::PerProcess;
pub use process::{is_own_code, native_symbol, pin_library, resident_bytes, LoadedObject, NativeSymbol};
#[cfg(feature = "native")]
pub use profiled_allocator_signal::{probe_allocator, Profiled, ALLOCATOR_HOOK_FILE};
pub use quota::{allowed_processors, cpu_group, cpu_quota, CpuGroup};
pub use reserve_allocator::{is_reserve_low, reserve_bytes_served, ReserveAllocator};
pub use system_calls::{may_use, SystemCall};
pub use termination_signal::{
    install_termination_handler, is_terminating, raise_termination, remove_termination_handler,
};
pub use thread_start::{start_own_thread, StartedThread};
pub(crate) use thread_state::signal_ends_wait;
pub use thread_state::{run_delay_ns, system_call_wait, thread_state, SystemCallWait, ThreadState};
pub use threads::{name_current_thread, thread_count, thread_id, thread_ids, thread_name};
pub use time::{
    current_thread_cpu_ns, kernel_tick_hz, load_clock_gettime, monotonic_ns, process_cpu_ns, thread_cpu_ns, unix_ns,
};
#[cfg(feature = "native")]
pub use unwind_tables::load_unwind_tables;
pub use walk::walk_other_thread;

pub use spanprof_signal::{Inbox, WakeReason};

/// Installs the handler that turns faults of guarded reads into failed reads, or reinstalls it over a replacement.
/// False when the kernel refuses; guarded reads are system calls then.
pub fn install_fault_guard() -> bool {
    // Reads use the kernel while the guard is not installed.
    may_use(SystemCall::ProcessVmReadv);
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    // In a forked child a parent thread may have held the lock at the fork. The guard was inherited: skip.
    match ONE_AT_A_TIME.try_lock() {
        Ok(_one) => spanprof_signal::guarded::install(),
        Err(_) => fault_guard_owned(),
    }
}

/// Whether our fault handler is installed; guarded reads are direct loads only then.
pub fn fault_guard_owned() -> bool {
    spanprof_signal::guarded::check_installed()
}
