//! TLS settings from PEM files, reloaded after rotation. TLS 1.2 and 1.3 only. Certificates are always verified, and an
//! `https` endpoint is never reached in plain text.

use crate::error::{ExportError, ExportErrorKind};
use crate::settings::TlsFiles;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Interval after which the files are read again before a request.
const RELOAD_INTERVAL: Duration = Duration::from_secs(30);

/// Paths of the trust anchors in Linux distributions. `SSL_CERT_FILE` and similar variables are not read: a running host may
/// modify its environment concurrently.
const SYSTEM_TRUST_PATHS: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Texts of rustls in failed connections, and the usual way out. Texts, since h2 keeps no other part of an error.
const REMEDIES: [(&str, &str); 7] = [
    ("certificate: UnknownIssuer", "name the receiver's certificate authority (a PEM file) as `certificate`"),
    ("certificate not valid for name", "use a host name of the receiver's certificate in the endpoint"),
    ("certificate expired", "renew the receiver's certificate, or correct the clock of this machine"),
    ("certificate not valid yet", "correct the clock of this machine"),
    ("fatal alert: CertificateRequired", "the receiver requires a `client_certificate` and its `client_key`"),
    ("fatal alert: UnknownCA", "use a `client_certificate` of an authority that the receiver trusts"),
    ("corrupt message of type InvalidContentType", "if the receiver has no TLS, write http://"),
];

/// The usual way out of a failed connection.
pub(crate) fn remedy(error: &str) -> Option<&'static str> {
    REMEDIES.iter().find(|(text, _)| error.contains(text)).map(|(_, remedy)| *remedy)
}

/// The client side of TLS for one destination.
pub(crate) struct Tls {
    files: TlsFiles,
    alpn: &'static [u8],
    contents: PemContents,
    read_at: Instant,
    config: Option<Arc<ClientConfig>>,
    /// Number of reloads of rotated files: a connection of an older generation is not reused.
    generation: u64,
}

#[derive(PartialEq)]
struct PemContents {
    certificate: Option<Vec<u8>>,
    client_certificate: Option<Vec<u8>>,
    client_key: Option<Vec<u8>>,
}

impl Tls {
    /// Reads and checks the files of the settings; the system's trust anchors are read at the first connection.
    pub fn start(files: TlsFiles, alpn: &'static [u8]) -> Result<Self, ExportError> {
        let contents = PemContents::read(&files)?;
        // Only the named files can be invalid, so the check needs no system anchors.
        let checked = build(&contents, alpn, RootCertStore::empty)?;
        // Already complete when the settings name trust anchors.
        let config = contents.certificate.is_some().then_some(checked);
        Ok(Self { files, alpn, contents, read_at: Instant::now(), config, generation: 0 })
    }

    /// Reloads rotated files and returns the generation. Unreadable or mismatched files are retried after the next interval
    /// and leave the settings unchanged, since rotation is not atomic.
    pub fn refresh(&mut self) -> u64 {
        if self.read_at.elapsed() >= RELOAD_INTERVAL {
            self.read_at = Instant::now();
            self.reload();
        }
        self.generation
    }

    fn reload(&mut self) {
        let Ok(contents) = PemContents::read(&self.files) else { return };
        if contents == self.contents {
            return;
        }
        let Ok(config) = build(&contents, self.alpn, system_trust) else { return };
        self.contents = contents;
        self.config = Some(config);
        self.generation += 1;
    }

    pub fn config(&mut self) -> Result<Arc<ClientConfig>, ExportError> {
        if let Some(config) = &self.config {
            return Ok(config.clone());
        }
        let config = build(&self.contents, self.alpn, system_trust)?;
        self.config = Some(config.clone());
        Ok(config)
    }
}

impl PemContents {
    fn read(files: &TlsFiles) -> Result<Self, ExportError> {
        if files.client_certificate.is_some() != files.client_key.is_some() {
            return Err(ExportError::new(
                ExportErrorKind::Setting,
                "client_certificate and client_key belong together, and only one of them is given",
                "give both, or neither",
            ));
        }
        // Errors name the configuration key, since a path may be confidential.
        let read = |path: &Option<std::path::PathBuf>, key: &str| {
            path.as_deref()
                .map(|path| std::fs::read(path).map_err(|error| unreadable(key, &error.to_string())))
                .transpose()
        };
        Ok(Self {
            certificate: read(&files.certificate, "certificate")?,
            client_certificate: read(&files.client_certificate, "client_certificate")?,
            client_key: read(&files.client_key, "client_key")?,
        })
    }
}

fn unreadable(key: &str, why: &str) -> ExportError {
    ExportError::new(
        ExportErrorKind::File,
        format!("the file named by `{key}` cannot be used: {why}"),
        format!("`{key}` requires a PEM file that this process can read"),
    )
}

fn build(
    contents: &PemContents,
    alpn: &'static [u8],
    default_trust: fn() -> RootCertStore,
) -> Result<Arc<ClientConfig>, ExportError> {
    let roots = match &contents.certificate {
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(pem, "certificate")? {
                roots.add(certificate).map_err(|error| unreadable("certificate", &error.to_string()))?;
            }
            roots
        }
        None => default_trust(),
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| {
            ExportError::new(ExportErrorKind::System, format!("TLS cannot be set up: {error}"), "please report this")
        })?
        .with_root_certificates(roots);
    let mut config = match (&contents.client_certificate, &contents.client_key) {
        (Some(chain), Some(key)) => {
            let chain = certificates(chain, "client_certificate")?;
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|_| unreadable("client_key", "it contains no private key"))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| unreadable("client_key", &format!("it does not match client_certificate: {error}")))?
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(Arc::new(config))
}

fn certificates(pem: &[u8], key: &str) -> Result<Vec<CertificateDer<'static>>, ExportError> {
    let certificates: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|_| unreadable(key, "it is not PEM"))?;
    if certificates.is_empty() {
        return Err(unreadable(key, "it contains no certificate"));
    }
    Ok(certificates)
}

/// The system's trust anchors; Mozilla's where the system has none (a container without `ca-certificates`).
fn system_trust() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for path in SYSTEM_TRUST_PATHS {
        let Ok(pem) = std::fs::read(Path::new(path)) else { continue };
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
        if !roots.is_empty() {
            return roots;
        }
    }
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    roots
}

#[cfg(test)]
mod tests {
    use super::{system_trust, Tls};
    use crate::settings::TlsFiles;
    use std::path::PathBuf;
    use std::sync::Arc;

    fn self_signed() -> (String, String) {
        let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        (certified.cert.pem(), certified.signing_key.serialize_pem())
    }

    #[test]
    fn rotated_files_are_reloaded_once_the_rotation_is_complete() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let (certificate, key) = self_signed();
        std::fs::write(path("ca.pem"), &certificate).unwrap();
        std::fs::write(path("client.pem"), &certificate).unwrap();
        std::fs::write(path("client.key"), &key).unwrap();
        let files = TlsFiles {
            certificate: Some(path("ca.pem")),
            client_certificate: Some(path("client.pem")),
            client_key: Some(path("client.key")),
        };
        let mut tls = Tls::start(files, b"h2").unwrap();
        let first = tls.config().unwrap();

        tls.reload();
        assert_eq!(tls.generation, 0);
        let (other_certificate, other_key) = self_signed();
        std::fs::write(path("client.pem"), &other_certificate).unwrap();
        tls.reload();
        assert_eq!(tls.generation, 0, "the key of another certificate must not be loaded");
        assert!(Arc::ptr_eq(&first, &tls.config().unwrap()));
        std::fs::write(path("client.key"), &other_key).unwrap();
        tls.reload();
        assert_eq!(tls.generation, 1);
        assert!(!Arc::ptr_eq(&first, &tls.config().unwrap()));
    }

    #[test]
    fn a_key_of_another_certificate_is_an_error_at_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("client.pem"), self_signed().0).unwrap();
        std::fs::write(path("client.key"), self_signed().1).unwrap();
        let files = TlsFiles {
            client_certificate: Some(path("client.pem")),
            client_key: Some(path("client.key")),
            ..TlsFiles::default()
        };

        assert!(Tls::start(files, b"h2").err().unwrap().message.contains("does not match client_certificate"));
    }

    #[test]
    fn there_are_always_trust_anchors() {
        assert!(system_trust().len() > 20);
    }

    #[test]
    fn a_certificate_without_its_key_is_an_error_at_start() {
        let files = TlsFiles { client_certificate: Some(PathBuf::from("/c.pem")), ..TlsFiles::default() };

        let error = Tls::start(files, b"h2").err().unwrap();

        assert!(error.message.contains("only one of them is given"), "{error}");
    }

    #[test]
    fn an_unusable_key_file_is_an_error_that_names_the_key_and_shows_neither_path_nor_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let (certificate, key) = self_signed();
        std::fs::write(path("client.pem"), &certificate).unwrap();
        std::fs::create_dir(path("marker-directory")).unwrap();
        std::fs::write(path("marker-text"), "marker").unwrap();
        std::fs::write(path("marker-certificate"), &certificate).unwrap();
        std::fs::write(path("marker-torn"), key.replace("-----END", "marker-----END")).unwrap();
        for (file, why) in [
            ("marker-absent", "No such file"),
            ("marker-directory", "Is a directory"),
            ("marker-text", "no private key"),
            ("marker-certificate", "no private key"),
            ("marker-torn", "no private key"),
        ] {
            let files = TlsFiles {
                client_certificate: Some(path("client.pem")),
                client_key: Some(path(file)),
                ..TlsFiles::default()
            };
            let shown = format!("{files:?} {}", Tls::start(files.clone(), b"h2").err().unwrap());
            assert!(shown.contains("`client_key`") && shown.contains(why), "{shown}");
            assert!(shown.contains("requires a PEM file that this process can read"), "{shown}");
            assert!(!shown.contains("marker"), "{shown}");
        }
    }

    #[test]
    fn the_error_of_an_absent_file_names_the_key_and_omits_the_path() {
        let files = TlsFiles { certificate: Some(PathBuf::from("/marker/ca.pem")), ..TlsFiles::default() };

        let error = Tls::start(files, b"h2").err().unwrap();

        assert!(error.message.contains("`certificate`") && !error.to_string().contains("marker"), "{error}");
    }
}
