//! HTTP: connections and their bounds, routes, bodies, streams.

mod access_log;
pub mod app;
pub mod auth;
mod body;
pub mod budget;
mod connection;
mod exchange;
mod host;
mod io;
pub mod layers;
mod listen;
mod router;
mod server;
mod stream;
mod tls;

pub use access_log::{AccessLog, AccessLogConfig};
pub use body::read_body;
pub use connection::Connections;
pub use exchange::{AskedFor, Ended, Made, Tally, Times, Tokens};
pub use host::AllowedHosts;
pub use listen::Listening;
pub use router::router;
pub use server::{Acceptor, serve_connections};
pub use stream::{collect, stream};
pub use tls::{Tls, TlsFiles};
