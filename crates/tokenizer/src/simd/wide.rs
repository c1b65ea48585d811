//! Characters of three bytes, sixteen at a time: Chinese, Japanese and Korean. The methods of
//! [`Wide`] as written here are the specification, and what machines without gathers run.

/// Characters that are processed together.
pub const BLOCK: usize = 16;

/// Whether a character of three bytes begins with `byte`.
#[inline(always)]
pub fn is_wide(byte: u8) -> bool {
    byte & 0xf0 == 0xe0
}

/// The code point of a character of three bytes.
#[inline(always)]
pub fn decode(char: [u8; 3]) -> u32 {
    let low = |i: usize| u32::from(char[i] & 0x3f);
    u32::from(char[0] & 0x0f) << 12 | low(1) << 6 | low(2)
}

/// First and number of the unified ideographs, which all are letters.
pub const IDEOGRAPHS: (u32, u32) = (0x4e00, 0x5200);

/// A set of code points below U+10000.
pub struct CharSet {
    words: Box<[u32; 0x1_0000 / 32]>,
}

impl CharSet {
    /// All code points below U+10000.
    pub fn full() -> Self {
        Self { words: Box::new([u32::MAX; 0x1_0000 / 32]) }
    }

    /// Removes `code`, which is below U+10000.
    pub fn remove(&mut self, code: u32) {
        self.words[(code >> 5) as usize & 0x7ff] &= !(1 << (code & 31));
    }

    #[inline(always)]
    fn has(&self, code: u32) -> bool {
        self.words[(code >> 5) as usize & 0x7ff] >> (code & 31) & 1 != 0
    }

    /// 2048 words; code `c` is bit `c % 32` of word `c / 32`.
    #[inline(always)]
    #[cfg(target_arch = "x86_64")]
    pub(super) fn words(&self) -> *const u32 {
        self.words.as_ptr()
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.words)
    }
}

pub(super) const LEFT: u32 = 0x9e37_79b1;
pub(super) const RIGHT: u32 = 0x85eb_ca77;
/// Where the two bits of a pair in its word are taken from its hash.
pub(super) const BITS: [u32; 2] = [10, 5];

/// A set of pairs of code points, two bits in one word each. About one in a hundred other pairs is
/// a false positive.
pub struct PairFilter {
    /// `1 << (32 - shift)` of them.
    words: Vec<u32>,
    shift: u32,
}

impl PairFilter {
    /// Of these pairs.
    pub fn new(pairs: impl ExactSizeIterator<Item = (u32, u32)>) -> Self {
        const BITS_PER_PAIR: usize = 24;
        // Above these the bits of index and place would overlap.
        const MAX_WORDS: usize = 1 << 17;
        let words = (pairs.len() * BITS_PER_PAIR / 32).next_power_of_two().clamp(64, MAX_WORDS);
        let mut filter = Self { words: vec![0; words], shift: 32 - words.ilog2() };
        for (left, right) in pairs {
            let (word, bits) = filter.place(left, right);
            filter.words[word] |= bits;
        }
        filter
    }

    #[inline(always)]
    fn place(&self, left: u32, right: u32) -> (usize, u32) {
        let hash = left.wrapping_mul(LEFT).wrapping_add(right.wrapping_mul(RIGHT));
        let bits = BITS.map(|from| 1 << (hash >> from & 31));
        ((hash >> self.shift) as usize, bits[0] | bits[1])
    }

    #[inline(always)]
    fn may_have(&self, left: u32, right: u32) -> bool {
        let (word, bits) = self.place(left, right);
        self.words[word & (self.words.len() - 1)] & bits == bits
    }

    /// The words, and by how much a hash is shifted to be a place in them: any hash is in bounds.
    #[inline(always)]
    #[cfg(target_arch = "x86_64")]
    pub(super) fn words(&self) -> (*const u32, u32) {
        (self.words.as_ptr(), self.shift)
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        size_of_val(self.words.as_slice())
    }
}

/// What an instruction set does with characters of three bytes.
///
/// # Safety
/// The methods may be called only on a machine that has the instruction set.
pub unsafe trait Wide: Copy {
    /// How many characters of three bytes `text` begins with, [`BLOCK`] at most, and their code
    /// points. What is in `codes` after them is below U+10000.
    ///
    /// # Safety
    /// See the trait.
    #[inline(always)]
    unsafe fn wide_codes(text: &[u8], codes: &mut [u32; BLOCK]) -> usize {
        let (chars, _) = text.as_chunks::<3>();
        let mut count = 0;
        for (code, &char) in codes.iter_mut().zip(chars) {
            if !is_wide(char[0]) {
                break;
            }
            *code = decode(char);
            count += 1;
        }
        count
    }

    /// How many bytes from `pos` on are unified ideographs.
    ///
    /// # Safety
    /// See the trait.
    #[inline(always)]
    unsafe fn ideographs(text: &[u8], pos: usize) -> usize {
        let (chars, _) = text.get(pos..).unwrap_or_default().as_chunks::<3>();
        let is_in = |&char: &[u8; 3]| {
            is_wide(char[0]) && decode(char).wrapping_sub(IDEOGRAPHS.0) < IDEOGRAPHS.1
        };
        chars.iter().take_while(|char| is_in(char)).count() * 3
    }

    /// Bit `i`: `codes[i]` is in `set`.
    ///
    /// # Safety
    /// See the trait.
    #[inline(always)]
    unsafe fn chars_in(set: &CharSet, codes: &[u32; BLOCK]) -> u16 {
        (0..BLOCK).fold(0, |bits, i| bits | u16::from(set.has(codes[i])) << i)
    }

    /// Bit `i`: `filter` may have `codes[i]` and `codes[i + 1]`.
    ///
    /// # Safety
    /// See the trait.
    #[inline(always)]
    unsafe fn pairs_in(filter: &PairFilter, codes: &[u32; BLOCK + 1]) -> u16 {
        let pair = |i: usize| filter.may_have(codes[i], codes[i + 1]);
        (0..BLOCK).fold(0, |bits, i| bits | u16::from(pair(i)) << i)
    }
}
