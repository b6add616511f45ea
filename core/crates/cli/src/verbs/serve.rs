//! `spanprof serve`: parses the flags, starts the server, prints its addresses, and stops it on SIGINT or SIGTERM.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use spanprof_read::decode::DecodeLimits;
use tokio::signal::unix::{signal, SignalKind};

use crate::arguments::{parse_bytes, CliVerb, Flag, Parsed};
use crate::failure::Failure;
use crate::json::Json;
use crate::moment;
use crate::output;
use crate::serve::{Addresses, Retention, Server, Settings};

pub(crate) static VERB: CliVerb = CliVerb {
    name: "serve",
    summary: "Receive OTLP profiles on this machine, keep them in a directory, show them in a browser",
    usage: "[FLAGS]",
    about: "\
Receives on 127.0.0.1:4317 (gRPC) and 127.0.0.1:4318 (HTTP, protobuf or JSON); each port accepts both. The page is at
the HTTP port. The first line on stdout shows the addresses: `serving grpc=… http=… url=… dir=…`, with --json one JSON object.
Ctrl-C or SIGTERM stops it; the profiles stay.",
    flags: &[&[
        Flag::value("--grpc", "PORT", "gRPC port, 0 selects a free one [4317]"),
        Flag::value("--http", "PORT", "HTTP port, 0 selects a free one [4318]"),
        Flag::value("--dir", "DIR", "directory of the profiles [$XDG_STATE_HOME/spanprof, ~/.local/state/spanprof]"),
        Flag::value("--max-bytes", "SIZE", "keep at most this size, the oldest are removed first: 512MiB, 2GiB [1GiB]"),
        Flag::value("--max-age", "TIME", "keep at most this long: 90m, 24h, 7d [7d]"),
        Flag::value("--max-request-bytes", "SIZE", "largest request accepted [20MiB]"),
        Flag::value("--listen", "ADDRESS", "address to listen on instead of 127.0.0.1; anyone who can connect reads all profiles"),
        Flag { long: "--allow-host", short: "", value: "NAME", help: "a name under which browsers may open the page", repeats: true },
        Flag::switch("--json", "print the addresses as one JSON object"),
        Flag::switch("--quiet", "no lines on stderr"),
    ]],
    examples: &[
        "spanprof serve",
        "spanprof serve --grpc 0 --http 0 --dir ./profiles --max-age 24h",
        "spanprof top http://127.0.0.1:4318 --service checkout --from -5m",
    ],
    positionals: 0..=0,
    run,
};

fn run(parsed: &Parsed) -> Result<i32, Failure> {
    let listen = address(parsed)?;
    let port = |flag: &str, default: u16| match parsed.value(flag) {
        None => Ok(default),
        Some(text) => {
            text.parse().map_err(|_| Failure::usage(format!("{flag}: expected a port from 0 to 65535, got `{text}`")))
        }
    };
    let bytes = |flag: &str, default: u64| match parsed.value(flag) {
        None => Ok(default),
        Some(text) => parse_bytes(text)
            .filter(|bytes| *bytes > 0)
            .ok_or_else(|| Failure::usage(format!("{flag}: expected a size such as 512MiB, got `{text}`"))),
    };
    let max_age = match parsed.value("--max-age") {
        None => Duration::from_secs(7 * 86_400),
        Some(text) => moment::parse_duration_ns(text)
            .filter(|nanos| *nanos > 0)
            .map(Duration::from_nanos)
            .ok_or_else(|| Failure::usage(format!("--max-age: expected a time such as 24h, got `{text}`")))?,
    };
    let quiet = parsed.has("--quiet");
    let limits = DecodeLimits::default();
    let max_request_bytes = bytes("--max-request-bytes", 20 << 20)?.min(limits.decompressed_bytes as u64) as usize;
    let settings = Settings {
        grpc: SocketAddr::new(listen, port("--grpc", 4317)?),
        http: SocketAddr::new(listen, port("--http", 4318)?),
        directory: match parsed.value("--dir") {
            Some(directory) => PathBuf::from(directory),
            None => default_directory()?,
        },
        retention: Retention { max_bytes: bytes("--max-bytes", 1 << 30)?, max_age },
        max_request_bytes,
        limits,
        allowed_hosts: parsed.all("--allow-host").map(str::to_owned).collect(),
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
    let line = first_line(&server, parsed.has("--json"));
    let url = url(server.addresses());
    let as_json = parsed.has("--json");
    let ready = move || {
        output::print_and_flush(&line);
        if !as_json && !quiet {
            output::note(&format!("open {url} in a browser; Ctrl-C stops"));
        }
    };
    server.run(ready, stop_signal())?;
    if !quiet {
        output::note("stopped; the profiles stay in the directory");
    }
    Ok(0)
}

fn address(parsed: &Parsed) -> Result<IpAddr, Failure> {
    let Some(text) = parsed.value("--listen") else { return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)) };
    if text == "localhost" {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    text.parse().map_err(|_| {
        Failure::usage(format!("--listen: expected an IP address, got `{text}`"))
            .hint("for example 127.0.0.1, ::1, or 0.0.0.0 for every interface")
    })
}

fn default_directory() -> Result<PathBuf, Failure> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("spanprof"))
        .ok_or_else(|| Failure::new("no directory to keep profiles in: HOME is not set").hint("give one: --dir DIR"))
}

/// URL of the page; for a wildcard address, that of the loopback.
fn url(addresses: Addresses) -> String {
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
    let mut json = Json::new();
    json.object(|json| {
        json.key("grpc").string(&grpc.to_string()).key("http").string(&http.to_string());
        json.key("url").string(&url).key("dir").string(&directory.to_string_lossy());
        json.key("pid").number(std::process::id());
    });
    json.finish() + "\n"
}

/// Resolves at the first SIGINT or SIGTERM. Also handles SIGPIPE, which a parent process may have left at its default
/// action: a peer that closes its connection must not terminate the server.
async fn stop_signal() {
    let _pipe = signal(SignalKind::pipe());
    let wait = |kind| async move {
        match signal(kind) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    crate::serve::first(wait(SignalKind::interrupt()), wait(SignalKind::terminate())).await;
}
