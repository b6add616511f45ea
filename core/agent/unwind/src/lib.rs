//! Unwinds native stacks in signal handlers and allocator hooks; never knows a language. `build` turns the unwind information of
//! loaded files into compact tables on normal threads; `walk` follows a stack by them, without allocation, lock or DWARF. What a walk
//! cannot continue, such as generated code, its caller continues with the exact registers.
//!
//! The modules, each of which uses only those before it: `end`, `registers`, `rule` · `table` · `snapshot` · `walk` · `build`.

mod build;
mod end;
#[cfg(any(test, feature = "testing"))]
mod foreign_table_testing;
mod registers;
mod rule;
#[cfg(all(test, target_arch = "x86_64"))]
mod single_step_tests;
mod snapshot;
mod table;
mod walk;
#[cfg(test)]
mod walk_tests;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Once;

use spanprof_signal::{BorrowedValue, Memory, Published};

pub use build::{build_cpu_ns, refresh, stats, UnwindTableStats};
pub use end::WalkEnd;
#[cfg(any(test, feature = "testing"))]
pub use foreign_table_testing::walks_by_table_of;
pub use registers::{return_address, Registers};
use snapshot::Snapshot;
pub use walk::{is_indirect_call, NativeFrame, Walk};

static SNAPSHOT: Published<Snapshot> = Published::new();

static SHOWS_NATIVE_CALLEES: AtomicBool = AtomicBool::new(true);
static SHOWS_RUNTIME: AtomicBool = AtomicBool::new(false);

/// Sets what stacks of a managed language show (`native_frames`): native functions that its code called, and all functions of its
/// runtime among them.
pub fn show_native_frames(callees: bool, runtime: bool) {
    SHOWS_NATIVE_CALLEES.store(callees, Ordering::Relaxed);
    SHOWS_RUNTIME.store(runtime, Ordering::Relaxed);
}

/// Whether stacks of a managed language show native functions that its code called. Safe in handlers.
pub fn shows_native_callees() -> bool {
    SHOWS_NATIVE_CALLEES.load(Ordering::Relaxed)
}

/// Whether they show all functions of the language's runtime.
pub fn shows_runtime() -> bool {
    SHOWS_RUNTIME.load(Ordering::Relaxed)
}

/// The tables, which stay valid until this is dropped.
pub struct UnwindTables(BorrowedValue<'static, Snapshot>);

impl UnwindTables {
    /// `None` before the first [`refresh`]. Safe in handlers.
    #[inline]
    pub fn borrow() -> Option<Self> {
        SNAPSHOT.borrow().map(Self)
    }

    /// A walk from a function with these registers.
    #[inline]
    pub fn walk<M: Memory>(&self, memory: M, registers: Registers) -> Walk<'_, M> {
        Walk::new(self.0.get(), memory, registers, None)
    }

    /// A walk of the interrupted thread.
    #[inline]
    pub fn walk_interrupted<M: Memory>(&self, memory: M, context: &libc::ucontext_t) -> Walk<'_, M> {
        let saved = std::ptr::from_ref(context) as u64 + registers::CONTEXT_REGISTERS;
        Walk::new(self.0.get(), memory, Registers::interrupted(context), Some(saved))
    }

    /// The code of the loaded file with this address; empty without one.
    #[inline]
    pub fn code_of_file(&self, address: u64) -> Range<u64> {
        self.0.get().object(address).map_or(0..0, |object| object.image.code.clone())
    }

    /// Whether an address is code of a loaded file.
    #[inline]
    pub fn is_in_file(&self, address: u64) -> bool {
        self.0.get().object(address).is_some()
    }
}

/// Prepares for forks of this process; before the first [`refresh`].
pub fn install_fork_reset() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        spanprof_os::reset_in_child_by(|| {
            SNAPSHOT.forget_readers();
            build::BUILD_CPU_NS.store(0, Ordering::Relaxed);
        });
    });
}
