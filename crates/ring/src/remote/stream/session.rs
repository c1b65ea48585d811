//! The listener's side of one connection.

use std::io::{self, ErrorKind, Read, Write};

use super::request::{HEAD_BYTES, MAX_TRANSFER_BYTES, MalformedRequest, Request};
use crate::transport::{Transport, TransportError};

/// Bytes that are read ahead: the longest request, and as much again.
const INPUT_BYTES: usize = 2 * (HEAD_BYTES + MAX_TRANSFER_BYTES);
/// Reads of a socket before other connections have their turn.
const READS_PER_TURN: usize = 4;

/// Where a turn has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Nothing more has come.
    Idle,
    /// There may be more: others come first.
    Cut,
    /// The peer reads its answer too slowly. Nothing more is read before it has it.
    Unsent,
}

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
pub enum SessionEnd {
    /// The peer has ended it.
    #[error("ended")]
    Ended,
    /// The peer does not speak this protocol.
    #[error("{0}")]
    Malformed(#[from] MalformedRequest),
    /// The peer asks for what is not in the region.
    #[error("{0}")]
    Access(#[from] TransportError),
    /// The socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Carries out what a peer asks for, and holds what has come of the next request.
#[derive(Debug)]
pub struct Session {
    /// [`INPUT_BYTES`]; those from `begin` to `end` have come and are not done.
    input: Box<[u8]>,
    begin: usize,
    end: usize,
    /// At most one answer, sent up to `sent`.
    answer: Vec<u8>,
    sent: usize,
    /// An answer in words.
    words: Vec<u64>,
}

impl Default for Session {
    fn default() -> Session {
        Session {
            input: vec![0; INPUT_BYTES].into(),
            begin: 0,
            end: 0,
            answer: Vec::with_capacity(MAX_TRANSFER_BYTES),
            sent: 0,
            words: Vec::new(),
        }
    }
}

impl Session {
    /// Does what has come over a socket that does not block.
    ///
    /// # Errors
    /// [`SessionEnd`]: the connection is over.
    pub fn serve(
        &mut self,
        mut socket: impl Read + Write,
        region: &dyn Transport,
    ) -> Result<Turn, SessionEnd> {
        for _ in 0..READS_PER_TURN {
            // Before the first read, for what waited until an answer was sent; and after each, so
            // that nothing waits here for bytes that may never come.
            if !self.do_whole_requests(&mut socket, region)? {
                return Ok(Turn::Unsent);
            }
            match socket.read(&mut self.input[self.end..]) {
                Ok(0) => return Err(SessionEnd::Ended),
                Ok(more) => self.end += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Turn::Idle),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let done = self.do_whole_requests(&mut socket, region)?;
        Ok(if done { Turn::Cut } else { Turn::Unsent })
    }

    /// False if an answer has to be sent first.
    fn do_whole_requests(
        &mut self,
        socket: &mut impl Write,
        region: &dyn Transport,
    ) -> Result<bool, SessionEnd> {
        loop {
            if !self.send(socket)? {
                return Ok(false);
            }
            if !self.carry_out_next(region)? {
                self.make_room();
                return Ok(true);
            }
        }
    }

    /// Whether the peer has yet to read an answer.
    #[must_use]
    pub fn is_unsent(&self) -> bool {
        self.sent < self.answer.len()
    }

    /// True once the peer has its answer.
    fn send(&mut self, socket: &mut impl Write) -> Result<bool, SessionEnd> {
        while self.is_unsent() {
            match socket.write(&self.answer[self.sent..]) {
                Ok(0) => return Err(SessionEnd::Ended),
                Ok(more) => self.sent += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.answer.clear();
        self.sent = 0;
        Ok(true)
    }

    /// False if no request is whole.
    fn carry_out_next(&mut self, region: &dyn Transport) -> Result<bool, SessionEnd> {
        let come = &self.input[self.begin..self.end];
        let Some((head, rest)) = come.split_first_chunk() else { return Ok(false) };
        let request = Request::read(head)?;
        let Some(body) = rest.get(..request.body_bytes()) else { return Ok(false) };
        carry_out(&request, body, region, &mut self.answer, &mut self.words)?;
        self.begin += HEAD_BYTES + body.len();
        Ok(true)
    }

    /// For the rest of a request.
    fn make_room(&mut self) {
        // A long body comes in many pieces, and is moved once.
        if self.begin > 0 {
            self.input.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
    }
}

fn carry_out(
    request: &Request,
    body: &[u8],
    region: &dyn Transport,
    answer: &mut Vec<u8>,
    words: &mut Vec<u64>,
) -> Result<(), TransportError> {
    // SYNC: the accesses are those of a peer on this host, in the peer's order (`Transport`), so
    // their partners are the same.
    match *request {
        Request::Put { at, .. } => region.put(at, body)?,
        Request::PutU32 { at, value } => region.put_u32(at, value)?,
        Request::PutU64 { at, value } => region.put_u64(at, value)?,
        Request::Get { at, .. } => {
            answer.resize(request.answer_bytes(), 0);
            region.get(at, answer)?;
        }
        Request::GetU32 { at } => answer.extend(region.get_u32(at)?.to_le_bytes()),
        Request::GetU64 { at } => answer.extend(region.get_u64(at)?.to_le_bytes()),
        Request::GetFields { at, words: count, halves } => {
            words.resize(count as usize, 0);
            region.get_fields(at, words, halves)?;
            answer.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
        Request::AddU32 { at, value } => {
            answer.extend(region.fetch_add_u32(at, value)?.to_le_bytes());
        }
        Request::Fence => {
            region.fence();
            answer.extend([0; 8]);
        }
        Request::Wake { at } => region.wake_word(at)?,
    }
    Ok(())
}
