//! The device's side: hands out a region, and lends the software path a thread.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::ffi::{Context, MappedMemory, WakeHandler, Worker};
use super::{HANDSHAKE_TIMEOUT, UcxError, interfaces, poll, revocable};
use crate::handshake::{Abi, Grant, Greeting, Guest, Lines, Next, Secret, SecretFile, refusal};
use crate::inproc::InProcTransport;
use crate::region::RegionLayout;
use crate::shm::ShmTransport;
use crate::transport::Transport;

/// Connections that were granted the region: twice its frontends, so that a returning frontend
/// finds room next to its old connection.
const MAX_GRANTED: usize = 32;
/// Connections that have not proved themselves, or not yet.
const MAX_HANDSHAKES: usize = 16;
/// Longest sleep of the listener's thread; every connection's end and message wakes it.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Rounds of work for the frontends between two checks of their sockets.
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

/// A region that a [`UcxListener`] hands out.
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
    fn kind(&self) -> MemoryKind;
    /// What peers must have been built with.
    fn abi(&self) -> Abi {
        Abi::RING
    }
    /// `instance_id` of the region's header: tells it apart from the next one at this address.
    ///
    /// # Errors
    /// What is wrong with the header.
    fn instance_id(&self) -> Result<u64, UcxError>;
    /// Wakes the sleepers on the word at `at`. A peer named `at`: anything but an aligned word of
    /// the region must be ignored.
    fn wake(&self, at: u64);
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
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }
    fn instance_id(&self) -> Result<u64, UcxError> {
        Ok(RegionLayout::read(self)?.instance_id())
    }
    fn wake(&self, at: u64) {
        // An invalid offset is refused there.
        let _ = self.wake_word(at);
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
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }
    fn instance_id(&self) -> Result<u64, UcxError> {
        Ok(RegionLayout::read(self)?.instance_id())
    }
    fn wake(&self, at: u64) {
        // As above.
        let _ = self.wake_word(at);
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

/// Hands a region out to frontends on other hosts until it is dropped.
///
/// One thread, which sleeps while nothing needs software: RDMA does not wake it. Over transports
/// that no NIC serves (TCP, shared memory) it does the peers' puts and gets.
#[derive(Debug)]
pub struct UcxListener {
    address: SocketAddr,
    refused: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl UcxListener {
    /// Registers the region and listens at `HOST:PORT` (port 0: a free one).
    ///
    /// # Errors
    /// [`UcxError`]: the header of the region, what UCX says of its memory, or the address.
    pub fn start(
        address: &str,
        region: impl ExportedRegion,
        options: ListenerOptions,
    ) -> Result<UcxListener, UcxError> {
        let io = |step| move |error: io::Error| UcxError::Io { step, why: error.to_string() };
        let addresses = check_address(address, options.secret.is_some())?;
        let socket = TcpListener::bind(&addresses[..]).map_err(io("listen"))?;
        socket.set_nonblocking(true).map_err(io("listen"))?;
        let address = socket.local_addr().map_err(io("listen"))?;
        let transports = if options.one_peer { revocable::transports() } else { None };
        let interfaces = interfaces::for_addresses(&addresses);
        let context = Context::new(transports.as_deref(), interfaces)?;
        // SAFETY: the service keeps the region next to its registration, which goes first.
        let memory =
            unsafe { MappedMemory::new(&context, region.base(), region.len(), region.kind())? };
        let stop = Arc::new(AtomicBool::new(false));
        let refused = Arc::new(AtomicU64::new(0));
        let mut service = Service {
            key: memory.key()?,
            instance_id: region.instance_id()?,
            abi: region.abi(),
            connections: Vec::new(),
            one_peer: options.one_peer,
            displaced: VecDeque::new(),
            socket,
            secret: options.secret,
            stop: Arc::clone(&stop),
            log: options.log.unwrap_or_else(|| Box::new(|_| ())),
            lines: Lines::new(Instant::now()),
            refused: Arc::clone(&refused),
            _memory: memory,
            context,
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
        Ok(UcxListener { address, refused, stop, thread: Some(thread) })
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
/// [`UcxError`]: an address that does not resolve, or that other hosts reach without a secret.
pub fn check_address(address: &str, has_secret: bool) -> Result<Vec<SocketAddr>, UcxError> {
    let io = |error: io::Error| UcxError::Io { step: "resolve", why: error.to_string() };
    let addresses: Vec<_> = address.to_socket_addrs().map_err(io)?.collect();
    match addresses.iter().find(|address| !interfaces::is_of_this_host(address)) {
        Some(open) if !has_secret => Err(UcxError::NeedsSecret(*open)),
        _ => Ok(addresses),
    }
}

impl Drop for UcxListener {
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

/// The state of the listener's thread. Fields are dropped in order: workers, registration, context,
/// memory.
struct Service {
    connections: Vec<Connection>,
    key: Vec<u8>,
    instance_id: u64,
    abi: Abi,
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
    _memory: MappedMemory,
    context: Arc<Context>,
    region: Box<dyn ErasedRegion>,
}

/// `ExportedRegion` without its safety contract, which the constructor has consumed.
trait ErasedRegion: Send {
    fn bounds(&self) -> (u64, u64);
    fn wake(&self, at: u64);
}

impl<R: ExportedRegion> ErasedRegion for R {
    fn bounds(&self) -> (u64, u64) {
        (self.base() as u64, self.len() as u64)
    }
    fn wake(&self, at: u64) {
        ExportedRegion::wake(self, at);
    }
}

/// One frontend's socket and, once granted, the worker that its lanes talk to. The worker is not
/// shared: destroying it with the connection also discards what the network still holds of that
/// life of the frontend, before the next life is granted anything.
struct Connection {
    socket: TcpStream,
    peer: SocketAddr,
    stage: Stage,
}

impl Connection {
    /// Who was granted it.
    fn client(&self) -> Option<u64> {
        match self.stage {
            Stage::Granted { client, .. } => Some(client),
            Stage::Greeting { .. } => None,
        }
    }

    fn is_of_other(&self, client: u64) -> bool {
        self.client().is_some_and(|other| other != client)
    }

    /// Whether what was granted the region is gone.
    fn has_ended(&self) -> bool {
        if matches!(self.stage, Stage::Greeting { .. }) {
            return false;
        }
        // A granted frontend sends nothing more: bytes are an end too.
        !matches!(self.socket.peek(&mut [0]), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }
}

enum Stage {
    /// It has no access, and time until then to prove that it may.
    Greeting {
        greeting: Box<Greeting>,
        deadline: Instant,
    },
    Granted {
        client: u64,
        worker: WakingWorker,
    },
}

/// A worker and the handler that it calls, which must outlive it.
struct WakingWorker {
    worker: Worker,
    _handler: Box<WakeHandler>,
    _region: Box<*const dyn ErasedRegion>,
}

// SAFETY: the pointer is to the service's own region; the worker and its handler are used on the
// service's thread only.
unsafe impl Send for WakingWorker {}

/// Called by UCX within `Worker::progress`, for a peer's message.
unsafe extern "C" fn wake(argument: *mut c_void, at: u64) {
    // SAFETY: `argument` is the `_region` of the worker that calls, whose pointee, the service's
    // region, is dropped after all connections.
    let region = unsafe { &**argument.cast::<*const dyn ErasedRegion>() };
    region.wake(at);
}

impl WakingWorker {
    fn new(context: &Arc<Context>, region: &dyn ErasedRegion) -> Result<WakingWorker, UcxError> {
        let region: *const dyn ErasedRegion = std::ptr::from_ref(region);
        // SAFETY: only the lifetime is forgotten; `Service` keeps the region in a box that it drops
        // after its connections.
        let region: *const (dyn ErasedRegion + 'static) = unsafe { std::mem::transmute(region) };
        let mut region = Box::new(region);
        let argument = std::ptr::from_mut(&mut *region).cast();
        let handler = Box::new(WakeHandler { wake, argument });
        let worker = Worker::new(context)?;
        // SAFETY: both boxes are fields declared after the worker.
        unsafe { worker.on_wake(&*handler)? };
        Ok(WakingWorker { worker, _handler: handler, _region: region })
    }
}

impl Service {
    fn run(&mut self) {
        let mut accept_at = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            self.progress();
            let armed = self.workers().all(|worker| worker.arm().unwrap_or(true));
            let timeout = if armed { self.next_deadline() } else { Duration::ZERO };
            let accepting = Instant::now() >= accept_at;
            let mut fds = self.descriptors(accepting);
            poll(&mut fds, timeout);
            // The workers' descriptors come last: they are for the next round of `progress`.
            let sockets = usize::from(accepting) + self.connections.len();
            let hurry = self.greetings() > 0;
            if hurry || fds[..sockets].iter().any(|fd| fd.revents != 0) {
                // Ends before handshakes: a returning frontend must not meet its old connection.
                self.read_sockets();
                if accepting && !self.accept_all() {
                    accept_at = Instant::now() + ACCEPT_PAUSE;
                }
            }
        }
    }

    /// Does what frontends have asked for, until nothing is left or it is time to check sockets.
    ///
    /// Nothing more is done for a peer that has ended: over TCP, a confirmation that UCX cannot
    /// send ends this process (`ucp_request_try_send`, at least up to UCX 1.19). A peer that ends
    /// within a call of UCX still meets that; its socket, older than UCX's, ends before them.
    fn progress(&self) {
        for _ in 0..PROGRESS_ROUNDS {
            let mut busy = false;
            for connection in &self.connections {
                if let Stage::Granted { worker, .. } = &connection.stage {
                    busy |= !connection.has_ended() && worker.worker.progress();
                }
            }
            if !busy {
                return;
            }
        }
    }

    fn workers(&self) -> impl Iterator<Item = &Worker> {
        self.connections.iter().filter_map(|connection| match &connection.stage {
            Stage::Granted { worker, .. } => Some(&worker.worker),
            Stage::Greeting { .. } => None,
        })
    }

    /// Connections without access.
    fn greetings(&self) -> usize {
        self.connections.iter().filter(|connection| connection.client().is_none()).count()
    }

    fn next_deadline(&self) -> Duration {
        let now = Instant::now();
        let deadlines = self.connections.iter().filter_map(|connection| match connection.stage {
            Stage::Greeting { deadline, .. } => Some(deadline.saturating_duration_since(now)),
            Stage::Granted { .. } => None,
        });
        deadlines.min().unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP)
    }

    fn descriptors(&self, accepting: bool) -> Vec<libc::pollfd> {
        let sockets = self.connections.iter().map(|connection| connection.socket.as_raw_fd());
        let events = self.workers().map(Worker::event_fd);
        let listening = accepting.then(|| self.socket.as_raw_fd());
        let readable = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        listening.into_iter().chain(sockets).chain(events).map(readable).collect()
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
        if self.stop.load(Ordering::Relaxed) || socket.set_nonblocking(true).is_err() {
            return;
        }
        if self.greetings() == MAX_HANDSHAKES {
            // A peer that does not read it sees the connection end.
            let _ = socket.write_all(&refusal("too many handshakes are under way"));
            let why = format!("refused: {MAX_HANDSHAKES} handshakes are under way");
            return self.turned_away(peer, &why);
        }
        let greeting = Box::new(Greeting::new(self.abi, self.secret(peer)));
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

    /// Checks every socket: drops ended connections, goes on with handshakes.
    fn read_sockets(&mut self) {
        let mut i = 0;
        while i < self.connections.len() {
            if self.connections[i].has_ended() {
                self.drop_connection(i, "ended");
            } else {
                i += 1;
            }
        }
        for i in (0..self.connections.len()).rev() {
            self.greet(i);
        }
    }

    fn drop_connection(&mut self, i: usize, why: &str) {
        let connection = self.connections.swap_remove(i);
        (self.log)(&format!("{}: {why}", connection.peer));
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
        let (peer, client) = (self.connections[i].peer, guest.client());
        if self.one_peer && !self.displace(client) {
            return self.refuse(i, "another process has joined since");
        }
        // `i` may be another connection's from here on.
        // An earlier connection of the same process goes first, with its operations in flight: none
        // of them may land after what the new one does.
        self.connections.retain(|connection| connection.client() != Some(client));
        let Some(i) = self.connections.iter().position(|connection| connection.peer == peer) else {
            return;
        };
        if self.connections.len() - self.greetings() == MAX_GRANTED {
            return self.refuse(i, "too many connections");
        }
        match self.answer(guest) {
            Ok((worker, answer)) => {
                let Connection { socket, stage, .. } = &mut self.connections[i];
                *stage = Stage::Granted { client, worker };
                match socket.write_all(&answer) {
                    Ok(()) => (self.log)(&format!("{peer}: connected")),
                    Err(error) => self.drop_connection(i, &error.to_string()),
                }
            }
            Err(error) => self.refuse(i, &error.to_string()),
        }
    }

    /// Ends the connections of all other clients: with their workers goes what they had begun, so
    /// that nothing of it lands after this. False: the client was displaced itself, by one that is
    /// here.
    fn displace(&mut self, client: u64) -> bool {
        let others: Vec<_> = self.connections.iter().filter_map(|c| c.client()).collect();
        if self.displaced.contains(&client) && others.iter().any(|other| *other != client) {
            return false;
        }
        self.displaced.retain(|displaced| *displaced != client);
        while let Some(i) = self.connections.iter().position(|c| c.is_of_other(client)) {
            self.displaced.extend(self.connections[i].client());
            self.drop_connection(i, "displaced by another process");
        }
        while self.displaced.len() > MAX_DISPLACED {
            self.displaced.pop_front();
        }
        true
    }

    fn answer(&self, guest: &Guest) -> Result<(WakingWorker, Vec<u8>), UcxError> {
        let worker = WakingWorker::new(&self.context, &*self.region)?;
        let (base, region_bytes) = self.region.bounds();
        let grant = Grant {
            region_bytes,
            base,
            instance_id: self.instance_id,
            stores_in_order: cfg!(target_arch = "x86_64"),
            address: worker.worker.address()?,
            key: self.key.clone(),
        };
        let answer = guest.grant(&grant)?;
        Ok((worker, answer))
    }
}
