//! What the ring tells the supervisor: how far loading is, that the device is ready, and whether
//! planes move their heartbeats.

use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use saccade_ring::{Observer, Phase, ShmTransport};

use super::kept::Life;

/// Follows a device from start to ready, with a bar on a terminal and two lines in a log, and tells
/// what the ring shows of each plane.
pub(super) struct Progress {
    ring: Observer<ShmTransport>,
    bar: ProgressBar,
    started: Instant,
    ready_epoch: u32,
}

impl Progress {
    pub fn new(transport: ShmTransport) -> anyhow::Result<Progress> {
        let style = ProgressStyle::with_template(
            "  loading {bar:32} {bytes} of {total_bytes} ({bytes_per_sec})",
        )?;
        Ok(Progress {
            ring: Observer::new(transport)?,
            bar: ProgressBar::no_length().with_style(style),
            started: Instant::now(),
            ready_epoch: 0,
        })
    }

    /// What the ring shows of the device plane.
    pub fn device(&self) -> Option<Life> {
        let device = self.ring.device().ok()?;
        let joined = device.phase == Phase::Ready;
        Some(Life { epoch: device.epoch, heartbeat: device.heartbeat, joined })
    }

    /// What it shows of a frontend plane.
    pub fn frontend(&self, index: u32) -> Option<Life> {
        let line = self.ring.frontend(index).ok()?;
        Some(Life { epoch: line.epoch, heartbeat: line.heartbeat, joined: true })
    }

    /// Marks a dead device as gone.
    pub fn device_died(&self) -> anyhow::Result<()> {
        Ok(self.ring.mark_absent()?)
    }

    /// Looks once.
    pub fn show(&mut self) {
        let Ok(device) = self.ring.device() else { return };
        match device.phase {
            Phase::Loading if device.load_total_bytes > 0 => {
                self.bar.set_length(device.load_total_bytes);
                self.bar.set_position(device.load_done_bytes);
            }
            Phase::Ready if device.epoch != self.ready_epoch => {
                self.bar.finish_and_clear();
                self.ready_epoch = device.epoch;
                tracing::info!(
                    epoch = device.epoch,
                    max_model_len = device.max_model_len,
                    kv_blocks = device.num_blocks,
                    after = ?self.started.elapsed(),
                    "device ready"
                );
            }
            _ => {}
        }
    }
}
