//! Runs one case through the Rust API: `Config::load`, contexts, a scripted engine, an OTLP round trip.

use std::collections::BTreeMap;

use serde_norway::Value;

use super::case::{Case, Close, Cycle, EndRequest, Expect, SampleStep};
use super::{ScriptedEngine, ScriptedSample, UNIX_OFFSET_NS};
use crate::lifecycle::request::{self};
use spanprof_aggregate::context::{open_context, ContextRow, Link};
use spanprof_config::{Config, ConfigValue};
use spanprof_profile::encode::folded;
use spanprof_profile::transform::tree;
use spanprof_profile::{ProfilesData, Value as AttributeValue};
use spanprof_signal::{SampleKind, Sequence};

/// The API of a language in a case.
pub trait Language {
    /// The code layer, as the language's `start` passes it.
    fn code(&mut self, case: &Case) -> Vec<(String, ConfigValue)> {
        case.config.iter().map(|(key, value)| (key.clone(), value_from_yaml(value))).collect()
    }

    /// The context id of a sample, through `tag_wrapper`, prepared labels and `bind` of the language: see the fields `scopes`,
    /// `ended`, `prepared`, `bound_in`, `request` and `returned` of [`SampleStep`].
    fn context(&mut self, sample: &SampleStep) -> u64;

    /// Reports the end of a request through the language's API.
    fn end_request(&mut self, end: &EndRequest);
}

/// Runs the case in `text` through a language's API.
pub fn run_in(text: &str, language: &mut dyn Language) -> Result<String, String> {
    let case: Case = serde_norway::from_str(text).map_err(|error| format!("the case cannot be read: {error}"))?;
    let code = language.code(&case);
    let name = case.name.clone();
    check_case(case, &code, language).map_err(|problem| format!("{name}: {problem}"))?;
    Ok(name)
}

fn check_case(case: Case, code: &[(String, ConfigValue)], language: &mut dyn Language) -> Result<(), String> {
    let config = match (loaded(&case, code)?, &case.expect.error) {
        (Ok(config), None) => config,
        (Err(error), None) => return Err(format!("the configuration was refused: {error}")),
        (Ok(_), Some(expected)) => return Err(format!("expected the error `{}`, got none", expected.message)),
        (Err(error), Some(expected)) => {
            let matches = error.kind.name() == expected.kind
                && error.message.contains(&expected.message)
                && error.hint.contains(&expected.hint);
            return if matches { Ok(()) } else { Err(format!("expected {expected:?}, got {error:?}")) };
        }
    };
    check_config(&config, &case.expect)?;
    let mut engine = ScriptedEngine::new(&config, &case.limits);
    request::script_ends(true);
    let checked = run_steps(&mut engine, &case, &config, language);
    request::script_ends(false);
    checked?;
    let stats = engine.stats();
    for (name, expected) in &case.expect.counters {
        equal(&format!("counter {name}"), expected, &stats.counter(name))?;
    }
    Ok(())
}

/// The configuration of a case, or its configuration error. The outer error: the file could not be written.
fn loaded(case: &Case, code: &[(String, ConfigValue)]) -> Result<Result<Config, spanprof_config::Error>, String> {
    let Some(text) = &case.file else { return Ok(Config::load(code, &case.environment)) };
    let path = std::env::temp_dir().join(format!("spanprof-{}-{}.yaml", case.name, std::process::id()));
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut environment = case.environment.clone();
    environment.insert("SPANPROF_CONFIG_FILE".to_owned(), path.to_string_lossy().into_owned());
    let loaded = Config::load(code, &environment);
    // A file that stays is harmless.
    let _ = std::fs::remove_file(&path);
    Ok(loaded)
}

fn run_steps(
    engine: &mut ScriptedEngine,
    case: &Case,
    config: &Config,
    language: &mut dyn Language,
) -> Result<(), String> {
    for (index, step) in case.steps.iter().enumerate() {
        let in_step = |problem: String| format!("step {}: {problem}", index + 1);
        if let Some(sample) = &step.sample {
            add_samples(engine, sample, language).map_err(in_step)?;
        } else if let Some(end) = &step.end_request {
            language.end_request(end);
            if !engine.end_request(ns(end.at_ms)) {
                return Err(in_step(format!("the end of the request `{}` was not reported", end.request)));
            }
        } else if let Some(end) = &step.end_code {
            engine.end_code(&end.function, end.reused_by.as_deref());
        } else if let Some(ms) = step.unseen_ms {
            engine.add_unattributed(ns(ms));
        } else if let Some(cycle) = &step.cycle {
            run_cycle(engine, cycle, u64::from(config.sample_rate));
        } else if let Some(close) = &step.close {
            check_close(engine, close).map_err(in_step)?;
        } else {
            return Err(in_step("it is empty".to_owned()));
        }
    }
    Ok(())
}

fn check_config(config: &Config, expect: &Expect) -> Result<(), String> {
    let entries = config.entries();
    let entry = |key: &String| entries.iter().find(|(name, _, _)| name == key).ok_or(format!("no key `{key}`"));
    for (key, expected) in &expect.config {
        equal(&format!("config {key}"), expected, &entry(key)?.1)?;
    }
    for (key, expected) in &expect.sources {
        equal(&format!("source of {key}"), expected, &entry(key)?.2.to_string())?;
    }
    if let Some(expected) = &expect.warnings {
        let matches = expected.len() == config.warnings.len()
            && expected.iter().zip(&config.warnings).all(|(part, warning)| warning.contains(part));
        if !matches {
            return Err(format!("expected the warnings {expected:#?}, got {:#?}", config.warnings));
        }
    }
    if let Some(expected) = &expect.destinations {
        let destinations = config.effective_destinations();
        let addresses = destinations.into_iter().map(|entry| entry.endpoint.or(entry.directory).unwrap_or_default());
        equal("destinations", expected, &addresses.collect())?;
    }
    equal("kill switch", &expect.disabled_by, &config.disabled_by)
}

fn add_samples(engine: &mut ScriptedEngine, step: &SampleStep, language: &mut dyn Language) -> Result<(), String> {
    let kind = match step.kind.as_str() {
        "cpu" => SampleKind::Cpu,
        "wall" => SampleKind::Wall,
        "alloc" => SampleKind::Alloc,
        "in_use" => SampleKind::InUse,
        "lock" => SampleKind::Lock,
        "event_loop" => SampleKind::EventLoop,
        "off_cpu" => SampleKind::OffCpu,
        "gc" => SampleKind::Gc,
        "threads" => SampleKind::Threads,
        other => return Err(format!("no kind `{other}`")),
    };
    let context = language.context(step);
    for number in 0..step.contexts_opened_meanwhile {
        let link = Link { trace_id: [7; 16], span_id: u64::from(number + 1).to_be_bytes() };
        open_context(ContextRow { link, ..ContextRow::default() });
    }
    let value = if matches!(kind, SampleKind::Alloc | SampleKind::InUse | SampleKind::Threads) {
        step.value as u64
    } else {
        ns(step.value)
    };
    for repetition in 0..step.repeat {
        engine.sample(&ScriptedSample {
            kind,
            thread_id: step.thread,
            time_ns: ns(step.at_ms + step.every_ms * f64::from(repetition)),
            values: [value, step.count],
            context,
            stack: &step.stack,
            first_of_thread: step.first_of_thread,
            truncated: step.truncated,
        });
    }
    Ok(())
}

fn run_cycle(engine: &mut ScriptedEngine, cycle: &Cycle, rate_hz: u64) {
    let length_ns: u64 = cycle.parts.iter().map(|part| ns(part.ms)).sum();
    let mut random = Sequence::new(cycle.seed);
    let mut last_ns = 0;
    loop {
        let now_ns = last_ns + random.around(1_000_000_000 / rate_hz);
        if now_ns > cycle.seconds * 1_000_000_000 {
            break;
        }
        let mut within_ns = now_ns % length_ns;
        let part = cycle.parts.iter().find(|part| {
            let inside = within_ns < ns(part.ms);
            within_ns = within_ns.saturating_sub(ns(part.ms));
            inside
        });
        let Some(part) = part else { break };
        engine.sample(&ScriptedSample {
            kind: SampleKind::Cpu,
            thread_id: 1,
            time_ns: now_ns,
            values: [now_ns - last_ns, 1],
            context: 0,
            stack: &part.stack,
            first_of_thread: false,
            truncated: false,
        });
        last_ns = now_ns;
    }
}

fn check_close(engine: &mut ScriptedEngine, close: &Close) -> Result<(), String> {
    if close.nothing {
        return match engine.close(ns(close.at_ms)) {
            None => Ok(()),
            Some(data) => Err(format!("expected nothing, got {:?}", sample_lines(&data, "cpu"))),
        };
    }
    let Some(exact) = engine.close_in_memory(ns(close.at_ms)) else {
        return Err("the window is empty".to_owned());
    };
    let bytes = spanprof_profile::encode::otlp::encode(&exact, Default::default());
    let data = spanprof_read::decode::otlp::decode(&bytes, &Default::default()).map_err(|e| e.to_string())?;
    for (type_name, expected) in &close.folded {
        let lines: Vec<_> = folded::encode(&tree(&data, type_name)).lines().map(str::to_owned).collect();
        equal(&format!("folded {type_name}"), expected, &lines)?;
    }
    for (type_name, expected) in &close.samples {
        equal(&format!("samples {type_name}"), expected, &sample_lines(&data, type_name))?;
    }
    for (type_name, expected) in &close.exact {
        equal(&format!("exact {type_name}"), expected, &exact_weights(&exact, type_name))?;
    }
    for (type_name, shares) in &close.shares {
        for share in shares {
            check_share(&exact, type_name, &share.leaf, share.percent, share.within)?;
        }
    }
    check_resource(&data, &close.resource)?;
    check_absent(&data, &close.resource_without)?;
    for (_, profile) in data.profiles() {
        if let Some(start_ms) = close.start_ms {
            let start = i128::from(profile.time_unix_nano) - UNIX_OFFSET_NS;
            equal("start of the window", &i128::from(ns(start_ms)), &start)?;
            equal("end of the window", &i128::from(ns(close.at_ms)), &(start + i128::from(profile.duration_nano)))?;
        }
        if let Some(expected) = close.period.get(profile.type_name()) {
            equal("period", expected, &profile.period)?;
        }
    }
    Ok(())
}

fn check_share(data: &ProfilesData, type_name: &str, leaf: &str, percent: f64, within: f64) -> Result<(), String> {
    let weights = exact_weights(data, type_name);
    let total: i64 = weights.values().sum();
    let ends_in = |stack: &String| stack.rsplit(';').next() == Some(leaf);
    let part: i64 = weights.iter().filter(|(stack, _)| ends_in(stack)).map(|(_, weight)| weight).sum();
    let got = 100.0 * part as f64 / (total as f64).max(1.0);
    if (got - percent).abs() > within {
        return Err(format!("expected {leaf} at {percent} ± {within} %, got {got:.2} %"));
    }
    Ok(())
}

fn check_resource(data: &ProfilesData, expected: &BTreeMap<String, String>) -> Result<(), String> {
    let resource = data.resources.first().map(|resource| resource.resource.as_slice()).unwrap_or_default();
    for (key, expected) in expected {
        let value = resource.iter().find(|attribute| attribute.key == *key);
        let value = value.map(|attribute| attribute.value.as_ref().to_string());
        equal(&format!("resource {key}"), &Some(expected.clone()), &value)?;
    }
    Ok(())
}

fn check_absent(data: &ProfilesData, keys: &[String]) -> Result<(), String> {
    let mut attributes = data.resources.iter().flat_map(|resource| &resource.resource);
    match attributes.find(|attribute| keys.contains(&attribute.key)) {
        Some(attribute) => Err(format!("expected no attribute {} in the resource", attribute.key)),
        None => Ok(()),
    }
}

/// Weight by folded stack.
fn exact_weights(data: &ProfilesData, type_name: &str) -> BTreeMap<String, i64> {
    let mut weights = BTreeMap::new();
    for (_, profile) in data.profiles().filter(|(_, profile)| profile.type_name() == type_name) {
        for sample in &profile.samples {
            *weights.entry(folded_stack(data, sample.stack)).or_default() += profile.weight(sample);
        }
    }
    weights
}

fn folded_stack(data: &ProfilesData, stack: spanprof_profile::StackId) -> String {
    let dictionary = &data.dictionary;
    let names = dictionary.get_stack(stack).iter().rev().flat_map(|location| {
        dictionary
            .get_location(*location)
            .lines
            .iter()
            .rev()
            .map(|line| dictionary.get_string(dictionary.get_function(line.function).name).to_owned())
    });
    names.collect::<Vec<_>>().join(";")
}

/// Samples as text: stack, value, labels without the service's own name, link.
fn sample_lines(data: &ProfilesData, type_name: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for (resource, profile) in data.profiles().filter(|(_, profile)| profile.type_name() == type_name) {
        for sample in &profile.samples {
            let mut line = format!("{} {}", folded_stack(data, sample.stack), sample.total());
            let mut labels: Vec<_> = data
                .dictionary
                .attributes_of(sample.attributes)
                .filter(|label| {
                    label.key != "service.name" || label.value != AttributeValue::String(resource.service_name())
                })
                .map(|label| format!("{}={}", label.key, label.value))
                .collect();
            labels.sort();
            if !labels.is_empty() {
                line.push_str(&format!(" {{{}}}", labels.join(", ")));
            }
            let link = data.dictionary.get_link(sample.link);
            if !link.is_empty() {
                line.push_str(&format!(" {}/{}", hex::encode(link.trace_id), hex::encode(link.span_id)));
            }
            if !sample.timestamps_unix_nano.is_empty() {
                let relative = sample.timestamps_unix_nano.iter().map(|time| i128::from(*time) - UNIX_OFFSET_NS);
                let times: Vec<_> = relative.map(|ns| format!("{}ms", ns / 1_000_000)).collect();
                line.push_str(&format!(" at {}", times.join(", ")));
            }
            lines.push(line);
        }
    }
    lines.sort();
    lines
}

fn equal<T: PartialEq + std::fmt::Debug>(name: &str, expected: &T, got: &T) -> Result<(), String> {
    if expected == got {
        return Ok(());
    }
    Err(format!("{name}: expected {expected:#?}, got {got:#?}"))
}

fn ns(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

/// A YAML value as a binding passes it.
pub fn value_from_yaml(value: &Value) -> ConfigValue {
    spanprof_config::yaml_value(value)
}
