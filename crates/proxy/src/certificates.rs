//! Certificates of one task: its own authority, and what that signs for each host.
//!
//! Answers: what does a client inside see when its TLS connection is opened here?
//! Promises: P9 (the authority's key is made for one task, is on no disk and in no variable, and ends with the gate;
//! nothing prints it), P5 (a certificate names the one host that was asked for).
//! Trust: names come from the agent, in normal form, and only such as rules open. What is signed here is believed inside
//! this task's fence and nowhere else.
//! Not here: verifying servers (`upstream`); where the authority is put for programs to find (the daemon).
//! See: RFC 5280 (certificates), RFC 6125 (names in them).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bailiwick_model::Host;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType, SerialNumber,
};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ServerSessionMemoryCache;
use rustls::sign::SingleCertAndKey;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::limits;
use crate::upstream::{HTTP_1, HTTP_2};

/// Says why a certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CertificateFault {
    /// Making or signing it failed.
    #[error("a certificate could not be made: {0}")]
    Made(#[from] rcgen::Error),
    /// TLS cannot use it.
    #[error("a certificate cannot be used: {0}")]
    Used(#[from] rustls::Error),
    /// There is no randomness.
    #[error("there is no randomness for a certificate")]
    Randomness,
}

/// A key as PKCS #8 in PEM, wiped from memory when it is dropped, and never printed.
#[derive(Clone, PartialEq, Eq)]
struct Key(Zeroizing<String>);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Zeroizing::new(String::deserialize(deserializer)?)))
    }
}

/// The authority of one task: believed inside its fence, besides those that the machine believes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authority {
    name: String,
    certificate: String,
    key: Key,
}

/// How long an authority is valid. It ends with its task: nothing else holds its key.
const AUTHORITY_TIME: Duration = Duration::from_secs(2 * 365 * 24 * 60 * 60);

/// How long a certificate for a host is valid. Clients refuse more than 398 days.
const HOST_TIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Clocks of clients may be late by this much.
const LEEWAY: Duration = Duration::from_secs(60 * 60);

/// Longest common name (RFC 5280, appendix A.1), in bytes.
const COMMON_NAME: usize = 64;

impl Authority {
    /// Makes the authority of a task, called `bailiwick task NAME`.
    pub fn make(task: &str) -> Result<Self, CertificateFault> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let name = format!("bailiwick task {task}");
        let now = SystemTime::now();
        let mut params = Self::params(&name);
        params.not_before = (now - LEEWAY).into();
        params.not_after = (now + AUTHORITY_TIME).into();
        params.serial_number = Some(serial()?);
        Ok(Self {
            certificate: params.self_signed(&key)?.pem(),
            key: Key(Zeroizing::new(key.serialize_pem())),
            name,
        })
    }

    /// What its certificate says, and what those it signs say of it.
    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its certificate, as PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }
}

/// A certificate in PEM, as DER; nothing of what is none.
pub fn der_of(certificate: &str) -> Vec<u8> {
    let der = CertificateDer::from_pem_slice(certificate.as_bytes());
    der.map(|der| der.to_vec()).unwrap_or_default()
}

/// Twenty random bytes at most, the first of them positive (RFC 5280, section 4.1.2.2).
fn serial() -> Result<SerialNumber, CertificateFault> {
    let mut bytes = [0u8; 16];
    let provider = rustls::crypto::ring::default_provider();
    let filled = provider.secure_random.fill(&mut bytes);
    filled.map_err(|_| CertificateFault::Randomness)?;
    if let Some(first) = bytes.first_mut() {
        *first = *first & 0x7f | 0x40;
    }
    Ok(SerialNumber::from_slice(&bytes))
}

/// Signs a certificate for each host that is opened, and keeps what it takes to serve it.
pub(crate) struct Issuer {
    issuer: rcgen::Issuer<'static, KeyPair>,
    /// One key serves all hosts: none of them is anybody's but this gate's.
    key: KeyPair,
    provider: Arc<CryptoProvider>,
    served: Mutex<HashMap<Host, Served>>,
}

/// What a host is served with, until it is renewed.
struct Served {
    until: SystemTime,
    config: Arc<ServerConfig>,
}

impl Issuer {
    pub(crate) fn new(authority: &Authority) -> Result<Self, CertificateFault> {
        let key = KeyPair::from_pkcs8_pem_and_sign_algo(&authority.key.0, &PKCS_ECDSA_P256_SHA256)?;
        Ok(Self {
            issuer: rcgen::Issuer::new(Authority::params(&authority.name), key),
            key: KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?,
            provider: Arc::new(rustls::crypto::ring::default_provider()),
            served: Mutex::default(),
        })
    }

    /// What a connection for `host` is served with.
    pub(crate) fn serving(&self, host: &Host) -> Result<Arc<ServerConfig>, CertificateFault> {
        let now = SystemTime::now();
        let mut served = self.served.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(known) = served.get(host).filter(|known| known.until > now) {
            return Ok(Arc::clone(&known.config));
        }
        if served.len() >= limits::HOSTS_SERVED {
            served.clear();
        }
        let config = Arc::new(self.config_for(host, now)?);
        let until = now + HOST_TIME / 2;
        let kept = Served {
            until,
            config: Arc::clone(&config),
        };
        served.insert(host.clone(), kept);
        Ok(config)
    }

    fn config_for(&self, host: &Host, now: SystemTime) -> Result<ServerConfig, CertificateFault> {
        let certificate = self.sign(host, now)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let signing = rustls::sign::CertifiedKey::from_der(vec![certificate], key, &self.provider)?;
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(signing)));
        config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1.to_vec()];
        config.session_storage = ServerSessionMemoryCache::new(limits::SESSIONS);
        config.send_tls13_tickets = 1;
        Ok(config)
    }

    fn sign(&self, host: &Host, now: SystemTime) -> Result<CertificateDer<'static>, CertificateFault> {
        let mut params = CertificateParams::default();
        let name = host.to_string();
        params.subject_alt_names = vec![match host {
            Host::Name(name) => SanType::DnsName(name.as_str().try_into()?),
            Host::Address(address) => SanType::IpAddress(*address),
        }];
        params.distinguished_name = rcgen::DistinguishedName::new();
        if name.len() <= COMMON_NAME {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.not_before = (now - LEEWAY).into();
        params.not_after = (now + HOST_TIME).into();
        params.serial_number = Some(serial()?);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        Ok(params.signed_by(&self.key, &self.issuer)?.der().clone())
    }
}

#[cfg(test)]
mod tests {
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    fn verified(authority: &Authority, issuer: &Issuer, host: &str, name: &str) -> bool {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap();
        roots.add(root).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let leaf = issuer.sign(&Host::parse(host).unwrap(), SystemTime::now()).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier
            .unwrap()
            .verify_server_cert(&leaf, &[], &name, &[], UnixTime::now())
            .is_ok()
    }

    #[test]
    fn p5_a_certificate_is_good_for_its_host_and_its_task() {
        let authority = Authority::make("0102030405060708").unwrap();
        let issuer = Issuer::new(&authority).unwrap();
        assert!(verified(&authority, &issuer, "api.example.com", "api.example.com"));
        assert!(verified(&authority, &issuer, "192.0.2.7", "192.0.2.7"));
        assert!(verified(&authority, &issuer, "[2001:db8::1]", "2001:db8::1"));
        assert!(!verified(&authority, &issuer, "api.example.com", "x.api.example.com"));
        assert!(!verified(&authority, &issuer, "192.0.2.7", "192.0.2.8"));
        let long = format!("{}.{}.example.com", "a".repeat(60), "b".repeat(60));
        assert!(verified(&authority, &issuer, &long, &long));
        let other = Authority::make("0102030405060709").unwrap();
        assert!(!verified(&other, &issuer, "api.example.com", "api.example.com"));
    }

    #[test]
    fn p9_the_key_goes_over_the_pipe_and_is_never_printed() {
        let authority = Authority::make("x").unwrap();
        let text = serde_json::to_string(&authority).unwrap();
        assert_eq!(serde_json::from_str::<Authority>(&text).unwrap(), authority);
        assert!(text.contains("PRIVATE KEY"));
        assert!(!format!("{authority:?}").contains("PRIVATE KEY"));
        assert!(!authority.certificate().contains("PRIVATE KEY"));
    }

    #[test]
    fn what_a_host_is_served_with_is_kept() {
        let issuer = Issuer::new(&Authority::make("x").unwrap()).unwrap();
        let host = Host::parse("a.test").unwrap();
        let first = issuer.serving(&host).unwrap();
        assert!(Arc::ptr_eq(&first, &issuer.serving(&host).unwrap()));
        for number in 0..limits::HOSTS_SERVED {
            let _ = issuer
                .serving(&Host::parse(&format!("h{number}.test")).unwrap())
                .unwrap();
        }
        assert!(issuer.served.lock().unwrap().len() <= limits::HOSTS_SERVED);
    }
}
