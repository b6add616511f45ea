//! The findings of `spanprof explain` as text of at most 80 columns, as Markdown, and as JSON.

use serde_json::{json, Map, Value};
use spanprof_read::diagnosis::{Diagnosis, Fact, Finding, FindingSeverity, Rule, UnknownWaits};
use spanprof_read::query::{FunctionLine, SpanTime, REQUEST_TIME};

use crate::function::{escaped, function_members, printable};
use crate::next_command::{function_pattern, quoted};
use crate::quantity::format_quantity;

const COLUMNS: usize = 80;
const INDENT: &str = "   ";
/// Further lines of an item: text of a profile cannot imitate the first line of one.
const CONTINUED: &str = "     ";
/// Longest name and path in the text; JSON has them whole.
const MAX_NAME: usize = 48;
/// Longest source in the command of a next step; longer ones and several read `SOURCE`.
const MAX_SOURCE: usize = 32;

pub fn text(diagnosis: &Diagnosis, findings: &[Finding], sources: &[String]) -> String {
    let mut text = wrapped(&format!("profiles of {}", services(diagnosis)), "", "  ");
    text += &wrapped(&format!("\n{}", summary(findings)), "", "");
    let has_several = diagnosis.services().count() > 1;
    for (nth, finding) in findings.iter().enumerate() {
        let item = Item::new(finding, sources, has_several);
        text += &wrapped(&item.title, &format!("\n{}. ", nth + 1), CONTINUED);
        text += &item.place.map_or_else(String::new, |place| format!("{INDENT}{place}\n"));
        for line in &item.evidence {
            text += &wrapped(line, INDENT, CONTINUED);
        }
        text += &item.command.map_or_else(String::new, |command| wrapped_command(&command));
        text += &wrapped(item.page, &format!("{INDENT}see: "), "        ");
    }
    for hint in hints(diagnosis) {
        text += &wrapped(&format!("\n{hint}"), "", "");
    }
    text
}

pub fn markdown(diagnosis: &Diagnosis, findings: &[Finding], sources: &[String]) -> String {
    let mut text = format!("### Diagnosis: {}\n\n**{}**\n", escaped(&services(diagnosis)), escaped(&summary(findings)));
    let has_several = diagnosis.services().count() > 1;
    for (nth, finding) in findings.iter().enumerate() {
        let item = Item::new(finding, sources, has_several);
        text += &format!("\n{}. **{}**\n", nth + 1, escaped(&item.title));
        let code = |text: &str| format!("<code>{}</code>", escaped(text));
        let lines = item.place.iter().map(|place| code(place));
        let lines = lines.chain(item.evidence.iter().map(|line| escaped(line)));
        let next = item.command.iter().map(|command| format!("next: {}", code(command)));
        for line in lines.chain(next).chain([format!("see: {}", escaped(item.page))]) {
            text += &format!("{INDENT}- {line}\n");
        }
    }
    for hint in hints(diagnosis) {
        text += &format!("\n{}\n", escaped(&hint));
    }
    text
}

/// `checkout (cpu, gc); cart (cpu)`
fn services(diagnosis: &Diagnosis) -> String {
    let services: Vec<String> = diagnosis.services().map(|(name, types)| service_text(name, &types)).collect();
    services.join("; ")
}

/// Profiles that would show more.
fn hints(diagnosis: &Diagnosis) -> Vec<String> {
    let hint = |waits: UnknownWaits<'_>| {
        let service = service_text(waits.service, &[]);
        unknown_waits(&service, "its requests", waits.request_time_ns, waits.cpu_ns)
    };
    diagnosis.unknown_waits().map(hint).collect()
}

/// Profiles that would show more of one request.
pub fn request_hints(time: &SpanTime) -> Vec<String> {
    let [took, cpu, waited] = [REQUEST_TIME, "cpu", "off_cpu"].map(|name| time.subject.weight(name));
    let unknown = time.has_unknown_waits().then(|| unknown_waits("this request", "it", took, cpu));
    // A sampled sum exceeds the duration by chance too.
    let is_parallel = took > 0 && cpu.saturating_add(waited) > took.saturating_add(took / 5);
    let parallel = is_parallel.then(|| {
        "Several of its threads ran or waited at the same time, so their times add up to more than its duration."
            .to_owned()
    });
    unknown.into_iter().chain(parallel).collect()
}

fn unknown_waits(subject: &str, measured: &str, took_ns: i64, cpu_ns: i64) -> String {
    let [took, cpu] = [took_ns, cpu_ns].map(|ns| format_quantity(ns, "nanoseconds"));
    format!(
        "Waits of {subject} are unknown: {measured} took {took}, its CPU time is {cpu}, and there is no profile of wall time, \
         off-CPU time or locks. SPANPROF_PROFILES=all records them."
    )
}

/// The number of problems, the hottest code where there is none, and the number of limitations, which are listed first.
fn summary(findings: &[Finding]) -> String {
    let of = |severity| findings.iter().filter(move |finding| finding.rule.severity() == severity);
    let hottest = of(FindingSeverity::Observation).find(|finding| finding.rule == Rule::HotCode);
    let problems = match (of(FindingSeverity::Problem).count(), hottest) {
        (0, None) => "No problems found.".to_owned(),
        (0, Some(hottest)) => format!(
            "No problems found; hottest own code is {} ({} of the CPU time).",
            function_name(hottest),
            percent(hottest.share.value)
        ),
        (1, _) => "One problem found.".to_owned(),
        (several, _) => format!("{several} problems found."),
    };
    match of(FindingSeverity::Limitation).count() {
        0 => problems,
        1 => format!("{problems} The profile has one limitation."),
        several => format!("{problems} The profile has {several} limitations."),
    }
}

/// A finding in words.
struct Item {
    title: String,
    /// `app.py:12`
    place: Option<String>,
    /// One line of figures, then one for each list.
    evidence: Vec<String>,
    command: Option<String>,
    page: &'static str,
}

impl Item {
    fn new(finding: &Finding, sources: &[String], has_several: bool) -> Self {
        let severity = match finding.rule.severity() {
            FindingSeverity::Problem => String::new(),
            other => format!("{}: ", other.name()),
        };
        let service = if has_several { format!(" ({})", shown(&finding.service)) } else { String::new() };
        let line = finding.facts.iter().find_map(|(_, fact)| match fact {
            Fact::Line(line) => Some(format!(":{line}")),
            _ => None,
        });
        let at = finding.function.as_ref().filter(|at| !at.file.is_empty());
        let place = at.map(|at| end_of(&printable(&at.file), MAX_NAME + 20) + line.as_deref().unwrap_or_default());
        let (lists, figures): (Vec<_>, Vec<_>) =
            finding.facts.iter().partition(|(_, fact)| matches!(fact, Fact::Functions(..)));
        let mut words = Vec::new();
        if finding.share.high > finding.share.low {
            let bounds = [finding.share.low, finding.share.high].map(|end| format!("{:.1}", end * 100.0));
            words.push(format!("95% interval {} … {}%", bounds[0], bounds[1]));
        }
        if finding.samples > 0.0 {
            words.push(format!("{:.0} samples", finding.samples));
        }
        words.extend(figures.into_iter().map(|(name, fact)| format!("{} {}", label(name), fact_text(fact))));
        let lists = lists.into_iter().filter(|(_, fact)| !matches!(fact, Fact::Functions(rows, _) if rows.is_empty()));
        let lists = lists.map(|(name, fact)| format!("{}: {}", label(name), fact_text(fact)));
        let (command, page) = next(finding, sources, has_several);
        Self {
            title: format!("{severity}{}{service}", title(finding)),
            place,
            evidence: std::iter::once(words.join("; ")).chain(lists).collect(),
            command,
            page,
        }
    }
}

fn function_name(finding: &Finding) -> String {
    finding.function.as_ref().map_or_else(String::new, |at| shown(&at.function))
}

pub fn json(diagnosis: &Diagnosis, findings: &[Finding], sources: &[String]) -> Value {
    let has_several = diagnosis.services().count() > 1;
    let services: Map<String, Value> = diagnosis
        .services()
        .map(|(name, types)| {
            let types = types.into_iter().map(|(name, samples)| (name.to_owned(), samples.round().into()));
            (name.to_owned(), Value::Object(types.collect()))
        })
        .collect();
    let findings = findings.iter().map(|finding| {
        let evidence = finding.facts.iter().map(|(name, fact)| ((*name).to_owned(), fact_json(fact)));
        let (command, page) = next(finding, sources, has_several);
        json!({
            "rule": finding.rule.name(),
            "severity": finding.rule.severity().name(),
            "title": title(finding),
            "service": finding.service,
            "type": finding.type_name,
            "function": finding.function.as_ref().map(function_members),
            "share": {
                "value": rounded(finding.share.value),
                "low": rounded(finding.share.low),
                "high": rounded(finding.share.high),
            },
            "cost": rounded(finding.cost),
            "samples": finding.samples.round(),
            "evidence": evidence.collect::<Map<_, _>>(),
            "command": command,
            "page": page,
        })
    });
    // The findings are the last list: the rows of a page for coding agents.
    json!({"services": services, "hints": hints(diagnosis), "findings": findings.collect::<Value>()})
}

/// `checkout (cpu, gc)`
fn service_text(name: &str, types: &[(&str, f64)]) -> String {
    let types: Vec<String> = types.iter().map(|(name, _)| printable(name)).collect();
    let name = if name.is_empty() { "a service without a name".to_owned() } else { shown(name) };
    if types.is_empty() {
        name
    } else {
        format!("{name} ({})", types.join(", "))
    }
}

fn title(finding: &Finding) -> String {
    let name = function_name(finding);
    let share = percent(finding.share.value);
    let text = |wanted: &str| {
        let found = finding.facts.iter().find(|(name, _)| *name == wanted);
        found.map_or_else(String::new, |(_, fact)| fact_text(fact))
    };
    let around =
        |before: &str, text: String, after: &str| if text.is_empty() { text } else { format!("{before}{text}{after}") };
    match finding.rule {
        Rule::FewSamples => format!("the CPU profile has only {:.0} samples", finding.samples),
        Rule::MissingStacks => format!("{share} of the {} samples have no complete stack", finding.type_name),
        Rule::LimitedSampling => "the profiler took fewer samples than configured".to_owned(),
        Rule::HotCode => format!("{name} uses {share} of the CPU time"),
        Rule::GarbageCollection => format!("garbage collection takes {share} of the {}", text("of")),
        Rule::LockConvoy => format!("{} threads wait for a lock in {name}, on average", text("waiting_threads")),
        Rule::EventLoopBlock => format!("the event loop is blocked for {share} of the time, mostly by {name}"),
        Rule::WaitingRequests => format!("requests wait in {name} for {share} of their time"),
        Rule::SlowRequest => format!(
            "{}: the slowest request took {}, {} of it waiting{}{}",
            text("endpoint"),
            text("took"),
            text("waited"),
            around(" (", text("reason").replace('_', " "), ")"),
            around(" in ", name, "")
        ),
        Rule::MemoryGrowth => format!("objects that {name} allocates accumulate"),
        Rule::Regression => format!(
            "{name} went from {} to {} of the CPU time since version {}",
            text("baseline"),
            text("comparison"),
            text("baseline_version")
        ),
    }
}

/// A command that shows more, and the page of the documentation.
fn next(finding: &Finding, sources: &[String], has_several: bool) -> (Option<String>, &'static str) {
    let source = match sources {
        [one] if one.chars().count() <= MAX_SOURCE => quoted(one),
        _ => "SOURCE".to_owned(),
    };
    let service = if has_several && !finding.service.is_empty() {
        format!(" --service {}", quoted(&finding.service))
    } else {
        String::new()
    };
    let filter = format!("{source} --type {}{service}", finding.type_name);
    let text = |wanted: &str| {
        finding.facts.iter().find_map(|(name, fact)| match fact {
            Fact::Text(text) if *name == wanted => Some(text.as_str()),
            _ => None,
        })
    };
    let of_function = |verb: &str| {
        finding
            .function
            .as_ref()
            .map(|at| format!("spanprof {verb} {} {filter}", quoted(&function_pattern(&at.function))))
    };
    let top = || Some(format!("spanprof top {filter}"));
    match finding.rule {
        Rule::FewSamples => (None, "docs/reference/configuration.md, sample_rate; or profile for longer"),
        Rule::MissingStacks => (None, "docs/guides/troubleshooting.md"),
        Rule::LimitedSampling => (None, "docs/internals/overhead.md"),
        Rule::HotCode => (of_function("list"), "docs/reference/cli.md"),
        Rule::GarbageCollection => (
            of_function("peek").or_else(top),
            match &finding.function {
                Some(_) => "docs/reference/python.md, node.md or java.md, Garbage collection",
                None => {
                    "docs/reference/python.md, node.md or java.md, Garbage collection; with heap=true, the allocators are named"
                }
            },
        ),
        Rule::LockConvoy => (of_function("peek"), "docs/guides/locks.md"),
        Rule::EventLoopBlock => (of_function("peek"), "docs/guides/event-loop.md"),
        Rule::WaitingRequests => (of_function("peek"), "docs/guides/slow-endpoint.md"),
        Rule::SlowRequest => {
            let [trace, span] = ["trace_id", "span_id"].map(|name| text(name).unwrap_or_default());
            let request = format!("--trace-id {trace} --span-id {span}{service}");
            (Some(format!("spanprof spans {source} --against-endpoint {request}")), "docs/guides/slow-endpoint.md")
        }
        Rule::MemoryGrowth => (of_function("peek"), "docs/guides/leaks.md"),
        Rule::Regression => {
            let selector = |wanted| {
                let version = text(wanted).unwrap_or_default();
                quoted(&format!("{}{{service.version={version}}}", finding.service))
            };
            let (baseline, comparison) = (selector("baseline_version"), selector("version"));
            let words = format!("--baseline {baseline} --comparison {comparison} --type cpu --normalize");
            (Some(format!("spanprof diff {source} {words}")), "docs/reference/cli.md, Compare")
        }
    }
}

fn fact_text(fact: &Fact) -> String {
    match fact {
        Fact::Quantity(value, unit) => format_quantity(*value, unit),
        Fact::Number(value) if value.fract() == 0.0 || *value >= 100.0 => format!("{value:.0}"),
        Fact::Number(value) => format!("{value:.1}"),
        Fact::Line(line) => line.to_string(),
        Fact::Part(part) => percent(*part),
        Fact::Text(text) if text.contains(' ') => printable(text),
        Fact::Text(text) => shown(text),
        Fact::Functions(rows, whole) => {
            let part = |weight: i64| percent(weight as f64 / (*whole).max(1) as f64);
            let rows = rows.iter().map(|(at, weight)| format!("{} {}", shown(&at.function), part(*weight)));
            rows.collect::<Vec<_>>().join(", ")
        }
    }
}

fn fact_json(fact: &Fact) -> Value {
    match fact {
        Fact::Quantity(value, unit) => json!({"value": value, "unit": unit}),
        Fact::Number(value) | Fact::Part(value) => rounded(*value),
        Fact::Line(line) => (*line).into(),
        Fact::Text(text) => text.as_str().into(),
        Fact::Functions(rows, whole) => {
            let row = |(at, weight): &(FunctionLine, i64)| {
                let mut members = function_members(at);
                members.insert("weight".to_owned(), (*weight).into());
                members.insert("share".to_owned(), rounded(*weight as f64 / (*whole).max(1) as f64));
                Value::Object(members)
            };
            rows.iter().map(row).collect()
        }
    }
}

fn label(name: &str) -> String {
    name.replace('_', " ")
}

fn percent(part: f64) -> String {
    format!("{:.1}%", part * 100.0)
}

/// Four decimals; null where it is infinite.
fn rounded(value: f64) -> Value {
    json!((value * 1e4).round() / 1e4)
}

/// A name on a line.
fn shown(name: &str) -> String {
    end_of(&printable(name), MAX_NAME)
}

/// The last characters of a text: the most specific ones of a path or qualified name.
fn end_of(text: &str, characters: usize) -> String {
    match text.chars().count() {
        count if count > characters => {
            text.chars().skip(count - characters + 1).fold("…".to_owned(), |mut end, letter| {
                end.push(letter);
                end
            })
        }
        _ => text.to_owned(),
    }
}

/// Breaks a text at spaces into lines of at most [`COLUMNS`].
fn wrapped(text: &str, first: &str, indent: &str) -> String {
    lines(text, first, indent, 0).join("\n") + "\n"
}

/// A command, whose line ends are escaped.
fn wrapped_command(command: &str) -> String {
    lines(command, &format!("{INDENT}next: "), "         ", 2).join(" \\\n") + "\n"
}

fn lines(text: &str, first: &str, indent: &str, reserved: usize) -> Vec<String> {
    let mut lines = vec![first.to_owned()];
    let mut is_empty = true;
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        let length = line.trim_start_matches('\n').chars().count();
        if !is_empty && length + 1 + word.chars().count() > COLUMNS - reserved {
            lines.push(format!("{indent}{word}"));
        } else {
            line.push_str(if is_empty { "" } else { " " });
            line.push_str(word);
        }
        is_empty = false;
    }
    lines
}
