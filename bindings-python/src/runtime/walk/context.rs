//! Reads the context id of a thread in the handler: looks up the profiler's context variable in the thread's current
//! `Context`, a hash array mapped trie (HAMT). A lookup takes ~50 ns, without a call or a change of a reference count.
//! Falls back to [`super::thread_context`] when the start-up test failed.
//!
//! Why it is sound: in the handler the thread itself is stopped, a `Context` replaces its immutable table by one store, and
//! each node is checked as it is read. From another thread the read is repeated until two results agree.
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | 3.9 | `PyContext.ctx_vars` (`Include/internal/pycore_context.h`), `PyHamtObject.h_root` (`Include/internal/pycore_hamt.h`), nodes (`Python/hamt.c`), `ob_size` of `int` (`Include/longintrepr.h`) | `table_of`, `walk`, `IntegerForm::SignedSize` |
//! | 3.12 | `lv_tag` of `int` (`Include/cpython/longintrepr.h`); nodes are in `pycore_hamt.h`, with the same fields | `IntegerForm::Tag` |
//! | 3.15 | `context` moved in the thread state | `ThreadLayout::context` |

use std::sync::atomic::{fence, Ordering};

use spanprof_signal::{Context, Memory};

use super::frame::FrameReader;
use super::thread_context::THREAD_CONTEXTS;
use crate::runtime::interpreter::context_probe::{ContextProbe, NodeTypes};
use crate::runtime::interpreter::layout::{fixed, IntegerForm};

/// Result of one lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The variable has no value in this context.
    Unset,
    /// Address of the value.
    Value(usize),
    /// The memory is not a valid table.
    Unreadable,
}

/// Five bits of hash per level and 32 bits of hash: seven levels, then one collision node.
const MAX_LEVELS: u32 = 8;
/// Limit of a collision node (two words per key); larger ones are treated as unreadable.
const MAX_COLLIDING_WORDS: u64 = 64;

/// Folds a Python hash to 32 bits as CPython's HAMT does.
pub const fn folded_hash(hash: i64) -> u32 {
    let folded = (hash as u32) ^ ((hash >> 32) as u32);
    if folded == u32::MAX {
        u32::MAX - 1
    } else {
        folded
    }
}

/// The context of the thread of the `PyThreadState` at `thread`; called in the handler, on that thread.
#[inline]
pub fn read<M: Memory>(reader: &FrameReader<'_, M>, thread: usize) -> Context {
    let probe = &reader.interpreter.context;
    let variable = probe.variable.load(Ordering::Acquire);
    if variable == 0 {
        if probe.thread_table.load(Ordering::Acquire) == 0 {
            return Context::None;
        }
        return as_context(THREAD_CONTEXTS.get(thread as u64));
    }
    match table_of(reader, thread).map(|table| look_up(reader.memory, probe, table, variable)) {
        Some(Lookup::Unset) => Context::None,
        Some(Lookup::Value(value)) => match context_id(reader, value) {
            Some(id) => as_context(id),
            None => unreadable(probe),
        },
        _ => unreadable(probe),
    }
}

/// The context of another thread at one moment, and its version. If two snapshots are equal, the thread stayed in one `Context`
/// and set no variable in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextSnapshot {
    value: Context,
    /// The thread's current `Context` and its table.
    table: (usize, Option<usize>),
    /// The interpreter's count of contexts that the thread has entered and left.
    switches: usize,
}

impl ContextSnapshot {
    pub fn value(&self) -> Context {
        self.value
    }
}

/// The context of another thread; `None` when it changes during the read.
pub fn read_other<M: Memory>(reader: &FrameReader<'_, M>, thread: usize) -> Option<ContextSnapshot> {
    let context = reader.interpreter.layout.thread.context;
    let version = || {
        let switches = reader.word(thread, context.checked_add(8)?)?;
        fence(Ordering::Acquire);
        let table = (reader.word(thread, context)?, table_of(reader, thread));
        Some((switches, table))
    };
    let (switches, table) = version()?;
    let value = read(reader, thread);
    fence(Ordering::Acquire);
    (version()? == (switches, table)).then_some(ContextSnapshot { value, table, switches })
}

fn as_context(id: u64) -> Context {
    if id == 0 {
        Context::None
    } else {
        Context::Id(id)
    }
}

fn unreadable(probe: &ContextProbe) -> Context {
    probe.unreadable.fetch_add(1, Ordering::Relaxed);
    Context::None
}

/// The table of the thread's current context; `Some(0)` when it has no context yet.
#[inline]
fn table_of<M: Memory>(reader: &FrameReader<'_, M>, thread: usize) -> Option<usize> {
    match reader.word(thread, reader.interpreter.layout.thread.context)? {
        0 => Some(0),
        context => reader.word(context, fixed::CONTEXT_VARIABLES),
    }
}

/// Looks `variable` up in the table at `table`.
#[inline]
pub fn look_up(memory: &impl Memory, probe: &ContextProbe, table: usize, variable: usize) -> Lookup {
    let types = NodeTypes {
        bitmap: probe.bitmap_type.load(Ordering::Relaxed),
        array: probe.array_type.load(Ordering::Relaxed),
    };
    look_up_with(memory, types, probe.hash.load(Ordering::Relaxed), table, variable)
}

/// The lookup with explicit parameters; also used by the start-up test.
pub fn look_up_with(memory: &impl Memory, types: NodeTypes, hash: u32, table: usize, variable: usize) -> Lookup {
    if table == 0 {
        return Lookup::Unset;
    }
    walk(memory, types, hash, table, variable).unwrap_or(Lookup::Unreadable)
}

fn walk(memory: &impl Memory, types: NodeTypes, hash: u32, table: usize, variable: usize) -> Option<Lookup> {
    let read_word = |object: usize, offset: usize| memory.word(object.checked_add(offset)?);
    let mut node = read_word(table, fixed::TABLE_ROOT)?;
    for level in 0..MAX_LEVELS {
        // The last level can only be a collision node, which does not use the index.
        let index = hash.checked_shr(5 * level).unwrap_or(0) & 31;
        let node_type = read_word(node, fixed::TYPE)?;
        if node_type == types.bitmap {
            let bitmap = read_word(node, fixed::BITMAP)? as u32;
            let bit = 1u32 << index;
            if bitmap & bit == 0 {
                return Some(Lookup::Unset);
            }
            let pair = fixed::NODE_PAIRS + 16 * (bitmap & (bit - 1)).count_ones() as usize;
            let key = read_word(node, pair)?;
            let value = read_word(node, pair + 8)?;
            if key != 0 {
                return Some(if key == variable { Lookup::Value(value) } else { Lookup::Unset });
            }
            node = value;
        } else if node_type == types.array {
            node = read_word(node, fixed::NODE_CHILDREN + 8 * index as usize)?;
            if node == 0 {
                return Some(Lookup::Unset);
            }
        } else {
            return colliding(memory, hash, node, variable);
        }
    }
    None
}

/// A child that is neither a bitmap nor an array node can only be a collision node, which stores its hash.
fn colliding(memory: &impl Memory, hash: u32, node: usize, variable: usize) -> Option<Lookup> {
    let read_word = |object: usize, offset: usize| memory.word(object.checked_add(offset)?);
    if read_word(node, fixed::BITMAP)? as u32 != hash {
        return None;
    }
    let words = read_word(node, fixed::SIZE)? as u64;
    if words == 0 || words & 1 != 0 || words > MAX_COLLIDING_WORDS {
        return None;
    }
    for pair in 0..words as usize / 2 {
        if read_word(node, fixed::NODE_PAIRS + 16 * pair)? == variable {
            return Some(Lookup::Value(read_word(node, fixed::NODE_PAIRS + 16 * pair + 8)?));
        }
    }
    Some(Lookup::Unset)
}

/// The id of a value: of the binding's type, or an `int`.
#[inline]
fn context_id<M: Memory>(reader: &FrameReader<'_, M>, value: usize) -> Option<u64> {
    if reader.word(value, fixed::TYPE)? == reader.interpreter.context.value_type.load(Ordering::Relaxed) {
        return reader.word(value, fixed::CONTEXT_ID).map(|id| id as u64);
    }
    integer(reader, value)
}

/// The value of a non-negative `int` below 2^64.
#[inline]
pub fn integer<M: Memory>(reader: &FrameReader<'_, M>, object: usize) -> Option<u64> {
    if reader.word(object, fixed::TYPE)? != reader.interpreter.int_type {
        return None;
    }
    let size = reader.word(object, fixed::SIZE)? as u64;
    let digits = match reader.interpreter.layout.integer {
        IntegerForm::SignedSize => size,
        // Sign 2 is negative; 0 and 1 are positive and zero.
        IntegerForm::Tag if size & 3 != 2 => size >> 3,
        IntegerForm::Tag => return None,
    };
    let low = reader.word(object, fixed::DIGITS)? as u64;
    match digits {
        0 => Some(0),
        1 => Some(low & 0x3fff_ffff),
        2 => Some(low & 0x3fff_ffff | (low >> 32 & 0x3fff_ffff) << 30),
        3 => {
            let high = reader.word(object, fixed::DIGITS + 8)? as u64 & 0x3fff_ffff;
            (high < 16).then_some(low & 0x3fff_ffff | (low >> 32 & 0x3fff_ffff) << 30 | high << 60)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_signal::ProcessMemory;

    #[test]
    fn the_hash_is_folded_as_in_the_table() {
        assert_eq!(folded_hash(0x0000_0001_0000_0003), 2);
        assert_eq!(folded_hash(-1), 0);
        assert_eq!(folded_hash(0x0000_0000_ffff_ffff), u32::MAX - 1);
        assert_eq!(folded_hash(-2), 1);
    }

    #[test]
    fn memory_that_is_not_a_table_is_unreadable_and_gives_no_value() {
        let junk = [0xdead_beef_usize; 64];
        let types = NodeTypes { bitmap: 1, array: 2 };
        assert_eq!(look_up_with(&ProcessMemory, types, 77, junk.as_ptr() as usize, 0x1000), Lookup::Unreadable);
        assert_eq!(look_up_with(&ProcessMemory, types, 77, 0, 0x1000), Lookup::Unset);
    }
}
