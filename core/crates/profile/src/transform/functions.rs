//! Identity of functions in tables and graphs: name, file and frame type. Locations without a name have their address as
//! name and their mapping as file.

use std::iter::Copied;
use std::slice::Iter;

use hashbrown::HashMap;

use crate::{Dictionary, FrameType, Function, LocationId};

/// Functions in order of first use; 0 is the root of trees.
pub struct FunctionTable<'d> {
    dictionary: &'d Dictionary,
    rows: Vec<(String, String, FrameType)>,
    known: HashMap<(String, String, FrameType), u32>,
    /// Functions of each location, innermost first.
    by_location: Vec<Option<Box<[u32]>>>,
    rename: fn(String) -> String,
}

impl<'d> FunctionTable<'d> {
    /// A table with only the root.
    pub fn new(dictionary: &'d Dictionary) -> Self {
        Self::renamed(dictionary, |name| name)
    }

    /// As [`Self::new`]; functions of one file that `rename` gives the same name are one function.
    pub fn renamed(dictionary: &'d Dictionary, rename: fn(String) -> String) -> Self {
        Self {
            dictionary,
            rename,
            rows: vec![("root".to_owned(), String::new(), FrameType::Unspecified)],
            known: HashMap::new(),
            by_location: vec![None; dictionary.lens().locations],
        }
    }

    /// Functions of a location, innermost first.
    pub fn of_location(&mut self, id: LocationId) -> Copied<Iter<'_, u32>> {
        // An unassigned id reads as the empty location.
        let at = if id.index() < self.by_location.len() { id.index() } else { 0 };
        if self.by_location[at].is_none() {
            self.by_location[at] = Some(self.resolve(LocationId(at as u32)));
        }
        self.by_location[at].as_deref().unwrap_or_default().iter().copied()
    }

    fn resolve(&mut self, id: LocationId) -> Box<[u32]> {
        let location = self.dictionary.get_location(id);
        let frame_type = self.dictionary.frame_type_of(id);
        let text = |id| self.dictionary.get_string(id).to_owned();
        let mapping = self.dictionary.get_mapping(location.mapping);
        let nameless = || format!("0x{:x}", location.address);
        let rows: Vec<_> = if location.lines.is_empty() {
            vec![(nameless(), text(mapping.filename), frame_type)]
        } else {
            let of_line = |function: Function| {
                let name = [function.name, function.system_name].map(text).into_iter().find(|name| !name.is_empty());
                ((self.rename)(name.unwrap_or_else(nameless)), text(function.filename), frame_type)
            };
            location.lines.iter().map(|line| of_line(self.dictionary.get_function(line.function))).collect()
        };
        rows.into_iter().map(|row| self.row(row)).collect()
    }

    fn row(&mut self, row: (String, String, FrameType)) -> u32 {
        let rows = &mut self.rows;
        *self.known.entry(row).or_insert_with_key(|row| {
            rows.push(row.clone());
            rows.len() as u32 - 1
        })
    }

    /// (name, file, frame type) of every function so far.
    pub fn rows(&self) -> &[(String, String, FrameType)] {
        &self.rows
    }

    /// As [`Self::rows`].
    pub fn into_rows(self) -> Vec<(String, String, FrameType)> {
        self.rows
    }
}
