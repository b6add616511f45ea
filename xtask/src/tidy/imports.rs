//! The imports between the modules of a source directory. Called by the rules about them.

/// An import of one module by another. Modules are paths relative to their source directory, such as `clocks/set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    pub from: String,
    pub to: String,
    /// The file that imports.
    pub file: String,
    pub line: usize,
}

/// The imports between the modules of one source directory.
pub struct SourceImports {
    pub directory: String,
    pub imports: Vec<Import>,
}
