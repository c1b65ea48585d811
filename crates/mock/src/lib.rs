//! A scripted OpenAI-compatible server whose delays are known, to validate load tools against.
//!
//! Written independently of the tools that it validates, it shares nothing with them. What it
//! did, as seen from its own side, is at `/records`. See the README for the script.

mod api;
mod clock;
mod dist;
mod engine;
mod gate;
mod generation;
mod records;
mod script;
mod server;
mod stall;
mod stream;
mod weak;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub use dist::{Count, Delay};
pub use script::{Capacity, Cpu, Failures, LineEnd, Role, Script, Stall, StallMode, Wire};
pub use weak::Weaknesses;

/// A server that runs in a thread of its own until this is dropped.
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Server {
    /// Starts a server on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// The script is out of its bounds, the address is taken, or the kernel has no thread or
    /// timer to give.
    pub fn start(script: Script, address: SocketAddr) -> Result<Self> {
        script.check()?;
        let listener = std::net::TcpListener::bind(address)
            .with_context(|| format!("cannot listen on {address}"))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let (ready, started) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("mock-http".to_owned())
            .spawn(move || run(script, listener, stopped, &ready))?;
        // Where the thread ended without a word, `join` has the reason.
        if started.recv().is_err() {
            let ended = thread.join().map_err(|_| anyhow::anyhow!("the server panicked"))?;
            return Err(ended.err().map_or_else(|| anyhow::anyhow!("it ended"), Into::into))
                .context("cannot start");
        }
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until it ends, which it does only on an error.
    ///
    /// # Errors
    /// The timer or the listener failed.
    pub fn join(mut self) -> Result<()> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(ended)) => Ok(ended?),
            Some(Err(_)) => anyhow::bail!("the server panicked"),
            None => Ok(()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(
    script: Script,
    listener: std::net::TcpListener,
    stopped: oneshot::Receiver<()>,
    ready: &mpsc::SyncSender<()>,
) -> io::Result<()> {
    // Without tokio's timer: it would round the runtime's sleeps to milliseconds.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let shared = Arc::new(server::Shared::new(script)?);
        let listener = TcpListener::from_std(listener)?;
        let _ = ready.send(());
        tokio::select! {
            ended = server::serve(listener, shared) => ended,
            _ = stopped => Ok(()),
        }
    })
}
