//! Names of methods, classes, stubs and threads, read from the VM's structures or by JVMTI. Used by the drain thread and by JVMTI
//! events.

pub mod class_names;
pub mod method_ids;
mod method_info;
pub mod methods;
mod source_map;
pub mod stub_names;
pub mod thread_groups;
