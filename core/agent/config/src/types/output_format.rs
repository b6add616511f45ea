//! Formats of the file of the key `output`.

/// Format of a file, by its extension.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OutputFormat {
    /// A flame graph in one HTML file.
    FlameGraph,
    /// pprof, gzip.
    Pprof,
    /// One line per stack.
    Folded,
}

impl OutputFormat {
    /// The format of a file of this name; `None` for an unknown extension.
    pub fn of(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let has_extension =
            |extensions: &[&str]| extensions.iter().any(|it| name.len() > it.len() && name.ends_with(it));
        match () {
            () if has_extension(&[".html", ".htm"]) => Some(Self::FlameGraph),
            () if has_extension(&[".pb.gz", ".pprof"]) => Some(Self::Pprof),
            () if has_extension(&[".folded"]) => Some(Self::Folded),
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_selects_the_format() {
        assert_eq!(OutputFormat::of("a/flame.HTML"), Some(OutputFormat::FlameGraph));
        assert_eq!(OutputFormat::of("run.pb.gz"), Some(OutputFormat::Pprof));
        assert_eq!(OutputFormat::of("run.folded"), Some(OutputFormat::Folded));
        assert_eq!(OutputFormat::of("run.svg"), None);
        assert_eq!(OutputFormat::of(".html"), None);
    }
}
