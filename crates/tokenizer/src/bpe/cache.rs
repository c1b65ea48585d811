//! A thread's fixed-size cache of pieces that needed merges: per hash, two cache lines for the last
//! two pieces and their tokens.

use super::Part;

/// Number of sets; 128 bytes each.
const SETS: usize = 4096;
/// Longest piece and most tokens of a line.
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

/// No piece has length 0.
#[derive(Clone, Copy)]
struct Set([Line; 2]);

/// A piece and where it would be.
pub struct Slot {
    piece: Words,
    len: u8,
    set: usize,
}

/// See the module. A thread has one per vocabulary.
pub struct Cache {
    sets: Box<[Set]>,
}

impl Default for Cache {
    fn default() -> Self {
        Self { sets: vec![Set([EMPTY; 2]); SETS].into_boxed_slice() }
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
    /// The slot of a piece; None if it is too long to be kept.
    #[inline(always)]
    pub fn slot(&self, part: Part<'_>) -> Option<Slot> {
        let len = part.end - part.start;
        let set = part.hash as usize & (SETS - 1);
        let piece = || load(part.text, part.start, len);
        (len <= MAX_BYTES).then(|| Slot { piece: piece(), len: len as u8, set })
    }

    /// Where the tokens of a piece of this hash would be.
    #[inline(always)]
    pub fn place(&self, hash: u64) -> *const u8 {
        self.sets.as_ptr().wrapping_add(hash as usize & (SETS - 1)).cast()
    }

    /// Appends the tokens of the piece to `out`, if they are there.
    #[inline(always)]
    pub fn push(&self, slot: &Slot, out: &mut Vec<u32>) -> bool {
        let set = &self.sets[slot.set & (SETS - 1)].0;
        let is_it = |line: &&Line| line.piece == slot.piece && line.len == slot.len;
        let Some(line) = set.iter().find(is_it) else { return false };
        // A copy of fixed length is two instructions; the rest is cut off again.
        let count = out.len() + usize::from(line.count);
        out.extend_from_slice(&line.ids);
        out.truncate(count);
        true
    }

    /// Stores the tokens of a piece in place of the older of two.
    #[inline(always)]
    pub fn put(&mut self, slot: &Slot, ids: &[u32]) {
        if ids.len() > MAX_IDS {
            return;
        }
        let [new, old] = &mut self.sets[slot.set & (SETS - 1)].0;
        *old = *new;
        new.piece = slot.piece;
        new.len = slot.len;
        new.count = ids.len() as u8;
        new.ids[..ids.len()].copy_from_slice(ids);
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.sets.len() * size_of::<Set>()
    }
}
