//! What the time of a sample was used for: the part of the program that executed, or what its thread waited for.

use hashbrown::HashMap;
use spanprof_profile::code_origin::WaitReason;
use spanprof_profile::transform::{CodePart, FunctionTable};
use spanprof_profile::{Dictionary, StackId};

/// What time was used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TimeCategory {
    /// To execute a part of the program.
    Code(CodePart),
    /// To wait.
    Wait(WaitReason),
}

impl TimeCategory {
    /// Its word in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Code(part) => part.name(),
            Self::Wait(reason) => reason.name(),
        }
    }

    /// Its name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Code(part) => part.title(),
            Self::Wait(reason) => reason.title(),
        }
    }

    /// As [`WaitReason::frame`].
    pub fn frame(self) -> Option<&'static str> {
        match self {
            Self::Code(_) => None,
            Self::Wait(reason) => reason.frame(),
        }
    }

    /// Whether nothing is known.
    pub(crate) fn is_unknown(self) -> bool {
        matches!(self, Self::Code(CodePart::Unknown) | Self::Wait(WaitReason::Unknown))
    }
}

/// The categories of the stacks of a dictionary.
pub(super) struct StackCategories<'d> {
    dictionary: &'d Dictionary,
    /// Made for the first stack.
    functions: Option<FunctionTable<'d>>,
    known: HashMap<StackId, (CodePart, WaitReason)>,
}

impl<'d> StackCategories<'d> {
    pub fn new(dictionary: &'d Dictionary) -> Self {
        Self { dictionary, functions: None, known: HashMap::new() }
    }

    /// The categories of a sample, at most one of code and one of waits. Wall time and CPU time have both: wall time of a function
    /// that waits is less its CPU time.
    pub fn of(&mut self, type_name: &str, stack: StackId) -> [Option<TimeCategory>; 2] {
        let (has_code, has_wait) = match type_name {
            "cpu" => (true, true),
            "wall" | "off_cpu" => (false, true),
            _ => return [None, None],
        };
        let (part, reason) = match self.known.get(&stack) {
            Some(known) => *known,
            None => {
                let found = self.find(stack);
                *self.known.entry(stack).or_insert(found)
            }
        };
        [has_code.then_some(TimeCategory::Code(part)), has_wait.then_some(TimeCategory::Wait(reason))]
    }

    fn find(&mut self, stack: StackId) -> (CodePart, WaitReason) {
        let dictionary = self.dictionary;
        let table = self.functions.get_or_insert_with(|| FunctionTable::new(dictionary));
        let mut ids: Vec<u32> = Vec::new();
        for location in dictionary.get_stack(stack) {
            ids.extend(table.of_location(*location));
        }
        let functions = || ids.iter().map(|id| &table.rows()[*id as usize]);
        let waiting = functions().map(|it| (it.name.as_str(), it.file.as_str(), it.origin()));
        (CodePart::of_stack(functions()), WaitReason::of_stack(waiting))
    }
}
