//! What the device line of the ring tells the supervisor: how far loading is, and that it is ready.

use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use saccade_ring::{Observer, Phase, ShmTransport};

/// Follows a device from start to ready: a bar on a terminal, two lines in a log.
pub(super) struct Loading {
    ring: Observer<ShmTransport>,
    bar: ProgressBar,
    started: Instant,
    ready_epoch: u32,
}

impl Loading {
    pub fn new(transport: ShmTransport) -> anyhow::Result<Loading> {
        let style = ProgressStyle::with_template(
            "  loading {bar:32} {bytes} of {total_bytes} ({bytes_per_sec})",
        )?;
        Ok(Loading {
            ring: Observer::new(transport)?,
            bar: ProgressBar::no_length().with_style(style),
            started: Instant::now(),
            ready_epoch: 0,
        })
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
