//! Joining a region as one of its frontends.

use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::device::{DeviceInfo, Monitor};
use crate::layout::*;
use crate::reader::Reader;
use crate::region::{RegionError, RegionLayout};
use crate::shared::{Shared, read_doorbells};
use crate::submitter::Submitter;
use crate::sync::Arc;
use crate::tracker::Tracker;
use crate::transport::{Transport, TransportError};

/// How a frontend joins.
#[derive(Clone, Copy, Debug)]
pub struct JoinOptions {
    /// The device is lost once this process has seen its heartbeat unchanged for this long.
    pub device_lost_after: Duration,
    /// How long the join waits for a ready device to free the slots of earlier lives of this
    /// frontend. A timeout is not an error: the slots come free later.
    pub ack_timeout: Duration,
}

impl Default for JoinOptions {
    fn default() -> JoinOptions {
        JoinOptions {
            device_lost_after: Duration::from_secs(3),
            ack_timeout: Duration::from_secs(1),
        }
    }
}

/// Why a frontend cannot join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// This build cannot work with the header.
    #[error("cannot join the ring region: {0}")]
    Region(#[from] RegionError),
    /// The index is beyond the region's frontends.
    #[error("frontend index {index}, must be below the region's {num_frontends} frontends")]
    NoSuchFrontend {
        /// The index asked for.
        index: u32,
        /// Frontends of the region.
        num_frontends: u32,
    },
    /// The region cannot be reached.
    #[error("cannot join the ring region: {0}")]
    Transport(#[from] TransportError),
}

/// A joined frontend, before its two halves go to their threads.
#[derive(Debug)]
pub struct FrontendRing<T: Transport> {
    shared: Arc<Shared<T>>,
}

impl<T: Transport> FrontendRing<T> {
    /// Joins with the default [`JoinOptions`].
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join(transport: T, frontend: u32) -> Result<FrontendRing<T>, JoinError> {
        FrontendRing::join_with(transport, frontend, JoinOptions::default())
    }

    /// Validates the region, raises this frontend's epoch, and waits for a bounded time until the
    /// device has reclaimed the slots of its earlier lives. From then on call
    /// [`Submitter::heartbeat`] at least every [`SAC_FRONTEND_HEARTBEAT_MS`].
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join_with(
        transport: T,
        frontend: u32,
        options: JoinOptions,
    ) -> Result<FrontendRing<T>, JoinError> {
        let layout = RegionLayout::read(&transport)?;
        let num_frontends = layout.num_frontends();
        if frontend >= num_frontends {
            return Err(JoinError::NoSuchFrontend { index: frontend, num_frontends });
        }
        let slots = layout.slots_of(frontend);
        let (epoch, heartbeat) = announce(&transport, &layout, frontend)?;
        let doorbells = read_doorbells(&transport, &layout, &slots)?;
        let tracker = Tracker::new(&doorbells, layout.arena_of(frontend));
        let monitor = Monitor::new(options.device_lost_after);
        let shared =
            Shared::new(transport, layout, frontend, epoch, heartbeat, slots, tracker, monitor);
        let ring = FrontendRing { shared: Arc::new(shared) };
        ring.wait_for_ack(options.ack_timeout)?;
        Ok(ring)
    }

    /// Waits while a ready device has not acknowledged this frontend.
    fn wait_for_ack(&self, timeout: Duration) -> Result<(), TransportError> {
        let started = Instant::now();
        self.shared.kick_device()?;
        while !self.shared.refresh()? && self.device().ready() && started.elapsed() < timeout {
            std::thread::sleep(Duration::from_millis(1));
            self.shared.beat();
        }
        Ok(())
    }

    /// The device as it is now.
    #[must_use]
    pub fn device(&self) -> DeviceInfo {
        self.shared.device()
    }

    /// Tells two regions at one path apart.
    #[must_use]
    pub fn instance_id(&self) -> u64 {
        self.shared.layout.instance_id()
    }

    /// The two halves: submissions from any thread, tokens to one.
    #[must_use]
    pub fn split(self) -> (Submitter<T>, Reader<T>) {
        (Submitter::new(Arc::clone(&self.shared)), Reader::new(self.shared))
    }
}

/// Raises the frontend's epoch; returns it and the heartbeat written.
fn announce<T: Transport>(
    transport: &T,
    layout: &RegionLayout,
    frontend: u32,
) -> Result<(u32, u64), TransportError> {
    let field = |field| layout.frontend_at(frontend, field);
    let epoch_at = field(offset_of!(FrontendLine, epoch));
    let heartbeat_at = field(offset_of!(FrontendLine, heartbeat));
    let heartbeat = transport.get_u64(heartbeat_at)?.wrapping_add(1);
    // 0 means "never joined", so the count skips it when it wraps.
    let epoch = transport.get_u32(epoch_at)?.checked_add(1).unwrap_or(1);
    transport.put_u64(heartbeat_at, heartbeat)?;
    transport.put_u32(field(offset_of!(FrontendLine, waiting)), 0)?;
    transport.put_u32(epoch_at, epoch)?;
    Ok((epoch, heartbeat))
}

impl<T: Transport> Shared<T> {
    /// Raises the heartbeat and looks at the device's.
    pub(crate) fn beat(&self) -> DeviceInfo {
        let beat = self.heartbeat.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let at = self.layout.frontend_at(self.frontend, offset_of!(FrontendLine, heartbeat));
        // An unreachable region shows as an absent device right below.
        let _ = self.transport.put_u64(at, beat);
        self.device()
    }
}
