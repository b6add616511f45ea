//! Hostile peers: decompression bombs, invalid bytes, stalled and numerous connections, other sites' pages.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use hyper::Method;

use crate::client::{get, grpc, http, post, EXPORT};
use crate::fixture::{encoded, gzip, number, shop, window_at, Serve, TestDirectory, TestSample};

fn resident_bytes(serve: &Serve) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", serve.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn a_request_with_two_host_headers_is_refused() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let mut peer = TcpStream::connect(&serve.http).unwrap();
    peer.write_all(b"GET /api/stats HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut response = String::new();
    peer.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
}

#[test]
fn a_decompression_bomb_is_refused_within_memory_and_time() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    // 2 GiB of zeros in one gzip stream of many members.
    let bomb = gzip(&vec![0u8; 32 << 20]).repeat(64);
    assert!(bomb.len() < 16 << 20);
    let started = Instant::now();
    assert_eq!(post(&serve.http, &[("content-encoding", "gzip")], &bomb).status, 400);
    assert_eq!(grpc(&serve.grpc, EXPORT, &[("grpc-encoding", "gzip")], &bomb, true).grpc_status(), "3");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert!(resident_bytes(&serve) < 256 << 20, "{}", resident_bytes(&serve));
    let stats = get(&serve.http, "/api/stats").text();
    assert_eq!(number(&stats, "refused_invalid"), 2, "{stats}");
    assert!(home.names().is_empty());
}

#[test]
fn requests_cut_anywhere_and_flipped_bytes_never_stop_the_server() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let whole = encoded(&shop("checkout"));
    for at in (0..whole.len()).step_by(whole.len() / 60 + 1) {
        assert!([200, 400].contains(&post(&serve.http, &[], &whole[..at]).status), "cut at {at}");
        let mut flipped = whole.clone();
        flipped[at] ^= 0xff;
        assert!([200, 400].contains(&post(&serve.http, &[], &flipped).status), "flipped at {at}");
    }
    assert_eq!(post(&serve.http, &[], &whole).status, 200);
    for query in ["top", "flamegraph", "types", "labels", "services", "timeline"] {
        assert_eq!(get(&serve.http, &format!("/api/{query}")).status, 200, "{query}");
    }
}

#[test]
fn impossible_times_cause_no_error() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    for start_ns in [0, 1, u64::MAX - 1, u64::MAX] {
        let data = window_at("odd", "cpu", start_ns, &[TestSample(&["main"], 10_000_000, &[], 1)]);
        assert_eq!(post(&serve.http, &[], &encoded(&data)).status, 200);
    }
    for query in [
        "top",
        "flamegraph",
        "types",
        "timeline",
        "requests",
        "timeline?label=service.name=odd",
        "timeline?from=0&to=now",
    ] {
        assert_eq!(get(&serve.http, &format!("/api/{query}")).status, 200, "{query}");
    }
    assert_eq!(number(&get(&serve.http, "/api/top").text(), "total"), 40_000_000);
    assert_eq!(get(&serve.http, "/api/stats").status, 200);
}

#[test]
fn pages_of_other_sites_are_refused() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &["--allow-host", "build.corp"]);
    for path in ["/", "/api/services"] {
        let from = |host: &str| http(&serve.http, Method::GET, path, &[("host", host)], b"").status;
        assert_eq!((from("evil.example"), from("127.0.0.1.evil.example:4318")), (403, 403), "{path}");
        assert_eq!((from("localhost"), from("build.corp:1"), from("[::1]:4318")), (200, 200, 200), "{path}");
        let origin = http(&serve.http, Method::GET, path, &[("origin", "http://evil.example")], b"");
        assert_eq!(origin.status, 403);
        assert_eq!(origin.header("access-control-allow-origin"), "");
    }
}

#[test]
fn more_connections_than_allowed_wait_until_idle_ones_are_closed() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    // 100 peers that send one request and stay connected: more than the server keeps open.
    let mut peers: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(&serve.http).unwrap()).collect();
    for peer in &mut peers {
        peer.write_all(b"GET /api/stats HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    }
    let started = Instant::now();
    for peer in &mut peers {
        peer.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
        let mut start = [0; 12];
        peer.read_exact(&mut start).unwrap();
        assert_eq!(&start, b"HTTP/1.1 200");
    }
    let open = std::fs::read_dir(format!("/proc/{}/fd", serve.pid())).unwrap().count();
    assert!(open < 90, "{open} descriptors");
    assert!(started.elapsed() < Duration::from_secs(12), "{:?}", started.elapsed());
}

/// Latency of a request after many peers that sent `start` and then nothing.
fn latency_behind_stalled_peers(peers: usize, start: &[u8]) -> Duration {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let before = resident_bytes(&serve);
    let mut peers: Vec<TcpStream> = (0..peers).map(|_| TcpStream::connect(&serve.http).unwrap()).collect();
    for peer in &mut peers {
        // The first ones may have been closed again.
        let _ = peer.write_all(start);
    }
    let started = Instant::now();
    assert_eq!(get(&serve.http, "/api/stats").status, 200);
    let open = std::fs::read_dir(format!("/proc/{}/fd", serve.pid())).unwrap().count();
    assert!(open < 90, "{open} descriptors");
    let grown = resident_bytes(&serve).saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes");
    started.elapsed()
}

#[test]
fn stalled_connections_do_not_block_further_ones() {
    // Heads: four rounds of 64 connections, each 5 s in a server with free slots and 0.5 s in a full one. Bodies: one round of
    // 30 s or 3 s.
    let post = b"POST /v1development/profiles HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n\
        Content-Length: 9\r\n\r\nx";
    let cases: [(usize, &[u8], u64); 4] =
        [(300, b"", 15), (300, b"GET / HTTP/1.1\r\n", 15), (300, b"PRI * HTTP/2.0\r\n", 15), (100, post, 25)];
    let running = cases.map(|(peers, start, bound_s)| {
        std::thread::spawn(move || (latency_behind_stalled_peers(peers, start), start, bound_s))
    });
    for case in running {
        let (after, start, bound_s) = case.join().unwrap();
        assert!(after < Duration::from_secs(bound_s), "{:?}: {after:?}", String::from_utf8_lossy(start));
    }
}

#[test]
fn a_peer_that_never_finishes_its_head_is_closed() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let closed_within = |first: &'static [u8], every: Option<&'static [u8]>| {
        let mut peer = TcpStream::connect(&serve.http).unwrap();
        std::thread::spawn(move || {
            peer.write_all(first).unwrap();
            peer.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            let started = Instant::now();
            while started.elapsed() < Duration::from_secs(20) {
                if let Some(more) = every {
                    let _ = peer.write_all(more);
                }
                match peer.read(&mut [0; 512]) {
                    Ok(0) => return started.elapsed(),
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return started.elapsed(),
                    _ => (),
                }
            }
            panic!("still open after {first:?}");
        })
    };
    let silent = closed_within(b"", None);
    let stalled = closed_within(b"POST /v1development/profiles HTTP/1.1\r\nHost: localhost\r\n", None);
    let trickling = closed_within(b"GET / HTTP/1.1\r\n", Some(b"X"));
    let half_http2 = closed_within(b"PRI * HTTP/2.0\r\n", None);
    for peer in [silent, stalled, trickling, half_http2] {
        let after = peer.join().unwrap();
        assert!(after > Duration::from_secs(3) && after < Duration::from_secs(12), "{after:?}");
    }
}
