//! Stack walks of native code: in the handler by frame pointers, elsewhere by unwind tables.

pub mod calling_thread;
mod frame_pointer_check;
mod frame_pointers;
mod other_thread;
mod unwind_tables;

pub(crate) use calling_thread::{walk_calling_thread, WalkStart};
pub(crate) use frame_pointer_check::is_without_frame_pointers;
pub(crate) use frame_pointers::{capture_native, copy_stack, NEXT_BY_FRAME_POINTER};
pub(crate) use other_thread::{walk_copied_stack, walk_waiting_thread};
pub(crate) use unwind_tables::{is_frame_pointer_set, load_unwind_tables, refresh_unwind_tables};
