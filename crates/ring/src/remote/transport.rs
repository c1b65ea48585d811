//! The frontend's side: a [`Transport`] over lanes, and the thread that reconnects.

use std::cell::Cell;
use std::fmt;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::lane::Lane;
use super::stream::StreamLane;
use super::ucx::Dialer;
use super::{HANDSHAKE_TIMEOUT, Peer, RemoteError, Way, set_up};
use crate::handshake::{self, Abi, Access, Grant, MAX_LANES, Visitor};
use crate::region::random_u64;
use crate::sync::lock;
use crate::transport::{Halves, Transport, TransportError};

/// Lanes of a ring's transport. Each thread stays on one, because order holds only within a lane;
/// with several, a token reader does not wait for submissions of other threads.
const LANES: u32 = 4;
/// Pause between two attempts to reach a listener that is gone.
const REDIAL_INTERVAL: Duration = Duration::from_millis(250);
/// The same, after a handshake that failed: a person has to act.
const REDIAL_AFTER_A_REFUSAL: Duration = Duration::from_secs(2);

/// What happens to a connection after it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteEvent {
    /// The listener is gone: accesses fail until it is back.
    Lost(String),
    /// Something is there again, and refuses, or does not prove itself: the attempts go on, and
    /// what is said is told once.
    Refused(String),
    /// It is back, with the same region.
    Back,
    /// Another region is served at the address: this transport stays down, and frontends that
    /// joined through it must join again.
    Replaced,
}

type Notice = Box<dyn Fn(RemoteEvent) + Send + Sync>;

/// A region of another process, on this host or another.
///
/// While the connection is lost, every access fails with [`TransportError::Down`]; it is made again
/// in the background as long as the same region can be reached at the address, but for one of
/// [`RemoteTransport::connect_once`].
pub struct RemoteTransport {
    shared: Arc<Shared>,
    redial: Option<JoinHandle<()>>,
}

impl fmt::Debug for RemoteTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteTransport").field("address", &self.shared.peer.address).finish()
    }
}

/// A connection: lanes to one life of a listener.
struct Link {
    lanes: Vec<Mutex<Box<dyn Lane>>>,
    /// Open while the peer's process lives: one, or that of each lane.
    sockets: Vec<Arc<TcpStream>>,
}

#[derive(Debug, Clone)]
enum State {
    Up,
    Down(String),
    Stopping,
}

/// Who connects to what.
#[derive(Debug, Clone, Copy)]
struct Visit {
    abi: Abi,
    /// Tells the listener that a new connection replaces an older one.
    client: u64,
    lanes: u32,
}

struct Shared {
    peer: Peer,
    /// What the way needs between connections.
    dialer: Option<Dialer>,
    visit: Visit,
    region_bytes: u64,
    instance_id: u64,
    link: RwLock<Option<Arc<Link>>>,
    state: Mutex<State>,
    state_changed: Condvar,
    /// Counts what this process did that the device may answer, for threads in `wait_word`.
    activity: Mutex<u64>,
    active: Condvar,
    notice: Notice,
}

impl RemoteTransport {
    /// Connects to a listener. `notice` learns what becomes of the connection, on a
    /// thread of the transport or of its user; it must not block.
    ///
    /// # Errors
    /// [`RemoteError`]: an address that does not resolve, a listener that does not answer in time
    /// or refuses, an answer that breaks a bound, or what UCX says, if it is to carry the data.
    pub fn connect(
        peer: &Peer,
        notice: impl Fn(RemoteEvent) + Send + Sync + 'static,
    ) -> Result<RemoteTransport, RemoteError> {
        let visit = Visit { abi: Abi::RING, client: random_u64(), lanes: LANES };
        let shared = Shared::dial(peer, visit, Box::new(notice))?;
        let watched = Arc::clone(&shared);
        let redial = std::thread::Builder::new()
            .name("ring-redial".into())
            .spawn(move || watched.keep_connected())
            .map_err(|error| RemoteError::Io { step: "start a thread", why: error.to_string() })?;
        Ok(RemoteTransport { shared, redial: Some(redial) })
    }

    /// Connects for one life: once the connection is lost, every access fails for good. So what
    /// follows an access that succeeded may rely on all that the same thread, or one that it
    /// waited for, has put and fenced before.
    ///
    /// `client` names this process to listeners that grant one process at a time. Threads share
    /// `lanes` lanes, 1 ..= [`MAX_LANES`]: none of them waits for another as long as there are no
    /// more.
    ///
    /// # Errors
    /// As of [`Self::connect`].
    pub fn connect_once(
        peer: &Peer,
        abi: Abi,
        client: u64,
        lanes: u32,
    ) -> Result<RemoteTransport, RemoteError> {
        let visit = Visit { abi, client, lanes: lanes.clamp(1, MAX_LANES) };
        let shared = Shared::dial(peer, visit, Box::new(|_| ()))?;
        Ok(RemoteTransport { shared, redial: None })
    }

    /// Names of what carries the data, comma-separated: `tcp`, or what UCX chose. Empty before UCX
    /// 1.14, or while the connection is lost.
    #[must_use]
    pub fn transports(&self) -> String {
        let link = self.shared.link();
        link.map_or_else(|_| String::new(), |link| lock(&link.lanes[0]).transports())
    }
}

impl Drop for RemoteTransport {
    fn drop(&mut self) {
        *lock(&self.shared.state) = State::Stopping;
        self.shared.state_changed.notify_all();
        if let Some(thread) = self.redial.take() {
            // A panic there has been printed, and there is nothing left to connect.
            let _ = thread.join();
        }
    }
}

impl Link {
    fn dial(
        peer: &Peer,
        dialer: Option<&Dialer>,
        visit: &Visit,
    ) -> Result<(Link, Grant), RemoteError> {
        match dialer {
            None => Link::dial_tcp(peer, visit),
            Some(dialer) => {
                let (socket, grant) = shake_hands(peer, &peer.address, visit, Access::Ucx)?;
                let socket = Arc::new(socket);
                let lane = || dialer.lane(&grant, Arc::clone(&socket)).map(Mutex::new);
                let lanes = (0..visit.lanes).map(|_| lane()).collect::<Result<_, _>>()?;
                Ok((Link { lanes, sockets: vec![socket] }, grant))
            }
        }
    }

    /// A connection for each lane.
    fn dial_tcp(peer: &Peer, visit: &Visit) -> Result<(Link, Grant), RemoteError> {
        let io = |error: std::io::Error| RemoteError::Io {
            step: "set up the connection",
            why: error.to_string(),
        };
        let mut link = Link { lanes: Vec::new(), sockets: Vec::new() };
        let (mut first, mut address) = (None, peer.address.clone());
        for lane in 0..visit.lanes {
            let (socket, grant) = shake_hands(peer, &address, visit, Access::Stream { lane })?;
            // A name may lead to several hosts: all lanes go where the first one went.
            address = socket.peer_addr().map_err(io)?.to_string();
            if *first.get_or_insert_with(|| grant.clone()) != grant {
                return Err(RemoteError::Lost("another region is handed out now".into()));
            }
            socket.set_nonblocking(true).map_err(io)?;
            let socket = Arc::new(socket);
            link.sockets.push(Arc::clone(&socket));
            link.lanes.push(Mutex::new(Box::new(StreamLane::new(socket))));
        }
        let grant = first.ok_or_else(|| RemoteError::Lost("no lane was asked for".into()))?;
        Ok((link, grant))
    }

    /// Both sides see the end, and so do threads of this one that wait for the other.
    fn end(&self) {
        for socket in &self.sockets {
            // An error means that it has ended already.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.end();
    }
}

fn shake_hands(
    peer: &Peer,
    address: &str,
    visit: &Visit,
    access: Access,
) -> Result<(TcpStream, Grant), RemoteError> {
    let (secret, trouble) = peer.secret.as_ref().map(|file| file.current()).unzip();
    let (socket, deadline) = reach(address)?;
    let mut stream = Until { socket: &socket, deadline };
    let visitor = Visitor { client: visit.client, access };
    match handshake::join(&mut stream, visitor, &visit.abi, secret.as_deref()) {
        Ok(grant) => Ok((socket, grant)),
        // A file that cannot be read any more explains why.
        Err(error) => Err(trouble.flatten().map_or_else(|| error.into(), RemoteError::Secret)),
    }
}

/// A connection to the first of the address's that answers, and until when the handshake may take.
fn reach(address: &str) -> Result<(TcpStream, Instant), RemoteError> {
    let io = |step| move |error: std::io::Error| RemoteError::Io { step, why: error.to_string() };
    let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
    let mut last = RemoteError::Io { step: "resolve", why: format!("{address} has no address") };
    for resolved in address.to_socket_addrs().map_err(io("resolve"))? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(&resolved, left) {
            Ok(socket) => {
                set_up(&socket).map_err(io("set up the connection"))?;
                socket.set_write_timeout(Some(left)).map_err(io("set up the connection"))?;
                return Ok((socket, deadline));
            }
            Err(error) => last = io("connect")(error),
        }
    }
    Err(last)
}

/// Reads until one overall deadline, however slowly the bytes come.
struct Until<'a> {
    socket: &'a TcpStream,
    deadline: Instant,
}

impl std::io::Read for Until<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        let mut socket = self.socket;
        socket.read(out)
    }
}

impl std::io::Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // The socket's own time-out is what was left at first: at most as long again.
        let mut socket = self.socket;
        socket.write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// This thread's lane, below `lanes`: assigned round-robin, in order of threads' first use.
fn lane_of_thread(lanes: usize) -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static LANE: Cell<Option<usize>> = const { Cell::new(None) };
    }
    LANE.with(|lane| {
        let index = lane.get().unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
        lane.set(Some(index));
        index % lanes
    })
}

impl Shared {
    fn dial(peer: &Peer, visit: Visit, notice: Notice) -> Result<Arc<Shared>, RemoteError> {
        // An address that does not resolve is reported by the attempt to connect.
        let addresses = || peer.address.to_socket_addrs().into_iter().flatten().collect::<Vec<_>>();
        let dialer = match peer.way {
            Way::Tcp => None,
            Way::Ucx => Some(Dialer::new(&addresses())?),
        };
        let (link, grant) = Link::dial(peer, dialer.as_ref(), &visit)?;
        Ok(Arc::new(Shared {
            peer: peer.clone(),
            dialer,
            visit,
            region_bytes: grant.region_bytes,
            instance_id: grant.instance_id,
            link: RwLock::new(Some(Arc::new(link))),
            state: Mutex::new(State::Up),
            state_changed: Condvar::new(),
            activity: Mutex::new(0),
            active: Condvar::new(),
            notice,
        }))
    }

    fn link(&self) -> Result<Arc<Link>, TransportError> {
        let link = self.link.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        link.clone().ok_or_else(|| match &*lock(&self.state) {
            State::Down(why) => TransportError::Down(why.clone()),
            State::Up | State::Stopping => TransportError::Down("stopping".into()),
        })
    }

    /// Runs an operation on this thread's lane.
    fn run<V>(
        &self,
        operation: impl FnOnce(&mut dyn Lane) -> Result<V, String>,
    ) -> Result<V, TransportError> {
        let link = self.link()?;
        let mut lane = lock(&link.lanes[lane_of_thread(link.lanes.len())]);
        // A thread that waited for the lane while another lost it must not use it.
        if !self.is_current(&link) {
            return self.link().and(Err(TransportError::Down("reconnected".into())));
        }
        operation(&mut **lane).map_err(|why| {
            drop(lane);
            self.lose(&link, &why);
            TransportError::Down(why)
        })
    }

    fn is_current(&self, link: &Arc<Link>) -> bool {
        let current = self.link.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        current.as_ref().is_some_and(|current| Arc::ptr_eq(current, link))
    }

    /// Takes a link out of use, once.
    fn lose(&self, link: &Arc<Link>, why: &str) {
        let mut current = self.link.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !current.as_ref().is_some_and(|current| Arc::ptr_eq(current, link)) {
            return;
        }
        // Operations of other threads, asleep in `poll`, see it.
        link.end();
        *current = None;
        {
            let mut state = lock(&self.state);
            if !matches!(*state, State::Stopping) {
                *state = State::Down(why.into());
            }
        }
        drop(current);
        self.state_changed.notify_all();
        (self.notice)(RemoteEvent::Lost(why.into()));
    }

    /// The redial thread: connects again whenever the link is lost, until it is told to stop or
    /// finds another region.
    fn keep_connected(&self) {
        let mut told = None;
        let mut pause = REDIAL_INTERVAL;
        while self.wait_while_up(pause) {
            pause = REDIAL_INTERVAL;
            match Link::dial(&self.peer, self.dialer.as_ref(), &self.visit) {
                Ok((link, grant)) => {
                    if !self.use_again(link, &grant) {
                        return;
                    }
                    told = None;
                }
                Err(error @ (RemoteError::Handshake(_) | RemoteError::Secret(_))) => {
                    pause = REDIAL_AFTER_A_REFUSAL;
                    self.tell_refusal(&error.to_string(), &mut told);
                }
                // As before: nothing is there.
                Err(_) => {}
            }
        }
    }

    /// Uses a new link if it leads to the same region. False when the redial thread is done.
    fn use_again(&self, link: Link, grant: &Grant) -> bool {
        if grant.instance_id != self.instance_id || grant.region_bytes != self.region_bytes {
            self.stay_down("another region is served at this address");
            (self.notice)(RemoteEvent::Replaced);
            return false;
        }
        let mut current = self.link.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut state = lock(&self.state);
        if matches!(*state, State::Stopping) {
            return false;
        }
        *state = State::Up;
        *current = Some(Arc::new(link));
        drop((state, current));
        (self.notice)(RemoteEvent::Back);
        true
    }

    /// `told`: what the last refusal was.
    fn tell_refusal(&self, why: &str, told: &mut Option<String>) {
        self.stay_down(why);
        if told.as_deref() != Some(why) {
            *told = Some(why.into());
            (self.notice)(RemoteEvent::Refused(why.into()));
        }
    }

    fn stay_down(&self, why: &str) {
        let mut state = lock(&self.state);
        if !matches!(*state, State::Stopping) {
            *state = State::Down(why.into());
        }
    }

    /// Sleeps while the link is up, and for `pause` after it was lost. False when it is time to
    /// stop.
    fn wait_while_up(&self, pause: Duration) -> bool {
        let mut state = lock(&self.state);
        while matches!(*state, State::Up) {
            state =
                self.state_changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        let paused = self
            .state_changed
            .wait_timeout_while(state, pause, |state| matches!(state, State::Down(_)))
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        !matches!(*paused.0, State::Stopping)
    }

    fn check(&self, at: u64, len: usize, align: u64) -> Result<(), TransportError> {
        if !at.is_multiple_of(align) {
            return Err(TransportError::Misaligned { at, align });
        }
        let region_bytes = self.region_bytes;
        if at.checked_add(len as u64).is_none_or(|end| end > region_bytes) {
            return Err(TransportError::OutOfRegion { at, len: len as u64, region_bytes });
        }
        Ok(())
    }
}

thread_local! {
    /// Activity that this thread's last wait has seen.
    static SEEN_ACTIVITY: Cell<u64> = const { Cell::new(0) };
}

impl Transport for RemoteTransport {
    fn region_bytes(&self) -> u64 {
        self.shared.region_bytes
    }

    fn loses_puts(&self) -> bool {
        true
    }

    fn put(&self, at: u64, bytes: &[u8]) -> Result<(), TransportError> {
        self.shared.check(at, bytes.len(), 1)?;
        self.shared.run(|lane| lane.put(at, bytes))
    }

    fn put_u32(&self, at: u64, value: u32) -> Result<(), TransportError> {
        self.shared.check(at, 4, 4)?;
        self.shared.run(|lane| lane.put_u32(at, value))
    }

    fn put_u64(&self, at: u64, value: u64) -> Result<(), TransportError> {
        self.shared.check(at, 8, 8)?;
        self.shared.run(|lane| lane.put_u64(at, value))
    }

    fn get(&self, at: u64, out: &mut [u8]) -> Result<(), TransportError> {
        self.shared.check(at, out.len(), 1)?;
        self.shared.run(|lane| lane.get(at, out))
    }

    fn get_u32(&self, at: u64) -> Result<u32, TransportError> {
        self.shared.check(at, 4, 4)?;
        self.shared.run(|lane| lane.get_u32(at))
    }

    fn get_u64(&self, at: u64) -> Result<u64, TransportError> {
        self.shared.check(at, 8, 8)?;
        self.shared.run(|lane| lane.get_u64(at))
    }

    fn get_words(&self, at: u64, out: &mut [u64]) -> Result<(), TransportError> {
        self.get_fields(at, out, Halves::Of(0))
    }

    fn get_fields(&self, at: u64, out: &mut [u64], halves: Halves) -> Result<(), TransportError> {
        self.shared.check(at, size_of_val(out), 8)?;
        self.shared.run(|lane| lane.get_fields(at, out, halves))
    }

    fn fetch_add_u32(&self, at: u64, value: u32) -> Result<u32, TransportError> {
        self.shared.check(at, 4, 4)?;
        let before = self.shared.run(|lane| lane.fetch_add_u32(at, value))?;
        *lock(&self.shared.activity) += 1;
        self.shared.active.notify_all();
        Ok(before)
    }

    fn fence(&self) {
        // A failure takes the link out of use, so that the access after the fence fails.
        let _ = self.shared.run(|lane| lane.fence());
    }

    fn wake_word(&self, at: u64) -> Result<(), TransportError> {
        self.shared.check(at, 4, 4)?;
        self.shared.run(|lane| lane.wake(at))
    }

    /// Sleeps for `timeout`, or until another thread of this process has kicked the device: the
    /// device cannot wake a thread over a network.
    fn wait_word(&self, at: u64, _seen: u32, timeout: Duration) -> Result<(), TransportError> {
        self.shared.check(at, 4, 4)?;
        self.shared.link()?;
        let seen = SEEN_ACTIVITY.get();
        let activity = lock(&self.shared.activity);
        let (activity, _) = self
            .shared
            .active
            .wait_timeout_while(activity, timeout, |now| *now == seen)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        SEEN_ACTIVITY.set(*activity);
        Ok(())
    }
}
