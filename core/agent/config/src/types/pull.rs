//! Types and checks of the keys `pull` and `pull_token`.

use std::net::IpAddr;

use super::endpoint::UnusableText;
use super::shape::Shape;
use super::value::{ConfigType, ConfigValue};
use spanprof_export::Secret;

/// The address of `pull`: host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullAddress {
    /// IP address, or a name of this host.
    pub host: String,
    /// 0: any free port.
    pub port: u16,
}

impl PullAddress {
    /// Parses `host:port` or `[IPv6]:port`.
    pub(crate) fn parse(text: &str) -> Result<Self, UnusableText> {
        let unusable = |problem: &str| UnusableText {
            message: format!("`{text}` {problem}; expected host:port"),
            hint: "use localhost:6060, or localhost:0 for any free port",
        };
        let (host, port) = text.trim().rsplit_once(':').ok_or_else(|| unusable("has no port"))?;
        let port = port.parse().map_err(|_| unusable("has no port between 0 and 65535"))?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_name =
            |host: &str| host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
        match host {
            "" => Err(unusable("has no host")),
            _ if host.parse::<IpAddr>().is_ok() || is_name(host) => Ok(Self { host: host.to_owned(), port }),
            _ => Err(unusable("has no valid host")),
        }
    }

    /// The text form.
    pub fn shown(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Whether only processes of this host can connect.
    pub fn is_loopback(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => self.host.eq_ignore_ascii_case("localhost"),
        }
    }
}

/// Checks the text of `pull`.
pub(crate) fn check_pull(text: &str) -> Result<(), UnusableText> {
    PullAddress::parse(text).map(|_| ())
}

impl ConfigType for Secret {
    const SHAPE: Shape = Shape::Text;
    const SECRET: bool = true;

    fn from_value(value: &ConfigValue) -> Option<Self> {
        value.scalar_text().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()).map(Secret::new)
    }

    fn to_text(&self) -> String {
        "***".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        let parsed = |text| PullAddress::parse(text).map(|address| (address.host, address.port)).ok();
        assert_eq!(parsed("localhost:6060"), Some(("localhost".to_owned(), 6060)));
        assert_eq!(parsed("[::1]:0"), Some(("::1".to_owned(), 0)));
        assert_eq!(parsed("0.0.0.0:80"), Some(("0.0.0.0".to_owned(), 80)));
        for text in ["", "localhost", ":6060", "localhost:", "localhost:70000", "http://localhost:1", "a b:1"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
