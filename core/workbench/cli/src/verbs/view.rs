//! `spanprof view`: shows files on the page of `serve`, whatever their age. The server is that of `serve` on a free port of the
//! loopback, with a copy of the profiles in a temporary directory, which is removed at the end.

use std::fs::{self, DirBuilder};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use spanprof_answers::failure::Failure;
use spanprof_answers::profile_name::is_sidecar;
use spanprof_answers::selection::moment::unix_ns;
use spanprof_answers::sources::SourcePaths;
use spanprof_profile::encode::gzip;
use spanprof_profile::encode::otlp;
use spanprof_profile::{transform, Attribute, ProfilesData};
use spanprof_read::decode::DecodeLimits;
use spanprof_read::query::Filter;
use spanprof_serve::{Retention, Server, Settings};

use super::serve::{stop_signal, url};
use super::{refuse_repeated_stdin, SOURCE_ABOUT};
use crate::output;
use crate::source::Source;

/// Length of a profile that states none: the page shows ranges of time.
const UNKNOWN_DURATION_NS: u64 = 1_000_000_000;

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof view FILE|DIR|URL… [FLAGS]",
    before_help = SOURCE_ABOUT,
    after_help = "\
Examples:
  spanprof view cpu.pb.gz
  spanprof view before.pb.gz after.pb.gz heap.pb.gz --no-open"
)]
pub(crate) struct ViewArguments {
    #[arg(value_name = "FILE|DIR|URL", required = true, hide = true)]
    pub sources: Vec<String>,
    /// print the address of the page without opening a browser
    #[arg(long)]
    pub no_open: bool,
}

pub(crate) fn run(arguments: &ViewArguments) -> Result<i32, Failure> {
    refuse_repeated_stdin(&arguments.sources)?;
    let mut copies = ProfileCopies::new()?;
    for name in arguments.sources.iter().filter(|name| arguments.sources.len() == 1 || !is_sidecar(Path::new(name))) {
        copies.add(name)?;
    }
    let Some((from_ms, to_ms)) = copies.range_ms else {
        return Err(Failure::new(format!("no samples in {}", arguments.sources.join(", "))));
    };
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let limits = DecodeLimits::default();
    let server = Server::bind(Settings {
        grpc: free,
        http: free,
        directory: copies.directory.clone(),
        retention: Retention { max_bytes: u64::MAX, max_age: Duration::MAX, keep_windows: Duration::MAX },
        max_request_bytes: limits.decompressed_bytes,
        limits,
        allowed_hosts: Vec::new(),
        trace_urls: Vec::new(),
        source_paths: SourcePaths::only_below(Vec::new(), None),
        source_url: None,
        redaction: None,
        report: Arc::new(output::note),
    })?;
    let page = format!("{}?from={from_ms}&to={to_ms}", url(server.addresses()));
    let ready = || {
        output::print_and_flush(&format!("{page}\n"));
        if arguments.no_open || !open_browser(&page) {
            output::note("open the address in a browser; Ctrl-C stops");
        } else {
            output::note("opened in the browser; Ctrl-C stops");
        }
    };
    server.run(ready, stop_signal())?;
    Ok(0)
}

/// The profiles in a directory of their own, which is removed on drop.
struct ProfileCopies {
    directory: PathBuf,
    written: usize,
    /// First start and last end.
    range_ms: Option<(u64, u64)>,
}

impl ProfileCopies {
    fn new() -> Result<Self, Failure> {
        let directory = std::env::temp_dir().join(format!("spanprof-view-{}-{}", std::process::id(), unix_ns()));
        DirBuilder::new().mode(0o700).create(&directory).map_err(|error| {
            Failure::new(format!("cannot create the directory {}: {error}", directory.display()))
                .hint("TMPDIR names another directory")
        })?;
        Ok(Self { directory, written: 0, range_ms: None })
    }

    /// Copies the profiles of a source.
    fn add(&mut self, name: &str) -> Result<(), Failure> {
        let source = Source::parse(name)?;
        let modified = fs::metadata(name).ok().filter(fs::Metadata::is_file).and_then(|meta| meta.modified().ok());
        let modified_ns =
            modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map(|time| time.as_nanos() as u64);
        let is_file = matches!(source, Source::File(_));
        let mut outcome = Ok(());
        source.for_each_window(&Filter::default(), &mut |mut data| {
            if is_file {
                name_resources(&mut data, Path::new(name));
            }
            set_times(&mut data, modified_ns.unwrap_or_else(unix_ns));
            if outcome.is_ok() && data.sample_count() > 0 {
                outcome = self.write(data);
            }
        })?;
        outcome
    }

    fn write(&mut self, data: ProfilesData) -> Result<(), Failure> {
        for (_, profile) in data.profiles() {
            let from_ms = profile.time_unix_nano / 1_000_000;
            let to_ms = (profile.time_unix_nano.saturating_add(profile.duration_nano)).div_ceil(1_000_000) + 1;
            let (first, last) = self.range_ms.unwrap_or((from_ms, to_ms));
            self.range_ms = Some((first.min(from_ms), last.max(to_ms)));
        }
        let path = self.directory.join(format!("{:06}.otlp.pb.gz", self.written));
        let bytes = gzip(&otlp::encode(&transform::separate_exact_values(data), otlp::Revision::One));
        fs::write(&path, bytes).map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))?;
        self.written += 1;
        Ok(())
    }
}

impl Drop for ProfileCopies {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Adds the file's name as the attribute `file`, and as the service of profiles that have none.
fn name_resources(data: &mut ProfilesData, path: &Path) {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for resource in &mut data.resources {
        if resource.service_name().is_empty() {
            resource.resource.retain(|attribute| attribute.key != "service.name");
            resource.resource.push(Attribute::string("service.name", name.clone()));
        }
        if !resource.resource.iter().any(|attribute| attribute.key == "file") {
            resource.resource.push(Attribute::string("file", name.clone()));
        }
    }
}

/// Profiles without a time end at `end_ns`.
fn set_times(data: &mut ProfilesData, end_ns: u64) {
    for profile in data.resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
        if profile.time_unix_nano == 0 {
            if profile.duration_nano == 0 {
                profile.duration_nano = UNKNOWN_DURATION_NS;
            }
            profile.time_unix_nano = end_ns.saturating_sub(profile.duration_nano);
        }
    }
}

/// Opens the address in a browser if there is a display; false if there is none.
fn open_browser(address: &str) -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let program = match cfg!(target_os = "macos") {
        true => "open",
        false if is_set("DISPLAY") || is_set("WAYLAND_DISPLAY") => "xdg-open",
        false => return false,
    };
    let browser =
        Command::new(program).arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    // Reaped on a thread: the program may run as long as the browser.
    browser.map(|mut child| std::thread::spawn(move || child.wait())).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_profile::{Profile, ResourceProfiles};

    fn data(service: &str, time_unix_nano: u64, duration_nano: u64) -> ProfilesData {
        let profiles = vec![Profile { time_unix_nano, duration_nano, ..Profile::default() }];
        let resource = vec![Attribute::string("service.name", service)];
        let resources = vec![ResourceProfiles { resource, profiles, ..ResourceProfiles::default() }];
        ProfilesData { resources, ..ProfilesData::default() }
    }

    #[test]
    fn a_file_without_a_service_has_its_name() {
        for (service, expected) in [("", "cpu.pb.gz"), ("checkout", "checkout")] {
            let mut data = data(service, 0, 0);
            name_resources(&mut data, Path::new("/srv/cpu.pb.gz"));
            assert_eq!(data.resources[0].service_name(), expected);
            assert!(data.resources[0].resource.contains(&Attribute::string("file", "cpu.pb.gz")));
        }
    }

    #[test]
    fn profiles_without_a_time_end_when_the_file_was_written() {
        for (time, duration, expected) in
            [(0, 0, (4_000_000_000, 1_000_000_000)), (0, 2_000, (4_999_998_000, 2_000)), (7, 3, (7, 3))]
        {
            let mut data = data("", time, duration);
            set_times(&mut data, 5_000_000_000);
            let profile = &data.resources[0].profiles[0];
            assert_eq!((profile.time_unix_nano, profile.duration_nano), expected);
        }
    }
}
