//! The reference page of the configuration, generated from the key table.

use crate::keys::key::Key;
use crate::keys::nested::nested_names;
use crate::keys::table::{Config, KEYS};

/// The keys that most programs set, in the order in which they matter.
const FIRST: [&str; 10] = [
    "service_name",
    "endpoint",
    "headers",
    "output",
    "file_directory",
    "profiles",
    "sample_rate",
    "tags",
    "retention",
    "cpu_budget",
];

/// Titles, each with the names of its keys or their first words.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Program and labels",
        &["service_name", "resource_attributes", "tags", "own_code", "inherit_threads", "thread_labels"],
    ),
    ("Switches", &["enabled", "profiles", "signals", "config_"]),
    ("CPU samples", &["cpu", "sample_rate", "clock", "cpu_duty_cycle"]),
    ("Wall clock, time off CPU, threads", &["wall", "off_cpu", "threads"]),
    ("Memory and garbage collection", &["heap", "gc"]),
    ("Locks", &["lock"]),
    ("Requests", &["requests", "retention", "tail_", "keep_timestamps"]),
    ("Windows and limits", &["upload_interval", "max_", "native_frames", "stop_timeout"]),
    ("Overhead", &["cpu_budget", "sample_rate_max", "adaptive_", "load_shedding"]),
    (
        "Receivers",
        &[
            "endpoint",
            "protocol",
            "headers",
            "compression",
            "timeout",
            "certificate",
            "client_",
            "insecure",
            "destinations",
            "link",
            "queue_",
            "buffer_",
        ],
    ),
    ("Files", &["output", "file_"]),
    ("Pull and control", &["pull"]),
    ("Metrics of the profiler", &["metrics"]),
    ("Removal of secrets", &["redaction"]),
];

/// Text below the table.
const NOTES: &str = "
## Text values
In variables and in the options of agents, values are text:
- `true` may be `1`, `yes` or `on`, and `false` may be `0`, `no` or `off`.
- A share is a number such as `0.9` or a percentage such as `90%`, also where it is no text.
- Bytes may end in `KiB`, `MiB` or `GiB`; `KB`, `MB` and `GB` mean the same. Durations may end in `us`, `ms`, `s`, `m` or `h`.
- A map is `key=value,other=value`, percent-encoded where needed.
- `destinations` and `redaction_rules` are YAML or JSON.

## Sections of the file
In the file, related keys may be written as sections. Each nested name is the spelling of one key:

```yaml
service_name: checkout
upload_interval: 10s
max_stack_depth: 128
max_profile_size: 2MB
cpu:
  enabled: true
  sample_rate: 100
memory:
  enabled: true
  sample_rate: 512KB
lock:
  enabled: true
  threshold: 10us
```

A map `profiling` or `spanprof` around all keys is left out, as in a file that several programs read:

```yaml
profiling:
  cpu:
    enabled: true
    sample_rate: 100
  conditional:
    slow_request_threshold: 500ms
    cpu_threshold_percent: 80
    profile_errors: true
  load_shedding:
    enabled: true
    cpu_threshold: 90%
```

If both spellings of a key are set, the flat one is used, with a warning; in code that is an error. [schema.json](schema.json) is the
JSON schema of the file, for editors and deployments: `# yaml-language-server: $schema=…/schema.json`.

| nested name | key |
|---|---|
NESTED

## Destinations
Each entry of `destinations` has a `type` and any of the keys of that type:

| `type` | keys |
|---|---|
| `otlp` | `endpoint`, `protocol`, `headers`, `compression`, `timeout`, `certificate`, `client_key`, `client_certificate`, `insecure` |
| `pyroscope` | `endpoint`, `headers`, `timeout`, `certificate`, `client_key`, `client_certificate` |
| `otlp`, `pyroscope` | `tenant_id` (header `X-Scope-OrgID`), `basic_auth_user`, `basic_auth_password` |
| `file` | `directory`, `keep`, `max_age`, `max_bytes` |
| all | `link` |

Missing keys are taken from the table above, those of a directory from the keys with the prefix `file_`:

```yaml
destinations:
  - type: otlp
    endpoint: https://collector.example:4318
  - type: otlp
    endpoint: http://pyroscope.example:4040
    link: span
  - type: file
    directory: /var/tmp/profiles
    keep: 20
```

An `endpoint` without a scheme gets `https://` for port 443, else `http://`. With gRPC it also gets `https://` if headers or
certificates are configured and `insecure` is not set. Port 4317 selects gRPC unless `protocol` is set.

## Redaction
[Redaction](../guides/redaction.md) explains `redaction`, `redaction_rules` and `redaction_hash_key`.

## Invalid values
An invalid value in code is an error. In a variable or the file it is a warning. The value of the next source in the order of
precedence is then used, or the default. An invalid rule of `redaction_rules` is replaced by one that removes every text of its
`where`.

## Kill switches
`SPANPROF_DISABLED=1` and `OTEL_SDK_DISABLED=true` turn the profiler off for the life of the process. `enabled=false` prepares it, so that
it can be enabled while it runs ([control](../guides/control.md)). `OTEL_PROFILES_EXPORTER` is `otlp`, `file` or `none`.
";

impl Config {
    /// The keys as Markdown, in groups: name, type, default, description.
    pub fn reference_markdown() -> String {
        let defaults = Config::default().entries();
        let row = |key: &Key| {
            let default =
                defaults.iter().find(|(name, _, _)| *name == key.name).map_or("", |(_, text, _)| text.as_str());
            let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
            let kind = match key.bounds {
                Some(bounds) => format!("{}, {} to {} {}", key.shape.name(), bounds.min, bounds.max, key.unit),
                None => key.shape.name().into_owned(),
            };
            let star = if key.live { " *" } else { "" };
            format!("| `{}`{star} | {} | {default} | {} |\n", key.name, kind.trim_end(), key.doc.trim())
        };
        let table = |keys: &mut dyn Iterator<Item = &'static Key>| {
            format!("| key | type | default | description |\n|---|---|---|---|\n{}", keys.map(row).collect::<String>())
        };
        let mut page = String::from(
            "# Configuration\n\nEach key can be set in code, in the variable `SPANPROF_` with its name in upper case \
             (`sample_rate`: `SPANPROF_SAMPLE_RATE`), and in the YAML file named by `config_file`. In code, Node.js and Java spell the \
             keys in camelCase. Order of precedence: code, `SPANPROF_*`, `OTEL_*`, `PYROSCOPE_*`, file, default. The resource in \
             the file of `OTEL_CONFIG_FILE` replaces `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, as it does for an SDK. Keys marked * \
             can change while running (`update`).\n\n## Ten keys that matter first\n\n",
        );
        page += &table(&mut FIRST.iter().filter_map(|name| KEYS.iter().find(|key| key.name == *name)));
        page += "\n## All keys\n";
        for (title, _) in GROUPS {
            page += &format!("\n### {title}\n\n{}", table(&mut KEYS.iter().filter(|key| group(key) == Some(*title))));
        }
        let nested = nested_names().map(|(section, name, key)| format!("| `{section}.{name}` | `{key}` |"));
        page.push_str(&NOTES.replace("NESTED", &nested.collect::<Vec<_>>().join("\n")));
        page
    }
}

/// The group of a key: the one with the longest name or prefix of it. A name without `_` at its end is that of one key, or the
/// first word of several.
fn group(key: &Key) -> Option<&'static str> {
    let length = |part: &str| {
        let rest = key.name.strip_prefix(part)?;
        (rest.is_empty() || part.ends_with('_') || rest.starts_with('_')).then_some(part.len())
    };
    let best = |parts: &[&str]| parts.iter().filter_map(|part| length(part)).max();
    let with_lengths = GROUPS.iter().filter_map(|(title, parts)| best(parts).map(|length| (length, *title)));
    with_lengths.max_by_key(|(length, _)| *length).map(|(_, title)| title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_each_key_once_below_the_ten_first_ones() {
        let page = Config::reference_markdown();
        let (first, all) = page.split_once("## All keys").unwrap();
        for key in KEYS {
            let cell = format!("\n| `{}`{} |", key.name, if key.live { " *" } else { "" });
            assert_eq!(all.matches(&cell).count(), 1, "{}", key.name);
        }
        assert!(FIRST.iter().all(|name| first.contains(&format!("\n| `{name}`"))), "{first}");
    }
}
