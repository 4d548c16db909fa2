//! Mutual TLS with certificates from files, which may be renewed while a program runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{Error, RootCertStore, ServerConfig, crypto::ring};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};
use xxhash_rust::xxh3::Xxh3;

use super::metrics::{Counter, Page};
use super::{Context, HostResult, files, lock};
use crate::{log, log_about};

/// Bytes of one file at most.
const MAX_PEM: u64 = 1 << 20;
/// How often the files are looked at, at most.
const LOOK: Duration = Duration::from_secs(2);

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

/// What a side proves with its certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Server,
    Client,
}

/// What the files hold, checked.
struct Loaded {
    clients: Arc<dyn ClientCertVerifier>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl TlsFiles {
    /// For a server of HTTP/2: a client without a certificate of the authority gets nothing.
    ///
    /// # Errors
    /// Files that cannot be read or hold something else, by name: no certificates or key, a key of
    /// another certificate, a certificate that the authority did not sign, that is for something
    /// else, or whose time is over.
    pub fn server(&self) -> HostResult<Arc<ServerConfig>> {
        let Loaded { clients, chain, key } = self.load(Side::Server)?;
        let provider = Arc::new(ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)
            .context(self.cert.display())?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }

    /// For a client that expects a server of this name.
    ///
    /// # Errors
    /// As [`server`](Self::server).
    pub fn client(&self, server_name: &str) -> HostResult<ClientTlsConfig> {
        self.check_client()?;
        Ok(ClientTlsConfig::new()
            .domain_name(server_name)
            .ca_certificate(Certificate::from_pem(pem(&self.ca)?))
            .identity(Identity::from_pem(pem(&self.cert)?, pem(&self.key)?)))
    }

    /// Whether a client can use the files: what is wrong shows here, not with the first connection.
    ///
    /// # Errors
    /// As [`server`](Self::server).
    pub fn check_client(&self) -> HostResult<()> {
        self.load(Side::Client).map(|_| ())
    }

    fn load(&self, side: Side) -> HostResult<Loaded> {
        let [ca, cert, key_file] = [&self.ca, &self.cert, &self.key].map(|path| path.display());
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca)? {
            roots.add(certificate).context(&ca)?;
        }
        let roots = Arc::new(roots);
        let chain = certificates(&self.cert)?;
        let key = PrivateKeyDer::from_pem_slice(&pem(&self.key)?).context(&key_file)?;
        match CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider) {
            Ok(_) => {}
            Err(Error::InconsistentKeys(_)) => {
                return Err(format!("{key_file}: not the key of the certificate in {cert}").into());
            }
            Err(error @ Error::InvalidCertificate(_)) => return Err(error).context(&cert),
            Err(error) => return Err(error).context(&key_file),
        }
        let clients =
            WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let clients = clients.context(&ca)?;
        let (own, others) = chain.split_first().ok_or("no certificate").context(&cert)?;
        let now = UnixTime::now();
        let vouched = match side {
            Side::Client => clients.verify_client_cert(own, others, now).map(|_| ()),
            Side::Server => ParsedCertificate::try_from(own).and_then(|own| {
                let known = provider.signature_verification_algorithms.all;
                verify_server_cert_signed_by_trust_anchor(&own, &roots, others, now, known)
            }),
        };
        vouched.context(format_args!("{cert}: not valid by the authority in {ca}"))?;
        Ok(Loaded { clients, chain, key })
    }

    /// Tells whether the files have changed; `None` while one cannot be read.
    pub fn fingerprint(&self) -> Option<u64> {
        let mut hash = Xxh3::new();
        for path in [&self.ca, &self.cert, &self.key] {
            let bytes = pem(path).ok()?;
            hash.update(&bytes.len().to_le_bytes());
            hash.update(&bytes);
        }
        Some(hash.digest())
    }
}

/// Looks at changed files.
#[derive(Debug, Default)]
pub struct TlsCounters {
    /// New ones are in use.
    pub renewed: Counter,
    /// They were wrong; the former ones stay in use.
    pub errors: Counter,
}

impl TlsCounters {
    /// Adds them to a scrape.
    pub fn report(&self, page: &mut Page) {
        let counters = [("renewed", self.renewed.get()), ("error", self.errors.get())];
        page.counters("ckf_tls_files_total", &[], "what", &counters);
    }
}

/// What a program makes of its files, and makes anew when they change. While new ones are wrong, or
/// half-written, the former ones stay in use. Connections that exist keep what they began with.
pub struct Renewed<T> {
    files: TlsFiles,
    make: Make<T>,
    counters: Arc<TlsCounters>,
    state: Mutex<State<T>>,
}

type Make<T> = Box<dyn Fn(&TlsFiles) -> HostResult<T> + Send + Sync>;

struct State<T> {
    made: T,
    /// Of the files as they were when they were looked at last.
    fingerprint: Option<u64>,
    looked: Instant,
}

impl<T: Clone> Renewed<T> {
    /// What `make` makes of the files now.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn new(
        files: &TlsFiles,
        counters: Arc<TlsCounters>,
        make: impl Fn(&TlsFiles) -> HostResult<T> + Send + Sync + 'static,
    ) -> HostResult<Arc<Self>> {
        let (fingerprint, looked) = (files.fingerprint(), Instant::now());
        let state = Mutex::new(State { made: make(files)?, fingerprint, looked });
        Ok(Arc::new(Self { files: files.clone(), make: Box::new(make), counters, state }))
    }

    /// For the next connection. Looks at the files now and then.
    pub fn get(&self) -> T {
        let state = &mut *lock(&self.state);
        if state.looked.elapsed() >= LOOK {
            state.looked = Instant::now();
            let fingerprint = self.files.fingerprint();
            if fingerprint != state.fingerprint {
                state.fingerprint = fingerprint;
                self.renew(&mut state.made);
            }
        }
        state.made.clone()
    }

    fn renew(&self, made: &mut T) {
        match (self.make)(&self.files) {
            Ok(new) => {
                *made = new;
                self.counters.renewed.up();
                log!("new certificates from {}", self.files.cert.display());
            }
            Err(error) => {
                self.counters.errors.up();
                log_about!("certificates stay as they are", "{error}");
            }
        }
    }
}

impl<T> std::fmt::Debug for Renewed<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renewed").field("files", &self.files).finish_non_exhaustive()
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
