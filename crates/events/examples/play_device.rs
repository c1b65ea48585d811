//! Plays a device and a publisher for `tests/events`: a random tree of blocks comes and goes, the
//! ring overflows, the publisher restarts. In the end the true table is written as JSON, and
//! the publisher stays until FOLDER/done is there.
//!
//!     play_device FOLDER CONFIG SEED EVENTS

#[path = "../tests/common/mod.rs"]
mod common;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::{ADAPTERS, Device, create};
use saccade_events::{Adapters, EventsConfig, EventsError, Joins, run};
use serde_json::json;

const NUM_EVENTS: u32 = 1024;
const BLOCK_SIZE: u32 = 16;
const MAX_BLOCKS: usize = 2000;
/// Lives of the publisher.
const LIVES: u64 = 4;
/// Of all events, the last ones, as a share: many times what the table holds.
const CALM_SHARE: u64 = 5;
/// Nothing takes this long.
const PATIENCE: Duration = Duration::from_secs(120);

struct Life {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), EventsError>>,
}

impl Life {
    fn begin(path: &Path, config: &EventsConfig) -> Life {
        let stop = Arc::new(AtomicBool::new(false));
        let (path, config, flag) = (path.to_owned(), config.clone(), stop.clone());
        Life {
            stop,
            thread: std::thread::spawn(move || {
                run(&path, &config, &Adapters::of(ADAPTERS), Joins::Publisher, &flag)
            }),
        }
    }
    fn is_gone(&self) -> bool {
        self.thread.is_finished()
    }
    /// Its own error, or how far it has read.
    fn end_early(self, device: &Device) -> Box<dyn Error> {
        let (read, written) = (device.ring.read, device.ring.written);
        let late = || format!("{read} events of {written} were read").into();
        self.end().err().unwrap_or_else(late)
    }
    fn end(self) -> Result<(), Box<dyn Error>> {
        self.stop.store(true, Ordering::Relaxed);
        Ok(self.thread.join().map_err(|_| "the publisher has panicked")??)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, config, seed, events] = args.as_slice() else {
        return Err("usage: play_device FOLDER CONFIG SEED EVENTS".into());
    };
    let (folder, seed, events) = (Path::new(folder), seed.parse()?, events.parse::<u64>()?);
    let config = EventsConfig::parse(config)?;
    let path = folder.join("fetch");
    let mut device = Device::new(create(&path, NUM_EVENTS, BLOCK_SIZE), seed, MAX_BLOCKS);
    let began = Instant::now();
    for life in 1..=LIVES {
        let publisher = Life::begin(&path, &config);
        while device.ring.written < events * life / LIVES {
            if publisher.is_gone() || began.elapsed() > PATIENCE {
                return Err(publisher.end_early(&device));
            }
            // In the end nothing is lost, so that nothing is resent: what was missed before
            // stays missed.
            let is_calm = device.ring.written > events - events / CALM_SHARE;
            if is_calm && device.ring.room() < u64::from(NUM_EVENTS) / 2 {
                device.tick(0);
                std::thread::sleep(Duration::from_micros(300));
                continue;
            }
            // Mostly what a reader keeps up with, at times far more than the ring holds.
            let burst = !is_calm && device.random.below(400) == 0;
            let changes = if burst { 8000 } else { device.random.below(60) };
            device.tick(changes);
            std::thread::sleep(Duration::from_micros(300));
        }
        if life < LIVES {
            publisher.end()?;
            // No publisher reads meanwhile.
            (0..20).for_each(|_| device.tick(100));
            continue;
        }
        while !device.is_settled() {
            if publisher.is_gone() || began.elapsed() > PATIENCE {
                return Err(publisher.end_early(&device));
            }
            device.tick(0);
            std::thread::sleep(Duration::from_millis(1));
        }
        write_truth(&device, folder)?;
        while !folder.join("done").exists() && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        publisher.end()?;
    }
    Ok(())
}

fn write_truth(device: &Device, folder: &Path) -> Result<(), Box<dyn Error>> {
    let table = device.truth();
    let blocks: Vec<_> = table
        .iter()
        .map(|(key, (parent, salt, adapter, tokens, at))| {
            let media: Vec<_> =
                ["CPU", "GPU"].iter().zip([at[1], at[0]]).filter(|(_, is)| *is).collect();
            let media: Vec<_> = media.into_iter().map(|(name, _)| name).collect();
            let first = parent.is_none() && *salt != 0;
            let salt = first.then(|| format!("{salt:016x}"));
            json!({
                "key": key,
                "parent": parent,
                "salt": salt,
                "adapter": adapter,
                "tokens": tokens,
                "media": media,
            })
        })
        .collect();
    let truth = json!({
        "blocks": blocks,
        "events": device.ring.written,
        "dropped": device.ring.dropped,
        "retold": device.retold,
    });
    // Whole when it is there.
    std::fs::write(folder.join("truth.new"), truth.to_string())?;
    Ok(std::fs::rename(folder.join("truth.new"), folder.join("truth.json"))?)
}
