//! A root of tests' own, and what servers need to speak TLS under it.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// A root that nobody believes unless they are told.
pub struct Root {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Root {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Root")
    }
}

impl Default for Root {
    fn default() -> Self {
        Self::new()
    }
}

impl Root {
    /// A new one.
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::default();
        // Programs that look issuers up by name must not take one root for another.
        let own: String = key
            .public_key_raw()
            .iter()
            .skip(1)
            .take(4)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        params
            .distinguished_name
            .push(DnType::CommonName, format!("tests' own root {own}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).expect("a root signs itself").pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    /// Its certificate as PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for these names (or addresses) and its key, both DER.
    pub fn certificate(&self, names: &[&str]) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().expect("a key can be made");
        let params = CertificateParams::new(names).expect("names for a certificate");
        let certificate = params.signed_by(&key, &self.issuer).expect("a root signs");
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        (certificate.der().clone(), PrivateKeyDer::Pkcs8(key))
    }

    /// Its certificate and its key as PEM, for a program that signs with them.
    pub fn with_key(&self) -> (String, String) {
        (self.pem.clone(), self.issuer.key().serialize_pem())
    }

    /// What a server needs to speak TLS as these names.
    pub fn serving(&self, names: &[&str]) -> Arc<ServerConfig> {
        let (certificate, key) = self.certificate(names);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key);
        Arc::new(config.expect("a certificate fits its key"))
    }
}
