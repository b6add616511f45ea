//! Parameters with which the handler finds the profiler's context variable. `context_variable` registers it, `walk::context`
//! looks it up.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Parameters of the lookup; zero until the variable is registered.
pub struct ContextProbe {
    /// Address of the `ContextVar`; 0: none registered, or not readable (thread table in use).
    pub variable: AtomicUsize,
    /// Its hash, folded as the table does.
    pub hash: AtomicU32,
    /// Type of the values that the binding sets; 0: only integers are set.
    pub value_type: AtomicUsize,
    /// Type of bitmap nodes, found by the start-up test.
    pub bitmap_type: AtomicUsize,
    /// Type of array nodes, found by the start-up test.
    pub array_type: AtomicUsize,
    /// Whether the thread table holds the contexts.
    pub thread_table: AtomicU32,
    /// Failed lookups: the sample then has no context.
    pub unreadable: AtomicU64,
}

impl ContextProbe {
    pub const fn new() -> Self {
        Self {
            variable: AtomicUsize::new(0),
            hash: AtomicU32::new(0),
            value_type: AtomicUsize::new(0),
            bitmap_type: AtomicUsize::new(0),
            array_type: AtomicUsize::new(0),
            thread_table: AtomicU32::new(0),
            unreadable: AtomicU64::new(0),
        }
    }

    /// Enables lookups of `variable`, which is stored last: a handler that sees the variable also sees the types.
    pub fn register(&self, variable: usize, hash: u32, types: NodeTypes) {
        self.hash.store(hash, Ordering::Relaxed);
        self.bitmap_type.store(types.bitmap, Ordering::Relaxed);
        self.array_type.store(types.array, Ordering::Relaxed);
        self.variable.store(variable, Ordering::Release);
    }

    /// The table cannot be read on this interpreter: the binding writes each change to the thread table instead.
    pub fn use_thread_table(&self) {
        self.variable.store(0, Ordering::Release);
        self.thread_table.store(1, Ordering::Release);
    }

    /// The registered variable, its hash and the types of the table's nodes.
    #[cfg(any(test, feature = "record-stacks"))]
    pub fn parameters(&self) -> (usize, u32, NodeTypes) {
        let types = NodeTypes {
            bitmap: self.bitmap_type.load(Ordering::Relaxed),
            array: self.array_type.load(Ordering::Relaxed),
        };
        (self.variable.load(Ordering::Acquire), self.hash.load(Ordering::Relaxed), types)
    }

    /// Number of failed lookups.
    pub fn unreadable(&self) -> u64 {
        self.unreadable.load(Ordering::Relaxed)
    }
}

/// Addresses of the types of the table's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeTypes {
    /// Nodes with a bitmap and pairs.
    pub bitmap: usize,
    /// Nodes with 32 children.
    pub array: usize,
}
