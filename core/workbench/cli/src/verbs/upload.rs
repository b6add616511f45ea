//! `spanprof upload`: copies the profiles and side-cars of a directory to object storage.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use spanprof_answers::failure::{Failure, EXIT_FAILED};
use spanprof_answers::profile_name::has_profile_suffix;
use spanprof_serve::{received_of_name, replaced_range_ms};

use crate::object_storage::{path_of_file_url, ObjectStorage, ObjectUrl};
use crate::output;

/// Files in memory at once.
const BATCH: usize = 16;

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof upload DIRECTORY URL [FLAGS]",
    before_help = "\
Copies the profiles of a directory and their side-cars below s3://BUCKET/PREFIX/, gs://… or az://…, and removes nothing. An
object of the same size is not written again. One of another size is of another writer: it stays, and the exit code is 1.
Credentials are read from the environment variables of each storage; docs/guides/destinations.md lists them.",
    after_help = "\
Examples:
  spanprof upload ./profiles s3://shop-profiles/checkout/host-1/
  spanprof upload ./profiles gs://shop-profiles/checkout/ --json"
)]
pub(crate) struct UploadArguments {
    #[arg(value_name = "DIRECTORY", hide = true)]
    pub directory: String,
    #[arg(value_name = "URL", hide = true)]
    pub url: String,
    /// print the counts as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Files by result.
#[derive(Debug, Default, PartialEq)]
struct UploadCounts {
    uploaded: u64,
    uploaded_bytes: u64,
    /// Objects of the same size.
    present: u64,
    failed: u64,
}

pub(crate) fn run(arguments: &UploadArguments) -> Result<i32, Failure> {
    let prefix = ObjectUrl::parse(&arguments.url).unwrap_or_else(|| {
        Err(Failure::usage(format!("`{}` is not the URL of object storage", arguments.url))
            .hint("expected s3://BUCKET/PREFIX/, gs://BUCKET/PREFIX/ or az://CONTAINER/PREFIX/"))
    })?;
    let directory =
        path_of_file_url(&arguments.directory).unwrap_or_else(|| Ok(PathBuf::from(&arguments.directory)))?;
    let files = files(&directory)?;
    let storage = ObjectStorage::open(&prefix)?;
    let mut counts = UploadCounts::default();
    let known: HashMap<String, u64> = storage.list()?.into_iter().map(|object| (object.key, object.bytes)).collect();
    let files = without_stored_hours(files, &known);
    for batch in files.chunks(BATCH) {
        upload(&storage, batch, &known, &mut counts);
    }
    let UploadCounts { uploaded, uploaded_bytes, present, failed } = counts;
    let text = match arguments.json {
        true => json!({"uploaded": uploaded, "uploaded_bytes": uploaded_bytes, "present": present, "failed": failed})
            .to_string(),
        false => {
            format!("{uploaded} files uploaded ({uploaded_bytes} bytes), {present} present already, {failed} failed")
        }
    };
    output::print(format!("{text}\n").as_bytes())?;
    Ok(if failed == 0 { 0 } else { EXIT_FAILED })
}

/// Without the hours that replaced windows of `serve` which the storage has: their samples would count twice.
fn without_stored_hours(mut files: Vec<PathBuf>, known: &HashMap<String, u64>) -> Vec<PathBuf> {
    let name_of = |key: &str| key.rsplit('/').next().unwrap_or(key).to_owned();
    let windows: BTreeSet<u64> = known.keys().filter_map(|key| received_of_name(&name_of(key))).collect();
    files.retain(|path| replaced_range_ms(path).is_none_or(|arrivals| windows.range(arrivals).next().is_none()));
    files
}

/// Uploads the files that the storage does not have.
fn upload(storage: &ObjectStorage, files: &[PathBuf], known: &HashMap<String, u64>, counts: &mut UploadCounts) {
    let mut objects = Vec::new();
    for path in files {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let key = storage.url().key_below(name);
        let body = match fs::read(path) {
            Ok(body) => body,
            // Removed by the retention of its writer.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                counts.failed += 1;
                output::note(&format!("cannot read {}: {error}", path.display()));
                continue;
            }
        };
        match known.get(&key) {
            Some(bytes) if *bytes == body.len() as u64 => counts.present += 1,
            Some(bytes) => {
                counts.failed += 1;
                output::note(&format!(
                    "{} has {bytes} bytes and the file {}; give each writer its own prefix",
                    storage.url().with_key(&key),
                    body.len()
                ));
            }
            None => objects.push((key, body)),
        }
    }
    let sizes: Vec<u64> = objects.iter().map(|(_, body)| body.len() as u64).collect();
    for (bytes, written) in sizes.into_iter().zip(storage.put_all(objects)) {
        match written {
            Ok(()) => {
                counts.uploaded += 1;
                counts.uploaded_bytes += bytes;
            }
            Err(error) => {
                counts.failed += 1;
                output::note(&Failure::from(error).to_string());
            }
        }
    }
}

/// The profiles and side-cars of a directory, sorted by name.
fn files(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error| {
        Failure::new(format!("cannot list {}: {error}", directory.display())).hint("expected a directory of profiles")
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !name.starts_with('.') && has_profile_suffix(&path) && path.is_file() {
            paths.push(path);
        }
    }
    // Side-cars last: a profile without its side-car is complete, a side-car without its profile is not.
    paths.sort_by_cached_key(|path| (path.extension().is_some_and(|extension| extension == "json"), path.clone()));
    match paths.is_empty() {
        true => Err(Failure::new(format!("no profiles in {}", directory.display()))
            .hint("expected files such as *.pb.gz, *.pb, *.pprof, *.json")),
        false => Ok(paths),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_of_serve_is_not_uploaded_if_the_storage_has_windows_of_it() {
        let hours =
            [1_700_002_800_000u64, 1_700_006_400_000].map(|start| format!("{start}-1h-00000000000000ab.otlp.pb.gz"));
        let files = || hours.iter().map(PathBuf::from).collect::<Vec<_>>();
        let stored = |name: &str| HashMap::from([(format!("host/{name}"), 1)]);
        assert_eq!(without_stored_hours(files(), &stored("1700002900000-1-000001.otlp.pb.gz")), files()[1..]);
        assert_eq!(without_stored_hours(files(), &stored("1700010000000-1-000001.otlp.pb.gz")), files());
        assert_eq!(without_stored_hours(files(), &stored(&hours[0])), files(), "present already");
    }
}
