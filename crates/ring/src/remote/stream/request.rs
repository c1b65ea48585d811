//! The bytes of a request.

use crate::transport::Halves;

/// Bytes of a request before its body. Little-endian: operation (1), kind of halves (1), zero (2),
/// bytes that are put or read (4), where (8), value or halves (8).
pub const HEAD_BYTES: usize = 24;
/// Bytes of a body or of an answer: all statuses of a region of 4096 slots.
pub const MAX_TRANSFER_BYTES: usize = 64 << 10;

/// What a peer asks for. `at` counts bytes from the start of the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Puts the body.
    Put {
        /// First byte.
        at: u64,
        /// Bytes of the body.
        len: u32,
    },
    /// Puts a word with release.
    PutU32 {
        /// The word.
        at: u64,
        /// Its new value.
        value: u32,
    },
    /// Puts a word with release.
    PutU64 {
        /// The word.
        at: u64,
        /// Its new value.
        value: u64,
    },
    /// Answers with these bytes.
    Get {
        /// First byte.
        at: u64,
        /// Bytes of the answer.
        len: u32,
    },
    /// Answers with a word, read with acquire.
    GetU32 {
        /// The word.
        at: u64,
    },
    /// Answers with a word, read with acquire.
    GetU64 {
        /// The word.
        at: u64,
    },
    /// Answers with words of 8 bytes, of which some are two fields.
    GetFields {
        /// First word.
        at: u64,
        /// Words of the answer.
        words: u32,
        /// Words that are two fields.
        halves: Halves,
    },
    /// Adds to a word; answers with its previous value.
    AddU32 {
        /// The word.
        at: u64,
        /// What is added.
        value: u32,
    },
    /// A sequentially consistent fence; answers with 8 zeros.
    Fence,
    /// Wakes the sleepers on a word.
    Wake {
        /// The word.
        at: u64,
    },
}

/// A head that is no request.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
#[error("request {field} is {value}, must be {bound}")]
pub struct MalformedRequest {
    /// Of the head.
    pub field: &'static str,
    /// What it was.
    pub value: u64,
    /// What it may be.
    pub bound: &'static str,
}

/// Operations, as they cross. Bump `VERSION` of the handshake when they change.
mod op {
    pub(super) const PUT: u8 = 1;
    pub(super) const PUT_U32: u8 = 2;
    pub(super) const PUT_U64: u8 = 3;
    pub(super) const GET: u8 = 4;
    pub(super) const GET_U32: u8 = 5;
    pub(super) const GET_U64: u8 = 6;
    pub(super) const GET_FIELDS: u8 = 7;
    pub(super) const ADD_U32: u8 = 8;
    pub(super) const FENCE: u8 = 9;
    pub(super) const WAKE: u8 = 10;
}

impl Request {
    /// The head.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEAD_BYTES] {
        use Request::*;
        let (op, halves, len, at, value) = match *self {
            Put { at, len } => (op::PUT, 0, len, at, 0),
            PutU32 { at, value } => (op::PUT_U32, 0, 4, at, value.into()),
            PutU64 { at, value } => (op::PUT_U64, 0, 8, at, value),
            Get { at, len } => (op::GET, 0, len, at, 0),
            GetU32 { at } => (op::GET_U32, 0, 4, at, 0),
            GetU64 { at } => (op::GET_U64, 0, 8, at, 0),
            GetFields { at, words, halves } => {
                let (kind, value) = match halves {
                    Halves::Of(bits) => (0, bits),
                    Halves::Odd => (1, 0),
                    Halves::From(first) => (2, first as u64),
                };
                (op::GET_FIELDS, kind, 8 * words, at, value)
            }
            AddU32 { at, value } => (op::ADD_U32, 0, 4, at, value.into()),
            Fence => (op::FENCE, 0, 8, 0, 0),
            Wake { at } => (op::WAKE, 0, 4, at, 0),
        };
        let mut bytes = [0; HEAD_BYTES];
        bytes[0] = op;
        bytes[1] = halves;
        bytes[4..8].copy_from_slice(&len.to_le_bytes());
        bytes[8..16].copy_from_slice(&at.to_le_bytes());
        bytes[16..].copy_from_slice(&value.to_le_bytes());
        bytes
    }

    /// Reads a head; whether the access is in the region is another question.
    ///
    /// # Errors
    /// The field that breaks its bound.
    pub fn read(head: &[u8; HEAD_BYTES]) -> Result<Request, MalformedRequest> {
        let word = |at: usize| {
            let bytes = head[at..at + 8].try_into().expect("8 bytes");
            u64::from_le_bytes(bytes)
        };
        let (at, value, len) = (word(8), word(16), (word(0) >> 32) as u32);
        let refuse = |field, value, bound| Err(MalformedRequest { field, value, bound });
        if !(op::PUT..=op::WAKE).contains(&head[0]) {
            return refuse("operation", head[0].into(), "1 ..= 10");
        }
        if len as usize > MAX_TRANSFER_BYTES {
            return refuse("bytes", len.into(), "at most 65536");
        }
        let request = match head[0] {
            op::PUT => Request::Put { at, len },
            op::PUT_U32 => Request::PutU32 { at, value: value as u32 },
            op::PUT_U64 => Request::PutU64 { at, value },
            op::GET => Request::Get { at, len },
            op::GET_U32 => Request::GetU32 { at },
            op::GET_U64 => Request::GetU64 { at },
            op::GET_FIELDS => {
                let halves = match head[1] {
                    0 => Halves::Of(value),
                    1 => Halves::Odd,
                    2 => Halves::From(usize::try_from(value).unwrap_or(usize::MAX)),
                    kind => return refuse("halves", kind.into(), "0 ..= 2"),
                };
                Request::GetFields { at, words: len / 8, halves }
            }
            op::ADD_U32 => Request::AddU32 { at, value: value as u32 },
            op::FENCE => Request::Fence,
            _ => Request::Wake { at },
        };
        // Whatever the operation has no use for has one value.
        let written = request.to_bytes();
        match (0..HEAD_BYTES).find(|at| written[*at] != head[*at]) {
            None => Ok(request),
            Some(4..8) => refuse("bytes", len.into(), "those of a word, or of whole words"),
            Some(at) => refuse("head", head[at].into(), "zero where the operation uses nothing"),
        }
    }

    /// Bytes that follow the head.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        match self {
            Request::Put { len, .. } => *len as usize,
            _ => 0,
        }
    }

    /// Bytes of the answer; without any there is none.
    #[must_use]
    pub fn answer_bytes(&self) -> usize {
        match self {
            Request::Get { len, .. } => *len as usize,
            Request::GetU32 { .. } | Request::AddU32 { .. } => 4,
            Request::GetU64 { .. } | Request::Fence => 8,
            Request::GetFields { words, .. } => 8 * *words as usize,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Request> {
        use Request::*;
        let halves = [Halves::Of(5), Halves::Odd, Halves::From(3)];
        let fields = halves.map(|halves| GetFields { at: 8, words: 9, halves });
        let others = [
            Put { at: 1, len: 65536 },
            Put { at: 1, len: 0 },
            PutU32 { at: 4, value: u32::MAX },
            PutU64 { at: 8, value: u64::MAX },
            Get { at: u64::MAX, len: 7 },
            GetU32 { at: 4 },
            GetU64 { at: 8 },
            AddU32 { at: 4, value: 1 },
            Fence,
            Wake { at: 4 },
        ];
        fields.into_iter().chain(others).collect()
    }

    #[test]
    fn what_is_asked_is_understood() {
        for request in all() {
            assert_eq!(Request::read(&request.to_bytes()), Ok(request));
        }
    }

    /// A damaged head is another request, or refused by the name of a field.
    #[test]
    fn no_two_heads_mean_the_same() {
        for request in all() {
            for at in 0..HEAD_BYTES {
                let mut head = request.to_bytes();
                head[at] ^= 0x41;
                match Request::read(&head) {
                    Ok(other) => assert_eq!(other.to_bytes(), head, "byte {at} of {request:?}"),
                    Err(error) => assert!(error.to_string().starts_with("request "), "{error}"),
                }
            }
        }
    }

    #[test]
    fn bounds_are_named() {
        let head = |op: u8, len: u32, value: u64| {
            let mut head = [0; HEAD_BYTES];
            head[0] = op;
            head[4..8].copy_from_slice(&len.to_le_bytes());
            head[16..].copy_from_slice(&value.to_le_bytes());
            Request::read(&head).expect_err("out of bounds").to_string()
        };
        assert_eq!(head(0, 4, 0), "request operation is 0, must be 1 ..= 10");
        assert_eq!(head(1, 65537, 0), "request bytes is 65537, must be at most 65536");
        let of_words = "must be those of a word, or of whole words";
        assert_eq!(head(7, 12, 0), format!("request bytes is 12, {of_words}"));
        assert_eq!(head(6, 4, 0), format!("request bytes is 4, {of_words}"));
        let unused = "must be zero where the operation uses nothing";
        assert_eq!(head(2, 4, 3 << 32), format!("request head is 3, {unused}"));
        assert_eq!(head(9, 8, 5), format!("request head is 5, {unused}"));
    }
}
