//! What a region holds and where: limits, the layout computed from them, and the header.

use std::io;
use std::path::{Path, PathBuf};

use bytemuck::Zeroable;

use crate::layout::*;
use crate::transport::{Transport, TransportError};

/// Smallest arena share of one frontend: room for one prompt of about a thousand tokens.
pub const MIN_ARENA_BYTES_PER_FRONTEND: u64 = 4096;
/// Largest arena of a region.
pub const MAX_ARENA_BYTES: u64 = 64 << 30;
/// Output rings are whole lines.
pub const OUT_RING_WORDS_MULTIPLE: u32 = SAC_LINE_BYTES / 8;

/// Why a region cannot be created, opened or joined.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// A limit or a header field breaks its bound.
    #[error("{field} is {value}, must be {bound}")]
    OutOfBounds {
        /// Name of the limit or header field.
        field: &'static str,
        /// What it was.
        value: u64,
        /// What it may be.
        bound: String,
    },
    /// The file cannot hold a region.
    #[error("{path} has {len} bytes, a region has at least {least}")]
    TooSmall {
        /// The file.
        path: PathBuf,
        /// Its size.
        len: u64,
        /// Size of a header.
        least: u64,
    },
    /// The operating system refused.
    #[error("cannot {step} {path}: {source}")]
    Io {
        /// What was tried.
        step: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The region cannot be reached.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

impl RegionError {
    pub(crate) fn io(step: &'static str, path: &Path, source: io::Error) -> RegionError {
        RegionError::Io { step, path: path.into(), source }
    }
}

/// How large to make a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionLimits {
    /// Requests in flight, all frontends together: 32 ..= 4096, a multiple of 32, at least 32 for
    /// each frontend.
    pub num_slots: u32,
    /// Frontends that may join: 1 ..= 16.
    pub num_frontends: u32,
    /// 8-byte words in each slot's output ring: 64 ..= 65536, a multiple of 16.
    pub out_ring_words: u32,
    /// Room for prompts that wait to be accepted: a multiple of 128, at least 4096 for each
    /// frontend.
    pub arena_bytes: u64,
}

impl Default for RegionLimits {
    /// 4096 slots of one frontend, 256 tokens of slack per reader, 8 Mi waiting prompt tokens:
    /// about 42 MiB, which fits the 64 MiB `/dev/shm` of a container.
    fn default() -> RegionLimits {
        RegionLimits {
            num_slots: SAC_MAX_SLOTS,
            num_frontends: 1,
            out_ring_words: 256,
            arena_bytes: 32 << 20,
        }
    }
}

impl RegionLimits {
    /// Checks the limits and computes the layout in one pass.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`] naming the limit and its bound.
    pub fn layout(&self) -> Result<RegionLayout, RegionError> {
        self.check()?;
        let slots = u64::from(self.num_slots);
        let frontends = u64::from(self.num_frontends);
        let mut end = size_of::<RegionHeader>() as u64;
        let mut area = |bytes: u64| {
            let at = end;
            end = (at + bytes).next_multiple_of(u64::from(SAC_LINE_BYTES));
            at
        };
        let mut header = RegionHeader::zeroed();
        header.magic = SAC_MAGIC;
        header.abi_version = SAC_ABI_VERSION;
        header.header_bytes = size_of::<RegionHeader>() as u32;
        header.layout_hash = SAC_LAYOUT_HASH;
        header.num_slots = self.num_slots;
        header.num_frontends = self.num_frontends;
        header.out_ring_words = self.out_ring_words;
        header.device_offset = area(size_of::<DeviceLine>() as u64);
        header.roof_offset = area(size_of::<DeviceRoof>() as u64);
        header.stats_offset = area(size_of::<DeviceStats>() as u64);
        header.fetch_stats_offset = area(size_of::<FetchStats>() as u64);
        header.acks_offset = area(size_of::<FrontendAck>() as u64 * frontends);
        header.wake_offset = area(size_of::<Wake>() as u64);
        header.frontends_offset = area(size_of::<FrontendLine>() as u64 * frontends);
        header.doorbells_offset = area(4 * slots);
        header.cursors_offset = area(4 * slots);
        header.status_offset = area(size_of::<Status>() as u64 * slots);
        header.descriptors_offset = area(size_of::<Descriptor>() as u64 * slots);
        header.out_ring_offset = area(8 * slots * u64::from(self.out_ring_words));
        header.arena_offset = area(self.arena_bytes);
        header.arena_bytes = self.arena_bytes;
        header.region_bytes = end;
        Ok(RegionLayout { header })
    }

    fn check(&self) -> Result<(), RegionError> {
        check_slots(self.num_slots, self.num_frontends)?;
        let words = self.out_ring_words;
        within("out_ring_words", words, SAC_MIN_OUT_RING_WORDS, SAC_MAX_OUT_RING_WORDS)?;
        multiple("out_ring_words", words.into(), OUT_RING_WORDS_MULTIPLE.into())?;
        check_arena(self.arena_bytes, self.num_frontends)
    }
}

fn check_slots(num_slots: u32, num_frontends: u32) -> Result<(), RegionError> {
    within("num_frontends", num_frontends, 1, SAC_MAX_FRONTENDS)?;
    within("num_slots", num_slots, SAC_SLOT_GRANULE * num_frontends, SAC_MAX_SLOTS)?;
    multiple("num_slots", num_slots.into(), SAC_SLOT_GRANULE.into())
}

fn check_arena(arena_bytes: u64, num_frontends: u32) -> Result<(), RegionError> {
    let least = MIN_ARENA_BYTES_PER_FRONTEND * u64::from(num_frontends);
    within("arena_bytes", arena_bytes, least, MAX_ARENA_BYTES)?;
    multiple("arena_bytes", arena_bytes, SAC_LINE_BYTES.into())
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

/// Where everything in a region is. Comes from [`RegionLimits::layout`], or from a header that was
/// validated against the size of the memory behind it; so every address it gives is in bounds.
#[derive(Clone, Copy, Debug)]
pub struct RegionLayout {
    header: RegionHeader,
}

impl RegionLayout {
    /// Reads and validates the header of a region.
    ///
    /// # Errors
    /// Names the first header field that this build cannot work with.
    pub fn read<T: Transport>(transport: &T) -> Result<RegionLayout, RegionError> {
        // SYNC: acquire; pairs with the release of the magic in `write_header`.
        let magic = transport.get_u64(0)?;
        let mut header = RegionHeader::zeroed();
        transport.get(0, bytemuck::bytes_of_mut(&mut header))?;
        exactly("magic", magic, SAC_MAGIC)?;
        header.magic = magic;
        exactly("abi_version", header.abi_version.into(), SAC_ABI_VERSION.into())?;
        exactly("header_bytes", header.header_bytes.into(), size_of::<RegionHeader>() as u64)?;
        exactly("layout_hash", header.layout_hash, SAC_LAYOUT_HASH)?;
        let least = size_of::<RegionHeader>() as u64;
        within("region_bytes", header.region_bytes, least, transport.region_bytes())?;
        check_slots(header.num_slots, header.num_frontends)?;
        let words = header.out_ring_words;
        within("out_ring_words", words, SAC_MIN_OUT_RING_WORDS, SAC_MAX_OUT_RING_WORDS)?;
        check_arena(header.arena_bytes, header.num_frontends)?;
        let layout = RegionLayout { header };
        layout.check_areas()?;
        Ok(layout)
    }

    /// Every area: header field, start, bytes.
    fn areas(&self) -> [(&'static str, u64, u64); 13] {
        let h = &self.header;
        let (slots, frontends) = (u64::from(h.num_slots), u64::from(h.num_frontends));
        [
            ("device_offset", h.device_offset, size_of::<DeviceLine>() as u64),
            ("roof_offset", h.roof_offset, size_of::<DeviceRoof>() as u64),
            ("stats_offset", h.stats_offset, size_of::<DeviceStats>() as u64),
            ("fetch_stats_offset", h.fetch_stats_offset, size_of::<FetchStats>() as u64),
            ("acks_offset", h.acks_offset, size_of::<FrontendAck>() as u64 * frontends),
            ("wake_offset", h.wake_offset, size_of::<Wake>() as u64),
            ("frontends_offset", h.frontends_offset, size_of::<FrontendLine>() as u64 * frontends),
            ("doorbells_offset", h.doorbells_offset, 4 * slots),
            ("cursors_offset", h.cursors_offset, 4 * slots),
            ("status_offset", h.status_offset, size_of::<Status>() as u64 * slots),
            ("descriptors_offset", h.descriptors_offset, size_of::<Descriptor>() as u64 * slots),
            ("out_ring_offset", h.out_ring_offset, 8 * slots * u64::from(h.out_ring_words)),
            ("arena_offset", h.arena_offset, h.arena_bytes),
        ]
    }

    /// Every area is aligned to a line, inside the region, after the header, and disjoint from the
    /// others.
    fn check_areas(&self) -> Result<(), RegionError> {
        let mut areas = self.areas();
        areas.sort_unstable_by_key(|&(_, at, _)| at);
        let mut least = size_of::<RegionHeader>() as u64;
        for (field, at, bytes) in areas {
            multiple(field, at, SAC_LINE_BYTES.into())?;
            // The limits bound `bytes` far below 2^64, so only the offset can overflow.
            let most = self.header.region_bytes.saturating_sub(bytes);
            within(field, at, least, most)?;
            least = at + bytes;
        }
        Ok(())
    }

    /// Limits that give another region of this layout.
    #[must_use]
    pub fn limits(&self) -> RegionLimits {
        RegionLimits {
            num_slots: self.header.num_slots,
            num_frontends: self.header.num_frontends,
            out_ring_words: self.header.out_ring_words,
            arena_bytes: self.header.arena_bytes,
        }
    }

    /// Bytes of the whole region.
    #[must_use]
    pub fn region_bytes(&self) -> u64 {
        self.header.region_bytes
    }

    /// Slots, all frontends together.
    #[must_use]
    pub fn num_slots(&self) -> u32 {
        self.header.num_slots
    }

    /// Frontends that may join.
    #[must_use]
    pub fn num_frontends(&self) -> u32 {
        self.header.num_frontends
    }

    /// 8-byte words in each slot's output ring.
    #[must_use]
    pub fn out_ring_words(&self) -> u32 {
        self.header.out_ring_words
    }

    /// Tells two regions at one path apart.
    #[must_use]
    pub fn instance_id(&self) -> u64 {
        self.header.instance_id
    }

    /// Slots of one frontend.
    #[must_use]
    pub fn slots_of(&self, frontend: u32) -> std::ops::Range<u32> {
        let first = |f| sac_first_slot(self.header.num_slots, self.header.num_frontends, f);
        first(frontend)..first(frontend + 1)
    }

    /// Arena share of one frontend, as offsets in the arena.
    #[must_use]
    pub fn arena_of(&self, frontend: u32) -> std::ops::Range<u64> {
        let h = &self.header;
        let first = |f| sac_first_arena_byte(h.arena_bytes, h.num_frontends, f);
        first(frontend)..first(frontend + 1)
    }

    pub(crate) fn device_at(&self, field: usize) -> u64 {
        self.header.device_offset + field as u64
    }

    pub(crate) fn roof_at(&self) -> u64 {
        self.header.roof_offset
    }

    pub(crate) fn stats_at(&self) -> u64 {
        self.header.stats_offset
    }

    /// Statistics of the fetch plane.
    pub(crate) fn fetch_stats_at(&self) -> u64 {
        self.header.fetch_stats_offset
    }

    pub(crate) fn ack_at(&self, frontend: u32) -> u64 {
        self.header.acks_offset + u64::from(frontend) * size_of::<FrontendAck>() as u64
    }

    pub(crate) fn kick_at(&self) -> u64 {
        self.header.wake_offset
    }

    pub(crate) fn frontend_at(&self, frontend: u32, field: usize) -> u64 {
        let line = u64::from(frontend) * size_of::<FrontendLine>() as u64;
        self.header.frontends_offset + line + field as u64
    }

    pub(crate) fn doorbell_at(&self, slot: u32) -> u64 {
        self.header.doorbells_offset + 4 * u64::from(slot)
    }

    pub(crate) fn cursor_at(&self, slot: u32) -> u64 {
        self.header.cursors_offset + 4 * u64::from(slot)
    }

    pub(crate) fn status_at(&self, slot: u32) -> u64 {
        self.header.status_offset + u64::from(slot) * size_of::<Status>() as u64
    }

    pub(crate) fn descriptor_at(&self, slot: u32) -> u64 {
        self.header.descriptors_offset + u64::from(slot) * size_of::<Descriptor>() as u64
    }

    pub(crate) fn out_ring_at(&self, slot: u32, word: u32) -> u64 {
        let words = u64::from(slot) * u64::from(self.header.out_ring_words) + u64::from(word);
        self.header.out_ring_offset + 8 * words
    }

    pub(crate) fn arena_at(&self, offset: u64) -> u64 {
        self.header.arena_offset + offset
    }
}

fn exactly(field: &'static str, value: u64, expected: u64) -> Result<(), RegionError> {
    if value == expected {
        return Ok(());
    }
    Err(RegionError::OutOfBounds { field, value, bound: format!("{expected} (this build)") })
}

/// Writes the header of a zeroed region, magic last.
pub(crate) fn write_header<T: Transport>(
    transport: &T,
    layout: &RegionLayout,
) -> Result<(), RegionError> {
    let mut header = layout.header;
    header.magic = 0;
    header.instance_id = random_u64();
    transport.put(0, bytemuck::bytes_of(&header))?;
    // SYNC: release; pairs with the acquire of the magic in `RegionLayout::read` and on the device.
    transport.put_u64(0, SAC_MAGIC)?;
    Ok(())
}

/// 64 random bits, unique across regions and processes, from the keys that the standard library
/// draws for its maps.
pub(crate) fn random_u64() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish() | 1
}
