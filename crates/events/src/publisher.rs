//! From the ring to the log: finds the device's region, reads it, publishes what it says.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use saccade_fetch::Region;

use crate::adapters::Adapters;
use crate::alone::Alone;
use crate::config::EventsConfig;
use crate::counters::{Counters, Stats};
use crate::encode::encode_batch;
use crate::endpoint::Endpoint;
use crate::event::Event;
use crate::log::Log;
use crate::ring::{Reader, RingError};
use crate::sockets::{Shared, Sockets};

/// Events of a batch.
const MAX_BATCH_EVENTS: usize = 256;
/// Between looks at a ring without news: the first, and the longest after doubling.
const MIN_NAP: Duration = Duration::from_micros(500);
const MAX_NAP: Duration = Duration::from_millis(4);
/// Between looks whether the region is still the one at the path.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// From the first batch to the first look at a ring: subscribers to an earlier publisher connect
/// again meanwhile, and hear the device tell its table.
const SETTLE: Duration = Duration::from_secs(1);
/// Between looks for a region at the path.
const FIND_EVERY: Duration = Duration::from_millis(10);

/// Why a publisher cannot start.
#[derive(Debug, thiserror::Error)]
pub enum EventsError {
    /// It cannot listen there.
    #[error("KV events: cannot publish at {endpoint}: {source}")]
    Endpoint {
        /// Of the PUB or the ROUTER socket.
        endpoint: Endpoint,
        /// The cause.
        source: io::Error,
    },
}

/// Publishes batches of events. The first one says that no block can be found: subscribers to an
/// earlier publisher forget what they knew. Its number is the time in microseconds, so that numbers
/// rise from one publisher to the next: a subscriber sees a gap, and can ask for what is behind it.
#[derive(Debug)]
pub struct Publisher {
    shared: Arc<Shared>,
    sockets: Sockets,
}

impl Publisher {
    /// Opens the sockets.
    ///
    /// # Errors
    /// An endpoint where it cannot listen.
    pub fn start(config: &EventsConfig) -> Result<Publisher, EventsError> {
        let shared = Arc::new(Shared {
            log: Log::new(config.hwm.max(config.buffer_steps), now().as_micros() as u64),
            topic: config.topic.clone(),
            hwm: config.hwm as u64,
            buffer_steps: config.buffer_steps as u64,
            counters: Arc::default(),
        });
        let sockets = Sockets::open(config, &shared)
            .map_err(|(endpoint, source)| EventsError::Endpoint { endpoint, source })?;
        let publisher = Publisher { shared, sockets };
        publisher.publish(&[Event::Cleared], 0);
        Ok(publisher)
    }

    /// Publishes a batch without waiting for subscribers. `block_size` is the tokens of a block.
    pub fn publish(&self, events: &[Event], block_size: u32) {
        let payload = encode_batch(now().as_secs_f64(), events, block_size);
        let counters = &self.shared.counters;
        counters.batches.add(1);
        counters.bytes.add(payload.len() as u64);
        self.shared.log.append(payload.into());
    }

    /// Publishes what a region says, by the names of `adapters`, until `goes_on` is false or the
    /// device has ended. It is asked after each look at the ring, at least every few milliseconds.
    ///
    /// # Errors
    /// The region cannot be reached.
    pub fn follow(
        &self,
        region: Region,
        adapters: &Adapters,
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<(), RingError> {
        let mut reader = Reader::counted(region, adapters, self.counters())?;
        let block_size = reader.block_size();
        let mut nap = MIN_NAP;
        loop {
            let has_closed = reader.has_closed();
            let events = reader.take(MAX_BATCH_EVENTS)?;
            if !events.is_empty() {
                self.publish(&events, block_size);
                nap = MIN_NAP;
            } else if has_closed {
                return Ok(());
            }
            if !goes_on() {
                return Ok(());
            }
            if events.is_empty() {
                std::thread::sleep(nap);
                nap = (2 * nap).min(MAX_NAP);
            }
        }
    }

    /// What it has done.
    pub fn stats(&self) -> Stats {
        self.shared.counters.stats()
    }

    /// Number of the next batch.
    pub fn next_batch(&self) -> u64 {
        self.shared.log.next()
    }

    /// Where it publishes; a port 0 is now the one that was chosen.
    pub fn endpoint(&self) -> &Endpoint {
        &self.sockets.endpoint
    }

    /// Where it repeats.
    pub fn replay_endpoint(&self) -> Option<&Endpoint> {
        self.sockets.replay_endpoint.as_ref()
    }

    fn counters(&self) -> Arc<Counters> {
        self.shared.counters.clone()
    }
}

/// Who joins the region, so that the device tells its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joins {
    /// A fetch plane of this process, which joins regions at the same path.
    FetchPlane,
    /// The publisher itself, which then keeps the heartbeat.
    Publisher,
}

/// Publishes the events of whichever device is at a path, on this thread, until `stop` is set.
/// `adapters`: those of that device.
///
/// # Errors
/// An endpoint where it cannot listen. That no device is there is no error.
pub fn run(
    ring_path: &Path,
    config: &EventsConfig,
    adapters: &Adapters,
    joins: Joins,
    stop: &AtomicBool,
) -> Result<(), EventsError> {
    let publisher = Publisher::start(config)?;
    tracing::info!(endpoint = %publisher.endpoint(), "KV events: published");
    // SYNC: relaxed; a flag without data.
    let stopped = || stop.load(Ordering::Relaxed);
    let settled = Instant::now() + SETTLE;
    while !stopped() && Instant::now() < settled {
        std::thread::sleep(FIND_EVERY);
    }
    while !stopped() {
        let Some((region, file)) = find(ring_path) else {
            std::thread::sleep(FIND_EVERY);
            continue;
        };
        let mut alone = None;
        if joins == Joins::Publisher {
            // A region that cannot be joined cannot be read either.
            alone = Alone::join(region.clone()).ok();
        }
        let mut looked = Instant::now();
        let followed = publisher.follow(region, adapters, || {
            if alone.as_mut().is_some_and(|alone| alone.beat().is_err()) {
                return false;
            }
            if looked.elapsed() >= LOOK_EVERY {
                looked = Instant::now();
                return !stopped() && file_at(ring_path) == Some(file);
            }
            !stopped()
        });
        if let Err(error) = followed {
            tracing::error!(%error, "KV events: the device's region was left");
        }
        if !stopped() {
            // Its blocks are gone with it.
            publisher.publish(&[Event::Cleared], 0);
        }
    }
    Ok(())
}

/// Since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// The region at a path and the file that it is in, if a device serves it and tells events.
fn find(path: &Path) -> Option<(Region, (u64, u64))> {
    let file = file_at(path)?;
    // What is no region is complained about by the plane that fetches from it.
    let region = Region::open(path).ok().filter(|region| region.layout().num_events() != 0)?;
    let open =
        Reader::new(region.clone(), &Adapters::default()).is_ok_and(|reader| !reader.has_closed());
    open.then_some((region, file))
}

/// Which file is at a path.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}
