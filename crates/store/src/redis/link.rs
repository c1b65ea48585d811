//! Connections, to one server or to a cluster.

use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline,
    RedisConnectionInfo, RedisResult, TlsCertificates, Value,
};

use crate::OpenError;
use crate::trouble::words;
use crate::url::{Node, RedisPlace};

/// Callers have deadlines of their own, and shorter ones.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// After which a cluster's node that hangs is given up by the client library.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Of a command that a cluster's node has redirected or dropped.
const CLUSTER_RETRIES: u32 = 3;

/// Makes connections.
pub(super) enum Client {
    Single(Box<redis::Client>),
    Cluster(Box<ClusterClient>),
}

/// A connection that many commands share at a time.
#[derive(Clone)]
pub(super) enum Link {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Client {
    pub(super) fn new(place: &RedisPlace) -> Result<Self, OpenError> {
        if place.tls {
            install_crypto();
        }
        let certificates = certificates(place)?;
        let client = match place.cluster {
            true => cluster(place, certificates).map(Box::new).map(Self::Cluster),
            false => single(place, certificates).map(Box::new).map(Self::Single),
        };
        client.map_err(|error| OpenError::Client(words(&error)))
    }

    pub(super) async fn connect(&self) -> RedisResult<Link> {
        match self {
            Self::Single(client) => {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(CONNECT_TIMEOUT))
                    .set_response_timeout(None);
                let link = client.get_multiplexed_async_connection_with_config(&config).await?;
                Ok(Link::Single(link))
            }
            Self::Cluster(client) => Ok(Link::Cluster(client.get_async_connection().await?)),
        }
    }
}

/// The redis client takes rustls's process-wide provider. rustls finds one by itself only if
/// exactly one is compiled in, which any other dependency can change.
fn install_crypto() {
    // An error means that the process has chosen already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

fn certificates(place: &RedisPlace) -> Result<Option<TlsCertificates>, OpenError> {
    let Some(path) = &place.ca else { return Ok(None) };
    let root_cert = std::fs::read(path).map_err(|error| OpenError::Ca {
        path: path.display().to_string(),
        why: error.to_string(),
    })?;
    Ok(Some(TlsCertificates { client_tls: None, root_cert: Some(root_cert) }))
}

fn information(place: &RedisPlace, node: &Node) -> RedisResult<ConnectionInfo> {
    let (host, port) = (node.host.clone(), node.port);
    let address = match place.tls {
        true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        false => ConnectionAddr::Tcp(host, port),
    };
    let mut login = RedisConnectionInfo::default().set_db(place.db.into());
    if let Some(user) = &place.user {
        login = login.set_username(user);
    }
    if let Some(password) = &place.password {
        login = login.set_password(&password.0);
    }
    let tcp = TcpSettings::default().set_nodelay(true);
    Ok(address.into_connection_info()?.set_redis_settings(login).set_tcp_settings(tcp))
}

fn single(place: &RedisPlace, certificates: Option<TlsCertificates>) -> RedisResult<redis::Client> {
    let information = information(place, &place.nodes[0])?;
    match certificates {
        Some(certificates) => redis::Client::build_with_tls(information, certificates),
        None => redis::Client::open(information),
    }
}

fn cluster(
    place: &RedisPlace,
    certificates: Option<TlsCertificates>,
) -> RedisResult<ClusterClient> {
    let nodes: Vec<_> =
        place.nodes.iter().map(|node| information(place, node)).collect::<RedisResult<_>>()?;
    let mut builder = ClusterClient::builder(nodes)
        .connection_timeout(CONNECT_TIMEOUT)
        .response_timeout(ANSWER_TIMEOUT)
        .overall_response_timeout(None)
        .retries(CLUSTER_RETRIES)
        .tcp_settings(TcpSettings::default().set_nodelay(true));
    if let Some(certificates) = certificates {
        builder = builder.certs(certificates);
    }
    builder.build()
}

impl Link {
    pub(super) async fn ask(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Single(link) => link.send_packed_command(command).await?.extract_error(),
            Self::Cluster(link) => link.req_packed_command(command).await?.extract_error(),
        }
    }

    /// Asks the master of a cluster's slot. One server is the master of all.
    pub(super) async fn ask_master(&mut self, command: &Cmd, slot: u16) -> RedisResult<Value> {
        match self {
            Self::Single(_) => self.ask(command).await,
            Self::Cluster(link) => {
                let route = SingleNodeRoutingInfo::SpecificNode(Route::new(slot, SlotAddr::Master));
                let route = RoutingInfo::SingleNode(route);
                link.route_command(command.clone(), route).await?.extract_error()
            }
        }
    }

    /// Asks all in one message. A cluster would want the keys of one slot: none is sent there.
    pub(super) async fn ask_all(&mut self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        let answers = match self {
            Self::Single(link) => link.send_packed_commands(commands, 0, commands.len()).await?,
            Self::Cluster(link) => link.req_packed_commands(commands, 0, commands.len()).await?,
        };
        answers.into_iter().map(Value::extract_error).collect()
    }
}
