//! Sources of profiles for the reading verbs: a file, stdin, a directory, object storage, a running `serve`, or a program's own
//! endpoint. Called by `top`, `flamegraph`, `convert` and `check`.

use std::cell::Cell;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use spanprof_answers::failure::Failure;
use spanprof_answers::profile_name::looks_like_a_profile;
use spanprof_answers::selection::{self, query_string};
use spanprof_profile::transform;
use spanprof_profile::ProfilesData;
use spanprof_read::decode::{self, DecodeLimits};
use spanprof_read::query::{Detail, Filter};

use crate::fetch::{ServerUrl, MAX_RESPONSE_BYTES};
use crate::object_storage::{self, path_of_file_url, ListedObject, ObjectStorage, ObjectUrl};
use crate::output;

/// Largest file read, and written by `merge` and `convert`; profiling tools write smaller ones.
pub(crate) const MAX_FILE_BYTES: u64 = 256 << 20;
/// Files of a directory merged at once.
const MERGE_BATCH: usize = 24;
/// Objects requested at once.
const OBJECT_BATCH: usize = 32;
/// Bytes of the objects requested at once, unless the first is larger.
const OBJECT_BATCH_BYTES: u64 = 64 << 20;

/// A source of profiles.
#[derive(Debug)]
pub(crate) enum Source {
    Stdin,
    File(PathBuf),
    Directory(PathBuf),
    Object(ObjectStorage),
    /// All profiles below a prefix.
    ObjectPrefix(ObjectStorage),
    Server(ServerUrl),
    /// A profile that a program serves itself, collected anew by each read.
    Endpoint(ServerUrl, String),
}

/// Content of a source, with its name for messages.
pub(crate) struct NamedBytes {
    pub name: String,
    pub bytes: Vec<u8>,
}

impl Source {
    /// Parses the positional argument `text`.
    pub(crate) fn parse(text: &str) -> Result<Source, Failure> {
        if text == "-" {
            return Ok(Source::Stdin);
        }
        if let Some(url) = ObjectUrl::parse(text) {
            return Self::of_object_storage(&url?);
        }
        let file = path_of_file_url(text);
        if file.is_none() && text.contains("://") {
            let server = ServerUrl::parse(text)?;
            return Ok(match server.profile.clone() {
                Some(profile) => Source::Endpoint(server, profile),
                None => Source::Server(server),
            });
        }
        let path = file.unwrap_or_else(|| Ok(PathBuf::from(text)))?;
        match fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => Ok(Source::Directory(path)),
            Ok(_) => Ok(Source::File(path)),
            Err(error) => Err(Failure::new(format!("cannot read {text}: {error}")).hint(
                "expected a file, a directory, `-` for stdin, an s3://, gs:// or az:// URL, or the http:// address of a running `spanprof serve`",
            )),
        }
    }

    /// The object of the URL; if there is none, its prefix.
    fn of_object_storage(url: &ObjectUrl) -> Result<Source, Failure> {
        let storage = ObjectStorage::open(url)?;
        let is_object = !url.is_prefix() && storage.size(&url.key)?.is_some();
        Ok(if is_object { Source::Object(storage) } else { Source::ObjectPrefix(storage) })
    }

    /// A filter for all that the source has. Of a prefix only the time range: years of objects are not downloaded for a hint.
    pub(crate) fn widest(&self, filter: &Filter) -> Filter {
        let from_unix_nano = filter.from_unix_nano.filter(|_| matches!(self, Source::ObjectPrefix(_)));
        Filter { from_unix_nano, ..Filter::default() }
    }

    /// The samples that pass the filter. Unreadable files of a directory are reported and skipped; when all are
    /// unreadable, the first error is returned.
    pub(crate) fn read(&self, filter: &Filter, detail: Detail) -> Result<ProfilesData, Failure> {
        let Source::Server(server) = self else { return self.read_windows(filter, detail, &mut |_| ()) };
        let stacks = if detail == Detail::Stacks { "&detail=stacks" } else { "" };
        let bytes = server.get(&format!("/api/profile?{}{stacks}", merged_query(server, filter)))?.to_vec();
        if bytes.is_empty() {
            return Ok(ProfilesData::default());
        }
        decoded_within(&NamedBytes { name: "the server's response".to_owned(), bytes }, &response_limits())
    }

    /// As [`Self::read`]; shows the windows to `observe` before they are merged.
    pub(crate) fn read_windows(
        &self,
        filter: &Filter,
        detail: Detail,
        observe: &mut dyn FnMut(&mut ProfilesData),
    ) -> Result<ProfilesData, Failure> {
        let mut merged = ProfilesData::default();
        let mut batch = Vec::new();
        self.for_each_window(filter, &mut |mut part| {
            observe(&mut part);
            detail.reduce(&mut part);
            batch.push(part);
            if batch.len() == MERGE_BATCH {
                merged = transform::merge(std::iter::once(&merged).chain(&batch));
                batch.clear();
            }
        })?;
        Ok(transform::merge(std::iter::once(&merged).chain(&batch)))
    }

    /// The samples of each window that pass the filter, one window at a time, with labels and links. Unreadable files as in
    /// [`Self::read`].
    pub(crate) fn for_each_window(&self, filter: &Filter, visit: &mut dyn FnMut(ProfilesData)) -> Result<(), Failure> {
        let skips_unreadable = matches!(self, Source::Directory(_) | Source::ObjectPrefix(_));
        let mut readable = 0;
        let mut first_failure = None;
        let parts = self.parts(filter)?;
        let mut progress = output::Progress::new(parts.size_hint().1);
        for named in parts {
            progress.step();
            match named.and_then(|named| decoded(&named)) {
                Ok(data) => {
                    readable += 1;
                    visit(filter.apply(&data));
                }
                Err(failure) if skips_unreadable => {
                    output::note(&format!("skipped {}", failure.message));
                    first_failure.get_or_insert(failure);
                }
                Err(failure) => return Err(failure),
            }
        }
        match first_failure {
            Some(failure) if readable == 0 => Err(failure),
            _ => Ok(()),
        }
    }

    /// The unmodified bytes, for `check`.
    pub(crate) fn raw(&self, filter: &Filter) -> Result<Vec<NamedBytes>, Failure> {
        self.parts(filter)?.collect()
    }

    /// The unmodified bytes of each file or request, read one at a time. A server omits requests that cannot contain samples of
    /// the filter.
    fn parts(&self, filter: &Filter) -> Result<Box<dyn Iterator<Item = Result<NamedBytes, Failure>> + '_>, Failure> {
        Ok(match self {
            Source::Stdin => Box::new(std::iter::once_with(|| read_all("stdin".to_owned(), std::io::stdin().lock()))),
            Source::File(path) => Box::new(std::iter::once_with(|| read_file(path))),
            Source::Endpoint(server, profile) => Box::new(std::iter::once_with(|| {
                Ok(NamedBytes { name: profile.clone(), bytes: server.get(profile)?.to_vec() })
            })),
            Source::Directory(path) => match list(path)? {
                paths if paths.is_empty() => {
                    return Err(Failure::new(format!("no profiles in {}", path.display()))
                        .hint("expected files such as *.pb.gz, *.pb, *.pprof, *.json"))
                }
                paths => Box::new(paths.into_iter().map(|path| read_file(&path))),
            },
            Source::Object(storage) => {
                Box::new(std::iter::once_with(|| download(storage, vec![storage.url().key.clone()]).remove(0)))
            }
            Source::ObjectPrefix(storage) => {
                let listed = storage.list()?;
                let objects = object_storage::profiles(listed.clone(), filter.from_unix_nano);
                if objects.is_empty() && object_storage::profiles(listed, None).is_empty() {
                    return Err(Failure::new(format!("no profiles in {}", storage.url())).hint(
                        "expected the key of a profile, or a prefix of objects such as *.pb.gz, *.pb, *.pprof, *.json",
                    ));
                }
                Box::new(batches(objects).into_iter().flat_map(|keys| download(storage, keys)))
            }
            Source::Server(server) => {
                let list = server.get(&format!("/api/windows?{}", merged_query(server, filter)))?;
                let names = window_names(&String::from_utf8_lossy(&list));
                let removed = Rc::new(Cell::new(0));
                let counted = removed.clone();
                let downloaded = names.into_iter().filter_map(move |name| {
                    let Some(bytes) = server.get_if_present(&format!("/api/windows/{name}")).transpose() else {
                        counted.set(counted.get() + 1);
                        return None;
                    };
                    Some(bytes.map(|bytes| NamedBytes { name, bytes: bytes.to_vec() }))
                });
                let report = std::iter::from_fn(move || {
                    match removed.take() {
                        0 => {}
                        1 => output::note("1 window was removed by the server meanwhile, and is left out"),
                        count => output::note(&format!(
                            "{count} windows were removed by the server meanwhile, and are left out"
                        )),
                    }
                    None
                });
                Box::new(downloaded.chain(report))
            }
        })
    }
}

fn decoded(named: &NamedBytes) -> Result<ProfilesData, Failure> {
    decoded_within(named, &DecodeLimits::of_files())
}

/// Every response that is received is decoded.
fn response_limits() -> DecodeLimits {
    DecodeLimits { decompressed_bytes: MAX_RESPONSE_BYTES, ..DecodeLimits::of_files() }
}

fn decoded_within(named: &NamedBytes, limits: &DecodeLimits) -> Result<ProfilesData, Failure> {
    decode::any(&named.bytes, limits)
        .map(|(_, data)| data)
        .map_err(|error| Failure::new(format!("{}: {error}", named.name)))
}

/// The objects under these keys.
fn download(storage: &ObjectStorage, keys: Vec<String>) -> Vec<Result<NamedBytes, Failure>> {
    let bodies = storage.get_all(&keys, MAX_FILE_BYTES);
    let named = keys.iter().zip(bodies).map(|(key, body)| {
        let bytes = body?;
        Ok(NamedBytes { name: storage.url().with_key(key).to_string(), bytes })
    });
    named.collect()
}

/// Keys of objects that are requested at once.
fn batches(objects: Vec<ListedObject>) -> Vec<Vec<String>> {
    let mut batches: Vec<Vec<String>> = Vec::new();
    let mut bytes = 0u64;
    for object in objects {
        bytes = bytes.saturating_add(object.bytes);
        match batches.last_mut() {
            Some(batch) if batch.len() < OBJECT_BATCH && bytes <= OBJECT_BATCH_BYTES => batch.push(object.key),
            _ => {
                bytes = object.bytes;
                batches.push(vec![object.key]);
            }
        }
    }
    batches
}

/// The filter as a query string; parameters of the URL fill the fields that the filter leaves open.
fn merged_query(server: &ServerUrl, filter: &Filter) -> String {
    let mut pairs = selection::to_parameters(filter);
    let of_url = query_string::parse(&server.query);
    for (name, value) in &of_url {
        let parameter = selection::PARAMETERS.into_iter().find(|parameter| parameter == name);
        if let Some(parameter) = parameter {
            if parameter == "label" || !pairs.iter().any(|(of, _)| *of == parameter) {
                pairs.push((parameter, value.clone()));
            }
        }
    }
    query_string::format(pairs.iter().map(|(name, value)| (*name, value.as_str())))
}

/// Names in the response of `/api/windows`. Names with characters other than those of our files are ignored.
fn window_names(json: &str) -> Vec<String> {
    let list: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
    let names = list["windows"].as_array().into_iter().flatten().filter_map(|window| window["name"].as_str());
    names
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)))
        .map(str::to_owned)
        .collect()
}

/// The files of a directory with a name of a profile, sorted by name.
fn list(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error| Failure::new(format!("cannot list {}: {error}", directory.display()));
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        if !name.starts_with('.') && looks_like_a_profile(&path) && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn read_file(path: &Path) -> Result<NamedBytes, Failure> {
    let file =
        fs::File::open(path).map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display())))?;
    read_all(path.display().to_string(), file)
}

fn read_all(name: String, reader: impl Read) -> Result<NamedBytes, Failure> {
    let mut bytes = Vec::new();
    reader
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::new(format!("cannot read {name}: {error}")))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(Failure::new(format!("{name} is larger than {MAX_FILE_BYTES} bytes")));
    }
    Ok(NamedBytes { name, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_room_for_as_many_deep_stacks_as_a_result_of_the_server() {
        let (samples, frames, bytes_per_frame) = (1_500_000, 150, 4);
        assert!(response_limits().decompressed_bytes > samples * frames * bytes_per_frame);
        assert!(response_limits().memory_bytes > samples * frames * std::mem::size_of::<u32>());
    }

    #[test]
    fn flags_override_the_query_of_a_link() {
        let server = ServerUrl::parse("http://h:1/?service=cart&type=cpu&theme=dark&label=a%3Db").unwrap();
        let filter = Filter { service: Some("pay".to_owned()), ..Filter::default() };
        assert_eq!(merged_query(&server, &filter), "service=pay&type=cpu&label=a%3Db");
    }

    #[test]
    fn objects_are_requested_in_batches_of_bounded_number_and_size() {
        let object = |bytes| ListedObject { key: "k".to_owned(), bytes, modified_unix_nano: 0 };
        let sizes = |objects: Vec<ListedObject>| batches(objects).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(vec![object(1); 70]), [32, 32, 6]);
        assert_eq!(sizes(vec![object(OBJECT_BATCH_BYTES), object(1), object(1)]), [1, 2]);
        assert!(sizes(Vec::new()).is_empty());
    }

    #[test]
    fn only_plain_names_are_requested() {
        let list = r#"{"windows":[{"name":"1700-1-000.otlp.pb.gz","bytes":3},{"name":"../../x","bytes":1}]}"#;
        assert_eq!(window_names(list), ["1700-1-000.otlp.pb.gz"]);
    }
}
