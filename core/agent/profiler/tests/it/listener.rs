//! The listener of pulls: slow, silent and malformed clients, its limits, and a program that closes its descriptor.

use spanprof_profiler::http::listener::HttpListener;
use spanprof_profiler::http::message::{HttpRequest, HttpResponse};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(60);

fn listener(handler: impl Fn(&HttpRequest, &dyn Fn() -> bool) -> HttpResponse + Send + Sync + 'static) -> HttpListener {
    let start_thread = spanprof_export::ExporterSettings::default().start_thread;
    HttpListener::start("127.0.0.1", 0, Arc::new(handler), start_thread, |_, _| {}).unwrap()
}

fn echo(request: &HttpRequest, _: &dyn Fn() -> bool) -> HttpResponse {
    HttpResponse { status: 200, headers: Vec::new(), body: request.body.clone() }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

fn response(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    // An error after the response, such as a reset, is not of interest.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = connect(address);
    stream.write_all(request).unwrap();
    response(stream)
}

#[test]
fn a_request_in_many_parts_is_answered() {
    let listener = listener(echo);
    let mut stream = connect(listener.address());
    stream.set_nodelay(true).unwrap();
    for part in ["POST /a HT", "TP/1.1\r\nContent-Le", "ngth: 4\r\n\r\n", "ab", "cd"] {
        stream.write_all(part.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(response(stream).ends_with("\r\n\r\nabcd"));
    listener.stop();
}

#[test]
fn a_large_response_arrives_whole() {
    let listener = listener(|_, _| HttpResponse { status: 200, headers: Vec::new(), body: vec![b'a'; 8 << 20] });
    let text = exchange(listener.address(), b"GET / HTTP/1.1\r\n\r\n");
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    assert_eq!(body.len(), 8 << 20);
    listener.stop();
}

#[test]
fn silent_clients_keep_no_other_client_out() {
    let listener = listener(echo);
    let address = listener.address();
    // More than the listener takes at once.
    let silent: Vec<_> = (0..150)
        .map(|_| {
            std::thread::Builder::new()
                .stack_size(64 << 10)
                .spawn(move || {
                    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).ok()?;
                    stream.write_all(b"GET / HTTP/1.1\r\nHost: ").ok()?;
                    Some(stream)
                })
                .unwrap()
        })
        .collect();
    let begun = Instant::now();
    while listener.counts().accepted < 64 && begun.elapsed() < TIMEOUT {
        std::thread::sleep(Duration::from_millis(10));
    }
    let answered = exchange(address, b"GET / HTTP/1.1\r\nContent-Length: 2\r\n\r\nok");
    assert!(answered.ends_with("ok"), "{answered}");
    assert!(listener.counts().incomplete > 0, "silent clients were disconnected");
    listener.stop();
    drop(silent);
}

#[test]
fn more_requests_than_handlers_are_refused_and_later_ones_answered() {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let running = Arc::new(AtomicUsize::new(0));
    let (own_gate, own_running) = (gate.clone(), running.clone());
    let listener = listener(move |request, _| {
        own_running.fetch_add(1, Ordering::AcqRel);
        let (is_open, changed) = &*own_gate;
        drop(changed.wait_while(is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
        HttpResponse { status: 200, headers: Vec::new(), body: request.path.clone().into_bytes() }
    });
    let address = listener.address();
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let mut stream = connect(address);
            stream.write_all(b"GET /waits HTTP/1.1\r\n\r\n").unwrap();
            stream
        })
        .collect();
    while running.load(Ordering::Acquire) < 8 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let refused = exchange(address, b"GET / HTTP/1.1\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("Retry-After: 1"), "{refused}");
    assert_eq!(listener.counts().overloaded, 1);
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    for stream in waiting {
        assert!(response(stream).ends_with("/waits"));
    }
    listener.stop();
}

#[test]
fn a_handler_is_notified_that_its_client_left() {
    let has_left = Arc::new(AtomicUsize::new(0));
    let own = has_left.clone();
    let listener = listener(move |_, client_has_left| {
        while !client_has_left() {
            std::thread::sleep(Duration::from_millis(5));
        }
        own.store(1, Ordering::Release);
        HttpResponse::default()
    });
    let mut stream = connect(listener.address());
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    drop(stream);
    while has_left.load(Ordering::Acquire) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    listener.stop();
}

#[test]
fn two_listeners_share_a_port_and_each_ends_alone() {
    let first = listener(echo);
    let start_thread = spanprof_export::ExporterSettings::default().start_thread;
    let address = first.address();
    let second = HttpListener::start("127.0.0.1", address.port(), Arc::new(echo), start_thread, |_, _| {}).unwrap();
    first.stop();
    drop(first);
    // The system may queue connections at the first one until its thread has ended.
    let begun = Instant::now();
    let mut answered = 0;
    while answered < 20 && begun.elapsed() < TIMEOUT {
        let Ok(mut stream) = TcpStream::connect(address) else { continue };
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let is_sent = stream.write_all(b"GET / HTTP/1.1\r\n\r\n").is_ok();
        answered = if is_sent && response(stream).starts_with("HTTP/1.1 200") { answered + 1 } else { 0 };
    }
    assert_eq!(answered, 20);
    second.stop();
}
