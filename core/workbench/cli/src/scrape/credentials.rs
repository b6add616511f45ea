//! Keys for access to a target or destination: headers, tokens and certificates. The value of a header is a text, a file or an
//! environment variable. Files are read at each request, because orchestrators rotate tokens.

use hyper::header::{HeaderName, AUTHORIZATION};
use serde_norway::Value;
use spanprof_export::{Secret, TlsFiles};

use super::section::{self, invalid, ConfigSection};
use spanprof_answers::failure::Failure;

/// The source of a value that may be secret.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SecretSource {
    Text(Secret),
    File(String),
    Environment(String),
}

impl SecretSource {
    /// `value` at `path`: a text, `{file: PATH}` or `{env: NAME}`.
    pub fn parse(path: &str, value: Value) -> Result<Self, Failure> {
        if !value.is_mapping() {
            return section::text(path, value).map(|text| Self::Text(Secret::new(text)));
        }
        let mut section = ConfigSection::of(value, path)?;
        let (file, name) = (section.text("file")?, section.text("env")?);
        section.finish()?;
        match (file, name) {
            (Some(file), None) => Ok(Self::File(file)),
            (None, Some(name)) => Ok(Self::Environment(name)),
            _ => Err(section::invalid(path, "expected a text, {file: PATH} or {env: NAME}")),
        }
    }

    /// The current value, without white space at its ends.
    pub fn read(&self) -> Result<Secret, String> {
        let text = match self {
            Self::Text(secret) => return Ok(secret.clone()),
            Self::File(path) => {
                std::fs::read_to_string(path).map_err(|error| format!("cannot read the file `{path}`: {error}"))?
            }
            Self::Environment(name) => {
                std::env::var(name).map_err(|_| format!("the environment variable `{name}` is not set"))?
            }
        };
        match text.trim() {
            "" => Err("the value is empty".to_owned()),
            text => Ok(Secret::new(text)),
        }
    }
}

/// The key `headers`.
pub(super) fn headers(section: &mut ConfigSection) -> Result<Vec<(HeaderName, SecretSource)>, Failure> {
    let pairs = section.pairs("headers")?;
    pairs
        .into_iter()
        .map(|(path, name, value)| {
            let parsed = HeaderName::try_from(&name).map_err(|_| invalid(&path, "not the name of a header"))?;
            Ok((parsed, SecretSource::parse(&path, value)?))
        })
        .collect()
}

/// The key `bearer_token`: the value of `Authorization` after `Bearer `.
pub(super) fn bearer_token(
    section: &mut ConfigSection,
    headers: &[(HeaderName, SecretSource)],
) -> Result<Option<SecretSource>, Failure> {
    let path = section.path_of("bearer_token");
    match section.value("bearer_token") {
        Some(_) if headers.iter().any(|(name, _)| *name == AUTHORIZATION) => {
            Err(invalid(&path, "`headers` has `Authorization` already"))
        }
        Some(token) => SecretSource::parse(&path, token).map(Some),
        None => Ok(None),
    }
}

/// The keys of certificates, which are the same for targets and destinations.
pub(super) fn tls_files(section: &mut ConfigSection) -> Result<TlsFiles, Failure> {
    Ok(TlsFiles {
        certificate: section.text("certificate")?.map(Into::into),
        client_certificate: section.text("client_certificate")?.map(Into::into),
        client_key: section.text("client_key")?.map(Into::into),
    })
}
