//! The pages that are not profiles.

use std::fmt::Write;

use super::{HttpResponse, ProfileName};

/// The page of `/debug/pprof/`. `availability` has a reason for each profile that cannot be pulled. Contains no script.
pub(crate) fn index(service: &str, availability: &[(ProfileName, Option<String>)]) -> HttpResponse {
    let mut page = format!(
        "<!doctype html><meta charset=\"utf-8\"><title>{0}: profiles</title><h1>{0}</h1>\
         <p>Process {1}. Open a profile with <code>go tool pprof</code> and its URL.</p><table>\n",
        escaped(service),
        std::process::id()
    );
    for (name, reason) in availability {
        let (name, description) = (name.text(), name.description());
        // Writing to a String cannot fail.
        let _ = match reason {
            None => writeln!(page, "<tr><td><a href=\"{name}\">{name}</a><td>{description}"),
            Some(reason) => writeln!(page, "<tr><td>{name}<td>not available: {}", escaped(reason)),
        };
    }
    page.push_str("<tr><td><a href=\"cmdline\">cmdline</a><td>program of this process\n</table>\n");
    HttpResponse::page("text/html; charset=utf-8", page.into_bytes())
        .with("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
}

/// The page of `/debug/pprof/cmdline`: the first word only, since arguments may contain secrets.
pub(crate) fn command_line() -> HttpResponse {
    let words = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let program = words.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
    HttpResponse::page("text/plain; charset=utf-8", program)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
