//! Resolves methods and stubs to names, on the drain thread, and on threads that submit a stack themselves: from the VM's
//! structures, or by JVMTI if `AsyncGetCallTrace` walks (`method_ids`). Methods are cached by address and fingerprint, or by id
//! and class, so that a name outlives its class.
//!
//! # Versions
//! Upstream: `hotspot/share/oops/constantPool.hpp`, `hotspot/share/oops/symbol.hpp`, `hotspot/share/code/compressedStream.hpp`.
//!
//! | JDK | change | handled in |
//! |---|---|---|
//! | 20 | line numbers use UNSIGNED5 without the byte 0 | `read_signed` |
//! | after 17, by 21 | the flag for line numbers is in `ConstMethodFlags` | `VmLayout::of` |

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use spanprof_aggregate::runtime::{Frame, FrameType};
use spanprof_signal::{ProcessMemory, RawFrame};

use super::method_info::{class_name, method_name, MethodInfo};
use super::source_map::ClassSourceMap;
use super::{method_ids, stub_names};
use crate::runtime::jvmti::decode;
use crate::runtime::vm::layout::VmLayout;
use crate::runtime::vm::memory::{byte, pointer, short, word};
use crate::runtime::vm::raw_frame::{self, FrameKind};
use crate::runtime::walk::code_heap;
use crate::runtime::walk::method::Method;

/// Capacity of the cache; when it is full, it is cleared.
const MAX_METHODS: usize = 65_536;
const MAX_LINES: usize = 65_536;

static NAMES: LazyLock<Mutex<MethodNames>> = LazyLock::new(Mutex::default);

/// The names of the process, for the drain thread.
pub fn names() -> MutexGuard<'static, MethodNames> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names the methods of a stack that the calling thread submits, before their classes can be unloaded. Without effect while
/// another thread uses the names: a thread of the program never waits.
pub fn name_now(layout: &VmLayout, frames: &[RawFrame]) {
    let Ok(mut names) = NAMES.try_lock() else { return };
    for frame in frames {
        if let FrameKind::Method { address, fingerprint, .. } = raw_frame::decode(*frame) {
            names.info((address, fingerprint), || read(layout, address, fingerprint));
        }
    }
}

/// The cache of named methods.
#[derive(Default)]
pub struct MethodNames {
    methods: HashMap<(usize, u64), MethodInfo>,
}

impl MethodNames {
    /// The frames of a method, as `MethodInfo::frames`; empty if the address holds another method by now.
    pub fn frames(&mut self, layout: &VmLayout, address: usize, fingerprint: u64, index: u16) -> Vec<Frame> {
        let method = self.info((address, fingerprint), || read(layout, address, fingerprint));
        method.map_or_else(Vec::new, |method| method.frames(index))
    }

    /// The frames of a method by its JVMTI id and a ring position; empty if its class was unloaded.
    pub fn frames_by_id(&mut self, id: usize, index: u16, position: u64) -> Vec<Frame> {
        let Some(class) = method_ids::class_at(id, position) else { return Vec::new() };
        let method = self.info((id, class), || method_ids::read(id, class));
        method.map_or_else(Vec::new, |method| method.frames(index))
    }

    fn info(&mut self, key: (usize, u64), read: impl FnOnce() -> Option<MethodInfo>) -> Option<&MethodInfo> {
        if !self.methods.contains_key(&key) {
            if self.methods.len() >= MAX_METHODS {
                self.methods.clear();
            }
            self.methods.insert(key, read()?);
        }
        self.methods.get(&key)
    }

    pub fn len(&self) -> usize {
        self.methods.len()
    }
}

/// The VM's name of the stub at `pc`.
pub fn stub(layout: Option<&VmLayout>, pc: usize) -> Option<Frame> {
    let name_in_blob = || layout.and_then(|layout| blob_name(layout, code_heap::blob_of(ProcessMemory, layout, pc)?));
    let name = stub_names::at(pc).or_else(name_in_blob)?;
    Some(Frame { function: format!("[{name}]").into(), frame_type: FrameType::Jvm, ..Frame::default() })
}

fn blob_name(layout: &VmLayout, blob: usize) -> Option<String> {
    const MAX_NAME_BYTES: usize = 128;
    let mut address = code_heap::name_address(ProcessMemory, layout, blob)?;
    let mut text = Vec::new();
    while text.len() < MAX_NAME_BYTES {
        match byte(address)? {
            0 => break,
            character => text.push(character),
        }
        address += 1;
    }
    Some(String::from_utf8_lossy(&text).into_owned())
}

fn read(layout: &VmLayout, address: usize, fingerprint: u64) -> Option<MethodInfo> {
    let same = || {
        Method::at(ProcessMemory, layout, address)
            .filter(|method| method.fingerprint(ProcessMemory, layout) == fingerprint)
    };
    let method = same()?;
    let pool = method.constants;
    let constant = |index: u16| symbol(layout, pointer(pool + layout.pool_size + usize::from(index) * 8)?);
    let name = constant(short(method.const_method + layout.name_index)?)?;
    let holder = pointer(pool + layout.holder)?;
    let class = symbol(layout, pointer(holder + layout.class_name)?)?;
    let file_of = if layout.has_file_in_class { holder } else { pool };
    let file = match short(file_of + layout.file_index)? {
        0 => String::new(),
        index => constant(index).unwrap_or_default(),
    };
    let lines = lines(layout, &method);
    let is_kotlin = file.ends_with(".kt");
    let map_text = if is_kotlin { source_map(layout, pool) } else { None };
    let source_map = map_text.and_then(|text| ClassSourceMap::of(&text, &file, &lines));
    let function = format!("{}.{}", class_name(&class), method_name(&name)).into();
    let named = MethodInfo { function, file: file.into(), lines, source_map };
    // If the class was unloaded during the read, the name may be wrong.
    same().map(|_| named)
}

/// The source map of a class of Kotlin: a string in an annotation, among the last constants, which the compiler writes from 1.8
/// on. The VM keeps the attribute `SourceDebugExtension` only if an agent requests it before the VM starts.
fn source_map(layout: &VmLayout, pool: usize) -> Option<String> {
    /// `JVM_CONSTANT_Utf8` (`classfile_constants.h`).
    const UTF8: u8 = 1;
    const MAX_CONSTANTS: usize = 128;
    let (tags_at, length_at, data) = layout.pool_tags?;
    let (tags, length) = (pointer(pool + tags_at)? + data, usize::from(short(pool + length_at)?));
    let texts = (1..length).rev().take(MAX_CONSTANTS).filter(|index| byte(tags + index) == Some(UTF8));
    let mut symbols = texts.filter_map(|index| pointer(pool + layout.pool_size + index * 8));
    let is_map =
        |at: &usize| word(at + layout.symbol_body).is_some_and(|text| text.to_ne_bytes().starts_with(b"SMAP\n"));
    symbols.find(is_map).and_then(|at| symbol(layout, at))
}

fn symbol(layout: &VmLayout, symbol: usize) -> Option<String> {
    let length = usize::from(short(symbol + layout.symbol_length)?);
    let body = symbol + layout.symbol_body;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&word(body + bytes.len())?.to_ne_bytes());
    }
    bytes.truncate(length);
    (!bytes.is_empty()).then(|| decode(&bytes))
}

fn lines(layout: &VmLayout, method: &Method) -> Vec<(u16, u32)> {
    let has_lines = short(method.const_method + layout.flags).is_some_and(|flags| flags & layout.has_lines != 0);
    if !has_lines {
        return Vec::new();
    }
    let start = method.const_method + layout.const_method_size + usize::from(method.code_size);
    decode_lines(start, layout.unsigned5_base)
}

/// HotSpot's compressed line number table: deltas of bytecode index and line in one byte if they are small
/// (`hotspot/share/code/compressedStream.hpp`).
fn decode_lines(start: usize, unsigned5_base: u32) -> Vec<(u16, u32)> {
    let (mut at, mut index, mut line) = (start, 0i32, 0i32);
    let mut lines = Vec::new();
    while lines.len() < MAX_LINES {
        let Some(delta) = byte(at) else { break };
        at += 1;
        match delta {
            0 => break,
            0xff => {
                let (Some(index_delta), Some(line_delta)) =
                    (read_signed(&mut at, unsigned5_base), read_signed(&mut at, unsigned5_base))
                else {
                    break;
                };
                (index, line) = (index.wrapping_add(index_delta), line.wrapping_add(line_delta));
            }
            delta => (index, line) = (index + i32::from(delta >> 3), line + i32::from(delta & 7)),
        }
        if let (Ok(index), Ok(line)) = (u16::try_from(index), u32::try_from(line)) {
            lines.push((index, line));
        }
    }
    lines
}

/// Reads an UNSIGNED5 integer with its sign in the lowest bit.
fn read_signed(at: &mut usize, unsigned5_base: u32) -> Option<i32> {
    let mut value = 0u32;
    for position in 0..5 {
        let digit = u32::from(byte(*at)?);
        *at += 1;
        value = value.wrapping_add(digit.wrapping_sub(unsigned5_base) << (6 * position));
        if digit < 192 {
            break;
        }
    }
    Some((value >> 1) as i32 ^ -((value & 1) as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_lines_decode_with_short_and_with_long_deltas() {
        // Bytecode 0 line 7, then +3/+2, then a long delta of +100 bytecodes and -4 lines.
        let packed: Vec<u8> = [7, 3 << 3 | 2, 0xff, 192 + 8, 0, 7, 0].into_iter().chain([0; 16]).collect();
        let lines = decode_lines(packed.as_ptr() as usize, 0);
        assert_eq!(lines, [(0, 7), (3, 9), (103, 5)]);
    }
}
