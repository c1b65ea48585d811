//! `https` targets: certificates that are trusted, others that are not, and the ways to say so.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use saccade_load::{
    Arrival, Dialect, LoadSpec, Outcome, Priority, Run, Target, Tls, Workload, run_on_own_thread,
};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(name)
}

/// Answers one token to each request of each connection, until the client closes it.
fn answer(mut stream: BufReader<StreamOwned<ServerConnection, TcpStream>>) -> Option<()> {
    let event = r#"{"choices":[{"index":0,"text":"a","finish_reason":"length"}]}"#;
    let body = format!("data: {event}\n\ndata: [DONE]\n\n");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length:";
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        stream.read_exact(&mut vec![0; length]).ok()?;
        write!(stream.get_mut(), "{head} {}\r\n\r\n{body}", body.len()).ok()?;
        stream.get_mut().flush().ok()?;
    }
}

fn server() -> u16 {
    let chain = CertificateDer::pem_file_iter(file("server.pem")).expect("a file");
    let chain = chain.collect::<Result<Vec<_>, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_file(file("server.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a pair");
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").expect("a port"));
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
            let stream = BufReader::new(StreamOwned::new(session, stream));
            std::thread::spawn(move || answer(stream));
        }
    });
    port
}

fn run(tls: Tls) -> Result<Run, String> {
    let mut target = Target::new(format!("https://localhost:{}", server()));
    target.model = Some("m".into());
    target.dialect = Some(Dialect { usage: false, continuous_usage: false, exact: false });
    target.tls = tls;
    let arrival = Arrival::Closed { concurrency: 1 };
    let spec = LoadSpec::new(arrival, Workload::fixed(4, 1), 3);
    run_on_own_thread(&target, &spec, &(), Priority::Normal).map_err(|e| e.to_string())
}

#[test]
fn a_certificate_is_believed_where_it_is_trusted_or_where_any_is() {
    let trusted = Tls { insecure: false, ca_file: Some(file("ca.pem")) };
    for tls in [trusted, Tls { insecure: true, ca_file: None }] {
        let run = run(tls).expect("a run");
        assert!(run.requests.iter().all(|r| r.outcome == Outcome::Ok), "{:?}", run.requests);
        assert_eq!(run.client.connections, 1, "kept over TLS, too");
    }
}

#[test]
fn a_certificate_that_nothing_vouches_for_fails_the_request() {
    let run = run(Tls::default()).expect("a run");
    for request in &run.requests {
        let Outcome::Broken(why) = &request.outcome else { panic!("{request:?}") };
        assert!(why.starts_with("TLS:"), "{why}");
    }
}

#[test]
fn a_file_without_certificates_is_refused_by_name() {
    for name in ["server.key", "none.pem"] {
        let error = run(Tls { insecure: false, ca_file: Some(file(name)) }).expect_err(name);
        assert!(error.contains(name), "{error}");
    }
}
