//! TLS, with certificates that may be replaced while the server runs. Connections keep what they
//! began with.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::error::FrontendError;
use crate::watched::{Files, Watched};

/// Where the server's identity is, as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate and those between it and its root. `--ssl-certfile`
    pub certificates: PathBuf,
    /// Its private key. `--ssl-keyfile`
    pub key: PathBuf,
    /// Roots of which each client must present a certificate. `None`: clients present none.
    /// `--ssl-ca-certs`
    pub client_roots: Option<PathBuf>,
}

/// The server's identity as it is now.
pub struct Tls {
    paths: TlsFiles,
    files: Files,
    now: ArcSwap<ServerConfig>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// With the file and what is wrong with it.
    pub fn read(paths: TlsFiles) -> Result<Self, FrontendError> {
        let all = [Some(&paths.certificates), Some(&paths.key), paths.client_roots.as_ref()];
        let files = Files::new(all.into_iter().flatten().cloned().collect());
        let now = ArcSwap::from_pointee(server_config(&paths)?);
        Ok(Self { paths, files, now })
    }

    /// For one connection.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.now.load_full().into()
    }
}

impl Watched for Tls {
    fn name(&self) -> &'static str {
        "certificates"
    }

    fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    fn reload_if_changed(&self) -> Option<Result<(), FrontendError>> {
        let changed = self.files.changed();
        changed.then(|| server_config(&self.paths).map(|next| self.now.store(Arc::new(next))))
    }
}

fn server_config(paths: &TlsFiles) -> Result<ServerConfig, FrontendError> {
    let provider = Arc::new(default_provider());
    let key = PrivateKeyDer::from_pem_file(&paths.key).map_err(|e| wrong(&paths.key, &e))?;
    let chain = certificates(&paths.certificates)?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| wrong(&paths.certificates, &e))?;
    let builder = match &paths.client_roots {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(path)? {
                roots.add(root).map_err(|e| wrong(path, &e))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().map_err(|e| wrong(path, &e))?)
        }
    };
    let mut config =
        builder.with_single_cert(chain, key).map_err(|e| wrong(&paths.certificates, &e))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FrontendError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|e| wrong(path, &e))?;
    let found: Vec<_> = read.collect::<Result<_, _>>().map_err(|e| wrong(path, &e))?;
    if found.is_empty() { Err(wrong(path, &"there is no certificate in it")) } else { Ok(found) }
}

fn wrong(path: &Path, reason: &dyn std::fmt::Display) -> FrontendError {
    FrontendError::File { path: path.display().to_string(), reason: reason.to_string() }
}
