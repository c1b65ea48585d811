//! What is broadcast: one step's batch, in the shape of an engine's scheduler output.

/// One sequence of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeqEntry {
    pub slot: u32,
    /// Rows of it in this step.
    pub num_rows: u32,
    /// Tokens computed before.
    pub num_computed: u32,
    /// KV blocks; these are what makes messages long.
    pub blocks: Vec<u32>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StepMessage {
    pub step: u64,
    pub seqs: Vec<SeqEntry>,
}

const HEAD_BYTES: usize = 12;
const ENTRY_BYTES: usize = 16;

impl StepMessage {
    /// Shortest message of this many sequences.
    pub(crate) fn least_bytes(num_seqs: usize) -> usize {
        HEAD_BYTES + num_seqs * ENTRY_BYTES
    }

    /// A step of `num_seqs` sequences whose blocks fill `bytes` (rounded down to whole words).
    pub(crate) fn of_size(step: u64, num_seqs: usize, bytes: usize) -> StepMessage {
        let words = bytes.saturating_sub(Self::least_bytes(num_seqs)) / 4;
        let seqs = (0..num_seqs).map(|i| {
            let share = words / num_seqs + usize::from(i < words % num_seqs);
            SeqEntry {
                slot: i as u32,
                num_rows: 1,
                num_computed: step as u32,
                blocks: (0..share as u32).collect(),
            }
        });
        StepMessage { step, seqs: seqs.collect() }
    }

    /// Bytes of it, into an empty `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.step.to_le_bytes());
        out.extend_from_slice(&(self.seqs.len() as u32).to_le_bytes());
        for seq in &self.seqs {
            let head = [seq.slot, seq.num_rows, seq.num_computed, seq.blocks.len() as u32];
            for word in head.iter().chain(&seq.blocks) {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
    }

    /// Back from bytes: allocates as any deserialiser does. `None` if they are not a message.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<StepMessage> {
        let step = u64::from_le_bytes(bytes.split_off(..8)?.try_into().ok()?);
        let num_seqs = word(&mut bytes)? as usize;
        if num_seqs > bytes.len() / ENTRY_BYTES {
            return None;
        }
        let mut seqs = Vec::with_capacity(num_seqs);
        for _ in 0..num_seqs {
            let (slot, num_rows) = (word(&mut bytes)?, word(&mut bytes)?);
            let (num_computed, num_blocks) = (word(&mut bytes)?, word(&mut bytes)? as usize);
            let words = bytes.split_off(..4 * num_blocks)?.chunks_exact(4);
            let blocks = words.map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect();
            seqs.push(SeqEntry { slot, num_rows, num_computed, blocks });
        }
        bytes.is_empty().then_some(StepMessage { step, seqs })
    }
}

fn word(bytes: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.split_off(..4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_size_and_comes_back() {
        for (num_seqs, bytes) in [(1, 40), (33, 4096), (7, 5000), (256, 8192), (3, 0)] {
            let message = StepMessage::of_size(9, num_seqs, bytes);
            let mut encoded = Vec::new();
            message.encode(&mut encoded);
            let expected = bytes.max(StepMessage::least_bytes(num_seqs));
            assert!(encoded.len() <= expected && encoded.len() + 4 > expected);
            assert_eq!(StepMessage::decode(&encoded), Some(message));
            for cut in 0..encoded.len().min(64) {
                assert_eq!(StepMessage::decode(&encoded[..cut]), None, "{cut} bytes");
            }
        }
    }
}
