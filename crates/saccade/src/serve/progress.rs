//! What the ring tells the supervisor: how far loading is, that the device is ready, and whether
//! planes move their heartbeats.

use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use saccade_ring::{Observer, Phase, Roof, ShmTransport};

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
                if let Ok(Some(roof)) = self.ring.roof() {
                    show_roof(&roof);
                }
            }
            _ => {}
        }
    }
}

/// What no step of this device can be faster than.
fn show_roof(roof: &Roof) {
    let fastest = roof.product_flop_per_s.iter().map(|(_, rate)| *rate).max().unwrap_or(0);
    tracing::info!(
        kernels = roof.kernels,
        threads = roof.num_threads,
        weights_mib = roof.packed_bytes >> 20,
        huge_pages_mib = roof.huge_page_bytes >> 20,
        read_gb_per_s = rounded(roof.read_bytes_per_s as f64 * 1e-9),
        product_gflop_per_s = rounded(fastest as f64 * 1e-9),
        steps_per_s_at_most = rounded(roof.steps_per_s(1)),
        "roof of this machine"
    );
}

/// To one decimal.
fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
