//! HTTPS: what is served, to whom, and with which certificate after it was replaced.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use common::Harness;
use saccade_frontend::TlsFiles;
use saccade_ring::testing::FakeConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::aws_lc_rs::default_provider,
};

/// A key and a certificate for localhost that signs itself, under this name.
fn certificate(folder: &Path, name: &str) {
    let output = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.pem"), "-days", "2"])
        .args(["-subj", &format!("/CN={name}"), "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .current_dir(folder)
        .output()
        .expect("openssl is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

struct Identities(tempfile::TempDir);

impl Identities {
    fn new(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        names.iter().for_each(|name| certificate(folder.path(), name));
        Self(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn of(&self, name: &str, client_roots: Option<&str>) -> TlsFiles {
        TlsFiles {
            certificates: self.file(&format!("{name}.pem")),
            key: self.file(&format!("{name}.key")),
            client_roots: client_roots.map(|name| self.file(&format!("{name}.pem"))),
        }
    }

    /// The first line of the answer to a client that believes `root` and is `client`, if anyone.
    fn health(&self, port: u16, root: &str, client: Option<&str>) -> std::io::Result<String> {
        let certs = |name: &str| -> Vec<CertificateDer<'static>> {
            let file = self.file(&format!("{name}.pem"));
            CertificateDer::pem_file_iter(file).unwrap().map(Result::unwrap).collect()
        };
        let mut roots = RootCertStore::empty();
        certs(root).into_iter().for_each(|cert| roots.add(cert).unwrap());
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match client {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let key = PrivateKeyDer::from_pem_file(self.file(&format!("{name}.key"))).unwrap();
                builder.with_client_auth_cert(certs(name), key).unwrap()
            }
        };
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut stream = StreamOwned::new(connection, socket);
        stream
            .write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.lines().next().unwrap_or_default().to_owned())
    }
}

const OK: &str = "HTTP/1.1 200 OK";

#[test]
fn a_server_with_a_certificate_speaks_https_and_nothing_else() {
    let ids = Identities::new(&["one", "two"]);
    let h = Harness::over_tls(ids.of("one", None), FakeConfig::default());
    assert_eq!(ids.health(h.addr.port(), "one", None).unwrap(), OK);
    assert!(ids.health(h.addr.port(), "two", None).is_err(), "another one is not believed");
    let mut plain = h.connect();
    plain.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/"), "{answer:?}");

    // The certificate is replaced, as by a renewal.
    for kind in ["pem", "key"] {
        std::fs::copy(ids.file(&format!("two.{kind}")), ids.file(&format!("one.{kind}.new")))
            .unwrap();
        std::fs::rename(ids.file(&format!("one.{kind}.new")), ids.file(&format!("one.{kind}")))
            .unwrap();
    }
    let replaced = || ids.health(h.addr.port(), "two", None).is_ok_and(|line| line == OK);
    h.wait_until("the new certificate", |_| replaced());
    // Half of a renewal: what is served stays.
    std::fs::write(ids.file("one.pem"), "nothing").unwrap();
    std::thread::sleep(Duration::from_secs(3));
    assert!(replaced());
}

#[test]
fn clients_present_a_certificate_where_they_are_asked_for_one() {
    let ids = Identities::new(&["server", "client", "other"]);
    let h = Harness::over_tls(ids.of("server", Some("client")), FakeConfig::default());
    assert_eq!(ids.health(h.addr.port(), "server", Some("client")).unwrap(), OK);
    assert!(ids.health(h.addr.port(), "server", None).is_err());
    assert!(ids.health(h.addr.port(), "server", Some("other")).is_err());
}

#[test]
fn wrong_files_are_refused_by_name_at_the_start() {
    let ids = Identities::new(&["one", "two"]);
    std::fs::write(ids.file("empty.pem"), "").unwrap();
    let model = tempfile::tempdir().unwrap();
    common::write_model(model.path());
    let fails = |files: TlsFiles, word: &str| {
        let limits = saccade_ring::RegionLimits { num_slots: 32, ..Default::default() };
        let transport = saccade_ring::InProcTransport::create(&limits).unwrap();
        let config = saccade_frontend::FrontendConfig {
            model: model.path().display().to_string(),
            tls: Some(files),
            ..Default::default()
        };
        let Err(error) = saccade_frontend::Frontend::start_on(config, transport) else {
            panic!("taken: {word}");
        };
        assert!(error.to_string().contains(word), "{error}");
    };
    fails(TlsFiles { certificates: ids.file("none.pem"), ..ids.of("one", None) }, "none.pem");
    fails(TlsFiles { certificates: ids.file("empty.pem"), ..ids.of("one", None) }, "empty.pem");
    fails(TlsFiles { key: ids.file("one.pem"), ..ids.of("one", None) }, "one.pem");
    fails(TlsFiles { key: ids.file("two.key"), ..ids.of("one", None) }, "one.pem");
    fails(TlsFiles { client_roots: Some(ids.file("empty.pem")), ..ids.of("one", None) }, "empty");
}
