//! Names and lines of raw frames, and the end of code objects. Runs on the drain thread, and in the hook of the interpreter that
//! frees a code object.

pub mod code_info;
pub mod code_lifetime;
pub mod native_role;
pub mod object_type;
pub mod resolve;
