//! The device's side: hands out a region, and lends its peers a thread.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::stream::{Session, SessionEnd, Turn};
use super::ucx::{Exporter, PeerWorker};
use super::{HANDSHAKE_TIMEOUT, RemoteError, poll, set_up, waiting_for};
use crate::handshake::{
    Abi, Access, Grant, Greeting, Guest, Lines, Next, Secret, SecretFile, Visitor, refusal,
};
use crate::inproc::InProcTransport;
use crate::region::{RegionError, RegionLayout};
use crate::shm::ShmTransport;
use crate::transport::Transport;

/// Processes that were granted the region: twice its frontends, so that a returning frontend finds
/// room next to its old connection.
const MAX_CLIENTS: usize = 32;
/// Connections of all of them, each with a [`Session`].
const MAX_GRANTED: usize = 128;
/// Connections that have not proved themselves, or not yet.
const MAX_HANDSHAKES: usize = 16;
/// Longest sleep of the listener's thread; every connection's end and message wakes it.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Rounds of UCX's work for peers between two checks of sockets.
const PROGRESS_ROUNDS: usize = 256;
/// Peers that are remembered as displaced; an older one would displace again.
const MAX_DISPLACED: usize = 64;
/// A failing `accept` (no descriptors left) is retried after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Where exported memory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// Memory of the host.
    Host,
    /// Memory of a CUDA device, registered for GPUDirect RDMA. Not yet run on a GPU.
    Cuda,
}

/// A region that a [`RemoteListener`] hands out.
///
/// # Safety
/// `len` bytes at `base` stay mapped, at that address and of that kind, until the value is dropped;
/// they are accessed by atomics only, because peers change them at any time.
pub unsafe trait ExportedRegion: Send + 'static {
    /// First byte.
    fn base(&self) -> *mut u8;
    /// Bytes.
    fn len(&self) -> usize;
    /// Whether nothing is exported.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Where the memory lies.
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }
    /// What peers must have been built with.
    fn abi(&self) -> Abi {
        Abi::RING
    }
    /// `instance_id` of the region's header: tells it apart from the next one at this address.
    ///
    /// # Errors
    /// What is wrong with the header.
    fn instance_id(&self) -> Result<u64, RegionError>;
    /// This process's way to the bytes, for peers that come by TCP. None: it has none.
    fn transport(&self) -> Option<&dyn Transport>;
    /// Wakes the sleepers on the word at `at`. A peer named `at`: anything but an aligned word of
    /// the region must be ignored.
    fn wake(&self, at: u64) {
        // An invalid offset is refused there.
        let _ = self.transport().map(|transport| transport.wake_word(at));
    }
}

// SAFETY: a `ShmTransport` keeps its bytes mapped at `base_ptr` while it lives, and gives only
// atomic access to them.
unsafe impl ExportedRegion for ShmTransport {
    fn base(&self) -> *mut u8 {
        self.base_ptr()
    }
    fn len(&self) -> usize {
        self.region_bytes() as usize
    }
    fn instance_id(&self) -> Result<u64, RegionError> {
        Ok(RegionLayout::read(self)?.instance_id())
    }
    fn transport(&self) -> Option<&dyn Transport> {
        Some(self)
    }
}

// SAFETY: as for `ShmTransport`.
unsafe impl ExportedRegion for InProcTransport {
    fn base(&self) -> *mut u8 {
        self.base_ptr()
    }
    fn len(&self) -> usize {
        self.region_bytes() as usize
    }
    fn instance_id(&self) -> Result<u64, RegionError> {
        Ok(RegionLayout::read(self)?.instance_id())
    }
    fn transport(&self) -> Option<&dyn Transport> {
        Some(self)
    }
}

/// Receives lines for a log.
pub type Log = Box<dyn Fn(&str) + Send>;

/// Options of a listener.
#[derive(Default)]
pub struct ListenerOptions {
    /// Called first on the listener's thread, to place it on cores.
    pub on_thread: Option<Box<dyn FnOnce() + Send>>,
    /// Receives a line for each connection that comes or goes, and for each that is refused, unless
    /// there are many.
    pub log: Option<Log>,
    /// Peers must prove that they know it, and are given nothing before. Without one, every peer is
    /// let in, and an address that other hosts reach is refused.
    pub secret: Option<Arc<SecretFile>>,
    /// One process at a time, the last one that came. What it displaces has no access any more
    /// before it has any: not to what it had begun, whether it has ended, hangs, or is cut off. One
    /// that was displaced is refused until there is no other.
    pub one_peer: bool,
}

/// Hands a region out to planes on other hosts until it is dropped.
///
/// One thread, which sleeps while no peer needs it: RDMA does not wake it. For peers that come by
/// TCP, and where UCX goes through shared memory, it does the puts and gets.
#[derive(Debug)]
pub struct RemoteListener {
    address: SocketAddr,
    refused: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RemoteListener {
    /// Listens at `HOST:PORT` (port 0: a free one), and registers the region with UCX where this
    /// build has it. If UCX cannot reach the region, peers that ask for it are told why.
    ///
    /// # Errors
    /// [`RemoteError`]: the header of the region, the address, or what UCX says of memory that
    /// only UCX can reach.
    pub fn start(
        address: &str,
        region: impl ExportedRegion,
        options: ListenerOptions,
    ) -> Result<RemoteListener, RemoteError> {
        let io = |step| move |error: io::Error| RemoteError::Io { step, why: error.to_string() };
        let addresses = check_address(address, options.secret.is_some())?;
        let instance_id = region.instance_id()?;
        let socket = TcpListener::bind(&addresses[..]).map_err(io("listen"))?;
        socket.set_nonblocking(true).map_err(io("listen"))?;
        let address = socket.local_addr().map_err(io("listen"))?;
        let exporter = match Exporter::new(&region, options.one_peer, &addresses) {
            Err(error) if region.transport().is_none() => return Err(error),
            exporter => exporter.map_err(|error| error.to_string()),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let refused = Arc::new(AtomicU64::new(0));
        let mut service = Service {
            connections: Vec::new(),
            exporter,
            instance_id,
            one_peer: options.one_peer,
            displaced: VecDeque::new(),
            socket,
            secret: options.secret,
            stop: Arc::clone(&stop),
            log: options.log.unwrap_or_else(|| Box::new(|_| ())),
            lines: Lines::new(Instant::now()),
            refused: Arc::clone(&refused),
            region: Box::new(region),
        };
        let on_thread = options.on_thread;
        let thread = std::thread::Builder::new()
            .name("ring-listener".into())
            .spawn(move || {
                on_thread.into_iter().for_each(|place| place());
                service.run();
            })
            .map_err(io("start a thread"))?;
        Ok(RemoteListener { address, refused, stop, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Peers that came and were not granted the region.
    #[must_use]
    pub fn refused(&self) -> u64 {
        // SYNC: relaxed; a count without data.
        self.refused.load(Ordering::Relaxed)
    }
}

/// Where a listener at `HOST:PORT` would listen.
///
/// # Errors
/// [`RemoteError`]: an address that does not resolve, or that other hosts reach without a secret.
pub fn check_address(address: &str, has_secret: bool) -> Result<Vec<SocketAddr>, RemoteError> {
    let io = |error: io::Error| RemoteError::Io { step: "resolve", why: error.to_string() };
    let addresses: Vec<_> = address.to_socket_addrs().map_err(io)?.collect();
    match addresses.iter().find(|address| !is_of_this_host(address)) {
        Some(open) if !has_secret => Err(RemoteError::NeedsSecret(*open)),
        _ => Ok(addresses),
    }
}

/// Whether no other host reaches it.
pub(super) fn is_of_this_host(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

impl Drop for RemoteListener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The thread checks `stop` whenever it wakes, and a connection wakes it. If none can be
        // made, it wakes within `LONGEST_SLEEP` anyway.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_millis(100));
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed, and took the region's peers with it.
            let _ = thread.join();
        }
    }
}

/// The state of the listener's thread. Fields are dropped in order: workers of UCX, registration,
/// memory.
struct Service {
    connections: Vec<Connection>,
    /// What UCX reaches the region by, or why it does not.
    exporter: Result<Exporter, String>,
    instance_id: u64,
    one_peer: bool,
    /// With `one_peer`: clients in whose place another one came.
    displaced: VecDeque<u64>,
    socket: TcpListener,
    secret: Option<Arc<SecretFile>>,
    stop: Arc<AtomicBool>,
    log: Log,
    /// Bounds the lines about peers that are refused.
    lines: Lines,
    /// Counts them all.
    refused: Arc<AtomicU64>,
    region: Box<dyn ExportedRegion>,
}

/// A peer's socket, and what it is there for.
struct Connection {
    socket: TcpStream,
    peer: SocketAddr,
    stage: Stage,
}

enum Stage {
    /// It has no access, and time until then to prove that it may.
    Greeting {
        greeting: Box<Greeting>,
        deadline: Instant,
    },
    Granted {
        visitor: Visitor,
        served: Served,
    },
}

/// How a peer that was granted the region is served.
enum Served {
    /// By what it sends on this socket.
    Stream(Session),
    /// By UCX: this socket only tells when it ends.
    Ucx(PeerWorker),
}

impl Connection {
    /// Who was granted it.
    fn visitor(&self) -> Option<Visitor> {
        match self.stage {
            Stage::Granted { visitor, .. } => Some(visitor),
            Stage::Greeting { .. } => None,
        }
    }

    fn is_of(&self, client: u64) -> bool {
        self.visitor().is_some_and(|visitor| visitor.client == client)
    }

    /// The connection that a client came by first, if this is one.
    fn first_of(&self) -> Option<u64> {
        self.visitor().filter(|v| is_first(v.access)).map(|visitor| visitor.client)
    }

    fn is_stream(&self) -> bool {
        matches!(self.stage, Stage::Granted { served: Served::Stream(_), .. })
    }

    fn worker(&self) -> Option<&PeerWorker> {
        match &self.stage {
            Stage::Granted { served: Served::Ucx(worker), .. } => Some(worker),
            _ => None,
        }
    }

    /// Whether a peer that UCX serves is gone: it sends nothing more, so bytes are an end too.
    fn has_ended(&self) -> bool {
        !matches!(self.socket.peek(&mut [0]), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }

    /// What its socket is waited for. Without that, a peer that reads no answer is waited for at
    /// its end only.
    fn events(&self) -> libc::c_short {
        match &self.stage {
            Stage::Granted { served: Served::Stream(session), .. } if session.is_unsent() => {
                libc::POLLOUT
            }
            _ => libc::POLLIN,
        }
    }
}

fn is_first(access: Access) -> bool {
    matches!(access, Access::Ucx | Access::Stream { lane: 0 })
}

/// Why a visitor is not granted the region.
#[derive(Debug, thiserror::Error)]
enum NotGranted {
    #[error("this ring is in a GPU's memory, which only RDMA reaches: join it by ucx://")]
    OnlyByUcx,
    #[error("no UCX here: {0}; join by tcp://")]
    NotByUcx(String),
    #[error(transparent)]
    Remote(#[from] RemoteError),
}

impl Service {
    fn run(&mut self) {
        let mut accept_at = Instant::now();
        let (mut fds, mut cut) = (Vec::new(), false);
        while !self.stop.load(Ordering::Relaxed) {
            self.progress();
            let armed = self.workers().all(PeerWorker::arm);
            let timeout = if armed && !cut { self.next_deadline() } else { Duration::ZERO };
            let accepting = Instant::now() >= accept_at;
            fds.clear();
            // Workers' descriptors come last: they are for the next round of `progress`.
            fds.extend(
                self.connections.iter().map(|c| waiting_for(c.socket.as_raw_fd(), c.events())),
            );
            fds.extend(accepting.then(|| waiting_for(self.socket.as_raw_fd(), libc::POLLIN)));
            fds.extend(self.workers().map(|w| waiting_for(w.event_fd(), libc::POLLIN)));
            poll(&mut fds, timeout);
            let has_come = accepting && fds[self.connections.len()].revents != 0;
            let ready = |i: usize| fds[i].revents != 0;
            let mut others = self.connections.iter().enumerate().filter(|(_, c)| !c.is_stream());
            let hurry = self.greetings() > 0 || others.any(|(i, _)| ready(i));
            cut = self.serve_streams(ready);
            if hurry || has_come {
                // Ends before handshakes: a returning frontend must not meet its old connection.
                self.read_sockets();
                if accepting && !self.accept_all() {
                    accept_at = Instant::now() + ACCEPT_PAUSE;
                }
            }
        }
    }

    /// Does what UCX's peers have asked for, until nothing is left or it is time to check sockets.
    /// Nothing more is done for one that has ended: UCX ends this process if it finds that out
    /// while it confirms a put.
    fn progress(&self) {
        for _ in 0..PROGRESS_ROUNDS {
            let mut busy = false;
            for connection in &self.connections {
                if let Some(worker) = connection.worker() {
                    busy |= !connection.has_ended() && worker.progress();
                }
            }
            if !busy {
                return;
            }
        }
    }

    /// Does what has come over sockets that are ready. True if one of them may have more.
    fn serve_streams(&mut self, ready: impl Fn(usize) -> bool) -> bool {
        let Some(transport) = self.region.transport() else { return false };
        let (mut cut, mut ended) = (false, Vec::new());
        for (i, connection) in self.connections.iter_mut().enumerate() {
            let Stage::Granted { visitor, served: Served::Stream(session) } = &mut connection.stage
            else {
                continue;
            };
            if !ready(i) {
                continue;
            }
            match session.serve(&connection.socket, transport) {
                Ok(turn) => cut |= turn == Turn::Cut,
                Err(why) => ended.push((visitor.client, why)),
            }
        }
        for (client, why) in ended {
            self.drop_client(client, &why);
        }
        cut
    }

    fn workers(&self) -> impl Iterator<Item = &PeerWorker> {
        self.connections.iter().filter_map(Connection::worker)
    }

    /// Connections without access.
    fn greetings(&self) -> usize {
        self.connections.iter().filter(|connection| connection.visitor().is_none()).count()
    }

    fn next_deadline(&self) -> Duration {
        let now = Instant::now();
        let deadlines = self.connections.iter().filter_map(|connection| match connection.stage {
            Stage::Greeting { deadline, .. } => Some(deadline.saturating_duration_since(now)),
            Stage::Granted { .. } => None,
        });
        deadlines.min().unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP)
    }

    /// False when the system refuses connections for now.
    fn accept_all(&mut self) -> bool {
        loop {
            match self.socket.accept() {
                Ok((socket, peer)) => self.admit(socket, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    (self.log)(&format!("cannot accept: {error}"));
                    return false;
                }
            }
        }
    }

    fn admit(&mut self, mut socket: TcpStream, peer: SocketAddr) {
        let ready = socket.set_nonblocking(true).and_then(|()| set_up(&socket));
        if self.stop.load(Ordering::Relaxed) || ready.is_err() {
            return;
        }
        if self.greetings() == MAX_HANDSHAKES {
            // A peer that does not read it sees the connection end.
            let _ = socket.write_all(&refusal("too many handshakes are under way"));
            let why = format!("refused: {MAX_HANDSHAKES} handshakes are under way");
            return self.turned_away(peer, &why);
        }
        let greeting = Box::new(Greeting::new(self.region.abi(), self.secret(peer)));
        let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
        let stage = Stage::Greeting { greeting, deadline };
        self.connections.push(Connection { socket, peer, stage });
        let last = self.connections.len() - 1;
        self.greet(last);
    }

    /// What this peer must know, if there is a secret.
    fn secret(&mut self, peer: SocketAddr) -> Option<Arc<Secret>> {
        let (secret, trouble) = self.secret.as_ref()?.current();
        if let Some(trouble) = trouble {
            self.line(peer, &format!("the secret stays as it was: {trouble}"));
        }
        Some(secret)
    }

    /// Counts a peer that is not granted the region, and says why, unless there are many.
    fn turned_away(&mut self, peer: SocketAddr, why: &str) {
        // SYNC: relaxed; a count without data.
        let before = self.refused.fetch_add(1, Ordering::Relaxed);
        self.line(peer, &format!("{why}; {} turned away so far", before + 1));
    }

    /// A line that a stranger has caused.
    fn line(&mut self, peer: SocketAddr, what: &str) {
        match self.lines.admit(Instant::now()) {
            None => {}
            Some(0) => (self.log)(&format!("{peer}: {what}")),
            Some(left_out) => {
                (self.log)(&format!("{peer}: {what} ({left_out} lines left out)"));
            }
        }
    }

    /// Checks the sockets that carry no data: drops ended connections, goes on with handshakes.
    fn read_sockets(&mut self) {
        let has_ended = |c: &&Connection| c.worker().is_some() && c.has_ended();
        while let Some(ended) = self.connections.iter().find(has_ended) {
            let client = ended.visitor().map(|visitor| visitor.client);
            client.into_iter().for_each(|client| self.drop_client(client, &SessionEnd::Ended));
        }
        for i in (0..self.connections.len()).rev() {
            self.greet(i);
        }
    }

    /// Ends all connections of a client; what it has sent and is not done yet goes with them.
    fn drop_client(&mut self, client: u64, why: &dyn fmt::Display) {
        let first = self.connections.iter().find(|c| c.first_of() == Some(client));
        if let Some(Connection { peer, .. }) = first {
            (self.log)(&format!("{peer}: {why}"));
        }
        self.connections.retain(|connection| !connection.is_of(client));
    }

    /// Goes on with a handshake by what has arrived, as far as that reaches.
    fn greet(&mut self, i: usize) {
        // A peer's messages are two: one that sends more is refused before the third round.
        while self.greet_by_a_message(i) {}
    }

    /// True if a message was whole, and the next one may be there already.
    fn greet_by_a_message(&mut self, i: usize) -> bool {
        // A grant to another connection may have ended this one, or some before it.
        let Some(Connection { socket, stage: Stage::Greeting { greeting, deadline }, .. }) =
            self.connections.get_mut(i)
        else {
            return false;
        };
        let late = Instant::now() >= *deadline;
        let expected = greeting.expects();
        let next = match socket.read(greeting.room()) {
            Ok(0) => return self.give_up(i, &format!("ended before its {expected}")),
            Ok(more) => greeting.received(more),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Next::Wait),
            Err(error) => return self.give_up(i, &error.to_string()),
        };
        match next {
            Ok(Next::Wait) if late => {
                self.refuse(i, &format!("no whole {expected} within {HANDSHAKE_TIMEOUT:?}"));
            }
            Ok(Next::Wait) => {}
            Ok(Next::Send(challenge)) => match socket.write_all(&challenge) {
                Ok(()) => return true,
                Err(error) => return self.give_up(i, &error.to_string()),
            },
            Ok(Next::Grant(guest)) => self.grant(i, &guest),
            Err(error) => self.refuse(i, &error.to_string()),
        }
        false
    }

    /// Drops a connection in its handshake; false, for there is no more of it.
    fn give_up(&mut self, i: usize, why: &str) -> bool {
        let connection = self.connections.swap_remove(i);
        self.turned_away(connection.peer, why);
        false
    }

    fn refuse(&mut self, i: usize, why: &str) {
        // A peer that does not read it sees the connection end.
        let _ = self.connections[i].socket.write_all(&refusal(why));
        self.give_up(i, &format!("refused: {why}"));
    }

    fn grant(&mut self, i: usize, guest: &Guest) {
        let Visitor { client, access } = guest.visitor();
        let peer = self.connections[i].peer;
        if !is_first(access) {
            return match self.why_no_lane(client, access) {
                Some(why) => self.refuse(i, why),
                None => self.let_in(i, guest),
            };
        }
        if self.one_peer && !self.displace(client) {
            return self.refuse(i, "another process has joined since");
        }
        // An earlier connection of the same process goes first, with its operations in flight: none
        // of them may land after what the new one does.
        self.connections.retain(|connection| !connection.is_of(client));
        // `i` may be another connection's by now.
        let Some(i) = self.connections.iter().position(|connection| connection.peer == peer) else {
            return;
        };
        let clients = self.connections.iter().filter(|c| c.first_of().is_some()).count();
        if clients == MAX_CLIENTS {
            return self.refuse(i, "too many connections");
        }
        self.let_in(i, guest);
    }

    /// Why a client gets no further connection, if so.
    fn why_no_lane(&self, client: u64, access: Access) -> Option<&'static str> {
        let first = Visitor { client, access: Access::Stream { lane: 0 } };
        let has = |visitor| self.connections.iter().any(|c| c.visitor() == Some(visitor));
        if !has(first) {
            return Some("the process of this lane has not joined, or not since another has");
        }
        has(Visitor { client, access }).then_some("this lane is there already")
    }

    fn let_in(&mut self, i: usize, guest: &Guest) {
        if self.connections.len() - self.greetings() >= MAX_GRANTED {
            return self.refuse(i, "too many connections");
        }
        match self.answer(guest) {
            Ok((served, answer)) => {
                let Connection { socket, peer, stage } = &mut self.connections[i];
                let (visitor, peer) = (guest.visitor(), *peer);
                *stage = Stage::Granted { visitor, served };
                match socket.write_all(&answer) {
                    Ok(()) if !is_first(visitor.access) => {}
                    Ok(()) => (self.log)(&format!("{peer}: connected")),
                    Err(error) => self.drop_client(visitor.client, &error),
                }
            }
            Err(error) => self.refuse(i, &error.to_string()),
        }
    }

    /// Ends the connections of all other clients: with their workers and sessions goes what they
    /// had begun, so that nothing of it lands after this. False: the client was displaced itself,
    /// by one that is here.
    fn displace(&mut self, client: u64) -> bool {
        let others: Vec<_> = self.connections.iter().filter_map(Connection::first_of).collect();
        if self.displaced.contains(&client) && others.iter().any(|other| *other != client) {
            return false;
        }
        self.displaced.retain(|displaced| *displaced != client);
        for other in others.into_iter().filter(|other| *other != client) {
            self.displaced.push_back(other);
            self.drop_client(other, &"displaced by another process");
        }
        while self.displaced.len() > MAX_DISPLACED {
            self.displaced.pop_front();
        }
        true
    }

    fn answer(&self, guest: &Guest) -> Result<(Served, Vec<u8>), NotGranted> {
        let (served, ucx) = match guest.visitor().access {
            Access::Stream { .. } => {
                self.region.transport().ok_or(NotGranted::OnlyByUcx)?;
                (Served::Stream(Session::default()), None)
            }
            Access::Ucx => {
                let exporter = self.exporter.as_ref();
                let exporter = exporter.map_err(|why| NotGranted::NotByUcx(why.clone()))?;
                let (worker, ucx) = exporter.admit(&*self.region)?;
                (Served::Ucx(worker), Some(ucx))
            }
        };
        let region_bytes = self.region.len() as u64;
        let grant = Grant { region_bytes, instance_id: self.instance_id, ucx };
        let answer = guest.grant(&grant).map_err(RemoteError::from)?;
        Ok((served, answer))
    }
}
