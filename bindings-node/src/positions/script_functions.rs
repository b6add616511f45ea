//! The functions of a script, and which of them has a source position. Owned by the scripts; pure.

use std::collections::HashMap;
use std::sync::Arc;

use super::names::CodeName;
use super::{LineTable, NO_POSITION};

/// A script with more functions has an index of their names.
const MAX_UNNAMED: usize = 8;

/// The functions of a script, each with the line table of its bytecode.
#[derive(Default)]
pub struct ScriptFunctions {
    functions: Vec<(Arc<CodeName>, Arc<LineTable>)>,
    /// Absent in the many scripts with few functions whose positions were not looked up.
    index: Option<Box<ScriptFunctionIndex>>,
}

/// Indices of functions.
#[derive(Default)]
struct ScriptFunctionIndex {
    /// By the address of the name, which is interned.
    by_name: HashMap<usize, usize>,
    /// By script offsets that their bytecode has; sorted.
    owners: Vec<(u32, u32)>,
    /// Number of functions whose offsets are in `owners`.
    indexed: usize,
}

impl ScriptFunctions {
    /// Adds a function, or replaces its line table; whether it is new.
    pub fn add(&mut self, name: &Arc<CodeName>, lines: &Arc<LineTable>) -> bool {
        if self.index.is_none() && self.functions.len() > MAX_UNNAMED {
            self.index();
        }
        let known = match &self.index {
            Some(index) => index.by_name.get(&(Arc::as_ptr(name) as usize)).copied(),
            None => self.functions.iter().position(|function| Arc::ptr_eq(&function.0, name)),
        };
        if let Some(known) = known {
            if self.functions[known].1 != *lines {
                self.functions[known].1 = lines.clone();
                // It contains the old offsets.
                self.index = None;
            }
            return false;
        }
        if let Some(index) = &mut self.index {
            index.by_name.insert(Arc::as_ptr(name) as usize, self.functions.len());
        } else {
            self.functions.reserve_exact(1);
        }
        self.functions.push((name.clone(), lines.clone()));
        true
    }

    pub fn names(&self) -> impl Iterator<Item = &Arc<CodeName>> {
        self.functions.iter().map(|(name, _)| name)
    }

    /// The functions whose bytecode has this position.
    pub fn owners_of(&mut self, offset: u32) -> impl Iterator<Item = &Arc<CodeName>> {
        self.index();
        let functions = &self.functions;
        let owners = self.index.as_mut().map(|index| index.owners(functions)).unwrap_or_default();
        let first = owners.partition_point(|owner| owner.0 < offset);
        let owners = owners[first..].iter().take_while(move |owner| owner.0 == offset);
        owners.map(|(_, index)| &functions[*index as usize].0)
    }

    fn index(&mut self) {
        self.index.get_or_insert_with(|| {
            let names = self.functions.iter().enumerate();
            let by_name = names.map(|(index, (name, _))| (Arc::as_ptr(name) as usize, index)).collect();
            Box::new(ScriptFunctionIndex { by_name, ..ScriptFunctionIndex::default() })
        });
    }
}

impl ScriptFunctionIndex {
    fn owners(&mut self, functions: &[(Arc<CodeName>, Arc<LineTable>)]) -> &[(u32, u32)] {
        if self.indexed < functions.len() {
            for (index, (_, lines)) in functions.iter().enumerate().skip(self.indexed) {
                let positions = lines.positions().iter().map(|position| position.1);
                let positions = positions.filter(|position| *position != NO_POSITION);
                self.owners.extend(positions.map(|position| (position, index as u32)));
            }
            self.indexed = functions.len();
            // A merge sort: the sorted prefix is only merged.
            self.owners.sort();
            self.owners.dedup();
        }
        &self.owners
    }
}
