//! TLS to servers, whose certificates are always verified.
//!
//! Promises: P5 (a server is who its certificate says, for the very host that was asked about, by a root of the
//! machine's, of the world's, or one that a person named), P4 (a certificate that cannot be verified is a refusal).
//! Trust: whoever answers at the address that was dialled.
//! Not here: which address that is (`dial`); certificates for clients inside (`certificates`). Revocation is not looked at.
//! See: RFC 8446, RFC 6125.

use std::path::Path;
use std::sync::Arc;

use bailiwick_model::{Code, Host};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, DnsName, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::limits;

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

/// Why TLS with a server did not come about.
#[derive(Debug)]
pub(crate) struct UpstreamFault {
    pub(crate) code: Code,
    pub(crate) why: String,
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
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Ok(Arc::new(config))
        };
        self.config.get_or_try_init(read).await
    }

    /// Speaks TLS with a server, as a client that wants `host` and no other.
    pub(crate) async fn connect<S>(&self, host: &Host, stream: S) -> Result<TlsStream<S>, UpstreamFault>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = Arc::clone(self.config().await?);
        let unreachable = |why: String| UpstreamFault {
            code: Code::UpstreamUnreachable,
            why,
        };
        let name = match host {
            Host::Address(address) => ServerName::IpAddress((*address).into()),
            Host::Name(name) => {
                let name = DnsName::try_from(name.clone());
                ServerName::DnsName(name.map_err(|fault| unreachable(fault.to_string()))?)
            }
        };
        let greeted = TlsConnector::from(config).connect(name, stream);
        match tokio::time::timeout(limits::HANDSHAKE_TIME, greeted).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(fault)) => Err(of_handshake(&fault)),
            Err(_) => Err(unreachable(format!(
                "no TLS within {} s",
                limits::HANDSHAKE_TIME.as_secs()
            ))),
        }
    }
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
