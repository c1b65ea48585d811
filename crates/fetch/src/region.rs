//! What a region holds and where: limits, the layout computed from them, and the header.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytemuck::Zeroable;
use saccade_chunk::{Dtype, Geometry, ModelId};
use saccade_ring::{RegionError, ShmTransport, Transport};

use crate::layout::*;
use crate::way::Way;

/// Areas start at multiples of this.
const LINE_BYTES: u64 = 128;
/// Frames begin at a page.
const PAGE_BYTES: u64 = 4096;
/// Largest row of tokens.
pub const MAX_ENTRY_TOKENS: u32 = 1 << 22;
/// Largest count of layers, of heads, and of elements of a head.
const MAX_DIMENSION: u32 = 4096;
/// Largest chunk, in bytes. The lengths in a value are 32-bit.
pub const MAX_CHUNK_BYTES: u64 = 1 << 30;

/// How large to make a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Commands, and completions, on their way: a power of two, 1 ..= 4096.
    pub queue_len: u32,
    /// Rows of tokens: 1 ..= 8192.
    pub num_entries: u32,
    /// Tokens of a row: 256 ..= 2^22, a multiple of 256.
    pub entry_tokens: u32,
    /// Chunks on their way: 0 ..= 4096. Without any, chunks can only be looked up.
    pub num_frames: u32,
    /// Tokens of a block; divides 256.
    pub block_size: u32,
    /// Of a chunk.
    pub geometry: Geometry,
    /// Of weights and of all else that KV depends on beside tokens.
    pub model_id: ModelId,
    /// KV events on their way: 0, or a power of two of at most 2^20.
    pub num_events: u32,
    /// The device wakes a plane that waits for commands.
    pub device_wakes: bool,
}

impl Limits {
    /// Checks the limits and computes the layout.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`] naming the limit and its bound.
    pub fn layout(&self) -> Result<Layout, RegionError> {
        let mut h = self.sizes();
        check_sizes(&h)?;
        h.block_bytes = block_bytes(&h);
        h.frame_bytes = frame_bytes(&h);
        h.event_bytes = event_bytes(h.block_size);
        let mut end = size_of::<Header>() as u64;
        let mut area = |bytes: u64, align: u64| {
            let at = end.next_multiple_of(align);
            end = (at + bytes).next_multiple_of(LINE_BYTES);
            at
        };
        let [_, _, commands, completions, tokens, frames, events] = area_bytes(&h).map(|(_, b)| b);
        h.device_offset = area(LINE_BYTES, LINE_BYTES);
        h.plane_offset = area(LINE_BYTES, LINE_BYTES);
        h.commands_offset = area(commands, LINE_BYTES);
        h.completions_offset = area(completions, LINE_BYTES);
        h.tokens_offset = area(tokens, LINE_BYTES);
        h.frames_offset = area(frames, PAGE_BYTES);
        h.events_offset = area(events, LINE_BYTES);
        h.region_bytes = end;
        Ok(Layout { header: h })
    }

    /// A header that says what was asked for, and not yet where it is.
    fn sizes(&self) -> Header {
        let mut h = Header::zeroed();
        h.magic = SAC_FETCH_MAGIC;
        h.version = SAC_FETCH_VERSION;
        h.header_bytes = size_of::<Header>() as u32;
        h.layout_hash = SAC_FETCH_LAYOUT_HASH;
        h.queue_len = self.queue_len;
        h.num_entries = self.num_entries;
        h.entry_tokens = self.entry_tokens;
        h.num_frames = self.num_frames;
        h.block_size = self.block_size;
        let u32_of = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        h.num_layers = u32_of(self.geometry.num_layers);
        h.kv_heads = u32_of(self.geometry.kv_heads);
        h.head_dim = u32_of(self.geometry.head_dim);
        h.dtype = match self.geometry.dtype {
            Dtype::F32 => 0,
            Dtype::Bf16 => 1,
            Dtype::F16 => 2,
            Dtype::Fp8 => 4,
        };
        h.num_events = self.num_events;
        h.device_wakes = self.device_wakes.into();
        h.model_id = *self.model_id.bytes();
        h
    }
}

/// Bounds of everything but offsets, and of what follows from them.
fn check_sizes(h: &Header) -> Result<(), RegionError> {
    within("queue_len", h.queue_len, 1, SAC_MAX_FETCH_QUEUE)?;
    power_of_two("queue_len", h.queue_len)?;
    within("num_entries", h.num_entries, 1, SAC_MAX_FETCH_ENTRIES)?;
    within("entry_tokens", h.entry_tokens, SAC_CHUNK_TOKENS, MAX_ENTRY_TOKENS)?;
    multiple("entry_tokens", h.entry_tokens.into(), SAC_CHUNK_TOKENS.into())?;
    within("num_frames", h.num_frames, 0, SAC_MAX_FETCH_FRAMES)?;
    within("block_size", h.block_size, 1, SAC_CHUNK_TOKENS)?;
    power_of_two("block_size", h.block_size)?;
    within("num_layers", h.num_layers, 1, MAX_DIMENSION)?;
    within("kv_heads", h.kv_heads, 1, MAX_DIMENSION)?;
    within("head_dim", h.head_dim, 1, MAX_DIMENSION)?;
    if dtype_of(h).is_none() {
        let bound = "0, 1, 2 or 4".into();
        return Err(RegionError::OutOfBounds { field: "dtype", value: h.dtype.into(), bound });
    }
    within("num_events", h.num_events, 0, SAC_MAX_KV_EVENTS)?;
    if h.num_events != 0 {
        power_of_two("num_events", h.num_events)?;
    }
    within("bytes of a chunk", chunk_bytes(h), 1, MAX_CHUNK_BYTES)
}

/// What the header's number means; 3 are the 8-bit weights of a device, in which no KV is.
fn dtype_of(h: &Header) -> Option<Dtype> {
    match h.dtype {
        0 => Some(Dtype::F32),
        1 => Some(Dtype::Bf16),
        2 => Some(Dtype::F16),
        4 => Some(Dtype::Fp8),
        _ => None,
    }
}

/// Of one token, in one layer, K or V.
fn channel_bytes(h: &Header) -> u64 {
    let element = dtype_of(h).map_or(0, Dtype::bytes);
    u64::from(h.kv_heads) * u64::from(h.head_dim) * element as u64
}

fn chunk_bytes(h: &Header) -> u64 {
    2 * u64::from(h.num_layers) * u64::from(SAC_CHUNK_TOKENS) * channel_bytes(h)
}

fn block_bytes(h: &Header) -> u64 {
    2 * u64::from(h.num_layers) * u64::from(h.block_size) * channel_bytes(h)
}

fn frame_bytes(h: &Header) -> u64 {
    block_bytes(h) * u64::from(SAC_CHUNK_TOKENS / h.block_size)
}

fn event_bytes(block_size: u32) -> u32 {
    (size_of::<KvEvent>() as u32 + 4 * block_size).next_multiple_of(64)
}

/// Every area, as the header names its offset, and its bytes. The bounds of sizes keep each far
/// below 2^64.
fn area_bytes(h: &Header) -> [(&'static str, u64); 7] {
    let queue = u64::from(h.queue_len);
    [
        ("device_offset", size_of::<DeviceLine>() as u64),
        ("plane_offset", size_of::<PlaneLine>() as u64),
        ("commands_offset", size_of::<Command>() as u64 * queue),
        ("completions_offset", size_of::<Completion>() as u64 * queue),
        ("tokens_offset", 4 * u64::from(h.num_entries) * u64::from(h.entry_tokens)),
        ("frames_offset", h.frame_bytes * u64::from(h.num_frames)),
        ("events_offset", u64::from(h.event_bytes) * u64::from(h.num_events)),
    ]
}

/// Where everything in a region is. Comes from [`Limits::layout`], or from a header that was
/// checked against the size of the memory behind it: every address that it gives is in bounds.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    header: Header,
}

impl Layout {
    /// Reads and checks the header of a region.
    ///
    /// # Errors
    /// Names the first header field that this build cannot work with.
    pub fn read<T: Transport>(transport: &T) -> Result<Layout, RegionError> {
        // SYNC: acquire; pairs with the release of the magic in `Region::create` and on the device.
        let magic = transport.get_u64(0)?;
        let mut h = Header::zeroed();
        transport.get(0, bytemuck::bytes_of_mut(&mut h))?;
        exactly("magic", magic, SAC_FETCH_MAGIC)?;
        h.magic = magic;
        exactly("version", h.version, SAC_FETCH_VERSION)?;
        exactly("header_bytes", h.header_bytes, size_of::<Header>() as u32)?;
        exactly("layout_hash", h.layout_hash, SAC_FETCH_LAYOUT_HASH)?;
        within(
            "region_bytes",
            h.region_bytes,
            size_of::<Header>() as u64,
            transport.region_bytes(),
        )?;
        check_sizes(&h)?;
        exactly("block_bytes", h.block_bytes, block_bytes(&h))?;
        exactly("frame_bytes", h.frame_bytes, frame_bytes(&h))?;
        if h.num_events != 0 {
            exactly("event_bytes", h.event_bytes, event_bytes(h.block_size))?;
        }
        check_areas(&h)?;
        Ok(Layout { header: h })
    }

    /// Bytes of the whole region.
    pub fn region_bytes(&self) -> u64 {
        self.header.region_bytes
    }

    /// Tells two lives of the device at one path apart.
    pub fn instance_id(&self) -> u64 {
        self.header.instance_id
    }

    /// Commands, and completions, on their way.
    pub fn queue_len(&self) -> u32 {
        self.header.queue_len
    }

    /// Rows of tokens.
    pub fn num_entries(&self) -> u32 {
        self.header.num_entries
    }

    /// Tokens of a row.
    pub fn entry_tokens(&self) -> u32 {
        self.header.entry_tokens
    }

    /// Frames.
    pub fn num_frames(&self) -> u32 {
        self.header.num_frames
    }

    /// Bytes of a frame: the blocks of one chunk.
    pub fn frame_bytes(&self) -> u64 {
        self.header.frame_bytes
    }

    /// Bytes of a block: all layers, K and V.
    pub fn block_bytes(&self) -> u64 {
        self.header.block_bytes
    }

    /// Tokens of a block.
    pub fn block_size(&self) -> u32 {
        self.header.block_size
    }

    /// The device wakes a plane that waits for commands.
    pub fn device_wakes(&self) -> bool {
        self.header.device_wakes == 1
    }

    /// Of weights and of all else that KV depends on beside tokens.
    pub fn model_id(&self) -> ModelId {
        ModelId::from_bytes(self.header.model_id)
    }

    /// Of a chunk.
    pub fn geometry(&self) -> Geometry {
        Geometry {
            num_layers: self.header.num_layers as usize,
            kv_heads: self.header.kv_heads as usize,
            head_dim: self.header.head_dim as usize,
            num_tokens: SAC_CHUNK_TOKENS as usize,
            dtype: dtype_of(&self.header).unwrap_or(Dtype::F16), // there is one: it was checked
        }
    }

    /// Offset of a field of the device line.
    pub fn device_at(&self, field: usize) -> u64 {
        self.header.device_offset + field as u64
    }

    /// Offset of a field of the plane line.
    pub fn plane_at(&self, field: usize) -> u64 {
        self.header.plane_offset + field as u64
    }

    /// Offset of the command with this number, modulo the length of the queue.
    pub fn command_at(&self, number: u32) -> u64 {
        let index = u64::from(number & (self.header.queue_len - 1));
        self.header.commands_offset + index * size_of::<Command>() as u64
    }

    /// Offset of the completion with this number, modulo the length of the queue.
    pub fn completion_at(&self, number: u32) -> u64 {
        let index = u64::from(number & (self.header.queue_len - 1));
        self.header.completions_offset + index * size_of::<Completion>() as u64
    }

    /// Offset of a row's first token. `entry` is below [`Self::num_entries`].
    pub fn tokens_at(&self, entry: u32) -> u64 {
        let row = 4 * u64::from(self.header.entry_tokens);
        self.header.tokens_offset + u64::from(entry) * row
    }

    /// KV events on their way: a power of two, or 0.
    pub fn num_events(&self) -> u32 {
        self.header.num_events
    }

    /// Bytes of a KV event with the tokens of its block.
    pub fn event_bytes(&self) -> u32 {
        self.header.event_bytes
    }

    /// Offset of the KV event with this number. There are events.
    pub fn event_at(&self, number: u64) -> u64 {
        let index = number & u64::from(self.header.num_events.saturating_sub(1));
        self.header.events_offset + index * u64::from(self.header.event_bytes)
    }

    /// Offset of a frame. `frame` is below [`Self::num_frames`].
    pub fn frame_at(&self, frame: u32) -> u64 {
        self.header.frames_offset + u64::from(frame) * self.header.frame_bytes
    }
}

/// Every area that has bytes is aligned to a line, inside the region, behind the header, and apart
/// from the others.
fn check_areas(h: &Header) -> Result<(), RegionError> {
    let offsets = [
        h.device_offset,
        h.plane_offset,
        h.commands_offset,
        h.completions_offset,
        h.tokens_offset,
        h.frames_offset,
        h.events_offset,
    ];
    let areas = area_bytes(h).into_iter().zip(offsets);
    let mut areas: Vec<_> = areas.filter(|((_, bytes), _)| *bytes != 0).collect();
    areas.sort_unstable_by_key(|(_, at)| *at);
    let mut least = size_of::<Header>() as u64;
    for ((field, bytes), at) in areas {
        multiple(field, at, LINE_BYTES)?;
        within(field, at, least, h.region_bytes.saturating_sub(bytes))?;
        least = at + bytes;
    }
    Ok(())
}

fn within<N: Into<u64> + Copy>(
    field: &'static str,
    value: N,
    least: N,
    most: N,
) -> Result<(), RegionError> {
    let (value, least, most) = (value.into(), least.into(), most.into());
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(RegionError::OutOfBounds { field, value, bound: format!("{least} ..= {most}") })
}

fn multiple(field: &'static str, value: u64, of: u64) -> Result<(), RegionError> {
    if value.is_multiple_of(of) {
        return Ok(());
    }
    Err(RegionError::OutOfBounds { field, value, bound: format!("a multiple of {of}") })
}

fn power_of_two(field: &'static str, value: u32) -> Result<(), RegionError> {
    if value.is_power_of_two() {
        return Ok(());
    }
    Err(RegionError::OutOfBounds { field, value: value.into(), bound: "a power of two".into() })
}

fn exactly<N: Into<u64>>(field: &'static str, value: N, expected: N) -> Result<(), RegionError> {
    let (value, expected) = (value.into(), expected.into());
    if value == expected {
        return Ok(());
    }
    Err(RegionError::OutOfBounds { field, value, bound: format!("{expected} (this build)") })
}

/// A region whose header was checked. Clones share the way to it.
#[derive(Clone, Debug)]
pub struct Region {
    transport: Way,
    layout: Layout,
}

impl Region {
    /// Maps the region at a path.
    ///
    /// # Errors
    /// The file cannot be opened or mapped, or is no region of this build.
    pub fn open(path: &Path) -> Result<Region, RegionError> {
        let transport = ShmTransport::open(path)?;
        let layout = Layout::read(&transport)?;
        Ok(Region { transport: Way::Mapped(transport), layout })
    }

    /// The region of a peer, which stays unreachable once it was.
    ///
    /// # Errors
    /// The peer cannot be reached, or has no region of this build.
    pub fn remote(transport: Arc<dyn Transport>) -> Result<Region, RegionError> {
        let layout = Layout::read(&transport)?;
        Ok(Region { transport: Way::Remote(transport), layout })
    }

    /// Makes a region (mode 0600) and puts it at the path, in the place of one that is there: what
    /// is at the path is always whole. All of its pages are reserved, so that a full file system is
    /// an error here.
    ///
    /// # Errors
    /// A limit out of bounds, or [`RegionError::Io`] with the step, the path and the cause.
    pub fn create(path: &Path, limits: &Limits) -> Result<Region, RegionError> {
        let mut layout = limits.layout()?;
        layout.header.instance_id = random_u64();
        let draft = Draft::create(path, layout.region_bytes())?;
        write_header(draft.transport(), layout.header)?;
        Ok(Region { transport: Way::Mapped(draft.publish()?), layout })
    }

    /// Where everything is.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The way to its bytes.
    pub fn transport(&self) -> &Way {
        &self.transport
    }
}

/// The file of a region that is being made. It has its name only when it is whole; dropped before,
/// it is gone.
#[derive(Debug)]
pub struct Draft {
    new: PathBuf,
    path: PathBuf,
    transport: ShmTransport,
}

impl Draft {
    /// Zeroed memory (mode 0600) that is to be the region at `path`. All of its pages are reserved.
    ///
    /// # Errors
    /// [`RegionError::Io`] with the step, the path and the cause.
    pub fn create(path: &Path, bytes: u64) -> Result<Draft, RegionError> {
        let mut new = path.as_os_str().to_owned();
        new.push(format!(".{:016x}", random_u64()));
        let new = PathBuf::from(new);
        match make_file(&new, bytes).and_then(|()| ShmTransport::open(&new)) {
            Ok(transport) => Ok(Draft { new, path: path.into(), transport }),
            Err(error) => {
                // Best effort: the error that led here is the one to report.
                let _ = std::fs::remove_file(&new);
                Err(error)
            }
        }
    }

    /// The way to its bytes.
    pub fn transport(&self) -> &ShmTransport {
        &self.transport
    }

    /// Puts it at its path, in the place of one that is there.
    ///
    /// # Errors
    /// [`RegionError::Io`]; then it is gone.
    pub fn publish(self) -> Result<ShmTransport, RegionError> {
        std::fs::rename(&self.new, &self.path)
            .map_err(|source| io_error("rename to", &self.path, source))?;
        Ok(self.transport.clone())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Best effort; after `publish` there is no such file.
        let _ = std::fs::remove_file(&self.new);
    }
}

fn write_header(transport: &ShmTransport, mut header: Header) -> Result<(), RegionError> {
    header.magic = 0;
    transport.put(0, bytemuck::bytes_of(&header))?;
    // SYNC: release; pairs with the acquire of the magic in `Layout::read`.
    transport.put_u64(0, SAC_FETCH_MAGIC)?;
    Ok(())
}

fn io_error(step: &'static str, path: &Path, source: io::Error) -> RegionError {
    RegionError::Io { step, path: path.into(), source }
}

/// Creates the file with its pages.
fn make_file(path: &Path, bytes: u64) -> Result<(), RegionError> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)
        .map_err(|source| io_error("create", path, source))?;
    let Ok(bytes) = libc::off_t::try_from(bytes) else {
        return Err(io_error("reserve", path, io::Error::from_raw_os_error(libc::EFBIG)));
    };
    // SAFETY: a call on an open descriptor.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes) } {
        0 => Ok(()),
        code => Err(io_error("reserve", path, io::Error::from_raw_os_error(code))),
    }
}

/// 64 random bits, from the keys that the standard library draws for its maps; not 0.
pub(crate) fn random_u64() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish() | 1
}
