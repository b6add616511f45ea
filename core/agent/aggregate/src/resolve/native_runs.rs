//! Which frames of native code a stack shows. Below the line of the language that called it, of each run of functions of the language's
//! runtime only one is shown: the function that the line called. Without that, its interpreter would be most of each stack.

use super::locations::{LocationIndex, LocationTable};
use crate::runtime::NativeRole;

/// Removes the hidden frames of a stack, leaf first. Of consecutive frames without a name in one file, the first remains.
pub(crate) fn hide_frames(stack: &mut Vec<LocationIndex>, locations: &LocationTable) {
    let mut shown = Vec::with_capacity(stack.len());
    let mut rest = stack.as_slice();
    while let Some(first) = rest.first() {
        let is_of_runtime = |location: &LocationIndex| {
            matches!(locations.native_role(*location), NativeRole::RuntimeFunction | NativeRole::CallGlue)
        };
        let length = rest.iter().take_while(|location| is_of_runtime(location)).count();
        let (run, callers) = rest.split_at(length.max(1));
        rest = callers;
        if length == 0 {
            let repeats =
                locations.is_unnamed(*first) && shown.last().is_some_and(|last| locations.has_same_name(*last, *first));
            if !repeats {
                shown.push(*first);
            }
        } else if callers.is_empty() {
            // Not called by code of the language: a thread of native code.
            shown.extend_from_slice(run);
        } else {
            let functions =
                || run.iter().rev().filter(|location| locations.native_role(**location) == NativeRole::RuntimeFunction);
            let called = functions().find(|location| !locations.is_unnamed(**location)).or_else(|| functions().next());
            shown.extend(called);
        }
    }
    *stack = shown;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Frame, FrameType};
    use crate::scripted_engine_testing::ScriptedSymbols;

    /// A stack of frames, leaf first: `p` is managed code, `l` a library, `r` the runtime, `g` its glue, `u` has no name.
    fn shown(frames: &str) -> String {
        let mut locations = LocationTable::new(Box::new(ScriptedSymbols));
        let location = |frame: &str| {
            let (role, name) = match frame.as_bytes()[0] {
                b'l' => (NativeRole::Shown, frame),
                b'r' => (NativeRole::RuntimeFunction, frame),
                b'g' => (NativeRole::CallGlue, frame),
                b'u' => (NativeRole::Shown, "[libz.so]"),
                b'U' => (NativeRole::RuntimeFunction, "[python3.11]"),
                _ => (NativeRole::NotNative, frame),
            };
            let frame_type = if role == NativeRole::NotNative { FrameType::Cpython } else { FrameType::Native };
            let location = locations.intern(&[Frame { function: name.into(), frame_type, ..Frame::default() }]);
            locations.set_native_role(location, role);
            location
        };
        let mut stack: Vec<_> = frames.split(' ').map(location).collect();
        hide_frames(&mut stack, &locations);
        let names = stack.iter().map(|location| locations.frames(*location)[0].function.to_string());
        names.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn of_a_run_of_the_runtime_the_function_that_the_line_called_is_shown() {
        assert_eq!(shown("r1 r2 g1 p1 p2"), "r2 p1 p2");
        assert_eq!(shown("g1 g2 p1"), "p1");
        assert_eq!(shown("l1 g1 l2 r1 g2 p1 r3 g3 p2"), "l1 l2 r1 p1 r3 p2");
        assert_eq!(shown("r1 U U p1"), "r1 p1");
        assert_eq!(shown("U U g1 p1"), "[python3.11] p1");
    }

    #[test]
    fn functions_without_a_name_are_one_frame_per_run_and_file() {
        assert_eq!(shown("u u u l1 u p1"), "[libz.so] l1 [libz.so] p1");
        assert_eq!(shown("r1 r2 g1"), "r1 r2 g1", "a thread of native code");
    }
}
