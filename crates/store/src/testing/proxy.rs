//! A TCP proxy that misbehaves as told, the same way for the same seed.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Dice;

/// Bytes that are passed on at a time.
const BUFFER: usize = 16 << 10;
/// Between the bytes of a trickle.
const DRIP: Duration = Duration::from_millis(50);
/// For the port of a listener that comes back.
const REBIND_TRIES: usize = 200;

/// How it misbehaves. Places in the stream are drawn for each connection, within the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Not at all.
    None,
    /// Connections are refused.
    Refuse,
    /// Connections are accepted and nothing is ever said.
    Hang,
    /// Connections that are open say nothing more, as behind a firewall that forgot them. New ones
    /// are fine.
    Stall,
    /// Every piece of an answer comes this much later.
    Delay(Duration),
    /// Answers come a byte at a time, 20 a second.
    Trickle,
    /// The connection ends within this many bytes of its answers.
    Cut {
        /// At least 1.
        within: u64,
    },
    /// The connection is reset within this many bytes of its answers.
    Reset {
        /// At least 1.
        within: u64,
    },
    /// One bit in this many bytes of the answers is flipped, on average.
    Flip {
        /// At least 1.
        every: u64,
    },
}

/// What was done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Injected {
    /// Connections that were accepted.
    pub connections: u64,
    /// That were left hanging, or stalled.
    pub hangs: u64,
    /// Pieces that were late.
    pub delays: u64,
    /// Bytes of trickles.
    pub drips: u64,
    /// Connections that were cut.
    pub cuts: u64,
    /// That were reset.
    pub resets: u64,
    /// Bits that were flipped.
    pub flips: u64,
}

#[derive(Debug, Default)]
struct Counters {
    connections: AtomicU64,
    hangs: AtomicU64,
    delays: AtomicU64,
    drips: AtomicU64,
    cuts: AtomicU64,
    resets: AtomicU64,
    flips: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    fault: watch::Sender<Fault>,
    dice: Mutex<Dice>,
    counters: Counters,
}

/// Stops when it is dropped, and its connections with it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// In front of `server`, and well-behaved at first.
    ///
    /// # Panics
    /// There is no port for it.
    pub async fn start(server: SocketAddr, dice: Dice) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            server,
            fault: watch::Sender::new(Fault::None),
            dice: Mutex::new(dice),
            counters: Counters::default(),
        });
        let task = tokio::spawn(listen(listener, shared.clone()));
        Self { address, shared, task }
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on. Connections that are open are dropped, unless they stall.
    pub fn set(&self, fault: Fault) {
        self.shared.fault.send_replace(fault);
    }

    /// What it has done.
    pub fn injected(&self) -> Injected {
        let counters = &self.shared.counters;
        Injected {
            connections: counters.connections.load(Relaxed),
            hangs: counters.hangs.load(Relaxed),
            delays: counters.delays.load(Relaxed),
            drips: counters.drips.load(Relaxed),
            cuts: counters.cuts.load(Relaxed),
            resets: counters.resets.load(Relaxed),
            flips: counters.flips.load(Relaxed),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    let address = listener.local_addr().expect("its address");
    let mut listener = Some(listener);
    let mut faults = shared.fault.subscribe();
    // Dropped with its connections at the next fault.
    let mut connections = JoinSet::new();
    loop {
        let fault = *faults.borrow_and_update();
        if fault != Fault::Stall {
            connections.shutdown().await;
        }
        if fault == Fault::Refuse {
            listener = None;
        } else if listener.is_none() {
            listener = Some(listen_again(address).await);
        }
        match &listener {
            None => _ = faults.changed().await,
            Some(listener) => {
                let accept = accept(listener, fault, &shared, &mut connections);
                tokio::select! {
                    () = accept => {}
                    changed = faults.changed() => if changed.is_err() { return },
                }
            }
        }
    }
}

async fn listen_again(address: SocketAddr) -> TcpListener {
    for _ in 0..REBIND_TRIES {
        if let Ok(listener) = TcpListener::bind(address).await {
            return listener;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("{address} was taken by another");
}

async fn accept(
    listener: &TcpListener,
    fault: Fault,
    shared: &Arc<Shared>,
    connections: &mut JoinSet<io::Result<()>>,
) {
    while let Ok((client, _)) = listener.accept().await {
        shared.counters.connections.fetch_add(1, Relaxed);
        let seed = shared.dice.lock().unwrap_or_else(PoisonError::into_inner).next();
        connections.spawn(connection(client, fault, Dice::new(seed), shared.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(
    client: TcpStream,
    fault: Fault,
    dice: Dice,
    shared: Arc<Shared>,
) -> io::Result<()> {
    if fault == Fault::Hang {
        shared.counters.hangs.fetch_add(1, Relaxed);
        std::future::pending::<()>().await;
    }
    client.set_nodelay(true)?;
    let server = TcpStream::connect(shared.server).await?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    let asked = async move {
        let mut from_client = from_client;
        tokio::io::copy(&mut from_client, &mut to_server).await?;
        io::Result::Ok(from_client)
    };
    tokio::pin!(asked);
    let stalled = shared.clone();
    let mut answers = Answers { to_client, fault, dice, shared };
    tokio::select! {
        ended = answers.pass(from_server) => return ended,
        // A client that asked and left wants no answers.
        asked = &mut asked => return asked.map(|_| ()),
        () = told_to_stall(&stalled) => {}
    }
    stalled.counters.hangs.fetch_add(1, Relaxed);
    std::future::pending().await
}

async fn told_to_stall(shared: &Shared) {
    let mut faults = shared.fault.subscribe();
    while faults.changed().await.is_ok() && *faults.borrow_and_update() != Fault::Stall {}
}

/// The way from the server to the client.
struct Answers {
    to_client: OwnedWriteHalf,
    fault: Fault,
    dice: Dice,
    shared: Arc<Shared>,
}

impl Answers {
    async fn pass(&mut self, mut server: OwnedReadHalf) -> io::Result<()> {
        let mut left = match self.fault {
            Fault::Cut { within } | Fault::Reset { within } => 1 + self.dice.below(within),
            _ => u64::MAX,
        };
        let mut buffer = vec![0; BUFFER];
        loop {
            let count = server.read(&mut buffer).await?;
            if count == 0 {
                return self.to_client.shutdown().await;
            }
            let piece = &mut buffer[..count.min(usize::try_from(left).unwrap_or(count))];
            self.flip(piece);
            self.send(piece).await?;
            left -= piece.len() as u64;
            if left == 0 {
                return self.end();
            }
        }
    }

    fn flip(&mut self, piece: &mut [u8]) {
        let Fault::Flip { every } = self.fault else { return };
        for byte in piece {
            if self.dice.below(every) == 0 {
                *byte ^= 1 << self.dice.below(8);
                self.shared.counters.flips.fetch_add(1, Relaxed);
            }
        }
    }

    async fn send(&mut self, piece: &[u8]) -> io::Result<()> {
        match self.fault {
            Fault::Delay(delay) => {
                self.shared.counters.delays.fetch_add(1, Relaxed);
                sleep(delay).await;
                self.to_client.write_all(piece).await
            }
            Fault::Trickle => {
                for byte in piece {
                    self.shared.counters.drips.fetch_add(1, Relaxed);
                    self.to_client.write_all(&[*byte]).await?;
                    sleep(DRIP).await;
                }
                Ok(())
            }
            _ => self.to_client.write_all(piece).await,
        }
    }

    fn end(&self) -> io::Result<()> {
        if let Fault::Reset { .. } = self.fault {
            self.shared.counters.resets.fetch_add(1, Relaxed);
            // Nothing is sent any more but the reset.
            return self.to_client.as_ref().set_zero_linger();
        }
        self.shared.counters.cuts.fetch_add(1, Relaxed);
        Ok(())
    }
}
