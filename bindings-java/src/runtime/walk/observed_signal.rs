//! Walks over memory other than a plain process, with a record of what the walk met: for recordings and their replay. Part of
//! tests and of builds that record.

use std::sync::atomic::{AtomicU32, Ordering};

use spanprof_signal::Memory;

use super::environment_signal::{WalkEnvironment, WalkFeature};

/// Memory of a walk, and the features that the walk met.
pub struct ObservedMemory<'a, M> {
    pub memory: &'a M,
    /// Bits by `WalkFeature`.
    pub features: &'a AtomicU32,
    /// See [`WalkEnvironment::signal_trampoline`]; 0 if it is unknown.
    pub signal_trampoline: usize,
}

/// The bit of a feature.
pub const fn bit(feature: WalkFeature) -> u32 {
    1 << feature as u32
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
    fn signal_trampoline(self) -> Option<usize> {
        Some(self.signal_trampoline).filter(|code| *code != 0)
    }

    fn met(self, feature: WalkFeature) {
        self.features.fetch_or(bit(feature), Ordering::Relaxed);
    }
}
