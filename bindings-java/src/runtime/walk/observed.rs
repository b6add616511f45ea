//! Walks over memory other than a plain process, with a record of what the walk met: for recordings and their replay. Part of
//! tests and of builds that record.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use spanprof_signal::Memory;
use spanprof_unwind::UnwindTables;

use super::environment::{NativeCaller, WalkEnvironment, WalkFeature};

/// The features that a walk met.
#[derive(Debug, Default)]
pub struct WalkObservation {
    /// Bits by `WalkFeature`.
    features: AtomicU32,
    /// The first feature, plus one.
    leaf: AtomicU32,
    /// The numbers of a [`NativeCaller`].
    native_caller: [AtomicUsize; 4],
}

impl WalkObservation {
    /// Whether the walk met the feature.
    pub fn has(&self, feature: WalkFeature) -> bool {
        self.features.load(Ordering::Relaxed) & (1 << feature as u32) != 0
    }

    #[cfg(feature = "record-stacks")]
    /// The caller of the interrupted native code; zeros if the walk met none.
    pub fn native_caller(&self) -> NativeCaller {
        let [pc, sp, fp, context] = self.native_caller.each_ref().map(|number| number.load(Ordering::Relaxed));
        NativeCaller { pc, sp, fp, context }
    }

    /// Whether the interrupted frame has the feature.
    pub fn is_leaf(&self, feature: WalkFeature) -> bool {
        self.leaf.load(Ordering::Relaxed) == feature as u32 + 1
    }
}

/// Memory of a walk, and the features that the walk met.
pub struct ObservedMemory<'a, M> {
    pub memory: &'a M,
    pub observed: &'a WalkObservation,
    /// The caller of the interrupted native code in a replay; `None` where the tables of this process unwind it.
    pub native_caller: Option<NativeCaller>,
}

impl<M> Clone for ObservedMemory<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for ObservedMemory<'_, M> {}

impl<M: Memory> Memory for ObservedMemory<'_, M> {
    fn word(&self, address: usize) -> Option<usize> {
        self.memory.word(address)
    }
}

impl<M: Memory> WalkEnvironment for ObservedMemory<'_, M> {
    fn unwind_tables(self) -> Option<UnwindTables> {
        if self.native_caller.is_none() {
            UnwindTables::borrow()
        } else {
            None
        }
    }

    fn known_native_caller(self) -> Option<NativeCaller> {
        self.native_caller.filter(|caller| caller.pc != 0)
    }

    fn met_native_caller(self, caller: NativeCaller) {
        let NativeCaller { pc, sp, fp, context } = caller;
        for (stored, number) in self.observed.native_caller.iter().zip([pc, sp, fp, context]) {
            stored.store(number, Ordering::Relaxed);
        }
    }

    fn met(self, feature: WalkFeature) {
        let _ = self.observed.leaf.compare_exchange(0, feature as u32 + 1, Ordering::Relaxed, Ordering::Relaxed);
        self.observed.features.fetch_or(1 << feature as u32, Ordering::Relaxed);
    }
}
