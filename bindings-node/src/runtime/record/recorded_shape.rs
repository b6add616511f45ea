//! Shapes of recorded stacks: the code of the leaf, and the functions of the program. Used by the recorder, and by the tests
//! that replay the recordings.

/// The code of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafCode {
    Bytecode,
    Baseline,
    Optimized,
    /// Optimized code at its first instructions or its return, where it has no frame.
    Frameless,
    Builtin,
    Native,
}

/// A shape of a V8 stack.
#[derive(Debug)]
pub struct V8StackShape {
    /// Name of the fixture, and argument of the program `record_stacks.js`.
    pub name: &'static str,
    /// `None`: any.
    pub leaf: Option<LeafCode>,
    /// The code object of the leaf, or `*` for any; then those that follow in this order, with others between them.
    pub functions: &'static [&'static str],
}

/// Every shape.
pub static SHAPES: [V8StackShape; 11] = [
    shape("interpreted", Some(LeafCode::Bytecode), &["interpreted", "interpretedCaller"]),
    shape("baseline", Some(LeafCode::Baseline), &["baseline", "baselineCaller"]),
    shape("optimized", Some(LeafCode::Optimized), &["optimized", "optimizedCaller"]),
    shape("frameless", Some(LeafCode::Frameless), &["frameless", "framelessCaller"]),
    shape("builtin", Some(LeafCode::Builtin), &["*", "builtin", "builtinCaller"]),
    shape(
        "frameless-builtin",
        Some(LeafCode::Builtin),
        &["ArrayIndexOfPackedDoubles", "framelessBuiltin", "framelessBuiltinCaller"],
    ),
    shape("fast-call", Some(LeafCode::Native), &["*", "fastCall", "fastCallCaller"]),
    shape("async", None, &["asyncLeaf", "AsyncFunctionAwaitResolveClosure", "RunMicrotasks"]),
    shape("generator", None, &["generator", "GeneratorPrototypeNext", "generatorCaller"]),
    shape("native", Some(LeafCode::Native), &["*", "native", "nativeCaller"]),
    shape("collecting", Some(LeafCode::Native), &["*", "(garbage collector)", "collecting", "collectingCaller"]),
];

const fn shape(name: &'static str, leaf: Option<LeafCode>, functions: &'static [&'static str]) -> V8StackShape {
    V8StackShape { name, leaf, functions }
}

impl V8StackShape {
    pub fn named(name: &str) -> Option<&'static Self> {
        SHAPES.iter().find(|shape| shape.name == name)
    }

    /// Whether a stack with these code objects has the functions of this shape.
    pub fn is_named<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> bool {
        let mut names = names.into_iter();
        let Some((leaf, below)) = self.functions.split_first() else { return false };
        names.next().is_some_and(|name| [name, "*"].contains(leaf))
            && below.iter().all(|expected| names.any(|name| name == *expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_has_the_functions_in_their_order_below_its_leaf() {
        let functions = &["*", "one", "two"];
        let shape = shape("", None, functions);
        assert!(shape.is_named(["leaf", "one", "other", "two", "rest"]));
        for wrong in [&["one", "two"][..], &["leaf", "two", "one"], &["leaf", "one"], &[]] {
            assert!(!shape.is_named(wrong.iter().copied()), "{wrong:?}");
        }
    }
}
