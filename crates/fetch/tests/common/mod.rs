//! A device in Rust, and a store in memory that fails on demand.

#![allow(dead_code, clippy::unwrap_used)] // shared by tests, each of which uses a part

use std::collections::HashMap;
use std::mem::offset_of;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytemuck::Zeroable;
use bytes::Bytes;
use saccade_chunk::codec::Scratch;
use saccade_chunk::{CHUNK_TOKENS, Codec, Dtype, Geometry, ModelId, Name, Value, seal};
use saccade_fetch::layout::*;
use saccade_fetch::remote::{Call, Remote};
use saccade_fetch::{Door, FetchConfig, Limits, Plane, Region};
use saccade_ring::Transport;
use saccade_ring::remote::{ListenerOptions, Peer, RemoteListener, Way};
use saccade_store::{BreakerState, Key, Put, Trouble};

/// Nothing that works takes this long.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Deadline of a store that hangs.
pub const HANG: Duration = Duration::from_secs(2);
/// What calls take that are slow.
pub const SLOW: Duration = Duration::from_millis(100);
/// A budget that does not end in a test.
pub const LONG_US: u32 = 15_000_000;

/// splitmix64.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    fn normal(&mut self) -> f32 {
        (0..4).map(|_| (self.next() >> 40) as f32 / (1u64 << 24) as f32).sum::<f32>() - 2.0
    }
}

/// KV-like numbers, chunk order.
pub fn kv_like(g: &Geometry, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let mut kv = Vec::with_capacity(g.bytes());
    while kv.len() < g.bytes() {
        let x = random.normal();
        match g.dtype {
            Dtype::Bf16 => kv.extend(half::bf16::from_f32(x).to_le_bytes()),
            Dtype::F16 => kv.extend(half::f16::from_f32(x).to_le_bytes()),
            Dtype::F32 => kv.extend(x.to_le_bytes()),
            Dtype::Fp8 => kv.push(random.next() as u8), // every code, NaN as well
        }
    }
    kv
}

pub fn geometry(num_layers: usize, kv_heads: usize, head_dim: usize, dtype: Dtype) -> Geometry {
    Geometry { num_layers, kv_heads, head_dim, num_tokens: CHUNK_TOKENS, dtype }
}

pub fn small() -> Geometry {
    geometry(2, 2, 32, Dtype::Bf16)
}

pub fn limits(geometry: Geometry, block_size: u32) -> Limits {
    Limits {
        queue_len: 64,
        num_entries: 8,
        entry_tokens: 16 * CHUNK_TOKENS as u32,
        num_frames: 16,
        block_size,
        geometry,
        model_id: ModelId::new(b"weights", b"settings", &geometry),
        num_events: 64,
        device_wakes: true,
    }
}

/// A folder with a path for a region. With SACCADE_TEST_RING=ucx planes reach the region by a UCX
/// connection to a listener on the same memory: what these tests show holds for both.
pub struct Place {
    folder: tempfile::TempDir,
    remote: Option<Remoteness>,
}

impl Place {
    pub fn new() -> Place {
        Place::in_folder(tempfile::tempdir().unwrap())
    }

    /// Where no disk is in the way, if there is such a place.
    pub fn in_memory() -> Place {
        tempfile::tempdir_in("/dev/shm").map_or_else(|_| Place::new(), Place::in_folder)
    }

    fn in_folder(folder: tempfile::TempDir) -> Place {
        let remote = asked_way().map(Remoteness::new);
        Place { folder, remote }
    }

    /// Over a network, whatever the environment says: UCX if it asks for that.
    pub fn remote() -> Place {
        Place { folder: tempfile::tempdir().unwrap(), remote: Some(Remoteness::new(way())) }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("fetch")
    }

    /// Of a plane that finds its regions here.
    pub fn config(&self, codec: Codec) -> FetchConfig {
        let here = || Door::File(self.path());
        FetchConfig::at(self.remote.as_ref().map_or_else(here, Remoteness::door), codec)
    }

    /// Hands out the region of a new device, and none of an older one.
    fn hand_out(&self, region: &Region) {
        if let Some(remote) = &self.remote {
            remote.hand_out(region);
        }
    }
}

/// The way over a network that these tests are asked to use, if any.
pub fn asked_way() -> Option<Way> {
    let ring = std::env::var("SACCADE_TEST_RING").ok();
    ring.map(|ring| Way::of_scheme(&ring).expect("SACCADE_TEST_RING is tcp or ucx"))
}

/// The way to a region that is always remote.
pub fn way() -> Way {
    asked_way().unwrap_or(Way::Tcp)
}

struct Remoteness {
    peer: Peer,
    listener: Mutex<Option<RemoteListener>>,
}

impl Remoteness {
    fn new(way: Way) -> Remoteness {
        // Free now; planes are to find it before a device is there.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = Peer::unproved(way, free.local_addr().unwrap().to_string());
        Remoteness { peer, listener: Mutex::default() }
    }

    fn door(&self) -> Door {
        Door::Remote(self.peer.clone())
    }

    fn hand_out(&self, region: &Region) {
        let saccade_fetch::Way::Mapped(memory) = region.transport() else {
            panic!("a device has its region in memory")
        };
        let mut listener = self.listener.lock().unwrap();
        *listener = None; // its port
        let options = ListenerOptions::default();
        let address = &self.peer.address;
        *listener = Some(saccade_fetch::listen(address, memory.clone(), options).unwrap());
    }
}

/// The device's side of a region.
pub struct Device {
    pub region: Region,
    pub limits: Limits,
    pub wakes: bool,
    written: u32,
    read: u32,
    epoch: u32,
    next_id: u64,
}

impl Device {
    pub fn new(place: &Place, limits: &Limits) -> Device {
        let region = Region::create(&place.path(), limits).unwrap();
        place.hand_out(&region);
        Device { region, limits: *limits, wakes: true, written: 0, read: 0, epoch: 0, next_id: 1 }
    }

    fn put(&self, field: usize, value: u32) {
        let at = self.region.layout().device_at(field);
        self.region.transport().put_u32(at, value).unwrap();
    }

    pub fn plane_word(&self, field: usize) -> u32 {
        self.region.transport().get_u32(self.region.layout().plane_at(field)).unwrap()
    }

    pub fn heartbeat(&self) -> u64 {
        let at = self.region.layout().plane_at(offset_of!(PlaneLine, heartbeat));
        self.region.transport().get_u64(at).unwrap()
    }

    /// Answers a new life of the plane; whether there was one.
    pub fn ack(&mut self) -> bool {
        let epoch = self.plane_word(offset_of!(PlaneLine, epoch));
        if epoch == self.epoch {
            return false;
        }
        (self.written, self.read, self.epoch) = (0, 0, epoch);
        self.put(offset_of!(DeviceLine, commands_written), 0);
        self.put(offset_of!(DeviceLine, completions_read), 0);
        self.put(offset_of!(DeviceLine, acked_epoch), epoch);
        true
    }

    pub fn wait_for_plane(&mut self) {
        let began = Instant::now();
        while !self.ack() {
            assert!(began.elapsed() < PATIENCE, "no plane has joined");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn close(&self) {
        self.put(offset_of!(DeviceLine, closed), 1);
    }

    /// Raises the count of commands by any number, as no device should.
    pub fn miscount(&mut self, by: u32) {
        self.written = self.written.wrapping_add(by);
        self.put(offset_of!(DeviceLine, commands_written), self.written);
    }

    pub fn has_room(&self) -> bool {
        let read = self.plane_word(offset_of!(PlaneLine, commands_read));
        self.written.wrapping_sub(read) < self.limits.queue_len
    }

    /// Writes a command, with an id of its own if it has none.
    pub fn send(&mut self, mut command: Command) -> u64 {
        let began = Instant::now();
        while !self.has_room() {
            assert!(began.elapsed() < PATIENCE, "commands are not read");
            std::thread::yield_now();
        }
        if command.id == 0 {
            command.id = self.next_id;
            self.next_id += 1;
        }
        self.send_as_it_is(&command);
        command.id
    }

    pub fn send_as_it_is(&mut self, command: &Command) {
        let (layout, transport) = (self.region.layout(), self.region.transport());
        transport.put(layout.command_at(self.written), bytemuck::bytes_of(command)).unwrap();
        self.written = self.written.wrapping_add(1);
        self.put(offset_of!(DeviceLine, commands_written), self.written);
        self.region.transport().fence();
        if self.wakes && self.plane_word(offset_of!(PlaneLine, waiting)) == 1 {
            let at = self.region.layout().device_at(offset_of!(DeviceLine, commands_written));
            self.region.transport().wake_word(at).unwrap();
        }
    }

    /// Completions that there are, taken.
    pub fn poll(&mut self) -> Vec<Completion> {
        let written = self.plane_word(offset_of!(PlaneLine, completions_written));
        assert!(written.wrapping_sub(self.read) <= self.limits.queue_len, "too many completions");
        let mut taken = Vec::new();
        while self.read != written {
            let mut completion = Completion::zeroed();
            let at = self.region.layout().completion_at(self.read);
            let bytes = bytemuck::bytes_of_mut(&mut completion);
            self.region.transport().get(at, bytes).unwrap();
            taken.push(completion);
            self.read = self.read.wrapping_add(1);
        }
        self.put(offset_of!(DeviceLine, completions_read), self.read);
        taken
    }

    /// The next `n` completions, in the order of ids.
    pub fn take(&mut self, n: usize) -> Vec<Completion> {
        let (began, mut taken) = (Instant::now(), Vec::new());
        while taken.len() < n {
            taken.extend(self.poll());
            assert!(began.elapsed() < PATIENCE, "{} of {n} completions", taken.len());
            std::thread::yield_now();
        }
        assert_eq!(taken.len(), n, "more completions than commands: {taken:?}");
        taken.sort_by_key(|completion| completion.id);
        taken
    }

    pub fn ask(&mut self, command: Command) -> Completion {
        let id = self.send(command);
        let completion = self.take(1)[0];
        assert_eq!((completion.id, completion.op), (id, command.op));
        completion
    }

    pub fn set_row(&self, entry: u32, tokens: &[u32]) {
        let at = self.region.layout().tokens_at(entry);
        self.region.transport().put(at, bytemuck::cast_slice(tokens)).unwrap();
    }

    pub fn frame(&self, frame: u32) -> Vec<u8> {
        let mut bytes = vec![0; self.region.layout().frame_bytes() as usize];
        self.region.transport().get(self.region.layout().frame_at(frame), &mut bytes).unwrap();
        bytes
    }

    pub fn set_frame(&self, frame: u32, bytes: &[u8]) {
        self.region.transport().put(self.region.layout().frame_at(frame), bytes).unwrap();
    }

    /// A frame of blocks from KV in chunk order, byte by byte as fetch.h says.
    pub fn blocks_of(&self, kv: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; self.region.layout().frame_bytes() as usize];
        self.each_vector(|in_chunk, in_frame, bytes| {
            frame[in_frame..in_frame + bytes].copy_from_slice(&kv[in_chunk..in_chunk + bytes]);
        });
        frame
    }

    /// KV in chunk order from a frame of blocks.
    pub fn chunk_of(&self, frame: &[u8]) -> Vec<u8> {
        let mut kv = vec![0; self.limits.geometry.bytes()];
        self.each_vector(|in_chunk, in_frame, bytes| {
            kv[in_chunk..in_chunk + bytes].copy_from_slice(&frame[in_frame..in_frame + bytes]);
        });
        kv
    }

    fn each_vector(&self, mut tell: impl FnMut(usize, usize, usize)) {
        let (g, block_size) = (&self.limits.geometry, self.limits.block_size as usize);
        let row = g.channels() * g.dtype.bytes();
        for plane in 0..g.num_planes() {
            for token in 0..CHUNK_TOKENS {
                let in_chunk = (plane * CHUNK_TOKENS + token) * row;
                let (block, token) = (token / block_size, token % block_size);
                let block_at = block * self.region.layout().block_bytes() as usize;
                tell(in_chunk, block_at + (plane * block_size + token) * row, row);
            }
        }
    }
}

pub fn lookup(entry: u32, salt: u64, chunks: u32) -> Command {
    let num_tokens = chunks * CHUNK_TOKENS as u32;
    let op = SAC_FETCH_LOOKUP;
    Command { op, entry, salt, num_tokens, budget_us: LONG_US, ..Command::zeroed() }
}

pub fn load(entry: u32, salt: u64, chunk: u32, frame: u32) -> Command {
    Command { op: SAC_FETCH_LOAD, chunk, frame, ..lookup(entry, salt, chunk + 1) }
}

pub fn store(entry: u32, salt: u64, chunk: u32, frame: u32) -> Command {
    Command { op: SAC_FETCH_STORE, chunk, frame, ..lookup(entry, salt, chunk + 1) }
}

pub fn cancel(target: u64) -> Command {
    Command { op: SAC_FETCH_CANCEL, target, ..Command::zeroed() }
}

pub fn tokens(seed: u32, chunks: u32) -> Vec<u32> {
    (0..chunks * CHUNK_TOKENS as u32).map(|i| seed.wrapping_mul(0x9e37_79b1) ^ i).collect()
}

/// A chunk of a row.
pub fn value_of(limits: &Limits, salt: u64, row: &[u32], chunk: usize) -> Value {
    let model = limits.model_id;
    let name = names(&model, salt, row)[chunk];
    Value { model, name, first_token: 256 * chunk as u32, geometry: limits.geometry }
}

/// Names of a row, as the chunk crate gives them.
pub fn names(model: &ModelId, salt: u64, tokens: &[u32]) -> Vec<Name> {
    let mut name = Name::root(model, &salt.to_le_bytes());
    let next = |chunk| {
        name = name.next(chunk);
        name
    };
    tokens.chunks(CHUNK_TOKENS).map(next).collect()
}

/// What the store does, until told otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Mood {
    Well,
    /// Calls take [`HANG`], and fail.
    Hung,
    Down,
    /// Calls take [`SLOW`].
    Slow,
    /// Puts find no room.
    Full,
    /// Anything, at random.
    Moody,
}

/// A store in memory.
pub struct Shelf {
    pub values: Mutex<HashMap<Key, Bytes>>,
    mood: AtomicU32,
    random: Mutex<Random>,
    pub calls: AtomicUsize,
    pub puts: AtomicUsize,
    pub removals: AtomicUsize,
    pub breaker: AtomicU32,
}

impl Shelf {
    pub fn new() -> Arc<Shelf> {
        Arc::new(Shelf {
            values: Mutex::default(),
            mood: AtomicU32::new(0),
            random: Mutex::new(Random(5)),
            calls: AtomicUsize::new(0),
            puts: AtomicUsize::new(0),
            removals: AtomicUsize::new(0),
            breaker: AtomicU32::new(0),
        })
    }

    pub fn set(&self, mood: Mood) {
        self.mood.store(mood as u32, Ordering::SeqCst);
    }

    pub fn wait_for_removals(&self, n: usize) {
        let began = Instant::now();
        while self.removals.load(Ordering::SeqCst) < n {
            assert!(began.elapsed() < PATIENCE, "{n} values are not removed");
            std::thread::yield_now();
        }
    }

    pub fn num_values(&self) -> usize {
        self.values.lock().unwrap().len()
    }

    /// Puts a sealed chunk where its name says.
    pub fn insert(&self, codec: Codec, salt: u64, value: &Value, kv: &[u8]) -> Key {
        let mut sealed = Vec::new();
        seal(value, codec, kv, &mut Scratch::default(), &mut sealed);
        let key = Key { model: value.model, salt, name: value.name };
        self.values.lock().unwrap().insert(key, sealed.into());
        key
    }

    async fn behave(&self) -> Result<(), Trouble> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let moods = [Mood::Well, Mood::Hung, Mood::Down, Mood::Slow, Mood::Full, Mood::Moody];
        let mut mood = moods[self.mood.load(Ordering::SeqCst) as usize];
        if mood == Mood::Moody {
            let among = [Mood::Well, Mood::Well, Mood::Well, Mood::Slow, Mood::Down, Mood::Hung];
            mood = among[self.random.lock().unwrap().below(6) as usize];
        }
        match mood {
            Mood::Hung => {
                tokio::time::sleep(HANG).await;
                Err(Trouble::Timeout(HANG))
            }
            Mood::Down => Err(Trouble::Connect("down".into())),
            Mood::Slow => {
                tokio::time::sleep(SLOW).await;
                Ok(())
            }
            Mood::Well | Mood::Full | Mood::Moody => Ok(()),
        }
    }
}

impl Remote for Shelf {
    fn longest_prefix(self: Arc<Self>, keys: Vec<Key>) -> Call<usize> {
        Box::pin(async move {
            self.behave().await?;
            let values = self.values.lock().unwrap();
            Ok(keys.iter().take_while(|key| values.contains_key(*key)).count())
        })
    }
    fn exists(self: Arc<Self>, key: Key) -> Call<bool> {
        Box::pin(async move {
            self.behave().await?;
            Ok(self.values.lock().unwrap().contains_key(&key))
        })
    }
    fn get(self: Arc<Self>, key: Key, max_bytes: usize) -> Call<Option<Bytes>> {
        Box::pin(async move {
            self.behave().await?;
            let value = self.values.lock().unwrap().get(&key).cloned();
            if value.as_ref().is_some_and(|value| value.len() > max_bytes) {
                return Err(Trouble::TooLarge { max_bytes });
            }
            Ok(value)
        })
    }
    fn put(self: Arc<Self>, key: Key, value: Bytes) -> Call<Put> {
        Box::pin(async move {
            self.behave().await?;
            if self.mood.load(Ordering::SeqCst) == Mood::Full as u32 {
                return Ok(Put::Full);
            }
            self.puts.fetch_add(1, Ordering::SeqCst);
            self.values.lock().unwrap().insert(key, value);
            Ok(Put::Stored)
        })
    }
    fn remove(self: Arc<Self>, key: Key) -> Call<()> {
        Box::pin(async move {
            self.values.lock().unwrap().remove(&key);
            self.removals.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
    }
    fn breaker(&self) -> BreakerState {
        match self.breaker.load(Ordering::SeqCst) {
            0 => BreakerState::Closed,
            1 => BreakerState::Open,
            _ => BreakerState::Probing,
        }
    }
}

/// A device, a plane and a store, joined.
pub struct Bench {
    pub place: Place,
    pub device: Device,
    pub shelf: Arc<Shelf>,
    pub plane: Option<Plane>,
    pub config: FetchConfig,
}

impl Bench {
    pub fn new(limits: &Limits, config: impl FnOnce(&mut FetchConfig)) -> Bench {
        let place = Place::new();
        let mut device = Device::new(&place, limits);
        let mut chosen = place.config(Codec::Lossless);
        chosen.buffer_bytes = 64 << 20;
        config(&mut chosen);
        let shelf = Shelf::new();
        let plane = Plane::start(chosen.clone(), shelf.clone()).unwrap();
        device.wait_for_plane();
        Bench { place, device, shelf, plane: Some(plane), config: chosen }
    }

    pub fn plain() -> Bench {
        Bench::new(&limits(small(), 16), |_| {})
    }

    pub fn stats(&self) -> saccade_fetch::Stats {
        self.plane.as_ref().unwrap().stats()
    }
}
