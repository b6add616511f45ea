//! JavaScript threads outside of handlers: their entries, contexts and stacks, and the requests of self-walks.

mod context_array;
pub mod kind_symbols;
pub mod self_walks;
pub mod signals;
pub mod stack_bounds;
pub mod storage;
pub mod table_entry;
