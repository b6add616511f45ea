//! Flat, own and cumulative weight per function or line: the sums of the top table.

use hashbrown::HashMap;

use spanprof_profile::code_origin::{CodeOrigin, ExecutionKind, RecordedOrigin};
use spanprof_profile::transform::{FunctionKey, FunctionTable};
use spanprof_profile::{Dictionary, FrameType, LocationId, Profile, ProfilesData, Sample};

/// The rows of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Granularity {
    /// A function.
    #[default]
    Function,
    /// A line of a function.
    Line,
}

/// Identity of a row: equal in profiles with different dictionaries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionLine {
    /// Name of the function.
    pub function: String,
    /// Path of its source file, "" when unknown.
    pub file: String,
    /// Line in the file, from 1; 0 when unknown. Of a whole function the line where it starts, 0 in a comparison.
    pub line: i64,
    /// Frame type.
    pub frame_type: FrameType,
    /// As of [`FunctionKey`].
    pub recorded: RecordedOrigin,
}

impl From<FunctionKey> for FunctionLine {
    fn from(FunctionKey { name, file, start_line, frame_type, recorded }: FunctionKey) -> Self {
        Self { function: name, file, line: start_line, frame_type, recorded }
    }
}

impl FunctionLine {
    /// Where the code of the function comes from.
    pub fn origin(&self) -> CodeOrigin {
        self.recorded.or(|| CodeOrigin::of(&self.function, &self.file, self.frame_type))
    }

    /// Who executes it.
    pub fn kind(&self) -> ExecutionKind {
        ExecutionKind::of(&self.function, &self.file, self.frame_type)
    }
}

/// Weight of one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Weight of samples with the row as leaf. A line of managed code, and a function in a comparison, has that of the native code that it
    /// called, too.
    pub flat: i64,
    /// Weight of samples with the row anywhere in the stack, each counted once.
    pub cum: i64,
}

/// The weights of one profile type.
#[derive(Clone, Debug, Default)]
pub(super) struct Weights {
    pub unit: String,
    pub total: i64,
    pub samples: usize,
    /// In order of first use.
    pub rows: Vec<(FunctionLine, Weight)>,
    /// By row: weight of the samples in which it is the innermost row of own code.
    pub own: Vec<i64>,
    /// By row: its self weight with that of the native code that it called.
    pub with_native: Vec<i64>,
}

/// The rows of a stack.
pub(crate) struct StackRows<'r> {
    /// Leaf first, each once: recursion counts once.
    pub rows: &'r [usize],
    /// Whether each row is native code that managed code called.
    pub is_called: &'r [bool],
    /// The row to which libraries and the runtime are charged: the innermost one of own code, of native one only without another.
    pub own: Option<usize>,
}

impl<'r> StackRows<'r> {
    /// The rows to which native code is charged, leaf first: without the native code that managed code called. The first one has the self
    /// time.
    pub fn callers(&self) -> impl Iterator<Item = usize> + 'r {
        self.rows.iter().zip(self.is_called).filter(|(_, is_called)| !**is_called).map(|(row, _)| *row)
    }

    /// The row with the self time. Native code has no lines: that of a line has the native code that it called.
    fn leaf(&self, by: Granularity) -> Option<usize> {
        match by {
            Granularity::Function => self.rows.first().copied(),
            Granularity::Line => self.callers().next(),
        }
    }
}

/// Row indices of each location, innermost first.
struct LocationRows<'d> {
    dictionary: &'d Dictionary,
    by: Granularity,
    functions: FunctionTable<'d>,
    /// (function, line) of each row.
    rows: Vec<(u32, i64)>,
    /// Whether each row is own code, and its kind.
    kinds: Vec<(bool, ExecutionKind)>,
    row_numbers: HashMap<(u32, i64), usize>,
    by_location: HashMap<LocationId, Box<[usize]>>,
}

impl LocationRows<'_> {
    fn of_location(&mut self, id: LocationId) -> &[usize] {
        let Self { dictionary, by, functions, rows, kinds, row_numbers, by_location } = self;
        by_location.entry(id).or_insert_with(|| {
            let of_location: Vec<u32> = functions.of_location(id).collect();
            let lines = dictionary.get_location(id).lines.iter().map(|line| line.line);
            let lines = lines.chain(std::iter::repeat(0));
            let of_line = |(function, line): (u32, i64)| {
                let row = (function, if *by == Granularity::Line { line } else { 0 });
                *row_numbers.entry(row).or_insert_with(|| {
                    rows.push(row);
                    let function = &functions.rows()[function as usize];
                    kinds.push((function.origin() == CodeOrigin::Own, function.kind()));
                    rows.len() - 1
                })
            };
            of_location.into_iter().zip(lines).map(of_line).collect()
        })
    }
}

/// Adds up the samples of one type.
pub(super) fn weights(data: &ProfilesData, type_name: &str, by: Granularity) -> Weights {
    let profiles = data.profiles().map(|(_, profile)| profile).filter(|profile| profile.type_name() == type_name);
    let mut sums: Vec<Weight> = Vec::new();
    // Charged to own code, and to the callers of native code.
    let mut charged: Vec<[i64; 2]> = Vec::new();
    let mut result = Weights::default();
    let rows = visit_samples(&data.dictionary, profiles, by, None, |profile, sample, stack| {
        if result.unit.is_empty() {
            profile.unit().clone_into(&mut result.unit);
        }
        let weight = profile.weight(sample);
        result.samples += 1;
        result.total = result.total.saturating_add(weight);
        let leaf = stack.leaf(by);
        for row in stack.rows.iter().copied() {
            if row >= sums.len() {
                sums.resize(row + 1, Weight::default());
                charged.resize(row + 1, [0; 2]);
            }
            let sum = &mut sums[row];
            if leaf == Some(row) {
                sum.flat = sum.flat.saturating_add(weight);
            }
            sum.cum = sum.cum.saturating_add(weight);
        }
        for (nth, row) in [stack.own, stack.callers().next()].into_iter().enumerate() {
            if let Some(row) = row {
                charged[row][nth] = charged[row][nth].saturating_add(weight);
            }
        }
    });
    sums.resize(rows.len(), Weight::default());
    charged.resize(rows.len(), [0; 2]);
    result.own = charged.iter().map(|[own, _]| *own).collect();
    // Native code has its own weight, whoever called it.
    let with_native = charged.iter().zip(&sums).map(|([_, with_native], sum)| sum.flat.max(*with_native));
    result.with_native = with_native.collect();
    result.rows = rows.into_iter().zip(sums).collect();
    result
}

/// Calls `visit` with each sample and the numbers of its rows. Returns the rows by number, in order of first use. `fold` as in
/// [`FunctionTable::folded`].
pub(crate) fn visit_samples<'d>(
    dictionary: &'d Dictionary,
    profiles: impl Iterator<Item = &'d Profile>,
    by: Granularity,
    fold: Option<fn(String) -> String>,
    mut visit: impl FnMut(&'d Profile, &'d Sample, StackRows<'_>),
) -> Vec<FunctionLine> {
    let functions = match (by, fold) {
        (Granularity::Function, None) => FunctionTable::new(dictionary),
        // A line has no start line beside it: functions that overlap would be equal rows.
        (Granularity::Line, None) => FunctionTable::folded(dictionary, |name| name),
        (_, Some(fold)) => FunctionTable::folded(dictionary, fold),
    };
    let mut table = LocationRows {
        dictionary,
        by,
        functions,
        rows: Vec::new(),
        kinds: Vec::new(),
        row_numbers: HashMap::new(),
        by_location: HashMap::new(),
    };
    // Number of the last sample that contained the row.
    let mut seen_in: Vec<usize> = Vec::new();
    let mut number = 0;
    let (mut distinct, mut is_called) = (Vec::new(), Vec::new());
    for profile in profiles {
        for sample in &profile.samples {
            number += 1;
            distinct.clear();
            for location in dictionary.get_stack(sample.stack) {
                for row in table.of_location(*location).iter().copied() {
                    if row >= seen_in.len() {
                        seen_in.resize(row + 1, 0);
                    }
                    if seen_in[row] != number {
                        seen_in[row] = number;
                        distinct.push(row);
                    }
                }
            }
            let kind = |row: &usize| table.kinds[*row].1;
            let managed = distinct.iter().rposition(|row| kind(row) == ExecutionKind::Managed).unwrap_or(0);
            is_called.clear();
            is_called.extend(
                distinct.iter().enumerate().map(|(depth, row)| depth < managed && kind(row) == ExecutionKind::Native),
            );
            let own = || distinct.iter().copied().filter(|row| table.kinds[*row].0);
            let own = own().find(|row| kind(row) != ExecutionKind::Native).or_else(|| own().next());
            visit(profile, sample, StackRows { rows: &distinct, is_called: &is_called, own });
        }
    }
    let LocationRows { functions, rows, .. } = table;
    let functions = functions.into_rows();
    let identity = |(function, line): (u32, i64)| {
        let of_function = FunctionLine::from(functions[function as usize].clone());
        match by {
            Granularity::Function => of_function,
            Granularity::Line => FunctionLine { line, ..of_function },
        }
    };
    rows.into_iter().map(identity).collect()
}
