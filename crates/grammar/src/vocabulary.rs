//! What each token adds to an answer, in bytes, as the device is given it.

/// The bytes of every token. A token without bytes is never part of an answer under a grammar:
/// special tokens, ids that the tokenizer does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vocabulary {
    offsets: Vec<u32>,
    bytes: Vec<u8>,
}

impl Default for Vocabulary {
    fn default() -> Vocabulary {
        Vocabulary { offsets: vec![0], bytes: Vec::new() }
    }
}

impl Vocabulary {
    /// Adds the bytes of the next id.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.offsets.push(self.bytes.len() as u32);
    }

    /// Number of ids.
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }
    /// Whether it has no ids.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// `[len + 1]`: token `i` is `bytes[offsets[i]..offsets[i + 1]]`.
    #[must_use]
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }
    /// All tokens' bytes, in order of id.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
    /// One token's bytes.
    #[must_use]
    pub fn token(&self, id: u32) -> &[u8] {
        let at = |i: usize| self.offsets.get(i).map_or(self.bytes.len(), |&o| o as usize);
        &self.bytes[at(id as usize)..at(id as usize + 1)]
    }

    /// FNV-1a 64 of every token's length and bytes, never 0: a frontend and a device that mean the
    /// same tokens find the same.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        for pair in self.offsets.windows(2) {
            (pair[1] - pair[0]).to_le_bytes().into_iter().for_each(&mut add);
            self.bytes[pair[0] as usize..pair[1] as usize].iter().copied().for_each(&mut add);
        }
        hash.max(1)
    }
}
