//! Frequencies of symbols, and what decoding looks up.

use super::Malformed;

/// Frequencies add up to `1 << PROB_BITS`.
pub(super) const PROB_BITS: u32 = 12;
pub(super) const TOTAL: u32 = 1 << PROB_BITS;

/// Of each symbol; each is below [`TOTAL`], so that it fits an entry of [`Decode`].
pub(super) struct Frequencies(pub [u16; 256]);

/// By the low bits of a state: symbol (8 bits), its frequency (12), and how far the bits are behind
/// its start (12).
pub(super) struct Decode(pub Box<[u32; TOTAL as usize]>);

/// By symbol, what encoding it needs: a reciprocal of its frequency (32 bits), the frequency (12),
/// its start (12), and a shift (6). `x * reciprocal >> shift` is the quotient of each state x.
pub(super) struct Encode(pub [u64; 256]);

impl Frequencies {
    /// Shares of what is there: at least 1 for each symbol that occurs.
    pub(super) fn of(symbols: &[u8]) -> Self {
        // Several tables: the count of a frequent symbol would wait for itself.
        let mut counts = [0u64; 256];
        let mut tables = [[0u32; 256]; 8];
        for symbols in symbols.chunks(8) {
            for (table, symbol) in tables.iter_mut().zip(symbols) {
                table[usize::from(*symbol)] += 1;
            }
        }
        for (symbol, count) in counts.iter_mut().enumerate() {
            *count = tables.iter().map(|table| u64::from(table[symbol])).sum();
        }
        let present = counts.iter().filter(|count| **count != 0).count();
        if present < 2 {
            return Self::of_one(symbols.first().copied().unwrap_or(0));
        }
        let spread = u64::from(TOTAL) - present as u64;
        let all = symbols.len() as u64;
        let share = |count: u64| if count == 0 { 0 } else { (1 + count * spread / all) as u16 };
        let mut frequencies = Self(counts.map(share));
        // What rounding down left goes to the most frequent symbols, a unit each: shares of rare
        // ones would change most.
        let used: u32 = frequencies.0.iter().map(|f| u32::from(*f)).sum();
        let mut order: Vec<usize> = (0..256).filter(|s| counts[*s] != 0).collect();
        order.sort_by_key(|s| std::cmp::Reverse(counts[*s]));
        for unit in 0..(TOTAL - used) as usize {
            frequencies.0[order[unit % present]] += 1;
        }
        frequencies
    }

    /// One symbol has all but one unit: with all of them its frequency would not fit an entry.
    fn of_one(symbol: u8) -> Self {
        let mut frequencies = [0; 256];
        frequencies[usize::from(symbol)] = (TOTAL - 1) as u16;
        frequencies[usize::from(symbol.wrapping_add(1))] = 1;
        Self(frequencies)
    }

    /// The sum of the frequencies of smaller symbols, of each.
    pub(super) fn starts(&self) -> [u32; 256] {
        let mut sum = 0;
        self.0.map(|f| {
            sum += u32::from(f);
            sum - u32::from(f)
        })
    }

    pub(super) fn encode_table(&self) -> Encode {
        let starts = self.starts();
        Encode(std::array::from_fn(|symbol| {
            let frequency = u64::from(self.0[symbol].max(1));
            // Exact below 2^31: the reciprocal, rounded up, is off by less than 1 in 2^31
            // (Granlund and Montgomery).
            let bits = u64::from(frequency.next_power_of_two().trailing_zeros());
            let reciprocal = (1u64 << (31 + bits)).div_ceil(frequency);
            let start = u64::from(starts[symbol] & (TOTAL - 1));
            reciprocal | frequency << 32 | start << 44 | (31 + bits) << 56
        }))
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut bitmap = [0u8; 32];
        for (symbol, _) in self.0.iter().enumerate().filter(|(_, f)| **f != 0) {
            bitmap[symbol / 8] |= 1 << (symbol % 8);
        }
        out.extend(bitmap);
        out.extend(self.0.iter().filter(|f| **f != 0).flat_map(|f| f.to_le_bytes()));
    }

    /// And what follows them.
    pub(super) fn read(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        const SHORT: Malformed = Malformed("it ends within the frequencies");
        let (bitmap, mut rest) = bytes.split_first_chunk::<32>().ok_or(SHORT)?;
        let mut frequencies = [0u16; 256];
        let mut sum = 0;
        for (symbol, frequency) in frequencies.iter_mut().enumerate() {
            if bitmap[symbol / 8] >> (symbol % 8) & 1 == 0 {
                continue;
            }
            let (value, after) = rest.split_first_chunk().ok_or(SHORT)?;
            rest = after;
            *frequency = u16::from_le_bytes(*value);
            if *frequency == 0 || u32::from(*frequency) >= TOTAL {
                return Err(Malformed("a frequency is out of bounds"));
            }
            sum += u32::from(*frequency);
        }
        if sum != TOTAL {
            return Err(Malformed("the frequencies do not add up"));
        }
        Ok((Self(frequencies), rest))
    }

    pub(super) fn decode_table(&self) -> Decode {
        let mut table = Box::new([0u32; TOTAL as usize]);
        let mut rest = table.as_mut_slice();
        for (symbol, &frequency) in self.0.iter().enumerate() {
            let (entries, after) = rest.split_at_mut(usize::from(frequency));
            let first = symbol as u32 | u32::from(frequency) << 8;
            for (offset, entry) in (0..).zip(entries) {
                *entry = first | offset << 20;
            }
            rest = after;
        }
        Decode(table)
    }
}

impl Decode {
    /// The entries of four indices, 16 bits each.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(super) fn four(&self, indices: u64) -> std::arch::x86_64::__m128i {
        let at = |i: u32| self.0[(indices >> (16 * i)) as usize & (TOTAL as usize - 1)] as i32;
        // SAFETY: x86-64 has SSE2.
        unsafe { std::arch::x86_64::_mm_set_epi32(at(3), at(2), at(1), at(0)) }
    }
}
