//! Addresses and field offsets of the VM that the stack walker and the name resolution use, and the location of debug info.
//! Computed once from VMStructs, then read by handlers.
//!
//! # Versions
//! Upstream: `hotspot/share/runtime/vmStructs.cpp`. Names as exported by 17.0.15, 21.0.8 and 25.0.3.
//!
//! | JDK | change | handled in |
//! |---|---|---|
//! | 20 | UNSIGNED5 excludes the byte 0 (`utilities/unsigned5.hpp`) | `unsigned5_base` |
//! | after 17, by 21 | `ConstMethod::_flags` is a structure, and its constants belong to `ConstMethodFlags` | `VmLayout::of` |
//! | 23 | debug info of nmethods moves to `_immutable_data` | `DebugInfo` |
//! | after 21, by 25 | `CompiledMethod` is merged into `nmethod` | `compiled` in `VmLayout::of` |
//! | after 21, by 25 | `CodeBlob::_code_begin` is replaced by `_code_offset` | `CodeBegin` |
//! | after 21, by 25 | metadata of nmethods moves to `CodeBlob::_mutable_data`, after the relocations | `DebugInfo::Separate` |
//! | after 21, by 25 | `JavaThread::_cont_entry` and `ContinuationEntry::_return_pc` are exported | `continuation_entry`, `continuation_return` |

use std::sync::atomic::{AtomicPtr, Ordering};

use super::memory_signal::{int, pointer, word};
use super::vm_structs::VmStructs;

pub const MAX_HEAPS: usize = 4;

/// Location of the debug info of compiled code.
#[derive(Clone, Copy, Debug)]
pub enum DebugInfo {
    /// Inside the code blob (to JDK 22).
    InBlob { pc_descs: usize, pc_descs_end: usize, data: usize, metadata: usize },
    /// In separately allocated memory (from JDK 23).
    Separate { immutable: usize, pc_descs: usize, data: usize, mutable: usize, relocation_size: usize },
}

/// The form in which a blob stores its `code_begin`.
#[derive(Clone, Copy, Debug)]
pub enum CodeBegin {
    Pointer(usize),
    Offset(usize),
}

/// See the module documentation. The fields that each step of a walk reads come first, in one cache line.
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
    pub wrapper_anchor: usize,
    pub blob_name: usize,
    pub blob_frame_size: usize,
    pub blob_frame_complete: usize,
    pub blob_code_begin: CodeBegin,
    pub compiled_method: usize,
    pub original_pc: usize,
    pub debug_info: DebugInfo,
    /// Excluded byte values of the VM's UNSIGNED5 encoding: 1 from JDK 20, else 0.
    pub unsigned5_base: u32,
    pub const_method: usize,
    pub const_method_size: usize,
    pub constants: usize,
    pub code_size: usize,
    pub name_index: usize,
    pub flags: usize,
    pub has_lines: u16,
    pub holder: usize,
    pub file_index: usize,
    pub pool_size: usize,
    pub class_name: usize,
    pub symbol_length: usize,
    pub symbol_body: usize,
    pub continuation_entry: Option<usize>,
    pub anchor_sp: usize,
    pub anchor_pc: usize,
    pub anchor_fp: usize,
}

impl VmLayout {
    /// The layout of a VM, or the first item that VMStructs lack.
    pub fn of(s: &VmStructs, java_version: u32) -> Result<Self, String> {
        let memory = s.offset("CodeHeap", "_memory")?;
        let (low, high) = (s.offset("VirtualSpace", "_low")?, s.offset("VirtualSpace", "_high")?);
        let stub_queue = word(s.address("AbstractInterpreter", "_code")?).ok_or("the interpreter")?;
        let interpreter = word(stub_queue + s.offset("StubQueue", "_stub_buffer")?).ok_or("the interpreter's code")?;
        let interpreter_bytes =
            int(stub_queue + s.offset("StubQueue", "_buffer_limit")?).ok_or("the interpreter's size")?;
        let value = |address: Result<usize, String>| address.ok().and_then(word).unwrap_or(0);
        let heaps = heaps(s)?;
        let segment_shift = int(heaps[0] + s.offset("CodeHeap", "_log2_segment_size")?).ok_or("the segment size")?;
        let java_thread = |field: &str| s.offset("JavaThread", field).or_else(|_| s.offset("Thread", field));
        let compiled = |field: &str| s.offset("nmethod", field).or_else(|_| s.offset("CompiledMethod", field));
        let flags = s.offset("ConstMethod", "_flags").or_else(|_| s.offset("ConstMethod", "_flags._flags"))?;
        let has_lines = s
            .constant("ConstMethod::_has_linenumber_table")
            .or_else(|| s.constant("ConstMethodFlags::_misc_has_linenumber_table"))
            .ok_or("ConstMethod::_has_linenumber_table")?;
        let wrapper = s.constant("frame::entry_frame_call_wrapper_offset").ok_or("the entry frame's call wrapper")?;
        Ok(Self {
            heaps,
            heap_low: memory + low,
            heap_high: memory + high,
            heap_segments: s.offset("CodeHeap", "_segmap")? + low,
            segment_shift: segment_shift as u32 & 31,
            block_used: s.offset("HeapBlock::Header", "_used")?,
            code_low: value(s.address("CodeCache", "_low_bound")),
            code_high: value(s.address("CodeCache", "_high_bound")),
            interpreter: (interpreter, interpreter + interpreter_bytes.max(0) as usize),
            call_stub_return: value(s.address("StubRoutines", "_call_stub_return_address")),
            continuation_return: value(s.address("ContinuationEntry", "_return_pc")),
            call_wrapper: wrapper as isize * 8,
            wrapper_anchor: s.offset("JavaCallWrapper", "_anchor")?,
            blob_name: s.offset("CodeBlob", "_name")?,
            blob_frame_size: s.offset("CodeBlob", "_frame_size")?,
            blob_frame_complete: s.offset("CodeBlob", "_frame_complete_offset")?,
            blob_code_begin: match s.offset_if_known("CodeBlob", "_code_begin") {
                Some(offset) => CodeBegin::Pointer(offset),
                None => CodeBegin::Offset(s.offset("CodeBlob", "_code_offset")?),
            },
            compile_id: s.offset("nmethod", "_compile_id")?,
            compiled_method: compiled("_method")?,
            original_pc: s.offset("nmethod", "_orig_pc_offset")?,
            debug_info: debug_info(s)?,
            unsigned5_base: u32::from(java_version >= 20),
            const_method: s.offset("Method", "_constMethod")?,
            const_method_size: s.size("ConstMethod")?,
            constants: s.offset("ConstMethod", "_constants")?,
            code_size: s.offset("ConstMethod", "_code_size")?,
            name_index: s.offset("ConstMethod", "_name_index")?,
            flags,
            has_lines: has_lines as u16,
            holder: s.offset("ConstantPool", "_pool_holder")?,
            file_index: s.offset("ConstantPool", "_source_file_name_index")?,
            pool_size: s.size("ConstantPool")?,
            class_name: s.offset("Klass", "_name")?,
            symbol_length: s.offset("Symbol", "_length")?,
            symbol_body: s.offset("Symbol", "_body")?,
            anchor: s.offset("JavaThread", "_anchor")?,
            thread_state: s.offset_if_known("JavaThread", "_thread_state"),
            stack_base: java_thread("_stack_base")?,
            continuation_entry: s.offset_if_known("JavaThread", "_cont_entry"),
            anchor_sp: s.offset("JavaFrameAnchor", "_last_Java_sp")?,
            anchor_pc: s.offset("JavaFrameAnchor", "_last_Java_pc")?,
            anchor_fp: s.offset("JavaFrameAnchor", "_last_Java_fp")?,
        })
    }

    pub fn is_code(&self, pc: usize) -> bool {
        pc >= self.code_low && pc < self.code_high
    }

    pub fn is_interpreter(&self, pc: usize) -> bool {
        pc >= self.interpreter.0 && pc < self.interpreter.1
    }
}

fn debug_info(s: &VmStructs) -> Result<DebugInfo, String> {
    if let Some(immutable) = s.offset_if_known("nmethod", "_immutable_data") {
        return Ok(DebugInfo::Separate {
            immutable,
            pc_descs: s.offset("nmethod", "_scopes_pcs_offset")?,
            data: s.offset("nmethod", "_scopes_data_offset")?,
            mutable: s.offset("CodeBlob", "_mutable_data")?,
            relocation_size: s.offset("CodeBlob", "_relocation_size")?,
        });
    }
    Ok(DebugInfo::InBlob {
        pc_descs: s.offset("nmethod", "_scopes_pcs_offset")?,
        pc_descs_end: s.offset("nmethod", "_dependencies_offset")?,
        data: s.offset("CompiledMethod", "_scopes_data_begin")?,
        metadata: s.offset("nmethod", "_metadata_offset")?,
    })
}

fn heaps(s: &VmStructs) -> Result<[usize; MAX_HEAPS], String> {
    let list = word(s.address("CodeCache", "_heaps")?).ok_or("the list of code heaps")?;
    let count = s.offset("GrowableArrayBase", "_len").or_else(|_| s.offset("GenericGrowableArray", "_len"))?;
    let count = int(list + count).ok_or("the number of code heaps")?;
    let data = pointer(list + s.offset("GrowableArray<int>", "_data")?).ok_or("the code heaps")?;
    if !(1..=MAX_HEAPS as i32).contains(&count) {
        return Err(format!("{count} code heaps"));
    }
    let mut heaps = [0; MAX_HEAPS];
    for (index, heap) in heaps.iter_mut().take(count as usize).enumerate() {
        *heap = pointer(data + index * 8).ok_or("a code heap")?;
    }
    Ok(heaps)
}

static PUBLISHED: AtomicPtr<VmLayout> = AtomicPtr::new(std::ptr::null_mut());

/// Publishes the layout to handlers, for the life of the process.
pub fn publish(layout: VmLayout) -> &'static VmLayout {
    let layout: &'static VmLayout = Box::leak(Box::new(layout));
    PUBLISHED.store(std::ptr::from_ref(layout).cast_mut(), Ordering::Release);
    layout
}

/// The layout; `None` before it is published.
#[inline]
pub fn published() -> Option<&'static VmLayout> {
    // SAFETY: only leaked boxes are ever stored there.
    unsafe { PUBLISHED.load(Ordering::Acquire).as_ref() }
}
