//! Where a socket is: `tcp://HOST:PORT` or `ipc://PATH`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;

/// Longest path of a socket in a file system, with its end.
const MAX_IPC_PATH_BYTES: usize = 108;

/// An address of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `tcp://HOST:PORT`; `*` is every interface, and port 0 any free one.
    Tcp {
        /// A name, an address, or `*`; IPv6 without brackets.
        host: String,
        /// To listen at or to connect to.
        port: u16,
    },
    /// `ipc://PATH`: a socket in the file system.
    Ipc(PathBuf),
}

/// Why a text is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Neither `tcp://` nor `ipc://`.
    #[error("must begin with tcp:// or ipc://, not `{0}`")]
    Scheme(String),
    /// No host before the port, or one with characters that none has.
    #[error("names no host in `{0}`")]
    Host(String),
    /// No port from 0 to 65535 at the end.
    #[error("must end in a port from 0 to 65535: `{0}`")]
    Port(String),
    /// Empty, or longer than the system allows.
    #[error("needs a path of 1 to 107 bytes after ipc://")]
    Path,
}

impl Endpoint {
    /// Whether a publisher listens there (`*`, an unspecified or a loopback address, a path) or
    /// connects to a router that does.
    pub fn is_listened_at(&self) -> bool {
        match self {
            Endpoint::Ipc(_) => true,
            Endpoint::Tcp { host, .. } if host == "*" || host == "localhost" => true,
            Endpoint::Tcp { host, .. } => host
                .parse::<IpAddr>()
                .is_ok_and(|address| address.is_unspecified() || address.is_loopback()),
        }
    }

    /// The host and the port, as the system takes them to listen. None: it is a path.
    pub(crate) fn tcp_address(&self) -> Option<(&str, u16)> {
        match self {
            Endpoint::Tcp { host, port } if host == "*" => Some(("0.0.0.0", *port)),
            Endpoint::Tcp { host, port } => Some((host, *port)),
            Endpoint::Ipc(_) => None,
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        if let Some(path) = text.strip_prefix("ipc://") {
            let fits = (1..MAX_IPC_PATH_BYTES).contains(&path.len()) && !path.contains('\0');
            return if fits { Ok(Endpoint::Ipc(path.into())) } else { Err(EndpointError::Path) };
        }
        let Some(address) = text.strip_prefix("tcp://") else {
            return Err(EndpointError::Scheme(text.into()));
        };
        let no_port = || EndpointError::Port(text.into());
        let (host, port) = address.rsplit_once(':').ok_or_else(no_port)?;
        let port = port.parse().map_err(|_| no_port())?;
        let no_host = || EndpointError::Host(text.into());
        let host = match host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
            Some(inner) => inner.parse::<Ipv6Addr>().map_err(|_| no_host())?.to_string(),
            None if is_host(host) => host.into(),
            None => return Err(no_host()),
        };
        Ok(Endpoint::Tcp { host, port })
    }
}

/// `*`, or what names and IPv4 addresses consist of.
fn is_host(host: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    host == "*" || (!host.is_empty() && host.bytes().all(allowed))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { host, port } if host.contains(':') => {
                write!(f, "tcp://[{host}]:{port}")
            }
            Endpoint::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Endpoint::Ipc(path) => write!(f, "ipc://{}", path.display()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_and_written() {
        let listened = [
            ("tcp://*:5557", true),
            ("tcp://127.0.0.1:5557", true),
            ("tcp://localhost:0", true),
            ("tcp://0.0.0.0:5557", true),
            ("tcp://[::]:5557", true),
            ("tcp://[::1]:5557", true),
            ("ipc:///run/saccade/events", true),
            ("tcp://10.1.2.3:5557", false),
            ("tcp://router.llm-d.svc:5557", false),
            ("tcp://[2001:db8::7]:5557", false),
        ];
        for (text, is_listened_at) in listened {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.to_string(), text);
            assert_eq!(endpoint.is_listened_at(), is_listened_at, "{text}");
        }
    }

    #[test]
    fn what_is_no_endpoint_is_refused() {
        let wrong = [
            "",
            "5557",
            "inproc://events",
            "http://a:1",
            "tcp://",
            "tcp://a",
            "tcp://:1",
            "tcp://a:",
            "tcp://a:65536",
            "tcp://a:-1",
            "tcp://a b:1",
            "tcp://::1:1",
            "tcp://[a]:1",
            "tcp://[::1:1",
            "tcp://a/b:1",
            "ipc://",
            "tcp://*:*",
        ];
        for text in wrong {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
        assert_eq!(
            format!("ipc://{}", "x".repeat(108)).parse::<Endpoint>(),
            Err(EndpointError::Path)
        );
    }
}
