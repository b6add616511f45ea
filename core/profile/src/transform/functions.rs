//! Identity of functions in tables and graphs. Locations without a name have their address as name and their mapping as file.

use std::iter::Copied;
use std::slice::Iter;

use hashbrown::HashMap;

use crate::code_origin::{recorded_origins, CodeOrigin, ExecutionKind, RecordedOrigin};
use crate::{Dictionary, FrameType, Function, LocationId};

/// Identity of a function. The start line distinguishes functions of one name in one file, such as anonymous functions
/// and lambdas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionKey {
    /// Name of the function.
    pub name: String,
    /// Path of its source file, "" when unknown.
    pub file: String,
    /// Line where the function starts, from 1; 0 when unknown, and in tables of [`FunctionTable::folded`].
    pub start_line: i64,
    /// Frame type.
    pub frame_type: FrameType,
    /// Origin that is stated instead of following from the other members.
    pub recorded: RecordedOrigin,
}

impl FunctionKey {
    /// Where the code of the function comes from.
    pub fn origin(&self) -> CodeOrigin {
        self.recorded.or(|| CodeOrigin::of(&self.name, &self.file, self.frame_type))
    }

    /// Who executes it.
    pub fn kind(&self) -> ExecutionKind {
        ExecutionKind::of(&self.name, &self.file, self.frame_type)
    }
}

/// Functions in order of first use; 0 is the root of trees.
pub struct FunctionTable<'d> {
    dictionary: &'d Dictionary,
    rows: Vec<FunctionKey>,
    numbers: HashMap<FunctionKey, u32>,
    /// Functions of each location, innermost first.
    by_location: Vec<Option<Box<[u32]>>>,
    fold: Option<fn(String) -> String>,
}

impl<'d> FunctionTable<'d> {
    /// A table with only the root.
    pub fn new(dictionary: &'d Dictionary) -> Self {
        Self::with_fold(dictionary, None)
    }

    /// A table in which functions of one file are one function if `fold` gives them the same name, wherever they start: their
    /// lines differ between versions of a program.
    pub fn folded(dictionary: &'d Dictionary, fold: fn(String) -> String) -> Self {
        Self::with_fold(dictionary, Some(fold))
    }

    fn with_fold(dictionary: &'d Dictionary, fold: Option<fn(String) -> String>) -> Self {
        Self {
            dictionary,
            fold,
            rows: vec![FunctionKey { name: "root".to_owned(), ..FunctionKey::default() }],
            numbers: HashMap::new(),
            by_location: vec![None; dictionary.lens().locations],
        }
    }

    /// Functions of a location, innermost first.
    pub fn of_location(&mut self, id: LocationId) -> Copied<Iter<'_, u32>> {
        // An unassigned id reads as the empty location.
        let index = if id.index() < self.by_location.len() { id.index() } else { 0 };
        if self.by_location[index].is_none() {
            self.by_location[index] = Some(self.resolve(LocationId(index as u32)));
        }
        self.by_location[index].as_deref().unwrap_or_default().iter().copied()
    }

    fn resolve(&mut self, id: LocationId) -> Box<[u32]> {
        let location = self.dictionary.get_location(id);
        let frame_type = self.dictionary.frame_type_of(id);
        let text = |id| self.dictionary.get_string(id).to_owned();
        let mapping = self.dictionary.get_mapping(location.mapping);
        let nameless = || format!("0x{:x}", location.address);
        let rows: Vec<_> = if location.lines.is_empty() {
            vec![FunctionKey { name: nameless(), file: text(mapping.filename), frame_type, ..FunctionKey::default() }]
        } else {
            let of_line = |(function, recorded): (Function, RecordedOrigin)| {
                let name = [function.name, function.system_name].map(text).into_iter().find(|name| !name.is_empty());
                let name = name.unwrap_or_else(nameless);
                let (name, start_line) = match self.fold {
                    Some(fold) => (fold(name), 0),
                    None => (name, function.start_line.max(0)),
                };
                FunctionKey { name, file: text(function.filename), start_line, frame_type, recorded }
            };
            let functions = location.lines.iter().map(|line| self.dictionary.get_function(line.function));
            functions.zip(recorded_origins(self.dictionary, id)).map(of_line).collect()
        };
        rows.into_iter().map(|row| self.row(row)).collect()
    }

    fn row(&mut self, row: FunctionKey) -> u32 {
        let rows = &mut self.rows;
        let recorded = row.recorded;
        let number = *self.numbers.entry(row).or_insert_with_key(|row| {
            rows.push(row.clone());
            rows.len() as u32 - 1
        });
        // Another location of the function, in a profile of another process, may state nothing.
        let stored = &mut rows[number as usize].recorded;
        stored.0 = stored.0.or(recorded.0);
        number
    }

    /// Every function so far.
    pub fn rows(&self) -> &[FunctionKey] {
        &self.rows
    }

    /// As [`Self::rows`].
    pub fn into_rows(self) -> Vec<FunctionKey> {
        self.rows
    }
}
