//! A running `spanprof serve`: its answers with their cost, from /proc and over HTTP/1.1.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Clock ticks of /proc per second (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// Killed on drop.
pub struct Server {
    child: Child,
    address: String,
    /// From the start of the process until its index is complete.
    pub start_time: Duration,
}

/// An answer with what it cost.
pub struct Answer {
    pub text: String,
    /// Of the body, as transferred.
    pub bytes: usize,
    pub wall: Duration,
    pub cpu: Duration,
    pub windows_left_out: u64,
}

impl Server {
    /// Starts the server, and waits until its index is complete and it is idle.
    pub fn start(directory: &Path, more: &[&str]) -> Server {
        let started = Instant::now();
        let mut child = Command::new(env!("CARGO_BIN_EXE_spanprof"))
            .args(["serve", "--grpc", "0", "--http", "0", "--json", "--dir"])
            .arg(directory)
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("its first line");
        let (_, rest) = line.split_once("\"http\":\"").expect("an address");
        let address = rest.split('"').next().unwrap_or_default().to_owned();
        let mut server = Server { child, address, start_time: Duration::ZERO };
        while server.get("/api/stats").text.contains("\"indexing\":true") {
            sleep(Duration::from_millis(10));
        }
        server.start_time = started.elapsed();
        server.wait_until_idle();
        server
    }

    /// Waits until the server has used no CPU time for half a second, while it builds no roll-up.
    fn wait_until_idle(&self) {
        let mut last = (self.cpu(), Instant::now());
        while last.1.elapsed() < Duration::from_millis(500) {
            sleep(Duration::from_millis(50));
            if self.cpu() > last.0 + Duration::from_millis(10) {
                last = (self.cpu(), Instant::now());
            }
        }
    }

    /// Waits until the number of roll-ups and hours is stable: the server looks for missing ones every few seconds.
    pub fn wait_for_rollups(&self) {
        let mut last = (String::new(), Instant::now());
        while last.1.elapsed() < Duration::from_secs(20) {
            sleep(Duration::from_secs(1));
            let stats = self.get("/api/stats").text;
            let counts: String = ["rollups", "hours", "windows"].map(|name| number(&stats, name).to_string()).join(" ");
            if counts != last.0 {
                last = (counts, Instant::now());
            }
        }
        self.wait_until_idle();
    }

    /// First start and last end of the windows, rounded inwards to whole seconds.
    pub fn range_s(&self) -> (u64, u64) {
        let types = self.get("/api/types").text;
        (number(&types, "from_ms").div_ceil(1000), number(&types, "to_ms") / 1000)
    }

    pub fn get(&self, path: &str) -> Answer {
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\naccept-encoding: gzip\r\n\r\n",
            self.address
        );
        let (cpu, started) = (self.cpu(), Instant::now());
        let body = self.exchange(head.as_bytes());
        let (wall, cpu) = (started.elapsed(), self.cpu() - cpu);
        let bytes = body.len();
        let mut text = String::new();
        match body.starts_with(&[0x1f, 0x8b]) {
            true => flate2::read::GzDecoder::new(&body[..]).read_to_string(&mut text),
            false => (&body[..]).read_to_string(&mut text),
        }
        .expect("UTF-8");
        let windows_left_out =
            if text.contains("\"windows_left_out\":") { number(&text, "windows_left_out") } else { 0 };
        Answer { text, bytes, wall, cpu, windows_left_out }
    }

    /// Sends an export request in gzip.
    pub fn send(&self, request: &[u8]) {
        let head = format!(
            "POST /v1development/profiles HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/x-protobuf\r\n\
             content-encoding: gzip\r\notlp-profiles-development-version: 1\r\ncontent-length: {}\r\n\r\n",
            self.address,
            request.len()
        );
        self.exchange(&[head.as_bytes(), request].concat());
    }

    /// The body of the response; panics unless it succeeded.
    fn exchange(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        stream.write_all(request).expect("a request");
        let mut response = Vec::new();
        stream.read_to_end(&mut response).expect("a response");
        let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
        assert!(
            response.starts_with(b"HTTP/1.1 200"),
            "{}",
            String::from_utf8_lossy(&response[..response.len().min(2000)])
        );
        response.split_off(end)
    }

    /// CPU time of the process.
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("a running server");
        let fields = stat.rsplit_once(')').expect("a name").1.split_whitespace();
        // utime and stime, proc_pid_stat(5).
        let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
        Duration::from_secs_f64(ticks / TICKS_PER_SECOND)
    }

    /// Resident memory now and at its maximum.
    pub fn memory(&self) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a running server");
        let megabytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
            line.trim_matches(|letter: char| !letter.is_ascii_digit()).parse::<u64>().expect("kB") / 1000
        };
        format!("{} MB resident, {} MB at the maximum", megabytes("VmRSS:"), megabytes("VmHWM:"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number after `"name":` in JSON text, first occurrence.
fn number(json: &str, name: &str) -> u64 {
    let (_, rest) = json.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name} in {json:.300}"));
    rest.split(|letter: char| !letter.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Bytes of the files below a directory.
pub fn directory_bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).expect("a directory").flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => directory_bytes(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    bytes.sum()
}
