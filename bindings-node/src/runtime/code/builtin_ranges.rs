//! Ranges of the builtins that a stack walk distinguishes, by the names that V8 logs, and what their code shows.

use spanprof_signal::ProcessMemory;

use crate::runtime::walk::frameless::fast_call_offsets;
use crate::runtime::walk::js_thread::{BuiltinRanges, EmbeddedBuiltins};

/// The ranges, owned.
#[derive(Default)]
pub struct OwnedBuiltinRanges {
    pub interpreter: Vec<(usize, usize)>,
    pub hidden: Vec<(usize, usize)>,
    pub builtins: EmbeddedBuiltins,
    pub starts: Vec<usize>,
    pub fast_call: Option<[isize; 2]>,
}

impl OwnedBuiltinRanges {
    /// The ranges for a walk.
    #[cfg(any(test, feature = "record-stacks"))]
    pub fn as_ranges(&self) -> BuiltinRanges<'_> {
        let Self { interpreter, hidden, builtins, starts, fast_call } = self;
        BuiltinRanges { interpreter, hidden, builtins: *builtins, starts, fast_call: *fast_call }
    }

    /// The ranges for the handler, which are never freed.
    pub fn leak(self) -> &'static BuiltinRanges<'static> {
        Box::leak(Box::new(BuiltinRanges {
            interpreter: self.interpreter.leak(),
            hidden: self.hidden.leak(),
            builtins: self.builtins,
            starts: self.starts.leak(),
            fast_call: self.fast_call,
        }))
    }
}

/// The ranges among the `listed` builtins, given by logged name, first address and length; `None` without the interpreter's entry.
pub fn of(listed: &[(String, usize, usize)], builtins: EmbeddedBuiltins) -> Option<OwnedBuiltinRanges> {
    let ranges = |matches: &dyn Fn(&str) -> bool| {
        let mut ranges: Vec<(usize, usize)> =
            listed.iter().filter(|(name, _, _)| matches(name)).map(|(_, start, len)| (*start, start + len)).collect();
        ranges.sort_unstable();
        ranges
    };
    let is_interpreter = |name: &str| {
        name.ends_with(":InterpreterEntryTrampoline")
            || name.ends_with(":InterpreterEnterAtBytecode")
            || name.ends_with(":InterpreterEnterAtNextBytecode")
    };
    let interpreter = ranges(&is_interpreter);
    (!interpreter.is_empty()).then(|| OwnedBuiltinRanges {
        interpreter,
        hidden: ranges(&is_hidden),
        builtins,
        starts: ranges(&|_| true).into_iter().map(|(start, _)| start).collect(),
        fast_call: fast_call_offsets(&ProcessMemory, builtins.start, builtins.len),
    })
}

/// Builtins that are no frames of the program: entries into JavaScript, calls out of it, and bytecode handlers.
fn is_hidden(name: &str) -> bool {
    let Some(name) = name.strip_prefix("Builtin:") else { return true };
    let prefixes = [
        "JSEntry",
        "JSConstructEntry",
        "JSRunMicrotasksEntry",
        "CEntry",
        "Call_",
        "CallFunction_",
        "CallWith",
        "Construct",
        "InterpreterPush",
        "CompileLazy",
        "HandleApiCall",
        "JSBuiltinsConstructStub",
        "ArgumentsAdaptor",
        "Deoptimization",
        "BaselineO",
        "InterpreterOnStack",
        "RecordWrite",
        "EphemeronKeyBarrier",
    ];
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builtin_ranges_require_the_interpreters_entry() {
        let builtins = EmbeddedBuiltins { start: 10, len: 45 };
        assert!(of(&[("Builtin:ArrayMap".into(), 10, 5)], builtins).is_none());
        let listed = [
            ("BytecodeHandler:Add".into(), 50, 5),
            ("Builtin:InterpreterEntryTrampoline".into(), 20, 5),
            ("Builtin:JSEntry".into(), 10, 5),
        ];
        let builtin_ranges = of(&listed, builtins).unwrap();
        assert_eq!(builtin_ranges.interpreter, [(20, 25)]);
        assert_eq!(builtin_ranges.hidden, [(10, 15), (50, 55)]);
    }
}
