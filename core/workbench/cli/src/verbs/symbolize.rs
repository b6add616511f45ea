//! `spanprof symbolize`: names native code of a profile by the symbols of other files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use spanprof_answers::failure::{Failure, EXIT_FAILED};
use spanprof_profile::encode::pprof::names;
use spanprof_profile::{transform, Dictionary, LocationId, Mapping, Value};
use spanprof_read::query::{Detail, Filter};

use super::convert::{format_of_name, write};
use super::{OutputArguments, SOURCE_ABOUT};
use crate::output;
use crate::source::Source;

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof symbolize FILE --debug-dir DIR [-o FILE]",
    before_help = SOURCE_ABOUT,
    after_help = "\
Examples:
  spanprof symbolize cpu.pb.gz --debug-dir ./symbols -o named.pb.gz
  spanprof symbolize cpu.otlp.pb.gz --debug-dir /usr/lib/debug --debug-dir ./build -o named.otlp.pb.gz"
)]
pub(crate) struct SymbolizeArguments {
    #[arg(value_name = "FILE", required = true, hide = true)]
    pub source: String,
    /// directory of files with symbols: .build-id/xx/yyyy.debug in it, or libraries and debug files in it and in its directories
    #[arg(long, value_name = "DIR", required = true)]
    pub debug_dir: Vec<PathBuf>,
    #[command(flatten)]
    pub output: OutputArguments,
}

/// Locations without a name of the file with one build id.
struct UnnamedFile {
    path: String,
    locations: Vec<LocationId>,
}

pub(crate) fn run(arguments: &SymbolizeArguments) -> Result<i32, Failure> {
    let path = arguments.output.output.as_str();
    let format = format_of_name(path).or_else(|| format_of_name(&arguments.source)).unwrap_or("pprof");
    if !matches!(format, "pprof" | "otlp" | "json") {
        let failure = Failure::usage(format!("{format} has no addresses"));
        return Err(failure.hint("name a file with -o, such as named.pb.gz (pprof) or named.otlp.pb.gz"));
    }
    output::refuse_on_terminal(path, format, "-o named.pb.gz")?;
    let filter = Filter::default();
    let mut data = Source::parse(&arguments.source)?.read(&filter, Detail::Everything)?;
    let (files, without_build_id) = unnamed_files(&data.dictionary);
    if files.is_empty() {
        let failure = Failure::new(match without_build_id {
            0 => format!("{} has no native code without a name", arguments.source),
            count => format!("{count} addresses in {} have no name, and their files no build id", arguments.source),
        });
        return Err(failure.hint("code has addresses in OTLP and pprof; link files with -Wl,--build-id"));
    }
    let symbols = lookup::symbols(&data.dictionary, &files, &arguments.debug_dir)?;
    let named: Vec<_> = symbols.iter().map(|(id, symbol)| (*id, &**symbol)).collect();
    transform::name_locations(&mut data, &named);
    let total: usize = files.values().map(|file| file.locations.len()).sum();
    output::note(&format!("named {} of {} addresses", named.len(), total + without_build_id));
    if named.is_empty() {
        return Ok(EXIT_FAILED);
    }
    write(&data, &filter, format, &arguments.output)
}

/// By GNU build id; and the number of locations in files without one.
fn unnamed_files(dictionary: &Dictionary) -> (BTreeMap<String, UnnamedFile>, usize) {
    let (mut files, mut without_build_id) = (BTreeMap::new(), 0);
    for id in transform::unnamed_locations(dictionary) {
        let mapping = dictionary.get_mapping(dictionary.get_location(id).mapping);
        let Some(build_id) = build_id_of(dictionary, &mapping) else {
            without_build_id += 1;
            continue;
        };
        let path = dictionary.get_string(mapping.filename);
        let new = || UnnamedFile { path: path.to_owned(), locations: Vec::new() };
        files.entry(build_id.to_ascii_lowercase()).or_insert_with(new).locations.push(id);
    }
    (files, without_build_id)
}

fn build_id_of<'d>(dictionary: &'d Dictionary, mapping: &Mapping) -> Option<&'d str> {
    dictionary.attributes_of(mapping.attributes).find_map(|attribute| match attribute.value {
        Value::String(text) if attribute.key == names::BUILD_ID && !text.is_empty() => Some(text),
        _ => None,
    })
}

#[cfg(target_os = "linux")]
mod lookup {
    use std::sync::Arc;

    use spanprof_os::SymbolFile;

    use super::*;

    /// The symbol of each location that has one. Files without symbols are reported.
    pub(super) fn symbols(
        dictionary: &Dictionary,
        files: &BTreeMap<String, UnnamedFile>,
        directories: &[PathBuf],
    ) -> Result<Vec<(LocationId, Arc<str>)>, Failure> {
        let mut candidates: BTreeMap<&str, Vec<PathBuf>> = BTreeMap::new();
        for directory in directories {
            let listed = files_in(directory).map_err(|error| {
                Failure::new(format!("cannot list {}: {error}", directory.display()))
                    .hint("--debug-dir names a directory with .build-id/xx/yyyy.debug, libraries or debug files")
            })?;
            for build_id in files.keys() {
                let debug_file = SymbolFile::debug_file(directory, build_id);
                candidates.entry(build_id).or_default().extend(debug_file.filter(|path| path.is_file()));
            }
            for path in listed {
                let found = SymbolFile::build_id_of(&path).and_then(|build_id| files.get_key_value(&build_id));
                if let Some((build_id, _)) = found {
                    candidates.entry(build_id).or_default().push(path);
                }
            }
        }
        let mut symbols = Vec::new();
        for (build_id, file) in files {
            let paths = candidates.get(&**build_id).map_or(&[][..], Vec::as_slice);
            let is_of_file = |path: &&PathBuf| SymbolFile::build_id_of(path).as_ref() == Some(build_id);
            let named: Vec<Vec<_>> =
                paths.iter().filter(is_of_file).map(|path| symbols_of(dictionary, file, path)).collect();
            // A stripped library names fewer than its debug file.
            match named.into_iter().max_by_key(Vec::len) {
                Some(named) => symbols.extend(named),
                None => output::note(&format!("no file with build id {build_id} for {}", file.path)),
            }
        }
        Ok(symbols)
    }

    fn symbols_of(dictionary: &Dictionary, file: &UnnamedFile, path: &Path) -> Vec<(LocationId, Arc<str>)> {
        let Some(mut symbols) = SymbolFile::open(path) else {
            output::note(&format!("{} has no symbols", path.display()));
            return Vec::new();
        };
        let symbol = |id: &LocationId| {
            let location = dictionary.get_location(*id);
            let mapping = dictionary.get_mapping(location.mapping);
            Some((*id, symbols.symbol(location.address, mapping.memory_start, mapping.file_offset)?))
        };
        file.locations.iter().filter_map(symbol).collect()
    }

    /// The files in a directory and in its directories.
    fn files_in(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(directory)?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
                files.extend(entries.map(|entry| entry.path()).filter(|path| path.is_file()));
            } else if path.is_file() {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }
}

#[cfg(not(target_os = "linux"))]
mod lookup {
    use super::*;

    pub(super) fn symbols(
        _dictionary: &Dictionary,
        _files: &BTreeMap<String, UnnamedFile>,
        _directories: &[PathBuf],
    ) -> Result<Vec<(LocationId, String)>, Failure> {
        Err(Failure::new("symbolize needs Linux").hint("run it on Linux, where profiles are taken"))
    }
}
