//! TLS to servers, whose certificates are always verified.
//!
//! Promises: P5 (a server is who its certificate says, for the very host that was asked about, by a root of the
//! machine's, of the world's, or one that a person named), P4 (a certificate that cannot be verified is a refusal).
//! Trust: whoever answers at the address that was dialled.
//! Not here: which address that is (`dial`); certificates for clients inside (`certificates`). Revocation is not looked at.
//! See: RFC 8446, RFC 6125.

use std::path::Path;
use std::sync::Arc;

use bailiwick_model::{Code, Digest, Host};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, DnsName, ServerName};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, RootCertStore};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::limits;
use crate::links::Destination;

/// Files and folders in which machines keep the roots that they believe. A confined gate must be able to read them.
pub const ROOTS: [&str; 10] = [
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/ca-certificates/extracted",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/usr/share/pki/ca-trust-source",
    "/var/lib/ca-certificates",
];

/// The bundles of roots that machines have, the usual first: one file each, PEM.
pub const BUNDLES: [&str; 7] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ca-certificates/extracted/tls-ca-bundle.pem",
    "/var/lib/ca-certificates/ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The names of protocols in a TLS greeting (RFC 7301).
pub(crate) const HTTP_1: &[u8] = b"http/1.1";
pub(crate) const HTTP_2: &[u8] = b"h2";

/// Why TLS with a server did not come about.
#[derive(Debug)]
pub(crate) struct UpstreamFault {
    pub(crate) code: Code,
    pub(crate) why: String,
}

impl UpstreamFault {
    /// The server could not be spoken to.
    pub(crate) fn unreachable(why: String) -> Self {
        Self {
            code: Code::UpstreamUnreachable,
            why,
        }
    }
}

/// TLS to servers.
pub(crate) struct Upstream {
    /// Roots that a person named, as PEM.
    named: String,
    config: OnceCell<Arc<ClientConfig>>,
}

impl Upstream {
    pub(crate) fn new(named: String) -> Self {
        Self {
            named,
            config: OnceCell::new(),
        }
    }

    /// Reads the roots, unless that was done.
    pub(crate) async fn config(&self) -> Result<&Arc<ClientConfig>, UpstreamFault> {
        let broken = |why: String| UpstreamFault { code: Code::Fault, why };
        let read = || async {
            let named = self.named.clone();
            let read = tokio::task::spawn_blocking(move || roots(&named)).await;
            let roots = read.map_err(|fault| broken(fault.to_string()))?;
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let builder = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(|fault| broken(fault.to_string()))?;
            let mut config = builder.with_root_certificates(roots).with_no_client_auth();
            config.resumption = Resumption::in_memory_sessions(limits::SESSIONS);
            Ok(Arc::new(config))
        };
        self.config.get_or_try_init(read).await
    }

    /// Speaks TLS with a server, as a client that wants the destination's host and no other. True where the server chose
    /// HTTP/2.
    pub(crate) async fn connect<S>(&self, to: &Destination, stream: S) -> Result<(TlsStream<S>, bool), UpstreamFault>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let connector = TlsConnector::from(Arc::clone(self.config().await?));
        let name = match &to.host {
            Host::Address(address) => ServerName::IpAddress((*address).into()),
            Host::Name(name) => {
                let name = DnsName::try_from(name.clone());
                ServerName::DnsName(name.map_err(|fault| UpstreamFault::unreachable(fault.to_string()))?)
            }
        };
        let protocols: &[&[u8]] = if to.many { &[HTTP_2, HTTP_1] } else { &[HTTP_1] };
        let protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let greeted = connector.with_alpn(protocols).connect(name, stream);
        let stream = match tokio::time::timeout(limits::HANDSHAKE_TIME, greeted).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(fault)) => return Err(of_handshake(&fault)),
            Err(_) => {
                let seconds = limits::HANDSHAKE_TIME.as_secs();
                return Err(UpstreamFault::unreachable(format!("no TLS within {seconds} s")));
            }
        };
        let session = stream.get_ref().1;
        if !to.pins.is_empty() && !has_pins(session.peer_certificates(), &to.pins) {
            return Err(UpstreamFault {
                code: Code::UpstreamUntrusted,
                why: "the server has another public key than the rule names".into(),
            });
        }
        let many = session.alpn_protocol() == Some(HTTP_2);
        Ok((stream, many))
    }
}

/// True when the public key of the server's own certificate is in each set.
fn has_pins(chain: Option<&[CertificateDer<'_>]>, pins: &[Vec<Digest>]) -> bool {
    let own = chain.and_then(|chain| chain.first());
    let Some(Ok(own)) = own.map(ParsedCertificate::try_from) else {
        return false;
    };
    let key = Digest(Sha256::digest(own.subject_public_key_info().as_ref()).into());
    pins.iter().all(|set| set.contains(&key))
}

/// A certificate that is not believed is another matter than a server that speaks no TLS.
fn of_handshake(fault: &std::io::Error) -> UpstreamFault {
    let inner = fault.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let code = match inner {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => Code::UpstreamUntrusted,
        _ => Code::UpstreamUnreachable,
    };
    UpstreamFault {
        code,
        why: format!("TLS with the server failed: {fault}"),
    }
}

/// The roots of the world's, of the machine's, and those that a person named.
fn roots(named: &str) -> RootCertStore {
    let mut store = RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    let bundle = BUNDLES.iter().map(Path::new).find(|path| path.is_file());
    let machine = match bundle {
        Some(bundle) => rustls_native_certs::load_certs_from_paths(Some(bundle), None),
        None => rustls_native_certs::load_native_certs(),
    };
    // What is no root to rustls, or cannot be read, is left out: less is believed then, never more.
    store.add_parsable_certificates(machine.certs);
    store.add_parsable_certificates(CertificateDer::pem_slice_iter(named.as_bytes()).filter_map(Result::ok));
    store
}
