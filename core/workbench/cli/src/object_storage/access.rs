//! Requests to one bucket, synchronously. The credentials and the server come from the environment variables that the tools of
//! each storage read.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{stream, StreamExt, TryStreamExt};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{Attribute, Attributes, Error, ObjectStore, ObjectStoreExt, PutOptions, RetryConfig};
use spanprof_export::{TlsClient, TlsFiles, WriteErrorKind};
use tokio::runtime::Runtime;

use super::connections::StorageConnector;
use super::environment;
use super::errors::{certificate_variables, storage_error};
use super::url::StorageService;
use super::{ListedObject, ObjectUrl, StorageError};
use spanprof_answers::failure::Failure;

/// Requests at the same time.
const CONCURRENCY: usize = 8;
const MAX_RETRIES: usize = 3;
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// A bucket, with the key of the URL that named it.
pub(crate) struct ObjectStorage {
    url: ObjectUrl,
    store: Arc<dyn ObjectStore>,
    runtime: RequestRuntime,
}

/// Drives the requests. The export thread of `scrape` drops it inside its own runtime, where tokio's own drop panics.
struct RequestRuntime(Option<Runtime>);

impl RequestRuntime {
    fn start() -> std::io::Result<Self> {
        tokio::runtime::Builder::new_current_thread().enable_time().build().map(|runtime| Self(Some(runtime)))
    }

    fn block_on<T>(&self, requests: impl Future<Output = T>) -> T {
        self.0.as_ref().expect("a runtime until the drop").block_on(requests)
    }
}

impl Drop for RequestRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for ObjectStorage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The store contains credentials.
        formatter.debug_struct("ObjectStorage").field("url", &self.url.to_string()).finish_non_exhaustive()
    }
}

impl ObjectStorage {
    /// Reads the credentials; sends no request.
    pub(crate) fn open(url: &ObjectUrl) -> Result<Self, Failure> {
        environment::check(url.service, environment_text())?;
        let connector = StorageConnector { tls: tls_files(url.service)? };
        let runtime = RequestRuntime::start().map_err(|error| Failure::new(format!("cannot start: {error}")))?;
        let store = store(url, connector)
            .map_err(|error| Failure::from(storage_error(&format!("use {url}"), url.service, &error)))?;
        Ok(Self { url: url.clone(), store, runtime })
    }

    pub(crate) fn url(&self) -> &ObjectUrl {
        &self.url
    }

    /// The size of an object; `None` when it does not exist.
    pub(crate) fn size(&self, key: &str) -> Result<Option<u64>, StorageError> {
        let path = self.path("read", key)?;
        match self.runtime.block_on(self.store.head(&path)) {
            Ok(meta) => Ok(Some(meta.size)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.error("read", key, &error)),
        }
    }

    /// All objects below the prefix of the URL.
    pub(crate) fn list(&self) -> Result<Vec<ListedObject>, StorageError> {
        let prefix = self.path("list", &self.url.key)?;
        let listing = self.store.list(Some(&prefix)).map_ok(|meta| ListedObject {
            key: meta.location.as_ref().to_owned(),
            bytes: meta.size,
            modified_unix_nano: meta
                .last_modified
                .timestamp_nanos_opt()
                .and_then(|time| time.try_into().ok())
                .unwrap_or(0),
        });
        self.runtime.block_on(listing.try_collect()).map_err(|error| self.error("list", &self.url.key, &error))
    }

    /// The bytes of each object, requested at the same time.
    pub(crate) fn get_all(&self, keys: &[String], max_bytes: u64) -> Vec<Result<Vec<u8>, StorageError>> {
        let requests = stream::iter(keys.iter().cloned()).map(|key| self.get(key, max_bytes)).buffered(CONCURRENCY);
        self.runtime.block_on(requests.collect())
    }

    async fn get(&self, key: String, max_bytes: u64) -> Result<Vec<u8>, StorageError> {
        let path = self.path("read", &key)?;
        let failed = |error: Error| self.error("read", &key, &error);
        let found = self.store.get(&path).await.map_err(failed)?;
        if found.meta.size > max_bytes {
            return Err(StorageError {
                message: format!("{} is larger than {max_bytes} bytes", self.url.with_key(&key)),
                hint: None,
                kind: WriteErrorKind::Permanent,
            });
        }
        found.bytes().await.map(Into::into).map_err(failed)
    }

    /// Writes an object, or replaces it.
    pub(crate) fn put(&self, key: &str, body: Vec<u8>) -> Result<(), StorageError> {
        self.runtime.block_on(self.put_async(key.to_owned(), body))
    }

    /// Writes objects, at the same time.
    pub(crate) fn put_all(&self, objects: Vec<(String, Vec<u8>)>) -> Vec<Result<(), StorageError>> {
        let requests = stream::iter(objects).map(|(key, body)| self.put_async(key, body)).buffered(CONCURRENCY);
        self.runtime.block_on(requests.collect())
    }

    async fn put_async(&self, key: String, body: Vec<u8>) -> Result<(), StorageError> {
        let path = self.path("write", &key)?;
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::ContentType, content_type(&key).into());
        let options = PutOptions { attributes, ..PutOptions::default() };
        let written = self.store.put_opts(&path, body.into(), options).await;
        written.map(drop).map_err(|error| self.error("write", &key, &error))
    }

    fn path(&self, operation: &str, key: &str) -> Result<Path, StorageError> {
        Path::parse(key).map_err(|source| self.error(operation, key, &Error::InvalidPath { source }))
    }

    fn error(&self, operation: &str, key: &str, error: &Error) -> StorageError {
        storage_error(&format!("{operation} {}", self.url.with_key(key)), self.url.service, error)
    }
}

fn store(url: &ObjectUrl, connector: StorageConnector) -> object_store::Result<Arc<dyn ObjectStore>> {
    let retry = RetryConfig { max_retries: MAX_RETRIES, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() };
    Ok(match url.service {
        StorageService::S3 => Arc::new(
            AmazonS3Builder::from_env()
                .with_bucket_name(&url.bucket)
                .with_retry(retry)
                .with_http_connector(connector)
                .build()?,
        ),
        StorageService::GoogleCloud => Arc::new(
            GoogleCloudStorageBuilder::from_env()
                .with_bucket_name(&url.bucket)
                .with_retry(retry)
                .with_http_connector(connector)
                .build()?,
        ),
        StorageService::Azure => Arc::new(
            MicrosoftAzureBuilder::from_env()
                .with_container_name(&url.bucket)
                .with_retry(retry)
                .with_http_connector(connector)
                .build()?,
        ),
    })
}

/// Variables whose name and value are text; object_store reads no others.
fn environment_text() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// The trust anchors that the environment names.
fn tls_files(service: StorageService) -> Result<TlsFiles, Failure> {
    let mut named = certificate_variables(service).iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    let Some((name, path)) = named.find(|(_, path)| !path.is_empty()) else { return Ok(TlsFiles::default()) };
    let files = TlsFiles { certificate: Some(PathBuf::from(path)), ..TlsFiles::default() };
    match TlsClient::start(files.clone()) {
        Ok(_) => Ok(files),
        Err(error) => Err(Failure::new(error.message.replace("`certificate`", &format!("`{name}`")))
            .hint(error.hint.replace("`certificate`", &format!("`{name}`")))),
    }
}

/// Browsers display pages and images by their type.
fn content_type(key: &str) -> &'static str {
    match key.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        Some("folded" | "txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_type_that_browsers_display() {
        assert_eq!(content_type("a/cpu.html"), "text/html; charset=utf-8");
        assert_eq!(content_type("a.svg/cpu-1.pb.gz"), "application/octet-stream");
    }
}
