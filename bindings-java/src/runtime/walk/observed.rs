//! Walks over memory other than a plain process, with a record of what the walk met: for recordings and their replay. Part of
//! tests and of builds that record.

use std::sync::atomic::{AtomicU32, Ordering};

use spanprof_signal::Memory;

use super::environment::{WalkEnvironment, WalkFeature};

/// The features that a walk met.
#[derive(Debug, Default)]
pub struct WalkObservation {
    /// Bits by `WalkFeature`.
    features: AtomicU32,
    /// The first feature, plus one.
    leaf: AtomicU32,
}

impl WalkObservation {
    /// Whether the walk met the feature.
    pub fn has(&self, feature: WalkFeature) -> bool {
        self.features.load(Ordering::Relaxed) & (1 << feature as u32) != 0
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
    /// See [`WalkEnvironment::signal_trampoline`]; 0 if it is unknown.
    pub signal_trampoline: usize,
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
        let _ = self.observed.leaf.compare_exchange(0, feature as u32 + 1, Ordering::Relaxed, Ordering::Relaxed);
        self.observed.features.fetch_or(1 << feature as u32, Ordering::Relaxed);
    }
}
