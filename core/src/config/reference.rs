//! The reference page of the configuration, generated from the key table.

use super::keys::{Config, KEYS};
use std::fmt::Write;

/// Text below the table.
const NOTES: &str = "
As text, in a variable: `true` and `false` may be `1` and `0`, `yes` and `no`, `on` and `off`; bytes may end in `KiB` or
`MiB`, seconds in `s` or `ms`; a map is `key=value,other=value`, percent-encoded where needed; `destinations` is YAML or
JSON.

Each entry of `destinations` has a `type`, `otlp` or `file`, and any of `endpoint`, `protocol`, `headers`, `compression`,
`timeout`, `certificate`, `client_key`, `client_certificate`, `insecure` (otlp), `directory` and `keep` (file), `link`,
`instance_attributes` and `label_names`. Missing keys are taken from the table above, `directory` and `keep` from `file_directory` and `file_keep`:

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

An invalid value in code is an error. In a variable or the file it is a warning, and the next lower layer or the default is used. An
`endpoint` without a scheme is `http://`. It is `https://` for port 443, and with gRPC if headers or certificates are configured and
`insecure` is not set. Port 4317 selects gRPC unless `protocol` is set.

Kill switches: `SPANPROF_DISABLED=1`, `OTEL_SDK_DISABLED=true`. `OTEL_PROFILES_EXPORTER` is `otlp`, `file` or `none`.
";

impl Config {
    /// The keys as Markdown: name, variable, type, default, bounds, description.
    pub fn reference_markdown() -> String {
        let defaults = Config::default().entries();
        let mut page = String::from(
            "# Configuration\n\nThe same keys in code (in Node.js in camelCase), in `SPANPROF_*` variables \
             and in the YAML file named by `config_file`. Order of precedence: code, `SPANPROF_*`, `OTEL_*`, `PYROSCOPE_*`, file, default. Keys marked * can change while \
             running (`update`).\n\n| key | variable | type | default | bounds | description |\n|---|---|---|---|---|---|\n",
        );
        for (key, (_, default, _)) in KEYS.iter().zip(&defaults) {
            let bounds = match key.bounds {
                Some(bounds) => format!("{} to {} {}", bounds.min, bounds.max, key.unit),
                None => String::new(),
            };
            let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
            // Writing to a String cannot fail.
            let _ = writeln!(
                page,
                "| `{}`{} | `{}` | {} | {} | {} | {} |",
                key.name,
                if key.live { " *" } else { "" },
                key.environment_name(),
                key.type_name,
                default,
                bounds,
                key.doc.trim(),
            );
        }
        page.push_str(NOTES);
        page
    }
}
