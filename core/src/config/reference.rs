//! The reference page of the configuration, generated from the key table.

use super::keys::{Config, KEYS};
use std::fmt::Write;

impl Config {
    /// The keys as Markdown: name, variable, type, default, bounds, what it does.
    pub fn reference_markdown() -> String {
        let defaults = Config::default().entries();
        let mut page = String::from(
            "# Configuration\n\nThe same keys in code, in `SPANPROF_*` variables and in the YAML file named by `config_file`. Order of \
             precedence: code, `SPANPROF_*`, `OTEL_*`, `PYROSCOPE_*`, file, default. Keys marked * can change while \
             running (`update`).\n\n| key | variable | type | default | unit, bounds | what it does |\n|---|---|---|---|---|---|\n",
        );
        for (key, (_, default, _)) in KEYS.iter().zip(&defaults) {
            let bounds = match key.bounds {
                Some(bounds) => format!("{} {} to {}", key.unit, bounds.min, bounds.max),
                None => key.unit.to_owned(),
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
        page.push_str(
            "\nKill switches: `SPANPROF_DISABLED=1`, `OTEL_SDK_DISABLED=true`. `OTEL_PROFILES_EXPORTER` is `otlp`, \
             `file` or `none`.\n",
        );
        page
    }
}
