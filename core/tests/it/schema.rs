//! The published JSON schema: equal to its source, accepts documented files, refuses wrong ones.

use std::path::{Path, PathBuf};

use serde_json::Value;
use spanprof_config::{Config, ConfigValue, Environment};

fn documents() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

fn validator() -> jsonschema::Validator {
    let text = std::fs::read_to_string(documents().join("reference/schema.json")).unwrap();
    jsonschema::draft202012::new(&serde_json::from_str(&text).unwrap()).unwrap()
}

fn value(yaml: &str) -> Value {
    serde_norway::from_str(yaml).unwrap()
}

fn pages(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { pages(&path) } else { vec![path] }).collect()
}

/// The files of spanprof in every page, each with the name of its page.
fn documented_files() -> Vec<(String, String)> {
    // Configuration of other programs such as Kubernetes, of `spanprof scrape`, and of `spanprof check --redaction`.
    let is_other = |block: &str| {
        let names =
            ["receivers:", "service:", "services:", "apiVersion:", "jobs:", "groups:", "targets:", "redaction_cases:"];
        block.lines().any(|line| names.iter().any(|name| line.starts_with(name)))
    };
    let mut files = Vec::new();
    for page in pages(&documents()) {
        let Ok(text) = std::fs::read_to_string(&page) else { continue };
        let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
        let name = page.file_name().unwrap().to_string_lossy().into_owned();
        files.extend(blocks.filter(|block| !is_other(block)).map(|block| (name.clone(), block.to_owned())));
    }
    files
}

#[test]
fn every_documented_file_is_valid_and_loads_without_a_warning() {
    let validator = validator();
    let path = std::env::temp_dir().join(format!("spanprof-schema-{}.yaml", std::process::id()));
    let files = documented_files();
    for (page, block) in &files {
        let errors: Vec<_> = validator.iter_errors(&value(block)).map(|error| error.to_string()).collect();
        assert_eq!(errors, [""; 0], "{page}: {block}");
        std::fs::write(&path, block).unwrap();
        let file = ("config_file".to_owned(), ConfigValue::Text(path.to_string_lossy().into_owned()));
        assert_eq!(Config::load(&[file], &Environment::new()).unwrap().warnings, [""; 0], "{page}: {block}");
    }
    std::fs::remove_file(path).unwrap();
    assert!(files.len() >= 10, "{files:?}");
}

#[test]
fn values_of_the_wrong_type_and_unknown_names_are_refused() {
    let validator = validator();
    let accepted = |yaml: &str| validator.is_valid(&value(yaml));
    for valid in [
        "sample_rate: 100",
        "sample_rate: '100'",
        "upload_interval: 1.5",
        "upload_interval: 5m",
        "wall: on",
        "wall: {enabled: true}",
        "memory: {sample_rate: 512KB}",
        "clock: perf",
        "tags: {team: a, rack: 7}",
        "sample_rate:",
        "load_shedding: {enabled: false, cpu_threshold: 90%}",
        "load_shedding_threshold: 0.9",
        "profiling: {cpu: {sample_rate: 100}, conditional: {slow_request_threshold: 500ms, cpu_threshold_percent: 80}}",
        "event_loop_block: 20",
        "destinations: [{type: otlp, endpoint: 'https://c:4318'}]",
        "destinations: [{type: pyroscope, tenant_id: a, basic_auth_user: 7, basic_auth_password: b}]",
        "redaction_rules: [{where: [function, file], match: 'u[0-9]+', action: hash}]",
        "tail_duration: p99",
    ] {
        assert!(accepted(valid), "{valid}");
    }
    for wrong in [
        "sample_rate: fast",
        "sample_rate: 0",
        "sampel_rate: 100",
        "upload_interval: soon",
        "wall: maybe",
        "clock: sundial",
        "cpu_budget: 5s",
        "load_shedding_threshold: 90",
        "profiling: {sampel_rate: 100}",
        "cpu: {sampel_rate: 5}",
        "memory: {sample_rate: 512XB}",
        "tags: [a]",
        "destinations: [{type: pigeon}]",
        "destinations: [{endpoint: x}]",
        "destinations: [{type: otlp, directry: d}]",
        "destinations: [{type: otlp, tenant_id: {a: b}}]",
        "redaction_rules: [{where: function, type: otlp}]",
        "tail_duration: p98",
        "[a]",
    ] {
        assert!(!accepted(wrong), "{wrong}");
    }
}

#[test]
fn every_key_is_in_the_schema_with_its_description() {
    let text = std::fs::read_to_string(documents().join("reference/schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    for key in spanprof_config::KEYS {
        let property = &schema["properties"][key.name];
        let property = property["anyOf"].get(0).filter(|switch| switch["description"].is_string()).unwrap_or(property);
        assert_eq!(property["description"], key.doc.trim(), "{}", key.name);
    }
}
