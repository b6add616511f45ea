//! The loaded objects with their tables at one time, as handlers see them: replaced as a whole. Safe in handlers.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use crate::end::WalkEnd;
use crate::rule::{RuleNumber, UnwindRule};
use crate::table::UnwindTable;

/// Instructions whose rule is cached: profiles of 2,000 samples have 600 to 1,700 distinct ones.
const CACHED: usize = 4096;
/// The rule of an instruction is cached in one word: the address above this many bits.
const RULE_BITS: u32 = 16;
/// Addresses from here on (five-level paging) are not cached.
const CACHE_END: u64 = 1 << (u64::BITS - RULE_BITS);

/// A mapped file with code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// Addresses of its code.
    pub code: Range<u64>,
    /// Address of its first byte.
    pub base: u64,
    /// Device, inode and path.
    pub file: Arc<str>,
}

/// One loaded object with code.
#[derive(Debug)]
pub(crate) struct ObjectCode {
    pub image: Image,
    pub state: TableState,
    /// Set by walks that need its table.
    pub is_wanted: AtomicBool,
}

impl ObjectCode {
    pub fn new(image: Image, state: TableState) -> Self {
        Self { image, state, is_wanted: AtomicBool::new(false) }
    }

    /// Wakes the drain thread, which builds the table.
    #[cold]
    fn request_table(&self) {
        if !self.is_wanted.swap(true, Ordering::Relaxed) {
            if let Some(inbox) = spanprof_os::inbox_in_use() {
                inbox.wake();
            }
        }
    }
}

/// Whether an object has a table.
#[derive(Clone, Debug)]
pub(crate) enum TableState {
    /// Nothing has asked for it yet.
    Missing,
    Built(Arc<UnwindTable>),
    /// It has no unwind information, or the limit does not allow its table.
    LeftOut,
}

impl TableState {
    /// Memory of the table.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Built(table) => table.bytes(),
            Self::Missing | Self::LeftOut => 0,
        }
    }
}

/// The objects of the process at one time.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Sorted by address.
    objects: Vec<ObjectCode>,
    cache: Box<[AtomicU64]>,
}

impl Snapshot {
    /// `objects` in any order.
    pub fn new(mut objects: Vec<ObjectCode>) -> Self {
        objects.sort_by_key(|object| object.image.code.start);
        Self { objects, cache: (0..CACHED).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Its objects, by address.
    pub fn objects(&self) -> &[ObjectCode] {
        &self.objects
    }

    /// The object with this instruction.
    #[inline]
    pub fn object(&self, address: u64) -> Option<&ObjectCode> {
        let after = self.objects.partition_point(|object| object.image.code.start <= address);
        self.objects.get(after.checked_sub(1)?).filter(|object| object.image.code.contains(&address))
    }

    /// The rule of an instruction.
    #[inline]
    pub fn rule(&self, address: u64) -> Result<UnwindRule, WalkEnd> {
        // Multiplication by the golden ratio spreads neighbors.
        let position = (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 52) as usize;
        let cached = self.cache.get(position).filter(|_| address < CACHE_END);
        if let Some(word) = cached.map(|word| word.load(Ordering::Relaxed)) {
            if word >> RULE_BITS == address {
                return Ok(UnwindRule::of_number(word as RuleNumber));
            }
        }
        let object = self.object(address).ok_or(WalkEnd::OutsideFiles)?;
        match &object.state {
            TableState::Built(table) => {
                let number = table.rule((address - object.image.code.start) as u32);
                if let Some(word) = cached {
                    word.store(address << RULE_BITS | u64::from(number), Ordering::Relaxed);
                }
                Ok(UnwindRule::of_number(number))
            }
            TableState::Missing => {
                object.request_table();
                Err(WalkEnd::TableMissing)
            }
            TableState::LeftOut => Err(WalkEnd::NoTable),
        }
    }

    /// The address at which the function that contains `address` begins. Normal threads only.
    pub fn function_start(&self, address: u64) -> Option<u64> {
        let object = self.object(address)?;
        let TableState::Built(table) = &object.state else { return None };
        table
            .function_start((address - object.image.code.start) as u32)
            .map(|start| object.image.code.start + u64::from(start))
    }
}
