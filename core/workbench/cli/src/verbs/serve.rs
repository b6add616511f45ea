//! `spanprof serve`: parses the flags, starts the server, prints its addresses, and stops it on SIGINT or SIGTERM.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use spanprof_answers::failure::Failure;
use spanprof_answers::quantity::ByteCount;
use spanprof_answers::selection::moment;
use spanprof_answers::sources::{source_directories, SourcePaths};
use spanprof_read::decode::DecodeLimits;
use spanprof_serve::{refuse_repeated_names, Addresses, Retention, Server, Settings, TraceUrl};
use tokio::signal::unix::{signal, SignalKind};

use crate::output;
use crate::redaction_rules;

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof serve [FLAGS]",
    before_help = "\
Receives on 127.0.0.1:4317 (gRPC) and 127.0.0.1:4318 (HTTP, protobuf or JSON); each port accepts both. The page is at
the HTTP port. The first line on stdout shows the addresses: `serving grpc=… http=… url=… dir=…`, with --json one JSON object.
Ctrl-C or SIGTERM stops it; the profiles stay.",
    after_help = "\
Examples:
  spanprof serve
  spanprof serve --grpc 0 --http 0 --dir ./profiles --max-age 24h
  spanprof top http://127.0.0.1:4318 --service checkout --from -5m"
)]
pub(crate) struct ServeArguments {
    /// gRPC port, 0 selects a free one
    #[arg(long, value_name = "PORT", default_value = "4317", value_parser = port)]
    pub grpc: u16,
    /// HTTP port, 0 selects a free one
    #[arg(long, value_name = "PORT", default_value = "4318", value_parser = port)]
    pub http: u16,
    /// directory of the profiles [default: $XDG_STATE_HOME/spanprof, ~/.local/state/spanprof]
    #[arg(long, value_name = "DIR", value_parser = directory)]
    pub dir: Option<PathBuf>,
    /// keep at most this size, the oldest are removed first: 512MiB, 2GiB
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub max_bytes: ByteCount,
    /// keep at most this long: 90m, 24h, 7d
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = age)]
    pub max_age: Duration,
    /// keep the windows of exporters at least this long; the windows of an older hour become one file of sums. It has stacks,
    /// labels, sums of requests and totals per minute, but neither timestamps, nor labels with more than 100 values, nor the
    /// samples of single requests except for the 200 heaviest of each profile type
    #[arg(long, value_name = "TIME", default_value = "2h", value_parser = age)]
    pub keep_windows: Duration,
    /// largest request accepted
    #[arg(long, value_name = "SIZE", default_value = "20MiB")]
    pub max_request_bytes: ByteCount,
    /// address to listen on; anyone who can connect reads all profiles
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = address)]
    pub listen: IpAddr,
    /// a name under which browsers may open the page
    #[arg(long, value_name = "NAME")]
    pub allow_host: Vec<String>,
    /// redact by these rules and the default patterns before anything is stored: a configuration file, or a list of rules in
    /// YAML
    #[arg(long, value_name = "FILE")]
    pub redaction: Option<String>,
    /// link of the page to a trace, such as http://localhost:16686/trace/{trace_id}, also with {span_id}; repeat for
    /// more, each with a name: Jaeger=http://…
    #[arg(long, value_name = "TEMPLATE", value_parser = TraceUrl::parse)]
    pub trace_url: Vec<TraceUrl>,
    /// directory of sources that the page shows; repeat for more. Anyone who can open the page can read the files below it
    #[arg(long, value_name = "DIR")]
    pub source_path: Vec<PathBuf>,
    /// prefix to remove from the file names of the profiles
    #[arg(long, value_name = "PREFIX")]
    pub trim_path: Option<PathBuf>,
    /// link of the page to a source line, such as https://github.com/acme/shop/blob/{commit}/{path}#L{line}
    #[arg(long, value_name = "TEMPLATE", value_parser = source_url)]
    pub source_url: Option<String>,
    /// print the addresses as one JSON object
    #[arg(long)]
    pub json: bool,
    /// no lines on stderr
    #[arg(long)]
    pub quiet: bool,
}

fn directory(text: &str) -> Result<PathBuf, &'static str> {
    if text.contains("://") {
        Err("expected a local directory; `spanprof upload` copies it to object storage")
    } else {
        Ok(PathBuf::from(text))
    }
}

fn port(text: &str) -> Result<u16, &'static str> {
    text.parse().map_err(|_| "expected a port from 0 to 65535")
}

fn source_url(text: &str) -> Result<String, &'static str> {
    let is_link = ["http://", "https://"].iter().any(|scheme| text.starts_with(scheme));
    match is_link && text.contains("{path}") {
        true => Ok(text.to_owned()),
        false => Err("expected a link with {path}, such as https://github.com/acme/shop/blob/{commit}/{path}#L{line}"),
    }
}

fn age(text: &str) -> Result<Duration, &'static str> {
    let nanos = moment::parse_duration_ns(text).filter(|nanos| *nanos > 0);
    nanos.map(Duration::from_nanos).ok_or("expected a time such as 24h")
}

fn address(text: &str) -> Result<IpAddr, &'static str> {
    match text {
        "localhost" => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        _ => text.parse().map_err(|_| "expected an IP address: 127.0.0.1, ::1, or 0.0.0.0 for every interface"),
    }
}

pub(crate) fn run(arguments: ServeArguments) -> Result<i32, Failure> {
    // Queries run on changing threads.
    #[cfg(target_os = "linux")]
    spanprof_os::use_one_arena();
    let ServeArguments { listen, quiet, .. } = arguments;
    let limits = DecodeLimits::default();
    refuse_repeated_names(&arguments.trace_url)?;
    let settings = Settings {
        grpc: SocketAddr::new(listen, arguments.grpc),
        http: SocketAddr::new(listen, arguments.http),
        directory: arguments.dir.map_or_else(default_directory, Ok)?,
        retention: Retention {
            max_bytes: arguments.max_bytes.0,
            max_age: arguments.max_age,
            keep_windows: arguments.keep_windows,
        },
        max_request_bytes: arguments.max_request_bytes.0.min(limits.decompressed_bytes as u64) as usize,
        limits,
        allowed_hosts: arguments.allow_host,
        trace_urls: arguments.trace_url,
        source_paths: SourcePaths::only_below(source_directories(&arguments.source_path)?, arguments.trim_path),
        source_url: arguments.source_url,
        redaction: arguments.redaction.as_deref().map(redaction_rules::read).transpose()?,
        report: Arc::new(move |line| {
            if !quiet {
                output::note(line);
            }
        }),
    };
    if !listen.is_loopback() && !quiet {
        output::note(&format!(
            "warning: anyone who can connect to {listen} can read and send profiles; there is no authentication"
        ));
    }
    let server = Server::bind(settings)?;
    let line = first_line(&server, arguments.json);
    let url = url(server.addresses());
    let ready = move || {
        output::print_and_flush(&line);
        if !arguments.json && !quiet {
            output::note(&format!("open {url} in a browser; Ctrl-C stops"));
        }
    };
    server.run(ready, stop_signal())?;
    if !quiet {
        output::note("stopped; the profiles stay in the directory");
    }
    Ok(0)
}

fn default_directory() -> Result<PathBuf, Failure> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("spanprof"))
        .ok_or_else(|| Failure::new("no directory to keep profiles in: HOME is not set").hint("give one: --dir DIR"))
}

/// URL of the page; for a wildcard address, that of the loopback.
pub(super) fn url(addresses: Addresses) -> String {
    let mut http = addresses.http;
    if http.ip().is_unspecified() {
        http.set_ip(if http.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { std::net::Ipv6Addr::LOCALHOST.into() });
    }
    format!("http://{http}/")
}

fn first_line(server: &Server, as_json: bool) -> String {
    let Addresses { grpc, http } = server.addresses();
    let (url, directory) = (url(server.addresses()), server.directory());
    if !as_json {
        return format!("serving grpc={grpc} http={http} url={url} dir={}\n", directory.display());
    }
    let json = serde_json::json!({
        "grpc": grpc.to_string(), "http": http.to_string(), "url": url, "dir": directory.to_string_lossy(),
        "pid": std::process::id(),
    });
    json.to_string() + "\n"
}

/// Resolves at the first SIGINT or SIGTERM.
pub(super) async fn stop_signal() {
    let wait = |kind| async move {
        match signal(kind) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => {}
        () = wait(SignalKind::terminate()) => {}
    }
}
