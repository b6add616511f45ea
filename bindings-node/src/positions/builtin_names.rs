//! Names of JavaScript's built-in functions: V8's `JsonParse`, `ArrayPrototypeSort` and `ArrayMapLoopContinuation` are `JSON.parse`,
//! `Array.sort` and `Array.map`. Code without a name in JavaScript (`LoadIC`, `ArrayTimSort`) keeps V8's. Pure.
//!
//! Upstream: `src/builtins/builtins-definitions.h` and the Torque files beside it. A builtin `<Class>Prototype<Method>` or
//! `<Class>Constructor` implements this function of the specification; other names may also be parts of V8, so the functions are listed.
//! Compared with the builtins of Node.js 18 to 26.

use std::sync::Arc;

use spanprof_aggregate::runtime::{Frame, FrameType};

/// File of the frames of built-in functions.
const FILE: &str = "v8:builtin";

/// The C++ functions that implement builtins.
const CPP_PREFIX: &str = "v8::internal::Builtin_";

/// Classes and the functions whose builtins are `<Class><Function>`. An empty list: every builtin of the class.
const FUNCTIONS: [(&str, &str); 22] = [
    ("ArrayBuffer", "IsView"),
    (
        "Array",
        "Concat Every Filter FindIndex FindLastIndex FindLast Find ForEach FromAsync From Includes IndexOf IsArray Map Of Pop Push \
         ReduceRight Reduce Shift Some Unshift",
    ),
    ("Atomics", "Add And CompareExchange Exchange IsLockFree Load Notify Or Pause Store Sub Wait WaitAsync Xor"),
    ("BigInt", "AsIntN AsUintN"),
    ("Console", ""),
    ("Date", "Now Parse UTC"),
    ("Error", "CaptureStackTrace IsError"),
    ("Global", ""),
    ("Intl", "GetCanonicalLocales SupportedValuesOf"),
    ("Iterator", "Concat From"),
    ("Json", ""),
    ("Map", "GroupBy"),
    ("Math", ""),
    ("Number", "IsFinite IsInteger IsNaN IsSafeInteger ParseFloat ParseInt"),
    (
        "Object",
        "Assign Create DefineProperties DefineProperty Entries Freeze FromEntries GetOwnPropertyDescriptor \
         GetOwnPropertyDescriptors GetOwnPropertyNames GetOwnPropertySymbols GetPrototypeOf GroupBy HasOwn Is IsExtensible IsFrozen \
         IsSealed Keys PreventExtensions Seal SetPrototypeOf ToString Values",
    ),
    ("Promise", "All AllSettled Any Race Reject Resolve Try WithResolvers"),
    (
        "Reflect",
        "Apply Construct DefineProperty DeleteProperty Get GetOwnPropertyDescriptor GetPrototypeOf Has IsExtensible OwnKeys \
         PreventExtensions Set SetPrototypeOf",
    ),
    ("String", "FromCharCode FromCodePoint Raw"),
    ("Symbol", "For KeyFor"),
    ("TypedArray", "From Of"),
    ("WeakRef", "Deref"),
    ("NumberFormat", "InternalFormatNumber SupportedLocalesOf"),
];

/// Endings of builtins that continue or implement a function.
const PARTS: [&str; 13] = [
    "LoopAfterCallbackLazyDeoptContinuation",
    "PreLoopEagerDeoptContinuation",
    "PreLoopLazyDeoptContinuation",
    "LoopEagerDeoptContinuation",
    "LoopLazyDeoptContinuation",
    "LoopContinuation",
    "Continuation",
    "_DoNotInitialize",
    "Getter",
    "Setter",
    "Slow",
    "Impl",
    "Intl",
];

/// Classes that JavaScript spells differently, or that are members of `Intl`.
const CLASSES: [(&str, &str); 14] = [
    ("Json", "JSON"),
    ("Console", "console"),
    ("Collator", "Intl.Collator"),
    ("DateTimeFormat", "Intl.DateTimeFormat"),
    ("DisplayNames", "Intl.DisplayNames"),
    ("DurationFormat", "Intl.DurationFormat"),
    ("ListFormat", "Intl.ListFormat"),
    ("Locale", "Intl.Locale"),
    ("NumberFormat", "Intl.NumberFormat"),
    ("PluralRules", "Intl.PluralRules"),
    ("RelativeTimeFormat", "Intl.RelativeTimeFormat"),
    ("SegmentIterator", "Segments.iterator"),
    ("Segmenter", "Intl.Segmenter"),
    ("Segments", "Segments"),
];

/// Functions that JavaScript spells differently.
const METHODS: [(&str, &str); 6] = [
    ("UTC", "UTC"),
    ("SubArray", "subarray"),
    ("ToJson", "toJSON"),
    ("DebugString", "toString"),
    ("InternalFormatNumber", "format"),
    ("FormatNumber", "format"),
];

/// The function that the builtin of this name implements; `None` for code without a name in JavaScript.
pub fn javascript_name(builtin: &str) -> Option<String> {
    let name = PARTS.iter().find_map(|part| builtin.strip_suffix(part)).unwrap_or(builtin);
    let (class, method) = name
        .split_once("Prototype")
        .or_else(|| name.strip_suffix("Constructor").map(|class| (class, "")))
        .or_else(|| listed(name))?;
    if class.is_empty() || (method.is_empty() && name.ends_with("Prototype")) {
        return None;
    }
    let class = CLASSES.iter().find(|(v8, _)| *v8 == class).map_or(class, |(_, class)| class);
    if method.is_empty() {
        return Some(class.to_owned());
    }
    let special = METHODS.iter().find(|(v8, _)| *v8 == method).map(|(_, method)| (*method).to_owned());
    let mut letters = method.chars();
    let method =
        special.unwrap_or_else(|| letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect());
    Some(if class == "Global" { method } else { format!("{class}.{method}") })
}

fn listed(name: &str) -> Option<(&str, &str)> {
    FUNCTIONS.iter().find_map(|(class, functions)| {
        let method = name.strip_prefix(class).filter(|method| method.starts_with(char::is_uppercase))?;
        let is_listed = functions.is_empty() || functions.split(' ').any(|function| function == method);
        is_listed.then_some((*class, method))
    })
}

/// The frame of V8's code named `builtin`.
pub fn frame(builtin: &Arc<str>) -> Frame {
    match javascript_name(builtin) {
        Some(name) => function(&name),
        None => Frame { function: builtin.clone(), frame_type: FrameType::Native, ..Frame::default() },
    }
}

/// The frame of the built-in function that this C++ function implements, if it does.
pub fn of_cpp(function_name: &str) -> Option<Frame> {
    javascript_name(function_name.strip_prefix(CPP_PREFIX)?).map(|name| function(&name))
}

fn function(name: &str) -> Frame {
    Frame { function: name.into(), file: FILE.into(), frame_type: FrameType::V8js, ..Frame::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builtins_of_every_version_have_the_names_of_their_functions() {
        for (builtin, name) in [
            ("JsonParse", "JSON.parse"),
            ("JsonStringify", "JSON.stringify"),
            ("ArrayFrom", "Array.from"),
            ("RegExpPrototypeExec", "RegExp.exec"),
            ("RegExpPrototypeExecSlow", "RegExp.exec"),
            ("ArrayMap", "Array.map"),
            ("ArrayReduceRightPreLoopEagerDeoptContinuation", "Array.reduceRight"),
            ("ArrayMapLoopContinuation", "Array.map"),
            ("ArrayPrototypeJoinImpl", "Array.join"),
            ("ArrayBufferConstructor_DoNotInitialize", "ArrayBuffer"),
            ("StringPrototypeToUpperCaseIntl", "String.toUpperCase"),
            ("DatePrototypeToISOString", "Date.toISOString"),
            ("DatePrototypeToJson", "Date.toJSON"),
            ("DateUTC", "Date.UTC"),
            ("MathFloorContinuation", "Math.floor"),
            ("GlobalEncodeURIComponent", "encodeURIComponent"),
            ("NumberFormatInternalFormatNumber", "Intl.NumberFormat.format"),
            ("NumberFormatConstructor", "Intl.NumberFormat"),
            ("RegExpPrototypeFlagsGetter", "RegExp.flags"),
            ("MapIteratorPrototypeNext", "MapIterator.next"),
            ("TypedArrayPrototypeSubArray", "TypedArray.subarray"),
            ("PromisePrototypeThen", "Promise.then"),
            ("ConsoleLog", "console.log"),
        ] {
            assert_eq!(javascript_name(builtin).as_deref(), Some(name), "{builtin}");
        }
    }

    #[test]
    fn code_that_is_no_function_of_javascript_keeps_its_name() {
        for builtin in [
            "LoadIC",
            "ArrayTimSort",
            "BigIntAdd",
            "StringAdd",
            "CloneFastJSArray",
            "HandleApiCall",
            "CallApiCallback",
            "Mathematics",
            "PromiseResolveTrampoline",
            "InterpreterEntryTrampoline",
            "StringToNumber",
            "RegExpReplace",
            "",
        ] {
            assert_eq!(javascript_name(builtin), None, "{builtin}");
        }
        assert_eq!(of_cpp("v8::internal::JsonParser::Parse"), None);
        assert_eq!(of_cpp("v8::internal::Builtin_JsonParse").unwrap().function.as_ref(), "JSON.parse");
    }
}
