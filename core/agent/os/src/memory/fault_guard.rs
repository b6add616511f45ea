//! The handler that turns faults of guarded reads into failed reads: its installation. Not here: the reads, and the handler
//! (`spanprof_signal::guarded`).

use crate::system_calls::{may_use, SystemCall};
use spanprof_signal::guarded;
use std::sync::Mutex;

/// Installs the handler that turns faults of guarded reads into failed reads, or reinstalls it over a replacement.
/// False when the kernel refuses; guarded reads are system calls then.
pub fn install_fault_guard() -> bool {
    // Reads use the kernel while the guard is not installed.
    may_use(SystemCall::ProcessVmReadv);
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    // In a forked child a parent thread may have held the lock at the fork. The guard was inherited: skip.
    match ONE_AT_A_TIME.try_lock() {
        Ok(_one) => guarded::install(),
        Err(_) => fault_guard_owned(),
    }
}

/// True while our fault handler is installed; guarded reads are direct loads only then.
pub fn fault_guard_owned() -> bool {
    guarded::check_installed()
}

/// Installs our fault handler again if another one replaced it.
pub fn restore_fault_guard() {
    if !fault_guard_owned() {
        install_fault_guard();
    }
}
