//! SIGKILL at random moments of intake, roll-up and replacement: what was acknowledged is there once after the next start.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::client::get;
use crate::fixture::{encoded, gzip, now_ns, spanprof, window_at, Serve, TestDirectory, TestSample};

const ROUNDS: u64 = 32;
const HOUR_MS: u64 = 3_600_000;
/// Windows that each round adds to old hours.
const OLD_WINDOWS: u64 = 18;

/// SplitMix64.
struct SeededNumbers(u64);

impl SeededNumbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// A window with one sample of a function of its own.
fn numbered(number: u64, start_ns: u64) -> Vec<u8> {
    let name = format!("function_{number:06}");
    encoded(&window_at("shop", "wall", start_ns, &[TestSample(&[&name], weight(number), &[], 0)]))
}

fn weight(number: u64) -> i64 {
    1_000_000 + number as i64
}

/// Sends one request; whether the server acknowledged it.
fn is_acknowledged(address: &str, body: &[u8]) -> bool {
    let exchange = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let head = format!(
            "POST /v1development/profiles HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/x-protobuf\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let mut response = String::new();
        // A killed server resets the connection, perhaps after its response.
        let _ = stream.read_to_string(&mut response);
        Ok(response)
    };
    exchange().is_ok_and(|response| response.starts_with("HTTP/1.1 200"))
}

/// Weight of each function in a server, by number.
fn stored(serve: &Serve) -> BTreeMap<u64, i64> {
    loop {
        let text = get(&serve.http, "/api/top?type=wall&limit=1000000").text();
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
        if answer["windows_left_out"] == 0 && answer.get("indexing").is_none() {
            return weights(&answer);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn weights(answer: &serde_json::Value) -> BTreeMap<u64, i64> {
    let row = |row: &serde_json::Value| {
        let number = row["function"].as_str()?.strip_prefix("function_")?.parse().ok()?;
        Some((number, row["flat"].as_i64()?))
    };
    answer["rows"].as_array().unwrap().iter().map(|it| row(it).unwrap()).collect()
}

/// Each acknowledged window once, and of the others, which were on their way, none twice.
fn assert_complete(stored: &BTreeMap<u64, i64>, acknowledged: &BTreeSet<u64>, sent: u64, round: &str) {
    let missing: Vec<_> = acknowledged.iter().filter(|number| !stored.contains_key(number)).collect();
    assert!(missing.is_empty(), "{round}: {} of {} are missing: {missing:?}", missing.len(), acknowledged.len());
    let wrong: Vec<_> = stored.iter().filter(|(number, found)| **found != weight(**number)).collect();
    assert!(wrong.is_empty(), "{round}: counted twice or in part: {wrong:?}");
    assert!(stored.keys().all(|number| *number < sent), "{round}: {stored:?}");
}

#[test]
fn a_server_that_is_killed_at_any_moment_has_each_acknowledged_window_once_after_its_next_start() {
    let home = TestDirectory::new();
    let mut numbers = SeededNumbers(20_261_127);
    let next = Arc::new(Mutex::new(0u64));
    let mut acknowledged = BTreeSet::new();
    let first_hour_ms = now_ns() / 1_000_000 / HOUR_MS * HOUR_MS - 100 * HOUR_MS;
    let start = || Serve::start(home.path(), &["--max-age", "1000h", "--keep-windows", "2h", "--quiet"]);
    for round in 0..ROUNDS {
        // As if hours had passed since the last round. Some windows are late: of an hour that was replaced.
        for nth in 0..OLD_WINDOWS {
            let hour = (round + nth % 3).saturating_sub(numbers.below(2) * numbers.below(2));
            let received_ms = first_hour_ms + hour * HOUR_MS + numbers.below(HOUR_MS);
            let mut next = next.lock().unwrap();
            let body = gzip(&numbered(*next, (received_ms - 10_000) * 1_000_000));
            home.file(&format!("{received_ms:013}-1-{next:06}.otlp.pb.gz"), &body);
            acknowledged.insert(*next);
            *next += 1;
        }
        let serve = start();
        // While the server replaces windows.
        if round % 4 == 3 {
            assert_complete(&stored(&serve), &acknowledged, *next.lock().unwrap(), &format!("in round {round}"));
        }
        let (address, next_of_thread) = (serve.http.clone(), next.clone());
        let sender = std::thread::spawn(move || {
            let mut sent = Vec::new();
            loop {
                let number = {
                    let mut next = next_of_thread.lock().unwrap();
                    *next += 1;
                    *next - 1
                };
                if !is_acknowledged(&address, &numbered(number, now_ns() - 10_000_000_000)) {
                    return sent;
                }
                sent.push(number);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        std::thread::sleep(Duration::from_micros(numbers.below(400_000)));
        // SIGKILL.
        drop(serve);
        acknowledged.extend(sender.join().unwrap());
    }
    let serve = start();
    let sent = *next.lock().unwrap();
    assert_complete(&stored(&serve), &acknowledged, sent, "at the end");
    let hours = || crate::fixture::number(&get(&serve.http, "/api/stats").text(), "hours");
    while hours() < ROUNDS as i64 {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_complete(&stored(&serve), &acknowledged, sent, "replaced");
    drop(serve);
    // Other verbs read the same files.
    let top = spanprof(&["top", home.path().to_str().unwrap(), "--type", "wall", "--limit", "0", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&top.stdout).unwrap_or_else(|_| panic!("{top:?}"));
    assert_complete(&weights(&answer), &acknowledged, sent, "by top");
}
