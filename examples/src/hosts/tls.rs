//! Mutual TLS with certificates from files.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto::ring};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::HostResult;

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
        for cert in CertificateDer::pem_file_iter(&self.ca)? {
            roots.add(cert?)?;
        }
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let chain = CertificateDer::pem_file_iter(&self.cert)?.collect::<Result<Vec<_>, _>>()?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients.build()?)
            .with_single_cert(chain, PrivateKeyDer::from_pem_file(&self.key)?)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }

    /// For a client that expects a server of this name.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn client(&self, server_name: &str) -> HostResult<ClientTlsConfig> {
        Ok(ClientTlsConfig::new()
            .domain_name(server_name)
            .ca_certificate(Certificate::from_pem(fs::read(&self.ca)?))
            .identity(Identity::from_pem(fs::read(&self.cert)?, fs::read(&self.key)?)))
    }
}
