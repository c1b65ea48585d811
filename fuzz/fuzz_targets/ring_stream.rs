//! The listener's side of a ring over TCP, against a peer that sends anything. The first byte says
//! how many bytes come at a time, the second how many bytes of an answer the peer takes at a time.
//!
//! However the bytes come, the region holds the same at the end, and the peer has read the same.
#![no_main]

use std::io::{self, Read, Write};

use libfuzzer_sys::fuzz_target;
use saccade_ring::remote::stream::{Session, Turn};
use saccade_ring::{InProcTransport, Transport};

const REGION_BYTES: usize = 4096;

/// A socket that does not block.
struct Socket<'a> {
    said: &'a [u8],
    /// Bytes of one read.
    step: usize,
    /// Bytes that it takes before it has no room, until the next turn.
    room: usize,
    heard: Vec<u8>,
}

impl Read for Socket<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        assert!(!out.is_empty(), "it would take a peer for one that has ended");
        if self.said.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let most = out.len().min(self.step);
        self.said.read(&mut out[..most])
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let taken = bytes.len().min(self.room);
        self.room -= taken;
        self.heard.extend(&bytes[..taken]);
        Ok(taken)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the peer has read, the region, and why the connection is over, if it is.
fn serve(said: &[u8], step: usize, room: usize) -> (Vec<u8>, Vec<u8>, Option<String>) {
    let region = InProcTransport::zeroed(REGION_BYTES);
    let mut session = Session::default();
    let mut socket = Socket { said, step, room, heard: Vec::new() };
    let end = loop {
        match session.serve(&mut socket, &region) {
            Ok(Turn::Idle) => {
                assert!(socket.said.is_empty() && !session.is_unsent());
                break None;
            }
            Ok(Turn::Cut) => {}
            Ok(Turn::Unsent) => {
                assert!(session.is_unsent() && socket.room == 0);
                socket.room = room;
            }
            Err(end) => break Some(end.to_string()),
        }
    };
    let mut bytes = vec![0; REGION_BYTES];
    region.get(0, &mut bytes).expect("all of it");
    (socket.heard, bytes, end)
}

fuzz_target!(|data: &[u8]| {
    let Some(([step, room], said)) = data.split_first_chunk() else { return };
    let whole = serve(said, usize::MAX, usize::MAX);
    let pieces = serve(said, usize::from(*step).max(1), usize::from(*room).max(1));
    assert!(whole == pieces);
});
