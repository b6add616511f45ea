//! Destinations that the caller writes: names, retries, refusals.

use crate::shared::{assert_counters_balance, exporter_to, payload, stats_of, TEST_TIMEOUT};
use spanprof_export::{Destination, DiscardReason, ExportPayload, PayloadWriter, WriteError, WriteErrorKind};
use std::sync::{Arc, Mutex};

/// Fails by a script, then succeeds.
#[derive(Debug, Default)]
struct ScriptedWriter {
    failures: Mutex<Vec<WriteErrorKind>>,
    written: Mutex<Vec<(String, Vec<u8>)>>,
}

impl ScriptedWriter {
    fn failing(failures: &[WriteErrorKind]) -> Arc<Self> {
        Arc::new(Self { failures: Mutex::new(failures.to_vec()), ..Self::default() })
    }

    fn written(&self) -> Vec<(String, Vec<u8>)> {
        self.written.lock().unwrap().clone()
    }
}

impl PayloadWriter for ScriptedWriter {
    fn kind(&self) -> &'static str {
        "scripted"
    }

    fn shown(&self) -> String {
        "the script".to_owned()
    }

    fn write(&self, name: &str, body: &[u8]) -> Result<(), WriteError> {
        assert_ne!(body, b"panic");
        self.written.lock().unwrap().push((name.to_owned(), body.to_vec()));
        match self.failures.lock().unwrap().pop() {
            Some(kind) => Err(WriteError { message: "by the script".to_owned(), kind }),
            None => Ok(()),
        }
    }
}

fn cpu(body: &[u8]) -> ExportPayload {
    ExportPayload { profile_type: Some("cpu".to_owned()), time_unix_ms: 17, ..payload(body, 2) }
}

#[test]
fn a_retried_body_has_the_same_name_and_another_body_another_name() {
    let writer = ScriptedWriter::failing(&[WriteErrorKind::Temporary, WriteErrorKind::NotConnected]);
    let (exporter, _clock) = exporter_to(Destination::Writer(writer.clone()));
    exporter.enqueue(0, cpu(b"one"));
    assert!(exporter.flush(TEST_TIMEOUT));
    exporter.enqueue(0, cpu(b"two"));
    assert!(exporter.stop(TEST_TIMEOUT));

    let written = writer.written();
    let bodies: Vec<&[u8]> = written.iter().map(|(_, body)| body.as_slice()).collect();
    assert_eq!(bodies, [&b"one"[..], b"one", b"one", b"two"]);
    let names: Vec<&str> = written.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names[0].starts_with("cpu-17-") && names[0].ends_with(".pb.gz"), "{names:?}");
    assert!(names[1] == names[0] && names[2] == names[0] && names[3] != names[0], "{names:?}");
    let stats = stats_of(&exporter);
    assert_eq!((stats.kind, stats.target.as_str(), stats.sent, stats.retries), ("scripted", "the script", 2, 2));
}

#[test]
fn a_refused_body_and_a_panic_are_lost_and_counted() {
    let writer = ScriptedWriter::failing(&[WriteErrorKind::Permanent]);
    let (exporter, _clock) = exporter_to(Destination::Writer(writer.clone()));
    for body in [&b"refused"[..], b"panic", b"written"] {
        exporter.enqueue(0, cpu(body));
    }
    exporter.stop(TEST_TIMEOUT);
    let stats = stats_of(&exporter);
    assert_eq!((stats.sent, stats.dropped(DiscardReason::Permanent).payloads), (1, 2), "{stats:#?}");
    assert_counters_balance(&stats, 0);
}
