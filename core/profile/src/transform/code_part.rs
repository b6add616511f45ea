//! The part of a program that a stack executes: own code, libraries, or a part of the runtime such as the garbage collector.

use super::fold::Folding;
use super::functions::FunctionKey;
use crate::code_origin::{is_activity, is_regular_expression, CodeOrigin, RuntimeBucket};

/// The part of a program that executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CodePart {
    /// Own code.
    Own,
    /// A library, or the standard library of the language.
    Library,
    /// A part of the runtime, native code, the kernel or the profiler.
    Runtime(RuntimeBucket),
    /// The match of a regular expression.
    RegularExpression,
    /// No code, but the reason why there is no stack; or code without a file, as in folded stacks.
    Unknown,
}

impl CodePart {
    /// The part that a stack executes: that of its leaf, or of its caller if the leaf has a name of no function, such as a stub of
    /// HotSpot. As where stacks are folded, runtime functions that call each other are of the
    /// most specific part among them: `memmove` below a collection is of the collector.
    pub fn of_stack<'f>(leaf_first: impl Iterator<Item = &'f FunctionKey>) -> Self {
        let names_no_function = |function: &&FunctionKey| {
            is_activity(&function.name, &function.file)
                && !is_regular_expression(&function.name, &function.file)
                && matches!(Folding::of(function), Folding::Kept)
        };
        let mut functions = leaf_first.skip_while(names_no_function).peekable();
        let Some(leaf) = functions.peek() else { return Self::Unknown };
        if is_regular_expression(&leaf.name, &leaf.file) {
            return Self::RegularExpression;
        }
        match leaf.origin() {
            CodeOrigin::Own => Self::Own,
            CodeOrigin::Library => Self::Library,
            CodeOrigin::Unknown => Self::Unknown,
            CodeOrigin::Runtime | CodeOrigin::Profiler => {
                let mut callee: Option<Folding> = None;
                let buckets = functions.map_while(|function| {
                    let folding = Folding::of(function);
                    let is_run = callee.as_ref().is_none_or(|callee| callee.continues(&folding));
                    let bucket = match folding {
                        Folding::Runtime(bucket) if is_run => bucket,
                        Folding::ProfilerPackage if callee.is_none() => RuntimeBucket::Profiler,
                        _ => return None,
                    };
                    callee = Some(folding);
                    Some(bucket)
                });
                buckets.max().map_or(Self::Unknown, Self::Runtime)
            }
        }
    }

    /// Its word in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Library => "library",
            Self::Runtime(bucket) => bucket.name(),
            Self::RegularExpression => "regular expression",
            Self::Unknown => "other",
        }
    }

    /// Its name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Own => "Own code",
            Self::Library => "Libraries",
            Self::Runtime(bucket) => bucket.title(),
            Self::RegularExpression => "Regular expressions",
            Self::Unknown => "Other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FrameType::{self, Cpython, Kernel, Native, Unspecified};

    fn part(leaf_first: &[(&str, &str, FrameType)]) -> CodePart {
        let functions: Vec<FunctionKey> = leaf_first
            .iter()
            .map(|(name, file, frame_type)| FunctionKey {
                name: (*name).to_owned(),
                file: (*file).to_owned(),
                frame_type: *frame_type,
                ..FunctionKey::default()
            })
            .collect();
        CodePart::of_stack(functions.iter())
    }

    #[test]
    fn a_stack_executes_the_part_of_its_leaf() {
        const OWN: (&str, &str, FrameType) = ("price", "/srv/app.py", Cpython);
        const LIBRARY: (&str, &str, FrameType) = ("loads", "/usr/lib/python3.11/json/__init__.py", Cpython);
        const MEMMOVE: (&str, &str, FrameType) = ("memmove", "/lib/libc.so.6", Native);
        const COLLECT: (&str, &str, FrameType) = ("gc_collect_main", "/usr/bin/python3.11", Native);
        const INTERPRETER: (&str, &str, FrameType) = ("_PyEval_EvalFrameDefault", "/usr/bin/python3.11", Native);
        for (stack, expected) in [
            (&[OWN][..], CodePart::Own),
            (&[LIBRARY, OWN], CodePart::Library),
            (&[MEMMOVE, OWN, COLLECT], CodePart::Runtime(RuntimeBucket::Native)),
            (&[MEMMOVE, COLLECT, INTERPRETER, OWN], CodePart::Runtime(RuntimeBucket::GarbageCollector)),
            (&[INTERPRETER, LIBRARY, OWN], CodePart::Runtime(RuntimeBucket::Interpreter)),
            (&[("do_syscall_64", "", Kernel), COLLECT, OWN], CodePart::Runtime(RuntimeBucket::Kernel)),
            (&[("(garbage collector)", "", Native), OWN], CodePart::Runtime(RuntimeBucket::GarbageCollector)),
            (
                &[("__call__", "/venv/site-packages/spanprof/asgi.py", Cpython), OWN],
                CodePart::Runtime(RuntimeBucket::Profiler),
            ),
            (&[("(regexp) ^(\\w+)+$", "", Native), OWN], CodePart::RegularExpression),
            (&[("[sha256_implCompressMB]", "", Native), LIBRARY, OWN], CodePart::Library),
            (&[("[signal_blocked]", "", Unspecified)], CodePart::Unknown),
            (&[("main", "", Unspecified)], CodePart::Unknown),
            (&[], CodePart::Unknown),
        ] {
            assert_eq!(part(stack), expected, "{stack:?}");
        }
    }
}
