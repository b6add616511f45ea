//! Reads the layout of the VM from VMStructs, once.
//!
//! # Versions
//! Upstream: `hotspot/share/runtime/vmStructs.cpp`, in 8 `hotspot/src/share/vm/runtime/vmStructs.cpp`. Names as exported by 8u504, 11.0.13,
//! 17.0.15, 21.0.8 and 25.0.3.
//!
//! | JDK | change | handled in |
//! |---|---|---|
//! | after 8, by 11 | `CodeCache::_heap` becomes a list; its bounds are exported | `heaps`, `code_bounds` |
//! | after 8, by 11 | `CompiledMethod` is split off `nmethod`, and `_scopes_data_offset` becomes a pointer | `compiled` in `read_layout`, `debug_info` |
//! | after 8, by 11 | interpreted frames get a mirror above the bytecode pointer (`cpu/x86/frame_x86.hpp`) | `interpreted_bcp` |
//! | after 11, by 17 | `_source_file_name_index` moves from `InstanceKlass` to `ConstantPool` | `has_file_in_class` |
//! | 20 | UNSIGNED5 excludes the byte 0 (`utilities/unsigned5.hpp`) | `unsigned5_base` |
//! | after 17, by 21 | `ConstMethod::_flags` is a structure, and its constants belong to `ConstMethodFlags` | `read_layout` |
//! | 23 | debug info of nmethods moves to `_immutable_data` | `DebugInfo` |
//! | after 21, by 25 | `CompiledMethod` is merged into `nmethod` | `compiled` in `read_layout` |
//! | after 21, by 25 | `CodeBlob::_code_begin` is replaced by `_code_offset` | `BlobPart` |
//! | after 21, by 25 | metadata of nmethods moves to `CodeBlob::_mutable_data`, after the relocations | `DebugInfo::Separate` |
//! | after 21, by 25 | `JavaThread::_cont_entry` and `ContinuationEntry::_return_pc` are exported | `continuation_entry`, `continuation_return` |

use super::layout::{BlobPart, DebugInfo, VmLayout, MAX_HEAPS};
use super::memory::{int, pointer, word};
use super::structs::VmStructs;

/// The layout of a VM, or the first item that VMStructs lack.
pub fn read_layout(s: &VmStructs, java_version: u32) -> Result<VmLayout, String> {
    let memory = s.offset("CodeHeap", "_memory")?;
    let (low, high) = (s.offset("VirtualSpace", "_low")?, s.offset("VirtualSpace", "_high")?);
    let stub_queue = word(s.address("AbstractInterpreter", "_code")?).ok_or("the interpreter")?;
    let interpreter = word(stub_queue + s.offset("StubQueue", "_stub_buffer")?).ok_or("the interpreter's code")?;
    let interpreter_bytes =
        int(stub_queue + s.offset("StubQueue", "_buffer_limit")?).ok_or("the interpreter's size")?;
    let value = |address: Result<usize, String>| address.ok().and_then(word).unwrap_or(0);
    let heaps = heaps(s)?;
    let (code_low, code_high) = code_bounds(s)?;
    let segment_shift = int(heaps[0] + s.offset("CodeHeap", "_log2_segment_size")?).ok_or("the segment size")?;
    let java_thread = |field: &str| s.offset("JavaThread", field).or_else(|_| s.offset("Thread", field));
    let compiled = |field: &str| s.offset("nmethod", field).or_else(|_| s.offset("CompiledMethod", field));
    let flags = s.offset("ConstMethod", "_flags").or_else(|_| s.offset("ConstMethod", "_flags._flags"))?;
    let has_lines = s
        .constant("ConstMethod::_has_linenumber_table")
        .or_else(|| s.constant("ConstMethodFlags::_misc_has_linenumber_table"))
        .ok_or("ConstMethod::_has_linenumber_table")?;
    let file_index = s.offset("ConstantPool", "_source_file_name_index");
    let has_file_in_class = file_index.is_err();
    let wrapper = s.constant("frame::entry_frame_call_wrapper_offset").ok_or("the entry frame's call wrapper")?;
    Ok(VmLayout {
        heaps,
        heap_low: memory + low,
        heap_high: memory + high,
        heap_segments: s.offset("CodeHeap", "_segmap")? + low,
        segment_shift: segment_shift as u32 & 31,
        block_used: s.offset("HeapBlock::Header", "_used")?,
        code_low,
        code_high,
        interpreter: (interpreter, interpreter + interpreter_bytes.max(0) as usize),
        call_stub_return: value(s.address("StubRoutines", "_call_stub_return_address")),
        continuation_return: value(s.address("ContinuationEntry", "_return_pc")),
        call_wrapper: wrapper as isize * 8,
        interpreted_bcp: if java_version < 9 { 56 } else { 64 },
        wrapper_anchor: s.offset("JavaCallWrapper", "_anchor")?,
        blob_name: s.offset("CodeBlob", "_name")?,
        blob_frame_size: s.offset("CodeBlob", "_frame_size")?,
        blob_frame_complete: s.offset("CodeBlob", "_frame_complete_offset")?,
        blob_code_begin: match s.offset_if_known("CodeBlob", "_code_begin") {
            Some(offset) => BlobPart::Pointer(offset),
            None => BlobPart::Offset(s.offset("CodeBlob", "_code_offset")?),
        },
        compile_id: s.offset("nmethod", "_compile_id")?,
        compiled_method: compiled("_method")?,
        original_pc: s.offset("nmethod", "_orig_pc_offset")?,
        debug_info: debug_info(s)?,
        unsigned5_base: u32::from(java_version >= 20),
        const_method: s.offset("Method", "_constMethod")?,
        const_method_size: s.size("ConstMethod")?,
        const_method_words: s.offset_if_known("ConstMethod", "_constMethod_size"),
        constants: s.offset("ConstMethod", "_constants")?,
        code_size: s.offset("ConstMethod", "_code_size")?,
        name_index: s.offset("ConstMethod", "_name_index")?,
        flags,
        has_lines: has_lines as u16,
        holder: s.offset("ConstantPool", "_pool_holder")?,
        pool_tags: (|| {
            let pool = |field: &str| s.offset_if_known("ConstantPool", field);
            Some((pool("_tags")?, pool("_length")?, s.offset_if_known("Array<u1>", "_data")?))
        })(),
        file_index: file_index.or_else(|_| s.offset("InstanceKlass", "_source_file_name_index"))?,
        has_file_in_class,
        pool_size: s.size("ConstantPool")?,
        class_name: s.offset("Klass", "_name")?,
        symbol_length: s.offset("Symbol", "_length")?,
        symbol_body: s.offset("Symbol", "_body")?,
        anchor: s.offset("JavaThread", "_anchor")?,
        thread_state: s.offset_if_known("JavaThread", "_thread_state"),
        saved_exception_pc: s.offset_if_known("JavaThread", "_saved_exception_pc"),
        stack_base: java_thread("_stack_base")?,
        continuation_entry: s.offset_if_known("JavaThread", "_cont_entry"),
        anchor_sp: s.offset("JavaFrameAnchor", "_last_Java_sp")?,
        anchor_pc: s.offset("JavaFrameAnchor", "_last_Java_pc")?,
        anchor_fp: s.offset("JavaFrameAnchor", "_last_Java_fp")?,
    })
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
        data: match s.offset_if_known("CompiledMethod", "_scopes_data_begin") {
            Some(offset) => BlobPart::Pointer(offset),
            None => BlobPart::Offset(s.offset("nmethod", "_scopes_data_offset")?),
        },
        metadata: s.offset("nmethod", "_metadata_offset")?,
    })
}

/// The addresses between which code may be.
pub fn code_bounds(s: &VmStructs) -> Result<(usize, usize), String> {
    let bounds = match s.address("CodeCache", "_low_bound") {
        Ok(low) => [low, s.address("CodeCache", "_high_bound")?],
        // The heap grows up to its boundary.
        Err(_) => {
            let memory = heaps(s)?[0] + s.offset("CodeHeap", "_memory")?;
            [memory + s.offset("VirtualSpace", "_low_boundary")?, memory + s.offset("VirtualSpace", "_high_boundary")?]
        }
    };
    let [low, high] = bounds.map(|address| word(address).ok_or_else(|| "the bounds of the code".to_owned()));
    Ok((low?, high?))
}

fn heaps(s: &VmStructs) -> Result<[usize; MAX_HEAPS], String> {
    let mut heaps = [0; MAX_HEAPS];
    if let Ok(only) = s.address("CodeCache", "_heap") {
        heaps[0] = pointer(only).ok_or("the code heap")?;
        return Ok(heaps);
    }
    let list = word(s.address("CodeCache", "_heaps")?).ok_or("the list of code heaps")?;
    let count = s.offset("GrowableArrayBase", "_len").or_else(|_| s.offset("GenericGrowableArray", "_len"))?;
    let count = int(list + count).ok_or("the number of code heaps")?;
    let data = pointer(list + s.offset("GrowableArray<int>", "_data")?).ok_or("the code heaps")?;
    if !(1..=MAX_HEAPS as i32).contains(&count) {
        return Err(format!("{count} code heaps"));
    }
    for (index, heap) in heaps.iter_mut().take(count as usize).enumerate() {
        *heap = pointer(data + index * 8).ok_or("a code heap")?;
    }
    Ok(heaps)
}
