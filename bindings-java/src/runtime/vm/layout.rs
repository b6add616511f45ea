//! Addresses and field offsets of the VM that the stack walker and the name resolution use, and the location of debug info. Read
//! by handlers. Not here: reading them from VMStructs (`layout_reader`).

use std::sync::atomic::{AtomicPtr, Ordering};

pub const MAX_HEAPS: usize = 4;

/// Location of the debug info of compiled code.
#[derive(Clone, Copy, Debug)]
pub enum DebugInfo {
    /// Inside the code blob (to JDK 22).
    InBlob { pc_descs: usize, pc_descs_end: usize, data: BlobPart, metadata: usize },
    /// In separately allocated memory (from JDK 23).
    Separate { immutable: usize, pc_descs: usize, data: usize, mutable: usize, relocation_size: usize },
}

/// The field in which a blob stores the begin of one of its parts: as an address, or as a distance from the begin of the blob.
#[derive(Clone, Copy, Debug)]
pub enum BlobPart {
    Pointer(usize),
    Offset(usize),
}

/// The layout of the VM of this process. The fields that each step of a walk reads come first, in one cache line.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct VmLayout {
    pub code_low: usize,
    pub code_high: usize,
    pub interpreter: (usize, usize),
    pub call_stub_return: usize,
    pub compile_id: usize,
    pub stack_base: usize,
    pub anchor: usize,
    pub thread_state: Option<usize>,
    pub heaps: [usize; MAX_HEAPS],
    pub heap_low: usize,
    pub heap_high: usize,
    pub heap_segments: usize,
    pub segment_shift: u32,
    pub block_used: usize,
    pub continuation_return: usize,
    pub call_wrapper: isize,
    /// Distance of an interpreted frame's bytecode pointer below its frame pointer.
    pub interpreted_bcp: usize,
    pub wrapper_anchor: usize,
    pub blob_name: usize,
    pub blob_frame_size: usize,
    pub blob_frame_complete: usize,
    pub blob_code_begin: BlobPart,
    pub compiled_method: usize,
    pub original_pc: usize,
    pub debug_info: DebugInfo,
    /// Excluded byte values of the VM's UNSIGNED5 encoding: 1 from JDK 20, else 0.
    pub unsigned5_base: u32,
    pub const_method: usize,
    pub const_method_size: usize,
    /// Field with the words of a `ConstMethod` and of the tables behind it.
    pub const_method_words: Option<usize>,
    pub constants: usize,
    pub code_size: usize,
    pub name_index: usize,
    pub flags: usize,
    pub has_lines: u16,
    pub holder: usize,
    /// Field of a constant pool, or of its class if `has_file_in_class`.
    pub file_index: usize,
    pub has_file_in_class: bool,
    /// Fields of a constant pool with its tags and its length, and the begin of the tags in their array.
    pub pool_tags: Option<(usize, usize, usize)>,
    pub pool_size: usize,
    pub class_name: usize,
    pub symbol_length: usize,
    pub symbol_body: usize,
    /// Where the VM's signal handler stores at which instruction a thread met a safepoint.
    pub saved_exception_pc: Option<usize>,
    pub continuation_entry: Option<usize>,
    pub anchor_sp: usize,
    pub anchor_pc: usize,
    pub anchor_fp: usize,
}

impl VmLayout {
    pub fn is_code(&self, pc: usize) -> bool {
        pc >= self.code_low && pc < self.code_high
    }

    pub fn is_interpreter(&self, pc: usize) -> bool {
        pc >= self.interpreter.0 && pc < self.interpreter.1
    }
}

static PUBLISHED: AtomicPtr<VmLayout> = AtomicPtr::new(std::ptr::null_mut());

/// Publishes the layout to handlers, for the life of the process.
pub fn publish(layout: &'static VmLayout) {
    PUBLISHED.store(std::ptr::from_ref(layout).cast_mut(), Ordering::Release);
}

/// The layout; `None` before it is published.
#[inline]
pub fn published() -> Option<&'static VmLayout> {
    // SAFETY: only references of static lifetime are stored there.
    unsafe { PUBLISHED.load(Ordering::Acquire).as_ref() }
}
