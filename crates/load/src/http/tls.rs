//! TLS with the certificates that the user trusts.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio_rustls::TlsConnector;

use crate::{LoadError, Tls};

/// For connections to this host.
///
/// # Errors
/// The file of certificates cannot be read or holds none; the host is no name for TLS.
pub(crate) fn connector(
    host: &str,
    trust: &Tls,
) -> Result<(TlsConnector, ServerName<'static>), LoadError> {
    let wrong = |e: &dyn std::fmt::Display| LoadError::spec("base url", format!("TLS: {e}"));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| wrong(&e))?;
    let builder = match &trust.ca_file {
        _ if trust.insecure => {
            let any = Arc::new(AnyCertificate(provider));
            builder.dangerous().with_custom_certificate_verifier(any)
        }
        Some(file) => builder.with_root_certificates(roots(file)?),
        None => builder.with_platform_verifier().map_err(|e| wrong(&e))?,
    };
    let name = ServerName::try_from(host.to_owned()).map_err(|e| wrong(&e))?;
    Ok((TlsConnector::from(Arc::new(builder.with_no_client_auth())), name))
}

fn roots(file: &Path) -> Result<RootCertStore, LoadError> {
    let certificates = CertificateDer::pem_file_iter(file).map_err(|e| LoadError::file(file, e))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        let certificate = certificate.map_err(|e| LoadError::file(file, e))?;
        roots.add(certificate).map_err(|e| LoadError::file(file, e))?;
    }
    if roots.is_empty() {
        return Err(LoadError::file(file, "holds no certificate in PEM form"));
    }
    Ok(roots)
}

/// Believes every certificate, as asked; signatures must still be right.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
