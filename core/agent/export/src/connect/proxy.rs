//! Selects the proxy of a connection; the connector opens the connection.

use crate::connect::endpoint::Endpoint;
use crate::error::{ExportError, ExportErrorKind};
use crate::settings::ProxySettings;
use std::net::IpAddr;

/// The proxy for `target`, or `None` when there is none or `no_proxy` exempts the target.
pub(crate) fn proxy_for(target: &Endpoint, settings: Option<&ProxySettings>) -> Result<Option<Endpoint>, ExportError> {
    let Some(settings) = settings else { return Ok(None) };
    let proxy = Endpoint::parse(&settings.url, "proxy")?;
    if proxy.secure {
        return Err(ExportError::new(
            ExportErrorKind::Setting,
            format!("proxy `{}` has an https URL: TLS to the proxy itself is not supported", proxy.shown),
            "give the proxy as http://host:port; TLS to the receiver passes through it end to end",
        ));
    }
    Ok((!is_exempt(&target.host, target.port, &settings.no_proxy)).then_some(proxy))
}

/// Whether `no_proxy` matches the host: exactly, by a domain suffix, an address, a network, or `*`. Loopback hosts are
/// always exempt.
fn is_exempt(host: &str, port: u16, no_proxy: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || host.ends_with(".localhost") || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    no_proxy.split([',', ' ']).map(|rule| rule.trim().to_ascii_lowercase()).filter(|rule| !rule.is_empty()).any(
        |rule| {
            if rule == "*" {
                return true;
            }
            if let Some(address) = address {
                return network_contains(&rule, address);
            }
            let (name, rule_port) = match rule.rsplit_once(':') {
                Some((name, text)) => (name, text.parse::<u16>().ok()),
                None => (rule.as_str(), None),
            };
            let name = name.trim_start_matches("*.").trim_start_matches('.').trim_end_matches('.');
            let matches_host = host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
            matches_host && rule_port.is_none_or(|rule_port| rule_port == port)
        },
    )
}

fn network_contains(rule: &str, address: IpAddr) -> bool {
    let (network, bits) = match rule.split_once('/') {
        Some((network, bits)) => (network, bits.parse::<u32>().ok()),
        None => (rule, Some(128)),
    };
    let network = network.trim_start_matches('[').trim_end_matches(']');
    let (Ok(network), Some(bits)) = (network.parse::<IpAddr>(), bits) else { return false };
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let shift = 32 - bits.min(32);
            let difference = u32::from(network) ^ u32::from(address);
            u64::from(difference) >> shift == 0
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let difference = u128::from(network) ^ u128::from(address);
            difference.checked_shr(128 - bits.min(128)).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{is_exempt, proxy_for};
    use crate::connect::endpoint::Endpoint;
    use crate::settings::ProxySettings;

    #[test]
    fn no_proxy_matches_hosts_suffixes_addresses_and_networks() {
        for (host, no_proxy) in [
            ("collector.internal", "other, collector.internal"),
            ("a.collector.internal", "collector.internal"),
            ("a.collector.internal", ".internal"),
            ("a.collector.internal", "*.collector.internal"),
            ("Collector.Internal.", "collector.internal:4318"),
            ("10.1.2.3", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.3"),
            ("fd00::1", "fd00::/8"),
            ("anything", "*"),
            ("localhost", ""),
            ("127.0.0.1", ""),
            ("::1", ""),
        ] {
            assert!(is_exempt(host, 4318, no_proxy), "{host} should be exempt by `{no_proxy}`");
        }
    }

    #[test]
    fn no_proxy_exempts_no_other_host() {
        for (host, no_proxy) in [
            ("collector.internal", "internal.example, xcollector.internal"),
            ("mycollector.internal", "collector.internal"),
            ("collector.internal", "collector.internal:4317"),
            ("11.1.2.3", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.4, fd00::/8, 10.0.0.0/x"),
            ("example.com", ""),
        ] {
            assert!(!is_exempt(host, 4318, no_proxy), "{host} should not be exempt by `{no_proxy}`");
        }
    }

    #[test]
    fn the_error_of_an_https_proxy_omits_its_password() {
        let target = Endpoint::parse("https://collector.example", "x").unwrap();
        let settings = ProxySettings { url: "https://u:marker@proxy:8080".to_owned(), no_proxy: String::new() };

        let error = proxy_for(&target, Some(&settings)).unwrap_err().to_string();

        assert!(error.contains("https://proxy:8080") && !error.contains("marker"), "{error}");
    }
}
