//! Name, file and lines of a method, from the VM's structures (`methods`) or JVMTI (`method_ids`).
//!
//! # Versions
//! | JDK | change | handled in |
//! |---|---|---|
//! | 17–25 | VMStructs name hidden classes with the suffix `+0x…`, JVMTI with `.0x…` | `class_name` |

use std::sync::Arc;

use spanprof_aggregate::runtime::{Frame, FrameType};

use super::source_map::ClassSourceMap;
use crate::runtime::vm::raw_frame::NO_INDEX;

/// Name, file and lines of a method.
pub struct MethodInfo {
    pub function: Arc<str>,
    pub file: Arc<str>,
    /// First bytecode index and line of each range.
    pub lines: Vec<(u16, u32)>,
    pub source_map: Option<ClassSourceMap>,
}

impl MethodInfo {
    /// The frame at a bytecode index, after the frame of an inline function of the source language, if there is one.
    pub fn frames(&self, index: u16) -> Vec<Frame> {
        let mut method = Frame {
            function: self.function.clone(),
            file: self.file.clone(),
            start_line: self.lines.iter().map(|(_, line)| *line).min().unwrap_or(0),
            line: line_of(&self.lines, index),
            column: 0,
            frame_type: FrameType::Jvm,
            native: None,
        };
        let Some(place) = self.source_map.as_ref().and_then(|map| map.place(method.line)) else { return vec![method] };
        let mut inline = Frame { file: place.file, line: place.line, start_line: 0, ..method.clone() };
        let Some(called_at) = place.called_at else { return vec![inline] };
        inline.function = format!("{}.[inline]", place.class).into();
        method.line = called_at;
        vec![inline, method]
    }
}

/// A class name as in the source, with `.` as separator. The suffix that the VM adds to classes created at run time differs
/// in each run and is removed.
pub fn class_name(internal: &str) -> String {
    // VMStructs separate the address by `+`, JVMTI by `.`.
    let suffix = internal.find("+0x").or_else(|| internal.find(".0x"));
    let name = suffix.map_or(internal, |at| &internal[..at]);
    let name = match name.find("$$Lambda") {
        Some(at) => &name[..at + "$$Lambda".len()],
        None => name,
    };
    name.replace('/', ".")
}

/// A method name as in the source: the agent renames methods that it encloses (`ClassPatch`).
pub fn method_name(name: &str) -> &str {
    name.strip_suffix("$spanprof").unwrap_or(name)
}

fn line_of(lines: &[(u16, u32)], index: u16) -> u32 {
    if index == NO_INDEX {
        return 0;
    }
    let at_or_before = lines.iter().filter(|(start, _)| *start <= index);
    at_or_before.max_by_key(|(start, _)| *start).map_or(0, |(_, line)| *line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_an_index_is_that_of_its_range() {
        let lines = [(0, 7), (3, 9), (103, 5)];
        assert_eq!([0, 2, 3, 102, 500].map(|index| line_of(&lines, index)), [7, 7, 9, 9, 5]);
        assert_eq!(line_of(&lines, NO_INDEX), 0);
    }

    #[test]
    fn an_enclosed_method_has_its_name_in_the_source() {
        assert_eq!([method_name("service$spanprof"), method_name("service")], ["service"; 2]);
    }

    #[test]
    fn an_inline_function_is_a_frame_above_the_line_that_calls_it() {
        let map =
            "SMAP\nMain.kt\nKotlin\n*S Kotlin\n*F\n+ 1 Inline.kt\nshop/InlineKt\n*L\n5#1,9:12\n*S KotlinDebug\n*F\n\
            + 1 Main.kt\nshop/MainKt\n*L\n7#1:12,9\n*E";
        let lines = vec![(0, 6), (5, 14)];
        let source_map = ClassSourceMap::of(map, "Main.kt", &lines);
        let method = MethodInfo { function: "shop.MainKt.price".into(), file: "Main.kt".into(), lines, source_map };
        let frames = |index: u16| -> Vec<String> {
            let frames = method.frames(index);
            frames.iter().map(|frame| format!("{} {}:{}", frame.function, frame.file, frame.line)).collect()
        };
        assert_eq!(frames(2), ["shop.MainKt.price Main.kt:6"]);
        assert_eq!(frames(5), ["shop.InlineKt.[inline] Inline.kt:7", "shop.MainKt.price Main.kt:7"]);
    }

    #[test]
    fn classes_created_at_run_time_have_one_name() {
        assert_eq!(class_name("java/util/HashMap$Node"), "java.util.HashMap$Node");
        assert_eq!(class_name("com/shop/Cart$$Lambda$14+0x00007f01"), "com.shop.Cart$$Lambda");
        assert_eq!(class_name("com/shop/Cart$$Lambda+0x00007f01"), "com.shop.Cart$$Lambda");
        assert_eq!(class_name("java/lang/invoke/LambdaForm$MH+0x01"), "java.lang.invoke.LambdaForm$MH");
        assert_eq!(class_name("java/lang/invoke/LambdaForm$MH.0x01"), "java.lang.invoke.LambdaForm$MH");
    }
}
