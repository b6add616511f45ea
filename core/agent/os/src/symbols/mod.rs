//! Names of native code.

mod elf_file;
pub mod exported_symbols;
pub mod file_symbols;
pub mod loaded_object;
pub mod object_file;
pub mod object_history;
pub mod symbol_file;
