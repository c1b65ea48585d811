//! A thread's memory of pieces that needed merges: direct-mapped, of fixed size, one cache line
//! for the piece and its tokens.

/// Number of slots; 64 bytes each.
const SLOTS: usize = 8192;
/// Longest piece and most tokens of a slot.
const MAX_BYTES: usize = 32;
const MAX_IDS: usize = 7;

/// A piece in registers, zero beyond its end.
type Words = [u64; MAX_BYTES / 8];

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line {
    piece: Words,
    ids: [u32; MAX_IDS],
    len: u8,
    count: u8,
}

const EMPTY: Line = Line { piece: [0; 4], ids: [0; MAX_IDS], len: 0, count: 0 };

/// A piece and where it would be.
pub struct Slot {
    piece: Words,
    len: u8,
    index: usize,
}

/// See the module. A thread has one per vocabulary.
pub struct Cache {
    lines: Box<[Line]>,
}

impl Default for Cache {
    fn default() -> Self {
        Self { lines: vec![EMPTY; SLOTS].into_boxed_slice() }
    }
}

/// The bytes `start..start + len` of `text`; `len` is at most [`MAX_BYTES`].
#[inline(always)]
fn load(text: &[u8], start: usize, len: usize) -> Words {
    let Some(bytes) = text.get(start..start + MAX_BYTES) else {
        let mut bytes = [0; MAX_BYTES];
        bytes[..len].copy_from_slice(&text[start..start + len]);
        return words(&bytes);
    };
    let all = words(bytes);
    std::array::from_fn(|i| {
        let kept = len.saturating_sub(8 * i).min(8) as u32;
        all[i] & u64::MAX.checked_shr(64 - 8 * kept).unwrap_or(0)
    })
}

#[inline(always)]
fn words(bytes: &[u8]) -> Words {
    let (chunks, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|i| u64::from_le_bytes(chunks[i]))
}

impl Cache {
    /// The slot of `text[start..end]`, whose hash is `hash`; None for pieces that are too long to
    /// be kept.
    #[inline(always)]
    pub fn slot(&self, text: &[u8], start: usize, end: usize, hash: u64) -> Option<Slot> {
        let len = end - start;
        let index = hash as usize & (SLOTS - 1);
        (len <= MAX_BYTES).then(|| Slot { piece: load(text, start, len), len: len as u8, index })
    }

    /// Where the tokens of a piece of this hash would be.
    #[inline(always)]
    pub fn place(&self, hash: u64) -> *const u8 {
        self.lines.as_ptr().wrapping_add(hash as usize & (SLOTS - 1)).cast()
    }

    /// Appends the tokens of the piece to `out`, if they are there.
    #[inline(always)]
    pub fn push(&self, slot: &Slot, out: &mut Vec<u32>) -> bool {
        let line = &self.lines[slot.index & (SLOTS - 1)];
        if line.len != slot.len || line.piece != slot.piece || line.count == 0 {
            return false;
        }
        // A copy of fixed length is two instructions; the rest is cut off again.
        let count = out.len() + usize::from(line.count);
        out.extend_from_slice(&line.ids);
        out.truncate(count);
        true
    }

    /// Keeps the tokens of a piece in place of whatever is there.
    #[inline(always)]
    pub fn put(&mut self, slot: &Slot, ids: &[u32]) {
        if ids.len() > MAX_IDS {
            return;
        }
        let line = &mut self.lines[slot.index & (SLOTS - 1)];
        line.piece = slot.piece;
        line.len = slot.len;
        line.count = ids.len() as u8;
        line.ids[..ids.len()].copy_from_slice(ids);
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }
}
