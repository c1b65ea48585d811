//! The Host field: exactly one, and one that this server goes by.
//!
//! A page that a browser has open can have its own name resolve to 127.0.0.1 and then speak to a
//! server there as its own origin (DNS rebinding). The name in the Host field gives it away.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::uri::Authority;
use http::{HeaderMap, StatusCode, Version, header};

use crate::api_error::ApiError;

/// Which names requests may use for this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedHosts {
    /// Any.
    Any,
    /// Names and addresses of this machine itself.
    Loopback,
    /// These, in lower case and without ports.
    Listed(Vec<String>),
}

impl AllowedHosts {
    /// Those listed; by default a server that listens on loopback without keys, which a browser on
    /// this machine can reach, goes by loopback names only.
    pub fn of(listed: &[String], address: Option<SocketAddr>, keys_required: bool) -> Self {
        let local = address.is_some_and(|address| address.ip().is_loopback());
        match listed.is_empty() {
            true if local && !keys_required => Self::Loopback,
            true => Self::Any,
            false if listed.iter().any(|host| host == "*") => Self::Any,
            false => Self::Listed(listed.iter().map(|host| host.to_ascii_lowercase()).collect()),
        }
    }

    fn allow(&self, host: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Loopback => is_loopback(host),
            Self::Listed(hosts) => hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host)),
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || address.is_ok_and(|a| a.is_loopback())
}

/// Refuses requests without exactly one Host field (RFC 9112, section 3.2), and those for a host
/// that is not this server's.
pub async fn check(
    State(hosts): State<Arc<AllowedHosts>>,
    request: Request,
    next: Next,
) -> Response {
    match checked(&hosts, request.version(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn checked(hosts: &AllowedHosts, version: Version, headers: &HeaderMap) -> Result<(), ApiError> {
    let mut given = headers.get_all(header::HOST).iter();
    let (first, second) = (given.next(), given.next());
    let wrong = |message| ApiError::new(StatusCode::BAD_REQUEST, "invalid_host", message);
    if second.is_some() {
        return Err(wrong("the request has several Host fields; it must have one"));
    }
    let Some(value) = first else {
        // HTTP/1.0 does not ask for it; a browser always sends it.
        return match version {
            Version::HTTP_10 => Ok(()),
            _ => Err(wrong("the request has no Host field")),
        };
    };
    let named = value.to_str().ok().filter(|text| !text.contains('@'));
    let Some(authority) = named.and_then(|text| text.parse::<Authority>().ok()) else {
        return Err(wrong("the Host field is not HOST or HOST:PORT"));
    };
    if hosts.allow(authority.host()) {
        return Ok(());
    }
    let message = format!(
        "this server does not go by the host `{}`; --allowed-hosts names those it goes by",
        authority.host()
    );
    Err(ApiError::new(StatusCode::FORBIDDEN, "host_not_allowed", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(hosts: &AllowedHosts, given: &[&str]) -> u16 {
        let mut headers = HeaderMap::new();
        for host in given {
            headers.append(header::HOST, host.parse().unwrap());
        }
        checked(hosts, Version::HTTP_11, &headers).map_or_else(|e| e.status.as_u16(), |()| 200)
    }

    #[test]
    fn one_host_is_asked_for_and_must_be_this_servers() {
        let loopback = AllowedHosts::Loopback;
        for (given, want) in [
            (&["localhost:8000"][..], 200),
            (&["LocalHost"], 200),
            (&["app.localhost:1"], 200),
            (&["127.0.0.1:8000"], 200),
            (&["127.8.9.1"], 200),
            (&["[::1]:8000"], 200),
            (&["evil.example"], 403),
            (&["localhost.evil.example"], 403),
            (&["127.0.0.1.evil.example"], 403),
            (&["10.0.0.1"], 403),
            (&[], 400),
            (&["localhost", "localhost"], 400),
            (&[""], 400),
            (&["a b"], 400),
            (&["evil@localhost"], 400),
        ] {
            assert_eq!(status(&loopback, given), want, "{given:?}");
        }
        let listed = AllowedHosts::Listed(vec!["llm.example".into()]);
        assert_eq!(status(&listed, &["LLM.example:443"]), 200);
        assert_eq!(status(&listed, &["localhost"]), 403);
        assert_eq!(status(&AllowedHosts::Any, &["evil.example"]), 200);
        assert_eq!(status(&AllowedHosts::Any, &["a", "b"]), 400);
    }
}
