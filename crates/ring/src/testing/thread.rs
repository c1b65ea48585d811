//! A fake device on its own thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::FakeDevice;
use crate::transport::{Transport, TransportError};

/// A [`FakeDevice`] that ticks on its own thread; stops when dropped.
#[derive(Debug)]
pub struct FakeDeviceThread {
    stop: std::sync::Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<Result<(), TransportError>>>,
}

impl FakeDeviceThread {
    /// Makes the device ready and ticks it every `interval`, sleeping in between while idle.
    pub fn spawn<T: Transport + 'static>(
        mut device: FakeDevice<T>,
        interval: Duration,
    ) -> FakeDeviceThread {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let stopped = std::sync::Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            device.ready()?;
            while !stopped.load(Ordering::Relaxed) {
                device.tick()?;
                if device.in_flight() == 0 {
                    device.sleep(Duration::from_millis(20))?;
                } else {
                    std::thread::sleep(interval);
                }
            }
            Ok(())
        });
        FakeDeviceThread { stop, thread: Some(thread) }
    }

    /// Ends the device without a word to the region, as a kill would.
    pub fn kill(mut self) {
        self.join();
    }

    fn join(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the device thread has already been printed; the test sees a dead device.
            let _ = thread.join();
        }
    }
}

impl Drop for FakeDeviceThread {
    fn drop(&mut self) {
        self.join();
    }
}
