//! A region for loom: see the head of `tests/loom.rs`.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64 as PlainU64, Ordering};
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::sync::{Condvar, Mutex};

use crate::layout::{DeviceLine, FrontendLine, SAC_STATE_PREFILL_PENDING, Status, sac_status_word};
use crate::region::{RegionLayout, RegionLimits, write_header};
use crate::sync::{OBSERVE, PUBLISH, STORE_CHECK};
use crate::transport::{Transport, TransportError};

const LIMITS: RegionLimits =
    RegionLimits { num_slots: 32, num_frontends: 1, out_ring_words: 64, arena_bytes: 4096 };

/// The words that order things; of slot 0 and frontend 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hot {
    Doorbell,
    Cursor,
    Status,
    PublishCount,
    Sleeping,
    Waiting,
    Kick,
}

/// What is left out of the protocol, to see that its check fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weak {
    Nothing,
    /// Stores of this word are relaxed.
    Store(Hot),
    FrontendFence,
    DeviceFence,
}

struct Words {
    /// The six words of 32 bits.
    hot: Vec<(u64, Hot, AtomicU32)>,
    status: (u64, AtomicU64),
    /// Touched with each store of the doorbell: its writers must take turns.
    doorbell_writers: UnsafeCell<()>,
    /// First address and words of each range of payload that is checked.
    payload: Vec<(u64, Vec<UnsafeCell<u64>>)>,
    /// Everything else. Not loom's: it does not change while threads run, or nothing depends on it.
    plain: Vec<PlainU64>,
    futex: (Mutex<()>, Condvar),
}

// SAFETY: loom runs one thread at a time, and reports every access to a cell that is not ordered.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

/// One side's view of the region.
#[derive(Clone)]
pub struct Model {
    words: Arc<Words>,
    weak: Weak,
    fences: bool,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model").field("weak", &self.weak).finish_non_exhaustive()
    }
}

/// Where an aligned word is kept.
enum Place<'a> {
    Hot(&'a AtomicU32, Hot),
    Status(&'a AtomicU64),
    Payload(&'a UnsafeCell<u64>),
    Plain(&'a PlainU64),
}

impl Model {
    pub fn new(weak: Weak) -> Model {
        let layout = LIMITS.layout().expect("the limits are in bounds");
        let line = |field| layout.device_at(field);
        let hot = [
            (layout.doorbell_at(0), Hot::Doorbell),
            (layout.cursor_at(0), Hot::Cursor),
            (line(offset_of!(DeviceLine, publish_count)), Hot::PublishCount),
            (line(offset_of!(DeviceLine, sleeping)), Hot::Sleeping),
            (layout.frontend_at(0, offset_of!(FrontendLine, waiting)), Hot::Waiting),
            (layout.kick_at(), Hot::Kick),
        ];
        let cells = |at, words| (at, (0..words).map(|_| UnsafeCell::new(0)).collect());
        let words = Words {
            hot: hot.map(|(at, name)| (at, name, AtomicU32::new(0))).into(),
            status: (layout.status_at(0), AtomicU64::new(0)),
            doorbell_writers: UnsafeCell::new(()),
            payload: vec![
                cells(layout.descriptor_at(0), 32),
                cells(layout.out_ring_at(0, 0), 64),
                cells(layout.arena_at(0), 8),
            ],
            plain: (0..layout.region_bytes() / 8).map(|_| PlainU64::new(0)).collect(),
            futex: (Mutex::new(()), Condvar::new()),
        };
        let model = Model { words: Arc::new(words), weak, fences: true };
        write_header(&model, &layout).expect("fits");
        model
    }

    pub fn device_side(&self) -> Model {
        Model { fences: self.weak != Weak::DeviceFence, ..self.clone() }
    }

    pub fn frontend_side(&self) -> Model {
        Model { fences: self.weak != Weak::FrontendFence, ..self.clone() }
    }

    /// Makes every other slot look busy, so that each request goes to the slot that is modelled.
    pub fn close_slots_but_the_first(&self) {
        let layout = RegionLayout::read(self).expect("our header");
        let busy = sac_status_word(0, SAC_STATE_PREFILL_PENDING, 0, 0);
        (1..LIMITS.num_slots).for_each(|slot| {
            self.put_u64(layout.status_at(slot), busy).expect("in the region");
        });
    }

    fn place(&self, at: u64, bytes: u64) -> Place<'_> {
        assert!(at.is_multiple_of(bytes) && at + bytes <= self.region_bytes(), "{bytes} at {at}");
        let words = &self.words;
        // A hot word may share its 8 bytes with a plain one: only 4-byte accesses mean the hot one.
        let hot = words.hot.iter().find(|(address, ..)| *address == at && bytes == 4);
        if let Some((_, name, word)) = hot {
            return Place::Hot(word, *name);
        }
        if at == words.status.0 {
            return Place::Status(&words.status.1);
        }
        for (start, cells) in &words.payload {
            if let Some(cell) = at.checked_sub(*start).and_then(|by| cells.get(by as usize / 8)) {
                return Place::Payload(cell);
            }
        }
        Place::Plain(&words.plain[at as usize / 8])
    }

    fn store_order(&self, name: Hot) -> Ordering {
        if self.weak == Weak::Store(name) { Ordering::Relaxed } else { PUBLISH }
    }

    /// Replaces the bytes of one aligned word that `bytes` covers, from byte `from` of it.
    fn put_part(&self, word_at: u64, from: usize, bytes: &[u8]) {
        let merge = |old: u64| {
            let mut word = old.to_le_bytes();
            word[from..from + bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        };
        match self.place(word_at, 8) {
            // SAFETY: the pointer is valid while the closure runs; loom checks that no other thread
            // accesses the cell.
            Place::Payload(cell) => cell.with_mut(|word| unsafe { *word = merge(*word) }),
            Place::Plain(word) => {
                word.store(merge(word.load(Ordering::Relaxed)), Ordering::Relaxed);
            }
            Place::Hot(..) | Place::Status(_) => panic!("payload put over a word at {word_at}"),
        }
    }

    fn get_word(&self, at: u64) -> u64 {
        match self.place(at, 8) {
            // SAFETY: as in `put_part`.
            Place::Payload(cell) => cell.with(|word| unsafe { *word }),
            Place::Plain(word) => word.load(Ordering::Relaxed),
            Place::Status(word) => word.load(Ordering::Relaxed),
            Place::Hot(..) => panic!("payload got over a word at {at}"),
        }
    }
}

/// The low or high half of a plain word that holds two of 32 bits.
fn shift(at: u64) -> u64 {
    at % 8 * 8
}

impl Transport for Model {
    fn region_bytes(&self) -> u64 {
        self.words.plain.len() as u64 * 8
    }

    fn put(&self, at: u64, bytes: &[u8]) -> Result<(), TransportError> {
        let mut done = 0;
        while done < bytes.len() {
            let here = at + done as u64;
            let from = (here % 8) as usize;
            let part = (8 - from).min(bytes.len() - done);
            self.put_part(here - from as u64, from, &bytes[done..done + part]);
            done += part;
        }
        Ok(())
    }

    fn put_u32(&self, at: u64, value: u32) -> Result<(), TransportError> {
        match self.place(at, 4) {
            Place::Hot(word, name) => {
                if name == Hot::Doorbell {
                    self.words.doorbell_writers.with_mut(|_| ());
                }
                word.store(value, self.store_order(name));
            }
            _ => self.put(at, &value.to_le_bytes())?,
        }
        Ok(())
    }

    fn put_u64(&self, at: u64, value: u64) -> Result<(), TransportError> {
        match self.place(at, 8) {
            Place::Status(word) => word.store(value, self.store_order(Hot::Status)),
            _ => self.put(at, &value.to_le_bytes())?,
        }
        Ok(())
    }

    fn get(&self, at: u64, out: &mut [u8]) -> Result<(), TransportError> {
        for (i, byte) in out.iter_mut().enumerate() {
            let here = at + i as u64;
            *byte = self.get_word(here / 8 * 8).to_le_bytes()[(here % 8) as usize];
        }
        Ok(())
    }

    fn get_u32(&self, at: u64) -> Result<u32, TransportError> {
        Ok(match self.place(at, 4) {
            Place::Hot(word, _) => word.load(OBSERVE),
            _ => (self.get_word(at / 8 * 8) >> shift(at)) as u32,
        })
    }

    fn get_u64(&self, at: u64) -> Result<u64, TransportError> {
        Ok(match self.place(at, 8) {
            Place::Status(word) => word.load(OBSERVE),
            _ => self.get_word(at),
        })
    }

    fn get_words(&self, at: u64, out: &mut [u64]) -> Result<(), TransportError> {
        for (i, word) in out.iter_mut().enumerate() {
            *word = self.get_word(at + 8 * i as u64);
        }
        fence(OBSERVE);
        Ok(())
    }

    fn fetch_add_u32(&self, at: u64, value: u32) -> Result<u32, TransportError> {
        match self.place(at, 4) {
            Place::Hot(word, _) => Ok(word.fetch_add(value, STORE_CHECK)),
            _ => panic!("only the kick is added to, not {at}"),
        }
    }

    fn fence(&self) {
        if self.fences {
            fence(STORE_CHECK);
        }
    }

    fn wake_word(&self, _: u64) -> Result<(), TransportError> {
        let (lock, woken) = &self.words.futex;
        drop(lock.lock().expect("a panic ends the model"));
        woken.notify_all();
        Ok(())
    }

    /// Without a timeout: a lost wake-up shows as a deadlock.
    fn wait_word(&self, at: u64, seen: u32, _: Duration) -> Result<(), TransportError> {
        let (lock, woken) = &self.words.futex;
        let guard = lock.lock().expect("a panic ends the model");
        let Place::Hot(word, _) = self.place(at, 4) else { panic!("waits on {at}") };
        // As the kernel does: it sees the newest value, not one that a thread may still see.
        if word.fetch_add(0, Ordering::SeqCst) == seen {
            drop(woken.wait(guard).expect("a panic ends the model"));
        }
        Ok(())
    }
}
