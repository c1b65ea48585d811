//! Names of the chunks of a row of tokens.

use saccade_chunk::{CHUNK_TOKENS, ModelId, Name};
use saccade_ring::{Transport, TransportError};

use crate::region::Region;

/// Rows whose names are remembered. A row of 8192 tokens takes 33 KiB.
const REMEMBERED_ROWS: usize = 64;

/// Hashes rows. Names come from a private copy of the tokens: a row that changes meanwhile gets
/// other names, and never a wrong value under a right one.
///
/// One row is named by a LOOKUP and then by a LOAD for each of its chunks. What was hashed is kept
/// with the tokens that it is the hash of, and counts only as far as the row still has them.
pub(crate) struct Names {
    model: ModelId,
    rows: Vec<Row>,
    tokens: Vec<u32>,
}

#[derive(Default)]
struct Row {
    salt: u64,
    tokens: Vec<u32>,
    names: Vec<Name>,
}

impl Names {
    pub fn new(model: ModelId) -> Names {
        let rows = std::iter::repeat_with(Row::default).take(REMEMBERED_ROWS).collect();
        Names { model, rows, tokens: Vec::new() }
    }

    /// Of the first `num_chunks` chunks of a row, whose bounds were checked.
    ///
    /// # Errors
    /// The row is not in the region.
    pub fn of(
        &mut self,
        region: &Region,
        entry: u32,
        salt: u64,
        num_chunks: usize,
    ) -> Result<&[Name], TransportError> {
        self.tokens.resize(num_chunks * CHUNK_TOKENS, 0);
        let at = region.layout().tokens_at(entry);
        region.transport().get(at, bytemuck::cast_slice_mut(&mut self.tokens))?;
        let row = &mut self.rows[entry as usize % REMEMBERED_ROWS];
        row.keep(salt, &self.tokens);
        row.extend(&self.model, &self.tokens);
        Ok(&row.names[..num_chunks])
    }
}

impl Row {
    /// Forgets all names from the first chunk on whose tokens differ.
    fn keep(&mut self, salt: u64, tokens: &[u32]) {
        let alike = |(a, b): &(&[u32], &[u32])| a == b;
        let chunks = self.tokens.chunks(CHUNK_TOKENS).zip(tokens.chunks(CHUNK_TOKENS));
        let mut same = chunks.take_while(alike).count();
        if self.salt != salt {
            same = 0;
        } else if same * CHUNK_TOKENS == tokens.len() {
            return; // the row is known further than it is asked for
        }
        self.salt = salt;
        self.names.truncate(same);
        self.tokens.truncate(same * CHUNK_TOKENS);
    }

    fn extend(&mut self, model: &ModelId, tokens: &[u32]) {
        for chunk in tokens.chunks_exact(CHUNK_TOKENS).skip(self.names.len()) {
            let before = self.names.last().copied();
            let before = before.unwrap_or_else(|| Name::root(model, &self.salt.to_le_bytes()));
            self.names.push(before.next(chunk));
            self.tokens.extend(chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(model: &ModelId, salt: u64, tokens: &[u32]) -> Vec<Name> {
        let mut name = Name::root(model, &salt.to_le_bytes());
        tokens
            .chunks(CHUNK_TOKENS)
            .map(|chunk| {
                name = name.next(chunk);
                name
            })
            .collect()
    }

    /// Whatever was in the row before, names are those of the tokens that are there.
    #[test]
    fn remembered_names_are_those_of_the_tokens() {
        let model = ModelId::from_bytes([7; 32]);
        let mut row = Row::default();
        let mut tokens: Vec<u32> = (0..8 * CHUNK_TOKENS as u32).collect();
        let mut seed = 1u64;
        for step in 0..500 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(step);
            let at = (seed >> 33) as usize % tokens.len();
            let salt = u64::from(seed >> 60 == 0);
            let chunks = 1 + (seed >> 40) as usize % 8;
            if step % 3 == 0 {
                tokens[at] ^= 1;
            }
            let asked = &tokens[..chunks * CHUNK_TOKENS];
            row.keep(salt, asked);
            row.extend(&model, asked);
            assert_eq!(row.names[..chunks], fresh(&model, salt, asked), "step {step}");
        }
    }
}
