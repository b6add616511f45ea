//! Names of methods and of stubs, on the drain thread: read from the VM's own structures, or asked of the VM where it walks
//! the stacks (`method_ids`), into strings of ours. Methods are remembered by address and fingerprint, or by id and class,
//! so that a name once read outlives its class.

use std::collections::HashMap;
use std::sync::Arc;

use spanprof::runtime::{Frame, FrameType};

use super::code_heap_signal;
use super::frame_word::NO_INDEX;
use super::layout::Layout;
use super::memory_signal::{byte, pointer, short, word};
use super::method_signal::Method;
use super::{method_ids, stub_names};

/// Methods remembered; beyond, memory starts afresh.
const MAX_METHODS: usize = 65_536;
const MAX_LINES: usize = 65_536;

/// What is known of a method.
pub struct Named {
    pub function: Arc<str>,
    pub file: Arc<str>,
    /// First byte code and line of each piece.
    pub lines: Vec<(u16, u32)>,
}

impl Named {
    fn frame(&self, index: u16) -> Frame {
        Frame {
            function: self.function.clone(),
            file: self.file.clone(),
            start_line: self.lines.iter().map(|(_, line)| *line).min().unwrap_or(0),
            line: line_of(&self.lines, index),
            column: 0,
            frame_type: FrameType::Jvm,
        }
    }
}

/// See the head of the module.
#[derive(Default)]
pub struct Names {
    methods: HashMap<(usize, u64), Named>,
}

impl Names {
    /// The frame of a method; `None` when another method lies there by now.
    pub fn frame(&mut self, layout: &Layout, address: usize, fingerprint: u64, index: u16) -> Option<Frame> {
        self.frame_by((address, fingerprint), index, || read(layout, address, fingerprint))
    }

    /// The frame of a method that the VM has an id for, at a ring position; `None` when its class has gone.
    pub fn frame_by_id(&mut self, id: usize, index: u16, position: u64) -> Option<Frame> {
        let class = method_ids::class_at(id, position)?;
        self.frame_by((id, class), index, || method_ids::read(id, class))
    }

    fn frame_by(&mut self, key: (usize, u64), index: u16, read: impl FnOnce() -> Option<Named>) -> Option<Frame> {
        if !self.methods.contains_key(&key) {
            if self.methods.len() >= MAX_METHODS {
                self.methods.clear();
            }
            let named = read()?;
            self.methods.insert(key, named);
        }
        Some(self.methods.get(&key)?.frame(index))
    }

    pub fn len(&self) -> usize {
        self.methods.len()
    }
}

/// The VM's name of the code at `pc`.
pub fn stub(layout: Option<&Layout>, pc: usize) -> Option<Frame> {
    let of_blob =
        || layout.and_then(|layout| code_heap_signal::name_of(layout, code_heap_signal::blob_of(layout, pc)?));
    let name = stub_names::at(pc).or_else(of_blob)?;
    Some(Frame { function: format!("[{name}]").into(), frame_type: FrameType::Jvm, ..Frame::default() })
}

fn read(layout: &Layout, address: usize, fingerprint: u64) -> Option<Named> {
    let method = Method::at(layout, address).filter(|method| method.fingerprint == fingerprint)?;
    let pool = pointer(method.const_method + layout.constants)?;
    let constant = |index: u16| symbol(layout, pointer(pool + layout.pool_size + usize::from(index) * 8)?);
    let name = constant(short(method.const_method + layout.name_index)?)?;
    let class = symbol(layout, pointer(pointer(pool + layout.holder)? + layout.class_name)?)?;
    let file = match short(pool + layout.file_index)? {
        0 => String::new(),
        index => constant(index).unwrap_or_default(),
    };
    let named = Named {
        function: format!("{}.{name}", class_name(&class)).into(),
        file: file.into(),
        lines: lines(layout, &method),
    };
    // A class that ended while it was read gives no name.
    Method::at(layout, address).filter(|again| *again == method)?;
    Some(named)
}

/// A class as its author wrote it: what the VM adds to classes made while running differs each time, and is left out.
pub fn class_name(internal: &str) -> String {
    // The VM's structures and its tool interface put the number behind different signs.
    let made = internal.find("+0x").or_else(|| internal.find(".0x"));
    let written = made.map_or(internal, |at| &internal[..at]);
    let written = match written.find("$$Lambda") {
        Some(at) => &written[..at + "$$Lambda".len()],
        None => written,
    };
    written.replace('/', ".")
}

fn symbol(layout: &Layout, symbol: usize) -> Option<String> {
    let length = usize::from(short(symbol + layout.symbol_length)?);
    let body = symbol + layout.symbol_body;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&word(body + bytes.len())?.to_ne_bytes());
    }
    bytes.truncate(length);
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

fn line_of(lines: &[(u16, u32)], index: u16) -> u32 {
    if index == NO_INDEX {
        return 0;
    }
    let at_or_before = lines.iter().filter(|(start, _)| *start <= index);
    at_or_before.max_by_key(|(start, _)| *start).map_or(0, |(_, line)| *line)
}

fn lines(layout: &Layout, method: &Method) -> Vec<(u16, u32)> {
    let has_lines = short(method.const_method + layout.flags).is_some_and(|flags| flags & layout.has_lines != 0);
    if !has_lines {
        return Vec::new();
    }
    let start = method.const_method + layout.const_method_size + usize::from(method.code_size);
    unpack_lines(start, layout.packed_base)
}

/// HotSpot's packed table of lines: steps of byte code and line in one byte where they are small.
fn unpack_lines(start: usize, packed_base: u32) -> Vec<(u16, u32)> {
    let (mut at, mut index, mut line) = (start, 0i32, 0i32);
    let mut lines = Vec::new();
    while lines.len() < MAX_LINES {
        let Some(step) = byte(at) else { break };
        at += 1;
        match step {
            0 => break,
            0xff => {
                let (Some(further), Some(lower)) = (signed(&mut at, packed_base), signed(&mut at, packed_base)) else {
                    break;
                };
                (index, line) = (index.wrapping_add(further), line.wrapping_add(lower));
            }
            step => (index, line) = (index + i32::from(step >> 3), line + i32::from(step & 7)),
        }
        if let (Ok(index), Ok(line)) = (u16::try_from(index), u32::try_from(line)) {
            lines.push((index, line));
        }
    }
    lines
}

fn signed(at: &mut usize, packed_base: u32) -> Option<i32> {
    let mut value = 0u32;
    for place in 0..5 {
        let part = u32::from(byte(*at)?);
        *at += 1;
        value = value.wrapping_add(part.wrapping_sub(packed_base) << (6 * place));
        if part < 192 {
            break;
        }
    }
    Some((value >> 1) as i32 ^ -((value & 1) as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_lines_are_read_in_small_and_in_long_steps() {
        // Byte code 0 line 7, then +3/+2, then a long step of +100 byte codes and -4 lines.
        let packed: Vec<u8> = [7, 3 << 3 | 2, 0xff, 192 + 8, 0, 7, 0].into_iter().chain([0; 16]).collect();
        let lines = unpack_lines(packed.as_ptr() as usize, 0);
        assert_eq!(lines, [(0, 7), (3, 9), (103, 5)]);
        assert_eq!([0, 2, 3, 102, 500].map(|index| line_of(&lines, index)), [7, 7, 9, 9, 5]);
        assert_eq!(line_of(&lines, NO_INDEX), 0);
    }

    #[test]
    fn classes_made_while_running_have_one_name() {
        assert_eq!(class_name("java/util/HashMap$Node"), "java.util.HashMap$Node");
        assert_eq!(class_name("com/shop/Cart$$Lambda$14+0x00007f01"), "com.shop.Cart$$Lambda");
        assert_eq!(class_name("com/shop/Cart$$Lambda+0x00007f01"), "com.shop.Cart$$Lambda");
        assert_eq!(class_name("java/lang/invoke/LambdaForm$MH+0x01"), "java.lang.invoke.LambdaForm$MH");
        assert_eq!(class_name("java/lang/invoke/LambdaForm$MH.0x01"), "java.lang.invoke.LambdaForm$MH");
    }
}
