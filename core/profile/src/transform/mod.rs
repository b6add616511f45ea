//! Transformations of profiles: merge windows, separate exact values, reduce detail for a receiver, name native code, build the stack tree. They return values; the
//! encoders and the command line format them. Selections and summaries are in `spanprof-read`.

mod code_part;
mod exact;
mod fold;
mod foldable;
mod functions;
mod invert;
mod label_names;
mod merge;
mod prune;
mod reduce;
mod symbolize;
mod tree;

pub use code_part::CodePart;
pub use exact::{join_exact_values, separate_exact_values};
pub use fold::{folded_function, FoldedPaths};
pub use foldable::FoldableFunctions;
pub use functions::{FunctionKey, FunctionTable};
pub use label_names::{is_accepted_label_name, refused_label_names};
pub(crate) use merge::Merged;
pub use merge::{merge, merge_owned, merge_profiles};
pub use prune::PrunedTree;
pub use reduce::Reduction;
pub use symbolize::{name_locations, unnamed_locations};
pub use tree::{call_paths, depth_first, tree, tree_of, CallPaths, StackNode, StackTree};
