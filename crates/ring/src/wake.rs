//! Wake-ups that are never lost, over the hints of a transport.
//!
//! Both directions are the same two-sided check: the sleeper stores "I sleep", fences, and looks
//! once more; the waker stores its news, fences, and checks for a sleeper. One of the two sees the
//! other, whatever the interleaving (`tests/loom.rs` removes the fences and loses a wake-up).

use std::mem::offset_of;
use std::time::Duration;

use crate::layout::{DeviceLine, FrontendLine};
use crate::region::RegionLayout;
use crate::transport::{Transport, TransportError};

/// Tells the device that a doorbell or a cursor moved; call it after the put.
pub(crate) fn kick_device<T: Transport>(
    t: &T,
    layout: &RegionLayout,
) -> Result<(), TransportError> {
    t.fetch_add_u32(layout.kick_at(), 1)?;
    // SYNC: partner is the device's fence between `sleeping = 1` and its last look at device_kick.
    t.fence();
    if t.get_u32(layout.device_at(offset_of!(DeviceLine, sleeping)))? == 1 {
        t.wake_word(layout.kick_at())?;
    }
    Ok(())
}

/// Sleeps until the device has published something since `seen`, at most `timeout`.
pub(crate) fn wait_publish<T: Transport>(
    t: &T,
    layout: &RegionLayout,
    frontend: u32,
    seen: u32,
    timeout: Duration,
) -> Result<(), TransportError> {
    let waiting = layout.frontend_at(frontend, offset_of!(FrontendLine, waiting));
    let published = layout.device_at(offset_of!(DeviceLine, publish_count));
    t.put_u32(waiting, 1)?;
    // SYNC: partner is the device's fence between its publish_count store and its look at
    // `waiting`.
    t.fence();
    let slept = match t.get_u32(published) {
        Ok(now) if now == seen => t.wait_word(published, seen, timeout),
        looked => looked.map(|_| ()),
    };
    t.put_u32(waiting, 0)?;
    slept
}
