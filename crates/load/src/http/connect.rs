//! New connections.

use std::net::SocketAddr;

use hyper::client::conn::http1::handshake;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::socket::{Peephole, Socket};
use super::{Connection, Origin, chain, tls};
use crate::{LoadError, Tls};

/// Opens connections to one server.
pub(crate) struct Connector {
    addresses: Vec<SocketAddr>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Connector {
    pub(crate) async fn new(origin: &Origin, trust: &Tls) -> Result<Connector, LoadError> {
        let url = || origin.url("");
        let mut addresses: Vec<SocketAddr> =
            tokio::net::lookup_host((origin.host.as_str(), origin.port))
                .await
                .map_err(|e| LoadError::server(url(), e))?
                .collect();
        // A name with addresses of both families (localhost) is usually served on one of them.
        if let Some(works) = first_that_answers(&addresses).await {
            addresses.swap(0, works);
        }
        let tls = origin.tls.then(|| tls::connector(&origin.host, trust)).transpose()?;
        Ok(Connector { addresses, tls })
    }

    pub(crate) async fn connect(&self) -> Result<Connection, String> {
        let socket = Socket::new(self.tcp().await?);
        let peephole = socket.peephole();
        match &self.tls {
            None => start(TokioIo::new(socket), peephole).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), socket).await;
                let stream = stream.map_err(|e| format!("TLS: {}", chain(&e)))?;
                start(TokioIo::new(stream), peephole).await
            }
        }
    }

    async fn tcp(&self) -> Result<TcpStream, String> {
        let mut problem = "the name has no address".to_owned();
        for address in &self.addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(|e| e.to_string())?;
                    return Ok(stream);
                }
                Err(error) => problem = format!("connect to {address}: {error}"),
            }
        }
        Err(problem)
    }
}

async fn first_that_answers(addresses: &[SocketAddr]) -> Option<usize> {
    if addresses.len() < 2 {
        return None;
    }
    for (i, address) in addresses.iter().enumerate() {
        if TcpStream::connect(address).await.is_ok() {
            return Some(i);
        }
    }
    None
}

async fn start<T>(io: T, peephole: Peephole) -> Result<Connection, String>
where
    T: Read + Write + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(io).await.map_err(|e| chain(&e))?;
    // Ends with its connection; what goes wrong is reported to the request that it carries.
    tokio::spawn(connection);
    Ok(Connection { sender, peephole })
}
