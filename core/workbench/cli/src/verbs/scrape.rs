//! `spanprof scrape`: reads the configuration, pulls until SIGINT or SIGTERM, delivers the queue.

use std::path::PathBuf;
use std::sync::Arc;

use super::serve::stop_signal;
use crate::output;
use crate::scrape::{ScrapeConfig, Scraper};
use spanprof_answers::failure::{Failure, EXIT_FAILED};

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof scrape --config FILE [FLAGS]",
    before_help = "\
Pulls pprof profiles from HTTP endpoints at intervals (Go's net/http/pprof, /debug/pprof of the packages) and forwards them to
OTLP receivers, directories and object storage. Totals since the start of a process (allocations, contention) are forwarded as
differences of successive pulls. Ctrl-C or SIGTERM delivers the queue and stops it. docs/guides/scrape.md lists the keys of the file.",
    after_help = "\
Examples:
  spanprof scrape --config scrape.yaml
  spanprof scrape --config scrape.yaml --check
  spanprof scrape --config scrape.yaml --once --json"
)]
pub(crate) struct ScrapeArguments {
    /// targets, profiles and destinations, as YAML
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// check the file and stop; nothing is pulled or written
    #[arg(long)]
    pub check: bool,
    /// pull each profile once; the exit code is 1 when a pull or a delivery failed
    #[arg(long)]
    pub once: bool,
    /// print the counters of targets and destinations at the end as one JSON object
    #[arg(long)]
    pub json: bool,
    /// no lines on stderr
    #[arg(long)]
    pub quiet: bool,
}

pub(crate) fn run(arguments: &ScrapeArguments) -> Result<i32, Failure> {
    let config = ScrapeConfig::read(&arguments.config)?;
    let quiet = arguments.quiet;
    let report = move |line: &str| {
        if !quiet {
            output::note(line);
        }
    };
    let profiles: usize = config.targets.iter().map(|target| target.endpoints.len()).sum();
    let contents =
        format!("{} targets, {profiles} profiles, {} destinations", config.targets.len(), config.destinations.len());
    let Some(scraper) = Scraper::start(config, Arc::new(report), arguments.check)? else {
        output::print(format!("{}: {contents}\n", arguments.config.display()).as_bytes())?;
        return Ok(0);
    };
    report(&format!("pulling: {contents}"));
    let outcome = scraper.run(arguments.once, stop_signal())?;
    report(&outcome.summary);
    if arguments.json {
        output::print(format!("{}\n", outcome.status).as_bytes())?;
    }
    Ok(if arguments.once && !outcome.is_complete { EXIT_FAILED } else { 0 })
}
