//! Makes every system call of the profiler: clocks, threads, process, native symbols; never knows a profile, a configuration or a
//! language, only the handlers of `spanprof-signal`.
//!
//! The folders, each of which uses only those before it: `memory`, `symbols`, `threads`, `process`, `clocks`. Used by the engine,
//! and by bindings for threads and process data.

mod clocks;
mod fork;
mod fork_exclusion;
mod memory;
mod process;
pub mod random;
mod reserve_allocator;
mod symbols;
mod system_calls;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod threads;
mod time;
mod timer;

pub use clocks::clock_probe::probe_clock;
pub use clocks::clock_types::{
    ClockChoice, ClockCounters, ClockError, ClockInUse, ClockSettings, CpuAccount, LiveThread,
};
pub use clocks::thread_clocks::Clocks;
pub use clocks::thread_start::{start_own_thread, StartedThread};
pub use fork::{install_fork_hook, reset_in_child_by};
pub use fork_exclusion::{exclude_forks, iterate_loaded_objects};
pub use memory::arenas::use_one_arena;
pub use memory::fault_guard::{fault_guard_owned, install_fault_guard, restore_fault_guard};
pub use memory::inboxes::{inbox, inbox_in_use, use_inbox};
pub use memory::live_sets::{live_set, new_live_set};
pub use memory::mapped_file::MappedFile;
pub use memory::mapping::{has_address_space, START_BYTES};
pub use process::children::{children_cut_off, register_child, unregister_child};
pub use process::crash_marker::{
    begin_crash_marker, crash_marker_directory, end_crash_marker, keep_crash_marker, sweep_crash_markers,
};
pub use process::info::{age_of_group_leader, resident_bytes};
pub use process::inherited_listener::{close_in_children, forget_close_in_children};
pub use process::library_copies::{announce_copy, withdraw_copy, OtherCopy};
pub use process::memory_limit::{memory_limit, MemoryLimit};
pub use process::peak_file::{
    is_process_running, is_unlocked, peak_files, pid_namespace, process_start_ticks, PeakFile, CRASH_EXTENSION,
    PEAK_EXTENSION,
};
pub use process::quota::{allowed_processors, cpu_group, cpu_quota, machine_cpu_ticks, CpuGroup};
pub use process::standard_error::{
    forget_standard_error, has_standard_error, remember_standard_error, write_to_standard_error,
};
pub use process::termination_signal::{
    install_termination_handler, is_terminating, raise_termination, remove_termination_handler,
};
pub use reserve_allocator::{is_reserve_low, reserve_bytes_served, ReserveAllocator};
pub use symbols::file_symbols::{is_file_of, FileFunction, FileSymbols};
pub use symbols::loaded_object::{
    code_state, exported_function_bytes, is_own_code, native_object, pin_library, NativeObject,
};
pub use symbols::object_file::ObjectFile;
pub use symbols::object_history::{
    are_objects_listed, forget_objects, loader_counts, refresh_objects, CodeState, LoadedObject, LoaderCounts,
};
pub use symbols::symbol_file::SymbolFile;
pub use system_calls::{may_use, refused_calls, CallRefusal, SystemCall};
pub use threads::listing::{name_current_thread, thread_count, thread_id, thread_ids, thread_name};
pub use threads::own_threads::{count_own_work, host_thread_ids, own_cpu_ns, OwnThread};
pub use threads::per_process::PerProcess;
pub use threads::thread_state::{
    run_delay_ns, signal_ends_wait, system_call_wait, thread_state, SystemCallWait, ThreadState,
};
pub use threads::walk::walk_other_thread;
pub use threads::{thread_context, thread_sampling};
pub use time::{
    current_thread_cpu_ns, kernel_tick_hz, load_clock_gettime, monotonic_ns, process_cpu_ns, thread_cpu_ns, unix_ns,
};

pub use spanprof_signal::{Inbox, WakeReason};
