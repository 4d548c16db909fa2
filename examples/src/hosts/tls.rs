//! Mutual TLS with certificates from files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto::ring};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::{Context, HostResult, files};

/// Bytes of one file at most.
const MAX_PEM: u64 = 1 << 20;

/// Where certificates are, all in PEM form. Both sides prove themselves to each other.
#[derive(Clone, Debug, clap::Args)]
pub struct TlsFiles {
    /// Certificate of the authority that signs both sides.
    #[arg(long, value_name = "FILE", required = false, requires_all = ["cert", "key"])]
    pub ca: PathBuf,
    /// This side's certificate, and the intermediate ones.
    #[arg(long, value_name = "FILE", required = false, requires_all = ["ca", "key"])]
    pub cert: PathBuf,
    /// This side's private key.
    #[arg(long, value_name = "FILE", required = false, requires_all = ["ca", "cert"])]
    pub key: PathBuf,
}

impl TlsFiles {
    /// For a server of HTTP/2: a client without a certificate of the authority gets nothing.
    ///
    /// # Errors
    /// Files that cannot be read or hold something else.
    pub fn server(&self) -> HostResult<Arc<ServerConfig>> {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        for cert in certificates(&self.ca)? {
            roots.add(cert).context(self.ca.display())?;
        }
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let key = PrivateKeyDer::from_pem_slice(&pem(&self.key)?);
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients.build().context(self.ca.display())?)
            .with_single_cert(certificates(&self.cert)?, key.context(self.key.display())?)
            .context(self.cert.display())?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }

    /// For a client that expects a server of this name.
    ///
    /// # Errors
    /// Files that cannot be read or hold something else.
    pub fn client(&self, server_name: &str) -> HostResult<ClientTlsConfig> {
        // What is wrong with a file shows here, not with the first connection.
        self.check()?;
        Ok(ClientTlsConfig::new()
            .domain_name(server_name)
            .ca_certificate(Certificate::from_pem(pem(&self.ca)?))
            .identity(Identity::from_pem(pem(&self.cert)?, pem(&self.key)?)))
    }

    /// Whether all files hold what they should.
    ///
    /// # Errors
    /// The first file that does not.
    pub fn check(&self) -> HostResult<()> {
        certificates(&self.ca)?;
        certificates(&self.cert)?;
        PrivateKeyDer::from_pem_slice(&pem(&self.key)?).context(self.key.display())?;
        Ok(())
    }
}

fn pem(path: &Path) -> HostResult<Vec<u8>> {
    Ok(files::read(path, MAX_PEM)?)
}

fn certificates(path: &Path) -> HostResult<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_slice_iter(&pem(path)?).collect::<Result<Vec<_>, _>>();
    let found = found.context(path.display())?;
    if found.is_empty() { Err("no certificate in it").context(path.display()) } else { Ok(found) }
}
