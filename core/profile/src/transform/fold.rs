//! Folds libraries and runtimes: each run of consecutive library frames becomes one frame with the name of the library, each run of
//! runtime frames one with the name of its part, so that a stack shows own code and what it uses. Runtime frames that only pass calls of
//! or to a library on are left out. Pure. Called for flame graphs and trees. A page folds itself, by [`super::FoldableFunctions`]
//! (`stacks.js` of the page, in `spanprof-view`).

use hashbrown::HashMap;

use super::functions::FunctionKey;
use super::tree::{assembled, StackCalls, StackTree};
use crate::code_origin::{
    is_of_profiler_package, library_name, CodeOrigin, LibraryName, RecordedOrigin, RuntimeBucket, TYPE_FILE,
};
use crate::{FrameType, StackId};

/// Name of a library that cannot be told.
const UNNAMED: &str = "library";

/// How a function is folded.
#[derive(Debug)]
pub(super) enum Folding {
    /// Stays a frame.
    Kept,
    Library(Option<LibraryName>),
    /// A package of this profiler: part of the libraries around it, which name the run.
    ProfilerPackage,
    Runtime(RuntimeBucket),
}

impl Folding {
    pub(super) fn of(function: &FunctionKey) -> Self {
        let FunctionKey { name, file, frame_type, .. } = function;
        match function.origin() {
            CodeOrigin::Own | CodeOrigin::Unknown => Self::Kept,
            CodeOrigin::Library => Self::Library(library_name(name, file, *frame_type)),
            CodeOrigin::Profiler if is_of_profiler_package(name, file, *frame_type) => Self::ProfilerPackage,
            // Reasons and kinds of threads are names already.
            CodeOrigin::Runtime | CodeOrigin::Profiler => {
                RuntimeBucket::of(name, file, *frame_type).map_or(Self::Kept, Self::Runtime)
            }
        }
    }

    /// Which function of a run names it: the highest, at least 1 for libraries with a name. Up to 2 of libraries, up to 9 of the
    /// runtime, then the kernel.
    pub(super) fn priority(&self) -> u8 {
        match self {
            Self::Kept | Self::Library(None) | Self::ProfilerPackage => 0,
            Self::Library(Some(library)) => 2 - u8::from(library.is_standard),
            Self::Runtime(bucket) => 3 + *bucket as u8,
        }
    }

    /// The frame of a run that has the name of this function.
    pub(super) fn frame(&self, function: &FunctionKey) -> Option<FunctionKey> {
        match self {
            Self::Kept => None,
            Self::Library(library) => {
                let name = library.as_ref().map_or(UNNAMED, |library| &library.name);
                Some(folded_key(name, language_of(function), CodeOrigin::Library))
            }
            Self::ProfilerPackage => Self::Runtime(RuntimeBucket::Profiler).frame(function),
            Self::Runtime(bucket) => Some(folded_key(bucket.name(), bucket.frame_type(), bucket.origin())),
        }
    }

    fn is_library(&self) -> bool {
        matches!(self, Self::Library(_) | Self::ProfilerPackage)
    }

    /// Whether it may pass calls on: code of a runtime that does not say what it is for, as a collector does.
    fn may_pass_calls_on(&self) -> bool {
        matches!(self, Self::Runtime(bucket) if *bucket <= RuntimeBucket::JvmRuntime)
    }

    /// Whether a frame continues the run of its caller. The kernel is apart, since a system call is what other code did.
    pub(super) fn continues(&self, caller: &Self) -> bool {
        match (caller, self) {
            (Self::Library(_) | Self::ProfilerPackage, Self::Library(_) | Self::ProfilerPackage) => true,
            (Self::Runtime(caller), Self::Runtime(bucket)) => {
                (*caller == RuntimeBucket::Kernel) == (*bucket == RuntimeBucket::Kernel)
            }
            _ => false,
        }
    }
}

/// The frame that stands for a function whose library or part of the runtime is folded; `None` for one that stays a frame.
pub fn folded_function(function: &FunctionKey) -> Option<FunctionKey> {
    Folding::of(function).frame(function)
}

impl StackTree {
    /// The tree with folded libraries and runtimes. Functions for which `is_kept` is true stay frames, and so does the type of
    /// an object at the leaf.
    pub fn folded(&self, is_kept: impl Fn(&FunctionKey) -> bool) -> StackTree {
        let mut folded = FoldedPaths::default();
        folded.set_functions(
            &self.functions,
            |function| if is_kept(function) { Folding::Kept } else { Folding::of(function) },
        );
        let mut calls = Vec::new();
        let mut stacks = Vec::new();
        // Nodes and functions from the root's callee to the current node.
        let mut path: Vec<(u32, u32)> = Vec::new();
        let lacking = self.lacking_weights();
        let mut functions: Vec<u32> = Vec::new();
        for (node_index, node) in self.nodes.iter().enumerate() {
            if node_index > 0 {
                while path.last().is_some_and(|(last, _)| *last != node.parent) {
                    path.pop();
                }
                path.push((node_index as u32, node.function));
            }
            let weight = node.self_weight.saturating_add(lacking[node_index]);
            if weight == 0 {
                continue;
            }
            functions.clear();
            functions.extend(path.iter().map(|(_, function)| *function));
            let start = calls.len();
            folded.fold(&self.functions, &functions, &mut calls);
            stacks.push(StackCalls { id: StackId(node_index as u32), start, end: calls.len(), weight });
        }
        let (mut tree, ends) = assembled(self.type_name.clone(), self.unit.clone(), folded.rows, calls, stacks);
        // What a node lacks is in its total weight only.
        for (StackId(node_index), end) in ends {
            let end = &mut tree.nodes[end as usize];
            end.self_weight = end.self_weight.saturating_sub(lacking[node_index as usize]);
        }
        tree
    }

    /// By node: the total weight without its self weight and the total weights of its callees; 0 unless the tree lacks light nodes
    /// ([`StackTree::inverted`]).
    fn lacking_weights(&self) -> Vec<i64> {
        let mut lacking: Vec<i64> =
            self.nodes.iter().map(|node| node.total_weight.saturating_sub(node.self_weight)).collect();
        for node in self.nodes.iter().skip(1) {
            let weight = &mut lacking[node.parent as usize];
            *weight = weight.saturating_sub(node.total_weight);
        }
        lacking
    }
}

/// Folds call paths one by one, as [`StackTree::folded`] folds those of a tree.
#[derive(Debug, Default)]
pub struct FoldedPaths {
    /// By function.
    foldings: Vec<Folding>,
    /// By function: the number of the frame that has its name, once a path has it.
    frames: Vec<Option<u32>>,
    rows: Vec<FunctionKey>,
    frame_numbers: HashMap<FunctionKey, u32>,
    /// The path without what passes calls on.
    shortened: Vec<u32>,
}

impl FoldedPaths {
    /// The functions of folded paths in order of first use; entry 0 is the root's.
    pub fn functions(&self) -> &[FunctionKey] {
        &self.rows
    }

    /// Adds functions to those of paths. Entry 0 is the root's.
    pub fn add_functions(&mut self, functions: &[FunctionKey]) {
        self.set_functions(functions, Folding::of);
    }

    /// Folds a function as it is now: its origin was unknown.
    pub fn update_function(&mut self, function_index: u32, function: &FunctionKey) {
        if let Some(folding) = self.foldings.get_mut(function_index as usize) {
            *folding = Folding::of(function);
            self.frames[function_index as usize] = None;
        }
    }

    /// Adds those of `functions` that have no folding yet.
    fn set_functions(&mut self, functions: &[FunctionKey], folding: impl Fn(&FunctionKey) -> Folding) {
        if self.rows.is_empty() {
            self.rows.extend(functions.first().cloned());
        }
        let new = &functions[self.foldings.len().min(functions.len())..];
        self.foldings.extend(new.iter().map(folding));
        self.frames.resize(self.foldings.len(), None);
    }

    /// Appends the frames of a path to `frames`, as indices of [`Self::functions`]. `path` has indices of `functions`, root first, all
    /// of which were added.
    pub fn fold(&mut self, functions: &[FunctionKey], mut path: &[u32], frames: &mut Vec<u32>) {
        let object_type = match path {
            [callers @ .., last] if functions[*last as usize].file == TYPE_FILE => {
                path = callers;
                Some(*last)
            }
            _ => None,
        };
        let mut shortened = std::mem::take(&mut self.shortened);
        self.shorten(path, &mut shortened);
        let mut rest = &*shortened;
        while let [first, ..] = rest {
            let folding = |function: &u32| &self.foldings[*function as usize];
            let continued = rest.windows(2).take_while(|pair| folding(&pair[1]).continues(folding(&pair[0])));
            let (run, after) = rest.split_at(1 + continued.count());
            let named = match folding(first) {
                Folding::Kept => *first,
                Folding::Library(_) | Folding::ProfilerPackage => {
                    let is_caller = after.first().is_some_and(|next| matches!(folding(next), Folding::Kept));
                    self.named_by(run, is_caller)
                }
                Folding::Runtime(_) => {
                    run.iter().copied().max_by_key(|function| folding(function).priority()).unwrap_or(*first)
                }
            };
            let frame = match self.frames[named as usize] {
                Some(frame) => frame,
                None => {
                    let function = &functions[named as usize];
                    let key = folding(&named).frame(function).unwrap_or_else(|| function.clone());
                    let frame = self.number(key);
                    self.frames[named as usize] = Some(frame);
                    frame
                }
            };
            frames.push(frame);
            rest = after;
        }
        self.shortened = shortened;
        frames.extend(object_type.map(|leaf| self.number(functions[leaf as usize].clone())));
    }

    /// Writes the path without runs of the runtime between a library and what it calls, or what calls it.
    fn shorten(&self, mut path: &[u32], shortened: &mut Vec<u32>) {
        let folding = |function: &u32| &self.foldings[*function as usize];
        shortened.clear();
        while !path.is_empty() {
            let glue = path.iter().take_while(|function| folding(function).may_pass_calls_on()).count();
            let (run, after) = path.split_at(glue.max(1));
            let passes_on = match (shortened.last().map(folding), after.first().map(folding)) {
                _ if glue == 0 => false,
                (Some(Folding::Runtime(_)), _) | (_, Some(Folding::Runtime(_))) => false,
                (Some(caller), Some(callee)) => caller.is_library() || callee.is_library(),
                _ => false,
            };
            if !passes_on {
                shortened.extend_from_slice(run);
            }
            path = after;
        }
    }

    fn number(&mut self, key: FunctionKey) -> u32 {
        let rows = &mut self.rows;
        *self.frame_numbers.entry(key).or_insert_with_key(|key| {
            rows.push(key.clone());
            rows.len() as u32 - 1
        })
    }

    /// The function that names a run of libraries. A framework that calls own code has the name of the library next to it, other
    /// runs that of the library that was called. The standard library names a run only without another one.
    fn named_by(&self, run: &[u32], is_caller: bool) -> u32 {
        let named = run.iter().filter_map(|function| match &self.foldings[*function as usize] {
            Folding::Library(Some(library)) => Some((*function, library)),
            _ => None,
        });
        let mut named: Vec<(u32, &LibraryName)> = named.collect();
        if is_caller {
            named.reverse();
        }
        let best = named.iter().find(|(_, library)| !library.is_standard).or(named.first());
        best.map_or(run[0], |(function, _)| *function)
    }
}

/// The frame type of a library: that of its language, also for its native code, so that both are one frame.
fn language_of(function: &FunctionKey) -> FrameType {
    match function.frame_type {
        FrameType::Native if function.file.contains("/node_modules/") => FrameType::V8js,
        FrameType::Native => FrameType::Cpython,
        other => other,
    }
}

fn folded_key(name: &str, frame_type: FrameType, origin: CodeOrigin) -> FunctionKey {
    FunctionKey { name: name.to_owned(), frame_type, recorded: RecordedOrigin(Some(origin)), ..FunctionKey::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::StackNode;
    use FrameType::{Cpython, Jvm, Kernel, Native, Unspecified, V8js};

    type Frame<'t> = (&'t str, &'t str, FrameType);

    /// A tree with one path, of which each frame has the self weight 1.
    fn path(type_name: &str, frames: &[Frame<'_>]) -> StackTree {
        let key = |(name, file, frame_type): &Frame<'_>| FunctionKey {
            name: (*name).to_owned(),
            file: (*file).to_owned(),
            frame_type: *frame_type,
            ..FunctionKey::default()
        };
        let root = ("root", "", Unspecified);
        let node = |depth: usize| StackNode {
            parent: depth.saturating_sub(1) as u32,
            function: depth as u32,
            self_weight: i64::from(depth > 0),
            total_weight: (frames.len() - depth.max(1) + 1) as i64,
        };
        StackTree {
            type_name: type_name.to_owned(),
            unit: "nanoseconds".to_owned(),
            functions: std::iter::once(&root).chain(frames).map(key).collect(),
            nodes: (0..=frames.len()).map(node).collect(),
        }
    }

    /// The names on the path of the heaviest nodes.
    fn names(tree: &StackTree) -> Vec<String> {
        let mut caller = 0;
        let mut names = Vec::new();
        loop {
            let callees = tree.nodes.iter().enumerate().skip(1).filter(|(_, node)| node.parent == caller);
            let Some((next, node)) = callees.max_by_key(|(_, node)| node.total_weight) else { return names };
            names.push(tree.functions[node.function as usize].name.clone());
            caller = next as u32;
        }
    }

    /// The names of the folded path of which only the leaf has a weight of its own.
    fn folded_names(stack: &[Frame<'_>]) -> Vec<String> {
        let mut tree = path("cpu", stack);
        let total = tree.nodes[0].total_weight;
        tree.nodes.iter_mut().for_each(|node| (node.self_weight, node.total_weight) = (0, total));
        tree.nodes[stack.len()].self_weight = total;
        names(&tree.folded(|_| false))
    }

    const APP: Frame<'_> = ("handle", "/srv/shop/app.py", Cpython);
    const PRICE: Frame<'_> = ("price", "/srv/shop/price.py", Cpython);

    #[test]
    fn runs_of_libraries_and_of_the_runtime_become_one_frame_each_and_own_code_stays() {
        let site = "/venv/lib/python3.11/site-packages";
        let [uvicorn, fastapi] = [format!("{site}/uvicorn/server.py"), format!("{site}/fastapi/routing.py")];
        let stack = [
            ("_start", "/usr/bin/python3.11", Native),
            ("run", "/usr/lib/python3.11/asyncio/runners.py", Cpython),
            ("serve", &uvicorn, Cpython),
            ("run_endpoint", &fastapi, Cpython),
            ("wrapper", "/usr/lib/python3.11/functools.py", Cpython),
            APP,
            PRICE,
            ("loads", "/usr/lib/python3.11/json/__init__.py", Cpython),
            ("raw_decode", "/usr/lib/python3.11/json/decoder.py", Cpython),
            ("scan_once", "/usr/bin/python3.11", Native),
            ("gc_collect_main", "/usr/bin/python3.11", Native),
            ("madvise", "/lib/libc.so.6", Native),
            ("do_syscall_64", "", Kernel),
            ("zap_pte", "", Kernel),
        ];
        let leaf_only = |depth: usize| folded_names(&stack[..depth]);
        let callers = ["interpreter", "fastapi", "handle", "price"];
        assert_eq!(leaf_only(14), [&callers[..], &["json", "garbage collector", "kernel"]].concat());
        assert_eq!(leaf_only(10), [&callers[..], &["json", "interpreter"]].concat());
        assert_eq!(leaf_only(7), callers);
        assert_eq!(leaf_only(4), ["interpreter", "uvicorn"], "nothing of it is called by own code");
    }

    #[test]
    fn native_code_of_a_package_is_one_frame_with_it_and_other_native_code_is_the_runtime() {
        let site = "/venv/lib/python3.11/site-packages";
        let file = |path: &str| format!("{site}/{path}");
        let [linalg, umath, blas] = ["numpy/linalg.py", "numpy/_core/_umath.so", "numpy.libs/libopenblas.so"].map(file);
        let [linalg, umath, blas] =
            [("solve", &*linalg, Cpython), ("matmul", &*umath, Native), ("dgemm_kernel", &*blas, Native)];
        const MEMCPY: Frame<'_> = ("memcpy", "/lib/libc.so.6", Native);
        const SORT: Frame<'_> = ("list_sort", "/usr/bin/python3.11", Native);
        const MULTIPLY: Frame<'_> = ("PyNumber_MatrixMultiply", "/usr/bin/python3.11", Native);
        const EXEC: Frame<'_> = ("builtin_exec", "/usr/bin/python3.11", Native);
        const COLLECT: Frame<'_> = ("gc_collect_main", "/usr/bin/python3.11", Native);
        for (stack, expected) in [
            (&[APP, linalg, umath, blas][..], &["handle", "numpy"][..]),
            (&[APP, umath, blas, MEMCPY], &["handle", "numpy", "native"]),
            (&[APP, MULTIPLY, umath], &["handle", "numpy"]),
            (&[linalg, EXEC, linalg, EXEC, APP], &["numpy", "handle"]),
            (&[EXEC, linalg, COLLECT, APP], &["interpreter", "numpy", "garbage collector", "handle"]),
            (&[APP, SORT, MEMCPY], &["handle", "interpreter"]),
            (&[APP, SORT, PRICE, umath, linalg, APP], &["handle", "interpreter", "price", "numpy", "handle"]),
        ] {
            assert_eq!(folded_names(stack), expected);
        }
        let frames = [[APP, umath], [APP, linalg]].map(|stack| path("cpu", &stack).folded(|_| false).functions);
        assert_eq!(frames[0], frames[1], "one frame, whichever code of the package runs");
    }

    #[test]
    fn packages_of_the_profiler_belong_to_the_libraries_around_them() {
        let site = "/venv/lib/python3.11/site-packages";
        let [click, asgi, starlette] =
            ["click/core.py", "spanprof/asgi.py", "starlette/routing.py"].map(|file| format!("{site}/{file}"));
        let [click, profiler, starlette] =
            [("main", &*click, Cpython), ("__call__", &*asgi, Cpython), ("app", &*starlette, Cpython)];
        for (stack, expected) in [
            (&[click, profiler, starlette, profiler, starlette, APP][..], &["starlette", "handle"][..]),
            (&[profiler, click, profiler], &["click"]),
            (&[APP, profiler, PRICE], &["handle", "profiler", "price"]),
            (&[APP, ("spanprof", "/app/spanprof", Native)], &["handle", "profiler"]),
        ] {
            assert_eq!(folded_names(stack), expected);
        }
    }

    #[test]
    fn folding_keeps_the_total_and_the_weight_of_own_functions() {
        let tree =
            path("cpu", &[APP, ("loads", "/usr/lib/python3.11/json/a.py", Cpython), PRICE, ("[lock]", "", Native)]);
        let folded = tree.folded(|_| false);
        let weight = |tree: &StackTree, name: &str| {
            let is_named = |node: &&StackNode| tree.functions[node.function as usize].name == name;
            let nodes = tree.nodes.iter().filter(is_named);
            nodes.fold((0, 0), |sum, node| (sum.0 + node.self_weight, sum.1 + node.total_weight))
        };
        for name in ["root", "handle", "price", "[lock]"] {
            assert_eq!(weight(&folded, name), weight(&tree, name), "{name}");
        }
        assert_eq!(weight(&folded, "json"), (1, 3));
    }

    #[test]
    fn a_tree_that_lacks_light_nodes_keeps_its_total_weight() {
        let mut tree = path("cpu", &[APP, ("loads", "/usr/lib/python3.11/json/a.py", Cpython)]);
        for (node, lacking) in tree.nodes.iter_mut().zip([12, 5, 5]) {
            node.total_weight += lacking;
        }
        let folded = tree.folded(|_| false);
        let weights: Vec<_> = folded.nodes.iter().map(|node| (node.self_weight, node.total_weight)).collect();
        assert_eq!(weights, [(0, 14), (1, 7), (1, 6)]);
        assert_eq!(folded.lacking_weights(), [7, 0, 5]);
    }

    #[test]
    fn folded_frames_have_no_file_and_the_origin_of_their_run() {
        let folded = path("cpu", &[("a", "/x/node_modules/pg/a.js", Unspecified), ("f", "/usr/bin/node", Native)]);
        let folded = folded.folded(|_| false);
        let frame = |name: &str| folded.functions.iter().find(|function| function.name == name).expect("a function");
        let [library, runtime] = [frame("pg"), frame(RuntimeBucket::V8Runtime.name())];
        assert_eq!((library.origin(), runtime.origin()), (CodeOrigin::Library, CodeOrigin::Runtime));
        assert_eq!((&*library.file, library.frame_type, runtime.frame_type), ("", Unspecified, Native));
    }

    #[test]
    fn functions_that_are_asked_for_stay_frames_within_their_run() {
        let file = "/srv/node_modules/express/router.js";
        let stack = [("next", file, V8js), ("match", file, V8js), ("step", file, V8js)];
        let tree = path("cpu", &stack);
        assert_eq!(names(&tree.folded(|_| false)), ["express"]);
        assert_eq!(names(&tree.folded(|function| function.name == "match")), ["express", "match", "express"]);
    }

    #[test]
    fn the_type_of_an_object_stays() {
        let resize = ("java.util.HashMap.resize", "HashMap.java", Jvm);
        let names_below =
            |file| names(&path("alloc_space", &[resize, ("java.util.HashMap$Node[]", file, Jvm)]).folded(|_| false));
        assert_eq!(names_below(TYPE_FILE), ["java.util", "java.util.HashMap$Node[]"]);
        assert_eq!(names_below(""), ["java.util"]);
    }
}
