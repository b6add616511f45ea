//! Which stacks of a result are shown, and how: the parameters `native`, `focus` and `ignore` of the table, of functions and of flame
//! graphs; `recursion`, `invert`, `callers` and `group` of flame graphs only.

use std::borrow::Cow;

use regex_lite::Regex;
use spanprof_profile::transform::{self, StackTree};
use spanprof_profile::{Dictionary, Profile, ProfilesData};
use spanprof_read::query::{self, StackFilter};

use crate::query::label_groups;
use crate::query::queries::QueryResult;
use crate::query::stack_selection::StackSelection;

/// The root of the tree and the direction of its stacks.
#[derive(Clone, Debug, Default)]
enum TreeShape {
    /// From the outermost functions to the leaves.
    #[default]
    Calls,
    /// From the leaves to the outermost functions.
    Inverted,
    /// The functions that match, with their callers below them.
    Callers(Regex),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct StackView {
    selection: StackSelection,
    collapses_recursion: bool,
    shape: TreeShape,
    /// Label whose values are the functions at the root.
    group: Option<String>,
    /// Identity of all, for caches.
    tree_key: String,
}

impl StackView {
    /// Other parameters are ignored. `focus` and `ignore` may be repeated: a stack must pass each.
    pub(crate) fn parse(parameters: &[(String, String)]) -> Result<Self, String> {
        let mut view = Self::default();
        for (name, value) in parameters.iter().filter(|(_, value)| !value.is_empty()) {
            let pattern = || {
                Regex::new(value)
                    .map_err(|error| format!("`{name}`: expected a regular expression, got `{value}`: {error}"))
            };
            let flag = || match value.as_str() {
                "1" => Ok(true),
                "0" => Ok(false),
                _ => Err(format!("`{name}`: expected 0 or 1, got `{value}`")),
            };
            match name.as_str() {
                "native" => view.selection.has_native = value == "1",
                "focus" => view.selection.filters.push(StackFilter { focus: Some(pattern()?), ignore: None }),
                "ignore" => view.selection.filters.push(StackFilter { focus: None, ignore: Some(pattern()?) }),
                "group" => view.group = Some(value.clone()),
                "callers" => view.shape = TreeShape::Callers(pattern()?),
                "invert" if flag()? && !matches!(view.shape, TreeShape::Callers(_)) => view.shape = TreeShape::Inverted,
                "recursion" => {
                    view.collapses_recursion = match value.as_str() {
                        "collapse" => true,
                        "keep" => false,
                        _ => return Err(format!("`recursion`: expected keep or collapse, got `{value}`")),
                    }
                }
                _ => {}
            }
        }
        let key = |names: &[&str]| {
            let chosen = parameters.iter().filter(|(name, value)| names.contains(&name.as_str()) && !value.is_empty());
            chosen.map(|(name, value)| format!("{name}={value}\n")).collect::<String>()
        };
        view.selection.key = key(&["native", "focus", "ignore"]);
        view.tree_key = key(&["native", "focus", "ignore", "recursion", "invert", "callers", "group"]);
        Ok(view)
    }

    pub(crate) fn selection(&self) -> &StackSelection {
        &self.selection
    }

    pub(crate) fn tree_key(&self) -> &str {
        &self.tree_key
    }

    /// Whether stacks are left out.
    pub(crate) fn has_filters(&self) -> bool {
        self.selection.has_filters()
    }

    /// Whether the outermost functions are not at the root of the tree.
    pub(crate) fn is_inverted(&self) -> bool {
        !matches!(self.shape, TreeShape::Calls)
    }

    /// As called, with recursion: for the callers and callees of a function.
    pub(crate) fn as_called(&self) -> Self {
        let tree_key = self.selection.key.clone();
        Self { collapses_recursion: false, shape: TreeShape::Calls, group: None, tree_key, ..self.clone() }
    }

    /// The samples that are shown.
    pub(crate) fn data<'r>(&self, result: &'r QueryResult) -> Cow<'r, ProfilesData> {
        let data = &*result.data;
        if !self.has_filters() && (self.selection.has_native || !query::has_builtins(data)) {
            return Cow::Borrowed(data);
        }
        let mut data = data.clone();
        self.selection.filter_shown(&mut data);
        Cow::Owned(data)
    }

    pub(crate) fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }

    /// The tree of one type of [`StackView::data`]. With a group, the samples have the label of the group only.
    pub(crate) fn tree(&self, data: &ProfilesData, type_name: &str) -> StackTree {
        let Some(key) = &self.group else {
            return self.tree_of(&data.dictionary, data.profiles().map(|(_, profile)| profile), type_name);
        };
        let groups = label_groups::profiles_by_value(data, type_name, key).into_iter().map(|(value, profiles)| {
            let name = match value.as_deref() {
                None => format!("{key}: other values"),
                Some("") => format!("{key}: none"),
                Some(value) => format!("{key}={value}"),
            };
            (name, self.tree_of(&data.dictionary, profiles.iter(), type_name))
        });
        label_groups::joined(type_name, groups.collect())
    }

    fn tree_of<'d>(
        &self,
        dictionary: &'d Dictionary,
        profiles: impl Iterator<Item = &'d Profile>,
        type_name: &str,
    ) -> StackTree {
        let profiles = profiles.filter(|profile| profile.type_name() == type_name);
        let tree = transform::tree_of(dictionary, profiles, self.collapses_recursion);
        let tree = StackTree { type_name: type_name.to_owned(), ..tree };
        match &self.shape {
            TreeShape::Calls => tree,
            TreeShape::Inverted => tree.inverted(),
            TreeShape::Callers(pattern) => tree
                .callers_of(|function| query::is_match(pattern, &function.name, &function.file, function.start_line)),
        }
    }
}
