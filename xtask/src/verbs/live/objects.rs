//! Object storage: `spanprof scrape`, `upload` and the reading verbs with versitygw, an S3 server that verifies signatures. The
//! allocations of a Go service are exactly those ordered, in a directory and below a prefix, also over an outage of the storage.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{go_program, scrape};
use crate::arguments::LiveArguments;
use crate::artifact;
use crate::step::{ProcessStep, Running, StepFailure, StepResult};
use crate::{http, scratch};

const VERSION: &str = "v1.8.0";
const REGION: &str = "eu-central-1";
const KEY: &str = "live-key";
const SECRET: &str = "live-secret-of-the-suite";
const BUCKET: &str = "profiles";
/// Orders before, during and after the outage.
const ORDERS: [i64; 3] = [100, 50, 25];
/// Objects of the measurement.
const MANY: usize = 3000;
/// Far beyond any interval of this suite on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The server, and the command with its credentials.
struct ObjectSuite {
    directory: PathBuf,
    server: PathBuf,
    port: u16,
    command: PathBuf,
}

pub fn run(_: &LiveArguments) -> StepResult {
    let service = go_program("scrape", ".", scrape::VERSION)?;
    let suite = ObjectSuite {
        server: built()?,
        command: artifact::command_line()?,
        directory: scratch::empty("live-objects")?,
        port: super::free_port()?,
    };
    let storage = suite.start_server()?;
    let prefix = format!("s3://{BUCKET}/scraped");
    suite.scrape_over_an_outage(&service, storage, &prefix)?;

    let storage = suite.start_server()?;
    let files = suite.directory.join("files").to_string_lossy().into_owned();
    let copied = format!("s3://{BUCKET}/copied/");
    for expected in ["\"present\":0", "\"uploaded\":0"] {
        let counts = suite.verb(&["upload", &files, &copied, "--json"])?;
        if !counts.contains(expected) || !counts.contains("\"failed\":0") {
            return Err(StepFailure::new("upload", format!("{counts}, expected {expected}")));
        }
    }
    let expected: i64 = ORDERS.iter().sum::<i64>() * scrape::BLOCK_BYTES;
    for source in [files.as_str(), &prefix, &copied] {
        let allocated = suite.allocated(source);
        if allocated != expected {
            return Err(StepFailure::new("allocations", format!("{allocated} bytes in {source}, expected {expected}")));
        }
        println!("{source}: {allocated} bytes allocated, exactly those ordered");
    }
    suite.refuses_a_wrong_secret(&copied)?;
    suite.measure()?;
    drop(storage);
    Ok(())
}

/// The program of the S3 server.
pub(super) fn built() -> StepResult<PathBuf> {
    go_program("objects", "github.com/versity/versitygw/cmd/versitygw", VERSION)
}

impl ObjectSuite {
    fn start_server(&self) -> StepResult<Running> {
        let data = self.directory.join("data");
        std::fs::create_dir_all(data.join(BUCKET))
            .map_err(|error| StepFailure::new("bucket", format!("cannot create it: {error}")))?;
        let mut running = ProcessStep::new("versitygw", &self.server)
            .args(["--port", &format!("127.0.0.1:{}", self.port), "--region", REGION, "posix", "--nometa"])
            .arg(&data)
            .env("ROOT_ACCESS_KEY", KEY)
            .env("ROOT_SECRET_KEY", SECRET)
            .start(&self.directory.join("versitygw.log"))?;
        running.wait_until(PATIENCE, |_| http::get(self.port, "/").ok())?;
        Ok(running)
    }

    fn step(&self, name: &str) -> ProcessStep {
        ProcessStep::new(name, &self.command)
            .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port))
            .env("AWS_REGION", REGION)
            .env("AWS_ACCESS_KEY_ID", KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
    }

    fn verb(&self, words: &[&str]) -> StepResult<String> {
        self.step(words[0]).args(words).capture()
    }

    /// Bytes that the service was ordered to allocate; 0 while there are none.
    fn allocated(&self, source: &str) -> i64 {
        let label = format!("--label=bytes={}", scrape::BLOCK_BYTES);
        let words = ["top", source, "--type", "alloc_space", "--limit", "0", "--json", &label];
        let answer = self.step("top").args(words).capture_any().map(|(_, text)| text).unwrap_or_default();
        let json = answer.lines().find_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let rows = json.as_ref().and_then(|json| json["rows"].as_array()).into_iter().flatten();
        rows.filter(|row| row["function"] == "main.allocateKnown").filter_map(|row| row["flat"].as_i64()).sum()
    }

    /// Ends the storage before the second order and starts it again after the first failed delivery.
    fn scrape_over_an_outage(&self, service: &Path, storage: Running, prefix: &str) -> StepResult {
        let port = super::free_port()?;
        let config = self.directory.join("scrape.yaml");
        let files = self.directory.join("files");
        let text = format!(
            "targets:\n- url: http://127.0.0.1:{port}\n  profiles: [{{name: heap, path: '/debug/pprof/heap?gc=1', interval: 1s}}]\n\
             destinations:\n- {{directory: {}, keep: 10000}}\n- {{url: '{prefix}'}}\n",
            files.display()
        );
        scratch::write(&config, &text)?;
        let _service = scrape::service(service, port, &self.directory)?;
        let words = ["scrape", "--json", "--config"];
        let mut scrape = self.step("scrape").args(words).arg(&config).start(&self.directory.join("scrape.log"))?;
        let [before, during, after] = ORDERS;
        let in_files = |scrape: &mut Running, blocks: i64| {
            let files = files.to_string_lossy();
            let expected = blocks * scrape::BLOCK_BYTES;
            scrape.wait_until(PATIENCE, |_| (self.allocated(&files) >= expected).then_some(()))
        };
        // The first totals are the base of the differences: they have no allocations, but objects in use.
        scrape.wait_until(PATIENCE, |_| {
            let table = self.step("top").args(["top", prefix, "--type", "inuse_space"]).capture_any();
            table.ok().filter(|(status, _)| status.success())
        })?;
        scrape::order(port, before)?;
        in_files(&mut scrape, before)?;
        drop(storage);
        scrape::order(port, during)?;
        in_files(&mut scrape, before + during)?;
        scrape.wait_until(PATIENCE, |log| log.contains(&format!("delivery to {prefix} fails")).then_some(()))?;
        let _storage = self.start_server()?;
        scrape.wait_until(PATIENCE, |log| log.contains(&format!("delivery to {prefix} has resumed")).then_some(()))?;
        scrape::order(port, after)?;
        in_files(&mut scrape, ORDERS.iter().sum())?;
        println!("the storage was away for some deliveries, which were repeated");
        // SIGTERM, which delivers the queue.
        drop(scrape);
        Ok(())
    }

    fn refuses_a_wrong_secret(&self, source: &str) -> StepResult {
        let wrong = "another-secret-of-the-suite";
        let step = self.step("a wrong secret").env("AWS_SECRET_ACCESS_KEY", wrong);
        let (status, text) = step.args(["top", source]).capture_any()?;
        if !status.success() && text.contains("SignatureDoesNotMatch") && !text.contains(wrong) {
            Ok(())
        } else {
            Err(StepFailure::new("a wrong secret", format!("{status}: {text}")))
        }
    }

    /// Time of many small objects.
    fn measure(&self) -> StepResult {
        let many = self.directory.join("many");
        let failed = |error: std::io::Error| StepFailure::new("many files", error.to_string());
        std::fs::create_dir_all(&many).map_err(failed)?;
        let folded = self.directory.join("one.folded");
        scratch::write(&folded, "main;work;inner 30\nmain;work 10\n")?;
        let one = many.join("cpu-1.pb.gz");
        self.verb(&["convert", &folded.to_string_lossy(), "-o", &one.to_string_lossy()])?;
        for number in 2..=MANY {
            std::fs::copy(&one, many.join(format!("cpu-{number}.pb.gz"))).map_err(failed)?;
        }
        let prefix = format!("s3://{BUCKET}/many/");
        let mut began = Instant::now();
        self.verb(&["upload", &many.to_string_lossy(), &prefix])?;
        let written = began.elapsed();
        began = Instant::now();
        let table = self.verb(&["top", &prefix, "--json"])?;
        println!("{MANY} objects: written in {written:.1?}, read in {:.1?}", began.elapsed());
        match table.contains(&format!("\"total\":{},", 40 * MANY)) {
            true => Ok(()),
            false => Err(StepFailure::new("many objects", table)),
        }
    }
}
