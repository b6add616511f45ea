//! The proxy of the environment. Called by the destinations of `scrape` and by object storage.

use spanprof_export::ProxySettings;

/// The proxy for `url`, by the rules of the profiler: upper-case `HTTP_PROXY` is ignored.
pub(crate) fn of_environment(url: &str) -> Option<ProxySettings> {
    let text = |names: &[&str]| {
        let mut values = names.iter().filter_map(|name| std::env::var(name).ok());
        values.find(|value| !value.trim().is_empty())
    };
    let is_secure = url.starts_with("https://");
    let names: &[&str] = if is_secure {
        &["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
    } else {
        &["http_proxy", "all_proxy"]
    };
    let url = text(names)?;
    Some(ProxySettings { url, no_proxy: text(&["no_proxy", "NO_PROXY"]).unwrap_or_default() })
}
