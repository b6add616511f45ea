//! URLs of objects and prefixes, and `file://` URLs. Keys are taken as they are, without percent-encoding, as the tools of the
//! storages do.

use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use spanprof_answers::failure::Failure;

/// A storage service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StorageService {
    /// Amazon S3 and compatible servers.
    S3,
    GoogleCloud,
    Azure,
}

impl StorageService {
    const ALL: [(&'static str, Self); 3] = [("s3", Self::S3), ("gs", Self::GoogleCloud), ("az", Self::Azure)];

    fn scheme(self) -> &'static str {
        Self::ALL.iter().find(|(_, service)| *service == self).map_or("", |(scheme, _)| scheme)
    }
}

/// `s3://BUCKET/KEY`: an object, or a prefix of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectUrl {
    pub service: StorageService,
    /// Bucket, or container of Azure.
    pub bucket: String,
    /// Without a leading slash. The key of a prefix may end in a slash.
    pub key: String,
}

impl ObjectUrl {
    /// `None` for a text without such a scheme.
    pub(crate) fn parse(text: &str) -> Option<Result<Self, Failure>> {
        let (scheme, rest) = text.split_once("://")?;
        let (_, service) = StorageService::ALL.into_iter().find(|(known, _)| *known == scheme)?;
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let expected = format!("expected {scheme}://BUCKET/KEY or {scheme}://BUCKET/PREFIX/");
        if bucket.contains('@') {
            // Not quoted: it may be a password.
            return Some(Err(Failure::usage(format!("the {scheme}:// URL has a user name or a password"))
                .hint(format!("{expected}; credentials are read from environment variables"))));
        }
        let is_name = |character: char| character.is_ascii_alphanumeric() || "-._".contains(character);
        if bucket.is_empty() || !bucket.chars().all(is_name) {
            return Some(Err(Failure::usage(format!("`{text}` has no valid name of a bucket")).hint(expected)));
        }
        let path = key.strip_suffix('/').unwrap_or(key);
        if !key.is_empty() && path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Some(Err(
                Failure::usage(format!("the key of `{text}` has an empty part, `.` or `..`")).hint(expected)
            ));
        }
        Some(Ok(Self { service, bucket: bucket.to_owned(), key: key.to_owned() }))
    }

    /// Whether the URL can be a prefix only.
    pub(crate) fn is_prefix(&self) -> bool {
        self.key.is_empty() || self.key.ends_with('/')
    }

    /// The key of `name` below this prefix.
    pub(crate) fn key_below(&self, name: &str) -> String {
        match self.key.trim_end_matches('/') {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        }
    }

    /// The URL of another key of the bucket, for messages.
    pub(crate) fn with_key(&self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self.clone() }
    }
}

impl fmt::Display for ObjectUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}://{}/{}", self.service.scheme(), self.bucket, self.key)
    }
}

/// The path of a `file://` URL; `None` for another text.
pub(crate) fn path_of_file_url(text: &str) -> Option<Result<PathBuf, Failure>> {
    let rest = text.strip_prefix("file://")?;
    let path = rest.strip_prefix("localhost").filter(|path| path.starts_with('/')).unwrap_or(rest);
    let decoded =
        percent_decode_str(path).decode_utf8().ok().filter(|path| path.starts_with('/') && !path.contains('\0'));
    Some(match decoded {
        Some(path) => Ok(PathBuf::from(path.as_ref())),
        None => Err(Failure::usage(format!("`{text}` is not the URL of a local file")).hint("expected file:///PATH")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_service_a_bucket_and_a_key() {
        let url = ObjectUrl::parse("s3://shop.profiles/a/b c%20.pb.gz").unwrap().unwrap();
        assert_eq!(
            (url.service, url.bucket.as_str(), url.key.as_str()),
            (StorageService::S3, "shop.profiles", "a/b c%20.pb.gz")
        );
        assert_eq!(url.to_string(), "s3://shop.profiles/a/b c%20.pb.gz");
        assert!(!url.is_prefix());
        for (text, below) in [("gs://b", "x"), ("gs://b/", "x"), ("az://b/p", "p/x"), ("az://b/p/", "p/x")] {
            assert_eq!(ObjectUrl::parse(text).unwrap().unwrap().key_below("x"), below);
        }
        for text in ["/s3/x", "http://h/s3://b", "-", "s3:/b", "file:///x", "S3 ://"] {
            assert!(ObjectUrl::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_wrong_url_is_an_error_without_the_password_in_it() {
        for text in
            ["s3://", "s3:///key", "s3://b u/key", "s3://user:marker@b/key", "s3://b/a//b", "s3://b/../c", "s3://b//"]
        {
            let failure = ObjectUrl::parse(text).unwrap().unwrap_err();
            assert!(
                failure.exit_code == 2 && failure.hint.is_some() && !failure.to_string().contains("marker"),
                "{failure}"
            );
        }
    }

    #[test]
    fn a_file_url_is_a_path() {
        let path = |text| path_of_file_url(text).map(|parsed| parsed.ok());
        assert_eq!(path("file:///a%20b/c"), Some(Some(PathBuf::from("/a b/c"))));
        assert_eq!(path("file://localhost/a"), Some(Some(PathBuf::from("/a"))));
        for wrong in ["file://host/a", "file://a", "file://", "file:///%00", "file:///%ff"] {
            assert_eq!(path(wrong), Some(None), "{wrong}");
        }
        assert_eq!(path("/a"), None);
    }
}
