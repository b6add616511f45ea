//! Source files of the functions of a profile, and their lines with weights. The names of files come from profiles, which anyone
//! may have sent: [`SourcePaths::only_below`] reads nothing outside of its directories.

use std::path::{Component, Path, PathBuf};

use serde_json::{json, Value};
use spanprof_read::query::{FunctionLine, FunctionLines};

use crate::failure::Failure;

/// Where a module of Maven or Gradle has its packages.
const SOURCE_ROOTS: [&str; 5] = ["", "src/main/java", "src/main/kotlin", "src/main/scala", "src/test/java"];
/// Largest source file read.
const MAX_SOURCE_BYTES: u64 = 16 << 20;
/// Lines shown before the first and after the last line of a function that has a weight.
const CONTEXT_LINES: usize = 3;

/// The directories of the sources.
#[derive(Clone, Debug, Default)]
pub struct SourcePaths {
    directories: Vec<PathBuf>,
    /// Prefix that the paths of the profile have and those below the directories have not.
    trimmed_prefix: Option<PathBuf>,
    is_only_below: bool,
}

/// The directories of the flag `--source-path`, resolved. A missing one would look like sources that cannot be found.
pub fn source_directories(directories: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let directory = |path: &PathBuf| match path.canonicalize() {
        Ok(directory) if directory.is_dir() => Ok(directory),
        Ok(_) => Err(Failure::new(format!("--source-path {}: expected a directory, got a file", path.display()))
            .hint("name the directory of the sources")),
        Err(error) => Err(Failure::new(format!("--source-path {}: {error}", path.display()))
            .hint("name an existing directory of the sources")),
    };
    directories.iter().map(directory).collect()
}

/// A file that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Its path below the directory in which it was found; the path of the profile if that was read.
    pub path: PathBuf,
    pub lines: Vec<String>,
}

impl SourcePaths {
    /// Reads the path of the profile too, and follows symbolic links.
    pub fn new(directories: Vec<PathBuf>, trimmed_prefix: Option<PathBuf>) -> Self {
        Self { directories, trimmed_prefix, is_only_below: false }
    }

    /// Reads only files that are below a directory after symbolic links are resolved, and no hidden ones, such as `.env` or those
    /// of `.git`.
    pub fn only_below(directories: Vec<PathBuf>, trimmed_prefix: Option<PathBuf>) -> Self {
        Self { directories, trimmed_prefix, is_only_below: true }
    }

    pub fn is_empty(&self) -> bool {
        self.directories.is_empty()
    }

    /// The path that the profile has for the file of a function, without the prefix.
    pub fn trimmed<'p>(&self, at: &'p FunctionLine) -> &'p Path {
        let path = Path::new(&at.file);
        self.trimmed_prefix.as_ref().and_then(|prefix| path.strip_prefix(prefix).ok()).unwrap_or(path)
    }

    /// The source file of a function: below the directories by the longest part of the path that exists there, else of the path
    /// itself. A bare file name, as of the JVM, is below the directories of its package.
    pub fn read(&self, at: &FunctionLine) -> Option<SourceFile> {
        let trimmed = self.trimmed(at);
        let parts: Vec<_> = if is_below_its_directory(trimmed) {
            trimmed.iter().filter(|part| *part != "/").collect()
        } else {
            Vec::new()
        };
        let packages = if parts.len() == 1 { package_directories(&at.function) } else { Vec::new() };
        let of_packages =
            packages.iter().flat_map(|package| SOURCE_ROOTS.iter().map(move |root| Path::new(root).join(package)));
        let of_packages = of_packages.map(|package| package.join(parts[0]));
        let of_path = (0..parts.len()).map(|start| parts[start..].iter().collect::<PathBuf>());
        let candidates: Vec<PathBuf> = of_packages.chain(of_path).collect();
        let below = self.directories.iter().find_map(|directory| {
            candidates.iter().find_map(|path| {
                let lines = self.lines_below(directory, path)?;
                Some(SourceFile { path: path.clone(), lines })
            })
        });
        let named = || {
            let paths = [trimmed, Path::new(&at.file)];
            paths.into_iter().find_map(|path| Some(SourceFile { path: path.to_owned(), lines: lines_of(path)? }))
        };
        below.or_else(|| if self.is_only_below { None } else { named() })
    }

    fn lines_below(&self, directory: &Path, path: &Path) -> Option<Vec<String>> {
        if !self.is_only_below {
            return lines_of(&directory.join(path));
        }
        let is_hidden = path.iter().any(|part| part.to_string_lossy().starts_with('.'));
        let directory = directory.canonicalize().ok()?;
        let file = directory.join(path).canonicalize().ok()?;
        let below = file.strip_prefix(&directory).ok()?;
        let is_hidden = is_hidden || below.iter().any(|part| part.to_string_lossy().starts_with('.'));
        (!is_hidden).then(|| lines_of(&file)).flatten()
    }
}

/// Whether a path of a profile cannot lead out of the directory to which it is appended.
fn is_below_its_directory(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_) | Component::RootDir | Component::CurDir))
}

fn lines_of(path: &Path) -> Option<Vec<String>> {
    let meta = std::fs::metadata(path).ok().filter(|meta| meta.is_file())?;
    let bytes = (meta.len() <= MAX_SOURCE_BYTES).then(|| std::fs::read(path).ok()).flatten()?;
    Some(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
}

/// The directories in which the class of a function such as `shop.cart.Cart$Item.price` may be: `shop/cart/Cart$Item`,
/// `shop/cart`, `shop`.
fn package_directories(function: &str) -> Vec<PathBuf> {
    let segments: Vec<&str> = function.split(['.', '/']).collect();
    // Not the name of a class: a signature, or a path out of the directory.
    if segments.iter().any(|segment| segment.is_empty()) {
        return Vec::new();
    }
    (1..segments.len()).rev().map(|length| segments[..length].iter().collect()).collect()
}

/// The lines to show of a function: those with a weight and, where the text is known, those between and around them.
pub fn shown_lines(function: &FunctionLines, source: Option<&[String]>) -> Vec<i64> {
    let weighted = || function.lines.keys().filter(|line| **line > 0).copied();
    match (source, weighted().min(), weighted().max()) {
        (Some(source), Some(first), Some(last)) => {
            let start = (first as usize).saturating_sub(CONTEXT_LINES).max(1);
            let end = (last as usize).saturating_add(CONTEXT_LINES).min(source.len());
            (start as i64..=end as i64).collect()
        }
        _ => function.lines.keys().copied().collect(),
    }
}

/// Text of a line, counted from 1.
pub fn line_text(source: Option<&[String]>, line: i64) -> Option<&str> {
    source?.get(usize::try_from(line - 1).ok()?).map(String::as_str)
}

/// Lines with their weight and text as JSON.
pub fn lines_json(function: &FunctionLines, source: Option<&[String]>, lines: impl Iterator<Item = i64>) -> Value {
    let line = |line: i64| {
        let weight = function.lines.get(&line).copied().unwrap_or_default();
        json!({"line": line, "flat": weight.flat, "cum": weight.cum, "text": line_text(source, line)})
    };
    lines.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(file: &str) -> FunctionLine {
        FunctionLine { function: "price".to_owned(), file: file.to_owned(), ..FunctionLine::default() }
    }

    #[test]
    fn only_files_below_the_directories_are_read() {
        let home = tempfile::tempdir().expect("a directory");
        let root = home.path().join("src");
        std::fs::create_dir_all(root.join("shop/.git")).unwrap();
        std::fs::create_dir_all(home.path().join("secret")).unwrap();
        for (path, text) in [
            ("src/shop/cart.py", "inside"),
            ("secret/key.py", "outside"),
            ("src/.env", "hidden"),
            ("src/shop/.git/config", "hidden"),
        ] {
            std::fs::write(home.path().join(path), text).unwrap();
        }
        std::os::unix::fs::symlink(home.path().join("secret"), root.join("linked")).unwrap();
        std::os::unix::fs::symlink(home.path().join("secret/key.py"), root.join("key.py")).unwrap();
        std::os::unix::fs::symlink(root.join(".env"), root.join("env.py")).unwrap();
        std::os::unix::fs::symlink(root.join("shop/cart.py"), root.join("alias.py")).unwrap();
        let secret = home.path().join("secret/key.py").to_string_lossy().into_owned();
        let strict = SourcePaths::only_below(vec![root.clone()], None);
        let text = |paths: &SourcePaths, file: &str| paths.read(&at(file)).map(|source| source.lines.join("\n"));
        for file in ["/srv/shop/cart.py", "shop/cart.py", "cart.py/../shop/cart.py", "alias.py", "./shop/cart.py"] {
            let expected = (!file.contains("..")).then(|| "inside".to_owned());
            assert_eq!(text(&strict, file), expected, "{file}");
        }
        let refused = [
            secret.as_str(),
            "../secret/key.py",
            "/x/../../secret/key.py",
            "linked/key.py",
            "key.py",
            ".env",
            "shop/.git/config",
            "env.py",
            "shop",
            "/dev/zero",
            "",
        ];
        for file in refused {
            assert_eq!(text(&strict, file), None, "{file}");
        }
        assert_eq!(text(&SourcePaths::only_below(Vec::new(), None), &secret), None);
        let usual = SourcePaths::new(vec![root], None);
        assert_eq!(text(&usual, &secret).as_deref(), Some("outside"), "the verb reads the path of the profile");
        assert_eq!(text(&usual, "linked/key.py").as_deref(), Some("outside"), "the verb follows symbolic links");
    }

    #[test]
    fn a_file_is_found_by_the_longest_part_of_its_path_and_without_the_trimmed_prefix() {
        let home = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(home.path().join("b")).unwrap();
        std::fs::write(home.path().join("b/app.py"), "longer").unwrap();
        std::fs::write(home.path().join("app.py"), "shorter").unwrap();
        let directories = vec![home.path().to_owned()];
        let found = SourcePaths::only_below(directories.clone(), None).read(&at("/a/b/app.py")).unwrap();
        assert_eq!((found.path, found.lines), (PathBuf::from("b/app.py"), vec!["longer".to_owned()]));
        let trimming = SourcePaths::only_below(directories, Some("/a/b".into()));
        assert_eq!(trimming.read(&at("/a/b/app.py")).unwrap().lines, ["shorter"]);
        assert_eq!(trimming.trimmed(&at("/a/b/app.py")), Path::new("app.py"));
    }
}
