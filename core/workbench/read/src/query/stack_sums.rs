//! Weights of one profile type by row and by call path, summed over windows. A stack is resolved into its rows and paths once, for
//! all windows; a window then costs an addition for each of its frames.

use hashbrown::HashMap;
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
    known_rows: HashMap<(u32, i64), u32>,
    weights: Vec<Weight>,
    row_sums: WindowedSums,
    /// The ends of the stacks, by their rows, root first.
    stacks: HashMap<Box<[u32]>, PathEnds>,
    pub paths: PathSums,
    folded: FoldedPaths,
    pub folded_paths: PathSums,
    /// By row: the last stack that contained it.
    seen_in: Vec<u64>,
    stacks_added: u64,
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
            known_rows: HashMap::new(),
            weights: Vec::new(),
            row_sums: WindowedSums::default(),
            stacks: HashMap::new(),
            paths: PathSums::default(),
            folded,
            folded_paths: PathSums::default(),
            seen_in: Vec::new(),
            stacks_added: 0,
        }
    }

    /// The functions of [`Self::folded_paths`].
    pub fn folded_functions(&self) -> &[FunctionKey] {
        self.folded.functions()
    }

    /// The rows in order of first use, as [`Self::sums`] has them.
    pub fn rows(&self) -> impl Iterator<Item = (FunctionLine, Weight)> + '_ {
        self.rows.iter().zip(&self.weights).map(|((function, line), weight)| {
            (FunctionLine { line: *line, ..FunctionLine::from(self.functions[*function as usize].clone()) }, *weight)
        })
    }

    /// The compared weights of the rows.
    pub fn sums(&self) -> &[SummedRow] {
        &self.row_sums.sums
    }

    /// Adds the samples of a window.
    pub fn add(&mut self, dictionary: &Dictionary, profile: &Profile, window: WindowExposure) {
        let mut stacks: Vec<(StackId, i64)> = Vec::new();
        let mut known: HashMap<StackId, usize> = HashMap::new();
        for sample in &profile.samples {
            let at = *known.entry(sample.stack).or_insert_with(|| {
                stacks.push((sample.stack, 0));
                stacks.len() - 1
            });
            stacks[at].1 = stacks[at].1.saturating_add(profile.weight(sample));
        }
        let rows_of_locations = self.rows_of_locations(dictionary, &stacks);
        let mut rows: Vec<u32> = Vec::new();
        for (stack, weight) in stacks {
            rows.clear();
            for location in dictionary.get_stack(stack).iter().rev() {
                rows.extend(rows_of_locations.get(location).into_iter().flatten().rev());
            }
            let ends = match self.stacks.get(&rows[..]) {
                Some(ends) => *ends,
                None => {
                    let ends = self.path_ends(&rows);
                    self.stacks.insert(rows.as_slice().into(), ends);
                    ends
                }
            };
            self.add_to_rows(&rows, weight);
            if self.summed.has_paths {
                self.paths.add(ends.whole, weight);
            }
            if self.summed.has_folded_paths {
                self.folded_paths.add(ends.folded, weight);
            }
        }
        for sums in [&mut self.row_sums, &mut self.paths.sums, &mut self.folded_paths.sums] {
            sums.end_window(window);
        }
    }

    /// Adds the weights of a window that has them by the name of the row.
    pub fn add_named(&mut self, names: impl Iterator<Item = (String, i64)>, window: WindowExposure) {
        for (name, weight) in names {
            let function = self.function(&FunctionKey { name, ..FunctionKey::default() });
            let row = self.row(function, 0);
            self.add_to_rows(&[row], weight);
        }
        self.row_sums.end_window(window);
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
        if let Some(known) = self.known_functions.get(function) {
            // Another window may state nothing of its origin.
            let stored = &mut self.functions[*known as usize];
            if stored.recorded.0.is_none() && function.recorded.0.is_some() {
                stored.recorded = function.recorded;
                self.folded.update_function(*known, stored);
            }
            return *known;
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
        if row as usize == self.weights.len() {
            self.weights.push(Weight::default());
            self.row_sums.push();
            self.seen_in.push(0);
        }
        row
    }

    /// The nodes of a new stack. Recursion is folded.
    fn path_ends(&mut self, rows: &[u32]) -> PathEnds {
        let mut path: Vec<u32> = rows.iter().map(|row| self.rows[*row as usize].0).collect();
        path.dedup();
        let whole = if self.summed.has_paths { self.paths.node(&path) } else { 0 };
        let folded = if self.summed.has_folded_paths {
            let mut frames = Vec::new();
            self.folded.fold(&self.functions, &path, &mut frames);
            self.folded_paths.node(&frames)
        } else {
            0
        };
        PathEnds { whole, folded }
    }

    /// Adds a stack, whose rows are root first. A row counts once in it.
    fn add_to_rows(&mut self, rows: &[u32], weight: i64) {
        self.stacks_added += 1;
        for (nth, row) in rows.iter().rev().enumerate() {
            let sum = &mut self.weights[*row as usize];
            if nth == 0 {
                sum.flat = sum.flat.saturating_add(weight);
            }
            if std::mem::replace(&mut self.seen_in[*row as usize], self.stacks_added) == self.stacks_added {
                continue;
            }
            sum.cum = sum.cum.saturating_add(weight);
            if nth == 0 || self.summed.compared == Compared::Cum {
                self.row_sums.add(*row, weight);
            }
        }
    }
}

/// Weights by row or by node, of the window that is being added and of all windows before it.
#[derive(Debug, Default)]
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

    fn add(&mut self, at: u32, weight: i64) {
        let sum = &mut self.of_window[at as usize];
        if *sum == 0 {
            self.used.push(at);
        }
        *sum = sum.saturating_add(weight);
    }

    fn end_window(&mut self, window: WindowExposure) {
        for at in self.used.drain(..) {
            let weight = std::mem::take(&mut self.of_window[at as usize]);
            self.sums[at as usize].add(weight, window);
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

/// Call paths with their callees.
#[derive(Debug)]
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
        let mut at = end;
        loop {
            self.sums.add(at, weight);
            if at == 0 {
                break;
            }
            at = self.nodes[at as usize].parent;
        }
    }
}
