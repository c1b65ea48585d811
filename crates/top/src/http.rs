//! One GET at a time, over plain HTTP/1.1, bounded in time and bytes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Time for one answer, from connecting to its last byte.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of one answer; ours has some 50 KiB, one of many engines a few MiB.
const MAX_BODY_BYTES: usize = 16 << 20;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Name or address; an IPv6 address without its brackets.
    host: String,
    port: u16,
    /// Path prefix of the server's own paths: empty, or with a slash in front and none
    /// behind.
    prefix: String,
}

impl FromStr for Endpoint {
    type Err = String;

    /// `http://host[:port][/prefix]`; a trailing `/v1` or `/metrics` is dropped, because that is
    /// what is at hand to be pasted.
    fn from_str(text: &str) -> Result<Endpoint, String> {
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest,
            Some(("https", _)) => {
                return Err(
                    "only http is supported: name the server's own port, not that of a TLS proxy"
                        .into(),
                );
            }
            Some((scheme, _)) => return Err(format!("unknown scheme `{scheme}`, expected http")),
            None => text,
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains(['@', '?', '#']) || path.contains(['?', '#']) {
            return Err("expected http://host:port, without user, query or fragment".into());
        }
        let (host, port) = split_authority(authority)?;
        let prefix = path.trim_end_matches('/');
        let prefix = prefix.strip_suffix("/metrics").unwrap_or(prefix);
        let prefix = prefix.strip_suffix("/v1").unwrap_or(prefix);
        Ok(Endpoint { host, port, prefix: prefix.to_owned() })
    }
}

fn split_authority(authority: &str) -> Result<(String, u16), String> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(v6) => {
            let (host, rest) = v6.split_once(']').ok_or("an IPv6 address ends with `]`")?;
            let port = if rest.is_empty() {
                None
            } else {
                Some(rest.strip_prefix(':').ok_or("expected `:port`")?)
            };
            (host, port)
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err("no host".into());
    }
    let port = port.map_or(Ok(80), str::parse).map_err(|_| "the port must be 0 .. 65535")?;
    Ok((host.to_owned(), port))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.prefix)
    }
}

impl Endpoint {
    fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Whether the server is one of this machine (or of its network namespace).
    pub fn is_local(&self) -> bool {
        let address = self.host.parse::<std::net::IpAddr>();
        self.host == "localhost" || address.is_ok_and(|a| a.is_loopback())
    }

    /// Status and body of a GET.
    ///
    /// # Errors
    /// The server cannot be reached, breaks the protocol, or exceeds a bound.
    pub async fn get(
        &self,
        path: &str,
        api_key: Option<&str>,
    ) -> anyhow::Result<(StatusCode, String)> {
        let exchange = self.exchange(path, api_key);
        match tokio::time::timeout(TIMEOUT, exchange).await {
            Ok(answer) => answer,
            Err(_) => bail!("no answer to {path} within {} s", TIMEOUT.as_secs()),
        }
    }

    async fn exchange(
        &self,
        path: &str,
        api_key: Option<&str>,
    ) -> anyhow::Result<(StatusCode, String)> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let mut request = Request::get(format!("{}{path}", self.prefix))
            .header(header::HOST, self.authority())
            .header(header::USER_AGENT, concat!("saccade-top/", env!("CARGO_PKG_VERSION")));
        if let Some(key) = api_key {
            request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        }
        let request = request.body(Empty::<Bytes>::new())?;
        let answer = async {
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_BODY_BYTES).collect().await;
            let body = body.map_err(|e| anyhow::anyhow!("{path}: {e}"))?.to_bytes();
            Ok((status, String::from_utf8_lossy(&body).into_owned()))
        };
        // Both belong to this future, so that nothing is left running when it is dropped.
        let connection = async { connection.await.context("the connection broke") };
        tokio::pin!(answer, connection);
        tokio::select! {
            answer = &mut answer => answer,
            // The server closed: what it sent before still counts.
            closed = &mut connection => match closed {
                Ok(()) => answer.await,
                Err(error) => Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_people_have_at_hand() {
        for (text, shown) in [
            ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
            ("localhost:8000/", "http://localhost:8000"),
            ("http://h/v1", "http://h:80"),
            ("http://h:1/a/v1/", "http://h:1/a"),
            ("http://[::1]:9/metrics", "http://[::1]:9"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), shown, "{text}");
        }
        for bad in [
            "https://h",
            "ftp://h",
            "http://",
            "http://h:x",
            "http://h:70000",
            "http://u@h",
            "http://h/?q",
            "http://[::1",
        ] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
        assert!("http://[::1]:9".parse::<Endpoint>().unwrap().is_local());
        assert!(!"http://10.0.0.1:9".parse::<Endpoint>().unwrap().is_local());
    }
}
