//! A certificate authority for the tests, and the certificates that it signs.

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

/// A certificate and its key, in PEM.
pub struct TlsIdentity {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub fn server(&self, host: &str) -> TlsIdentity {
        self.sign(host, ExtendedKeyUsagePurpose::ServerAuth, |_| {})
    }

    pub fn expired_server(&self, host: &str) -> TlsIdentity {
        self.sign(host, ExtendedKeyUsagePurpose::ServerAuth, |params| {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        })
    }

    pub fn client(&self, name: &str) -> TlsIdentity {
        self.sign(name, ExtendedKeyUsagePurpose::ClientAuth, |_| {})
    }

    fn sign(
        &self,
        name: &str,
        purpose: ExtendedKeyUsagePurpose,
        modify: impl Fn(&mut CertificateParams),
    ) -> TlsIdentity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![purpose];
        modify(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        TlsIdentity { certificate, key: key.serialize_pem() }
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        Arc::new(roots)
    }
}

impl TlsIdentity {
    /// TLS configuration of a server; with `clients`, it requires a client certificate signed by that authority.
    pub fn server_config(&self, alpn: &[u8], clients: Option<&Authority>) -> Arc<ServerConfig> {
        let provider = Arc::new(ring::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
        let builder = match clients {
            Some(authority) => builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(authority.roots(), provider).build().unwrap(),
            ),
            None => builder.with_no_client_auth(),
        };
        let chain = vec![CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![alpn.to_vec()];
        Arc::new(config)
    }
}

pub fn write(directory: &Path, name: &str, pem: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, pem).unwrap();
    path
}
