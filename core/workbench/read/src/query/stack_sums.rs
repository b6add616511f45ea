//! Weights of one profile type by row and by call path, summed over windows. A stack is resolved into its rows and paths once, for
//! all windows; a window then costs an addition for each of its frames.
//!
//! Native code that managed code called is summed twice: charged to its callers, and as rows and paths of its own. Only processes that all
//! have such code can be compared by the latter: profiles of other versions or settings of the profiler lack it.

use hashbrown::HashMap;
use spanprof_profile::code_origin::ExecutionKind;
use spanprof_profile::transform::{FoldedPaths, FunctionKey, FunctionTable};
use spanprof_profile::{Dictionary, LocationId, Profile, StackId};

use super::generated_names;
use super::summed_row::{Compared, SummedRow, WindowExposure};
use super::weights::{FunctionLine, Granularity, Weight};

/// What is summed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Summed {
    pub by: Granularity,
    pub compared: Compared,
    pub has_paths: bool,
    /// Call paths with folded libraries and runtimes.
    pub has_folded_paths: bool,
}

/// Sums of one profile type.
#[derive(Debug)]
pub(super) struct SummedStacks {
    summed: Summed,
    /// Entry 0 is the root's. Generated names are those of their family.
    pub functions: Vec<FunctionKey>,
    known_functions: HashMap<FunctionKey, u32>,
    /// Function and line of each row; the line is 0 of whole functions.
    rows: Vec<(u32, i64)>,
    /// By row.
    kinds: Vec<ExecutionKind>,
    known_rows: HashMap<(u32, i64), u32>,
    /// By row. Native code that managed code called counts for the row that called it.
    charged: RowWeights,
    /// By row, of native code: whoever called it.
    native: RowWeights,
    /// The ends of the stacks, by their rows, root first.
    stacks: HashMap<Box<[u32]>, StackEnds>,
    paths: PathTrees,
    /// Call paths without native code that managed code called; `None` while no stack has any, as they are all paths then.
    managed_paths: Option<PathTrees>,
    folded: FoldedPaths,
    stacks_added: u64,
    /// By process, of which a window without identity is one: the weight of the stacks with managed code, and whether it called native code.
    managed: HashMap<(Option<u64>, u64), (f64, bool)>,
}

/// The ends of a stack in all paths, and without native code that managed code called.
#[derive(Clone, Copy, Debug)]
struct StackEnds {
    paths: PathEnds,
    managed_paths: PathEnds,
    /// Frames before the first managed one, root first.
    managed: usize,
    has_native: bool,
}

/// The nodes of a stack's last frame.
#[derive(Clone, Copy, Debug)]
struct PathEnds {
    whole: u32,
    folded: u32,
}

impl SummedStacks {
    pub fn new(summed: Summed) -> Self {
        let functions = vec![FunctionKey { name: "root".to_owned(), ..FunctionKey::default() }];
        let mut folded = FoldedPaths::default();
        folded.add_functions(&functions);
        Self {
            summed,
            functions,
            known_functions: HashMap::new(),
            rows: Vec::new(),
            kinds: Vec::new(),
            known_rows: HashMap::new(),
            charged: RowWeights::default(),
            native: RowWeights::default(),
            stacks: HashMap::new(),
            paths: PathTrees::default(),
            managed_paths: None,
            folded,
            stacks_added: 0,
            managed: HashMap::new(),
        }
    }

    /// The functions of folded paths.
    pub fn folded_functions(&self) -> &[FunctionKey] {
        self.folded.functions()
    }

    /// The call paths, with native code that managed code called or without it.
    pub fn paths(&self, has_native: bool) -> &PathTrees {
        self.managed_paths.as_ref().filter(|_| !has_native).unwrap_or(&self.paths)
    }

    /// Weight of the stacks with managed code in processes whose managed code called native code, and in the others.
    pub fn managed_weights(&self) -> [f64; 2] {
        self.managed.values().fold([0.0; 2], |[with_native, others], (weight, has_native)| {
            if *has_native {
                [with_native + weight, others]
            } else {
                [with_native, others + weight]
            }
        })
    }

    /// Whether any stack has managed code.
    pub fn has_managed(&self) -> bool {
        !self.managed.is_empty()
    }

    /// What is summed.
    pub fn summed(&self) -> Summed {
        self.summed
    }

    /// The rows in order of first use, with the sums of the compared weight. With `has_native`, those of native code have all of its
    /// weight; else what managed code called is charged to its callers, and so it is of lines.
    pub fn rows(&self, has_native: bool) -> impl Iterator<Item = (FunctionLine, Weight, &SummedRow)> {
        let Self { summed, kinds, charged, native, .. } = self;
        let has_managed = self.has_managed();
        self.rows.iter().enumerate().filter_map(move |(row, (function, line))| {
            let is_native = kinds[row] == ExecutionKind::Native;
            let weights = if has_native && is_native { native } else { charged };
            let (mut weight, sums) = (weights.weights[row], &weights.sums.sums[row]);
            if is_native && !has_native && has_managed {
                // How far native stacks reach depends on the version of the profiler, too.
                weight.cum = weight.flat;
                if summed.compared == Compared::Cum {
                    return None;
                }
            }
            let location = FunctionLine::from(self.functions[*function as usize].clone());
            (weight != Weight::default()).then_some((FunctionLine { line: *line, ..location }, weight, sums))
        })
    }

    /// The compared weights of the rows, with native code charged to its callers.
    pub fn sums(&self) -> &[SummedRow] {
        &self.charged.sums.sums
    }

    /// Adds the samples of a window of a process.
    pub fn add(&mut self, dictionary: &Dictionary, profile: &Profile, process: Option<u64>, window: WindowExposure) {
        let mut stacks: Vec<(StackId, i64)> = Vec::new();
        let mut stack_indices: HashMap<StackId, usize> = HashMap::new();
        for sample in &profile.samples {
            let index = *stack_indices.entry(sample.stack).or_insert_with(|| {
                stacks.push((sample.stack, 0));
                stacks.len() - 1
            });
            stacks[index].1 = stacks[index].1.saturating_add(profile.weight(sample));
        }
        let rows_of_locations = self.rows_of_locations(dictionary, &stacks);
        let mut rows: Vec<u32> = Vec::new();
        let (mut managed_weight, mut has_native) = (0.0, false);
        for (stack, weight) in stacks {
            rows.clear();
            for location in dictionary.get_stack(stack).iter().rev() {
                rows.extend(rows_of_locations.get(location).into_iter().flatten().rev());
            }
            let ends = match self.stacks.get(&rows[..]) {
                Some(ends) => *ends,
                None => {
                    let ends = self.stack_ends(&rows);
                    self.stacks.insert(rows.as_slice().into(), ends);
                    ends
                }
            };
            self.add_to_rows(&rows, ends.managed, weight);
            self.paths.add(self.summed, ends.paths, weight);
            if let Some(paths) = &mut self.managed_paths {
                paths.add(self.summed, ends.managed_paths, weight);
            }
            managed_weight += if ends.managed < rows.len() { weight as f64 } else { 0.0 };
            has_native |= ends.has_native && weight != 0;
        }
        if managed_weight != 0.0 {
            let of_window = if process.is_none() { self.stacks_added } else { 0 };
            let sums = self.managed.entry((process, of_window)).or_default();
            *sums = (sums.0 + managed_weight, sums.1 || has_native);
        }
        for sums in [&mut self.charged.sums, &mut self.native.sums] {
            sums.end_window(window);
        }
        for paths in [Some(&mut self.paths), self.managed_paths.as_mut()].into_iter().flatten() {
            paths.end_window(window);
        }
    }

    /// Adds the weights of a window that has them by the name of the row.
    pub fn add_named(&mut self, names: impl Iterator<Item = (String, i64)>, window: WindowExposure) {
        for (name, weight) in names {
            let function = self.function(&FunctionKey { name, ..FunctionKey::default() });
            let row = self.row(function, 0);
            self.add_to_rows(&[row], 1, weight);
        }
        self.charged.sums.end_window(window);
    }

    /// The rows of each location of these stacks, innermost first.
    fn rows_of_locations(
        &mut self,
        dictionary: &Dictionary,
        stacks: &[(StackId, i64)],
    ) -> HashMap<LocationId, Box<[u32]>> {
        let mut table = FunctionTable::folded(dictionary, generated_names::fold);
        let mut of_locations: HashMap<LocationId, Box<[u32]>> = HashMap::new();
        for location in stacks.iter().flat_map(|(stack, _)| dictionary.get_stack(*stack)) {
            of_locations.entry(*location).or_insert_with(|| table.of_location(*location).collect());
        }
        let functions: Vec<u32> = table.rows().iter().map(|function| self.function(function)).collect();
        for (location, rows) in &mut of_locations {
            let lines = dictionary.get_location(*location).lines.iter().map(|line| line.line);
            for (row, line) in rows.iter_mut().zip(lines.chain(std::iter::repeat(0))) {
                let line = if self.summed.by == Granularity::Line { line } else { 0 };
                *row = self.row(functions[*row as usize], line);
            }
        }
        self.folded.add_functions(&self.functions);
        of_locations
    }

    fn function(&mut self, function: &FunctionKey) -> u32 {
        if let Some(number) = self.known_functions.get(function) {
            // Another window may state nothing of its origin.
            let stored = &mut self.functions[*number as usize];
            if stored.recorded.0.is_none() && function.recorded.0.is_some() {
                stored.recorded = function.recorded;
                self.folded.update_function(*number, stored);
            }
            return *number;
        }
        let new = self.functions.len() as u32;
        self.functions.push(function.clone());
        self.known_functions.insert(function.clone(), new);
        new
    }

    fn row(&mut self, function: u32, line: i64) -> u32 {
        let rows = &mut self.rows;
        let row = *self.known_rows.entry((function, line)).or_insert_with(|| {
            rows.push((function, line));
            rows.len() as u32 - 1
        });
        if row as usize == self.kinds.len() {
            self.kinds.push(self.functions[function as usize].kind());
            self.charged.push();
            self.native.push();
        }
        row
    }

    /// The nodes of a new stack.
    fn stack_ends(&mut self, rows: &[u32]) -> StackEnds {
        let kind = |row: u32| self.kinds[row as usize];
        let managed = rows.iter().position(|row| kind(*row) == ExecutionKind::Managed).unwrap_or(rows.len());
        let is_called = |frame: usize| frame > managed && kind(rows[frame]) == ExecutionKind::Native;
        let function = |frame: usize| self.rows[rows[frame] as usize].0;
        let all: Vec<u32> = (0..rows.len()).map(function).collect();
        let callers: Vec<u32> = (0..rows.len()).filter(|frame| !is_called(*frame)).map(function).collect();
        let has_native = callers.len() < all.len();
        let Self { summed, functions, folded, paths, managed_paths, .. } = self;
        if has_native && managed_paths.is_none() {
            *managed_paths = Some(paths.clone());
        }
        let ends = paths.ends(*summed, functions, folded, all);
        let of_callers = managed_paths.as_mut().map(|paths| paths.ends(*summed, functions, folded, callers));
        StackEnds { paths: ends, managed_paths: of_callers.unwrap_or(ends), managed, has_native }
    }

    /// Adds a stack, whose rows are root first. A row counts once in it. From `managed` on, native code was called by managed code.
    fn add_to_rows(&mut self, rows: &[u32], managed: usize, weight: i64) {
        self.stacks_added += 1;
        let (number, compared) = (self.stacks_added, self.summed.compared);
        let mut is_leaf = true;
        for (frame, row) in rows.iter().enumerate().rev() {
            let is_native = self.kinds[*row as usize] == ExecutionKind::Native;
            if is_native {
                self.native.add(*row, weight, frame + 1 == rows.len(), compared, number);
            }
            if !is_native || frame < managed {
                self.charged.add(*row, weight, std::mem::take(&mut is_leaf), compared, number);
            }
        }
    }
}

/// Weights of rows, summed over windows.
#[derive(Debug, Default)]
struct RowWeights {
    weights: Vec<Weight>,
    sums: WindowedSums,
    /// By row: the last stack that contained it.
    seen_in: Vec<u64>,
}

impl RowWeights {
    fn push(&mut self) {
        self.weights.push(Weight::default());
        self.sums.push();
        self.seen_in.push(0);
    }

    /// Adds a row of a stack with this number.
    fn add(&mut self, row: u32, weight: i64, is_leaf: bool, compared: Compared, number: u64) {
        let sum = &mut self.weights[row as usize];
        if is_leaf {
            sum.flat = sum.flat.saturating_add(weight);
        }
        if std::mem::replace(&mut self.seen_in[row as usize], number) == number {
            return;
        }
        sum.cum = sum.cum.saturating_add(weight);
        if is_leaf || compared == Compared::Cum {
            self.sums.add(row, weight);
        }
    }
}

/// Weights by row or by node, of the window that is being added and of all windows before it.
#[derive(Clone, Debug, Default)]
struct WindowedSums {
    of_window: Vec<i64>,
    /// What has a weight in the window.
    used: Vec<u32>,
    sums: Vec<SummedRow>,
}

impl WindowedSums {
    fn push(&mut self) {
        self.of_window.push(0);
        self.sums.push(SummedRow::default());
    }

    fn add(&mut self, index: u32, weight: i64) {
        let sum = &mut self.of_window[index as usize];
        if *sum == 0 {
            self.used.push(index);
        }
        *sum = sum.saturating_add(weight);
    }

    fn end_window(&mut self, window: WindowExposure) {
        for index in self.used.drain(..) {
            let weight = std::mem::take(&mut self.of_window[index as usize]);
            self.sums[index as usize].add(weight, window);
        }
    }
}

/// The last function of a call path.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathNode {
    /// The node of the caller; the root is its own.
    pub parent: u32,
    pub function: u32,
    /// Weight of the stacks that end here.
    pub self_weight: i64,
}

/// Call paths, and call paths with folded libraries and runtimes.
#[derive(Clone, Debug, Default)]
pub(super) struct PathTrees {
    pub whole: PathSums,
    pub folded: PathSums,
}

impl PathTrees {
    /// The nodes of a path of `functions`, root first. Recursion is folded.
    fn ends(&mut self, summed: Summed, keys: &[FunctionKey], folded: &mut FoldedPaths, mut path: Vec<u32>) -> PathEnds {
        path.dedup();
        let mut ends = PathEnds { whole: 0, folded: 0 };
        if summed.has_paths {
            ends.whole = self.whole.node(&path);
        }
        if summed.has_folded_paths {
            let mut frames = Vec::new();
            folded.fold(keys, &path, &mut frames);
            ends.folded = self.folded.node(&frames);
        }
        ends
    }

    fn add(&mut self, summed: Summed, ends: PathEnds, weight: i64) {
        if summed.has_paths {
            self.whole.add(ends.whole, weight);
        }
        if summed.has_folded_paths {
            self.folded.add(ends.folded, weight);
        }
    }

    fn end_window(&mut self, window: WindowExposure) {
        self.whole.sums.end_window(window);
        self.folded.sums.end_window(window);
    }
}

/// Call paths with their callees.
#[derive(Clone, Debug)]
pub(super) struct PathSums {
    /// Callers first. Node 0 is the root.
    pub nodes: Vec<PathNode>,
    /// By caller and function.
    callees: HashMap<(u32, u32), u32>,
    sums: WindowedSums,
}

impl Default for PathSums {
    fn default() -> Self {
        let mut paths = Self { nodes: Vec::new(), callees: HashMap::new(), sums: WindowedSums::default() };
        paths.push(0, 0);
        paths
    }
}

impl PathSums {
    /// The sums of the nodes.
    pub fn sums(&self) -> &[SummedRow] {
        &self.sums.sums
    }

    fn push(&mut self, parent: u32, function: u32) -> u32 {
        self.nodes.push(PathNode { parent, function, self_weight: 0 });
        self.sums.push();
        self.nodes.len() as u32 - 1
    }

    /// The node of a path, root first.
    fn node(&mut self, path: &[u32]) -> u32 {
        path.iter().fold(0, |parent, function| match self.callees.get(&(parent, *function)) {
            Some(node) => *node,
            None => {
                let node = self.push(parent, *function);
                self.callees.insert((parent, *function), node);
                node
            }
        })
    }

    /// Adds a stack that ends at a node.
    fn add(&mut self, end: u32, weight: i64) {
        let sum = &mut self.nodes[end as usize].self_weight;
        *sum = sum.saturating_add(weight);
        let mut node = end;
        loop {
            self.sums.add(node, weight);
            if node == 0 {
                break;
            }
            node = self.nodes[node as usize].parent;
        }
    }
}
