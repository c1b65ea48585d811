//! The joining side of one connection.
//!
//! Puts wait in the lane until something must follow them: a word, an answer, or more than fits.
//! Nothing is confirmed but a fence, so what was sent before the connection was lost may be lost
//! with it.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::lane::Lane;
use super::super::{OPERATION_TIMEOUT, SPIN, poll, waiting_for};
use super::request::{HEAD_BYTES, MAX_TRANSFER_BYTES, Request};
use crate::transport::Halves;

/// Requests that wait to be sent.
const OUTPUT_BYTES: usize = HEAD_BYTES + MAX_TRANSFER_BYTES;

/// A connection, and requests that are not sent yet.
#[derive(Debug)]
pub(in super::super) struct StreamLane {
    socket: Arc<TcpStream>,
    /// At most [`OUTPUT_BYTES`].
    output: Vec<u8>,
}

impl StreamLane {
    /// After the handshake, over a socket that does not block.
    pub(in super::super) fn new(socket: Arc<TcpStream>) -> StreamLane {
        StreamLane { socket, output: Vec::with_capacity(OUTPUT_BYTES) }
    }

    /// Sends it later, with its body.
    fn queue(&mut self, request: &Request, body: &[u8]) -> Result<(), String> {
        if self.output.len() + HEAD_BYTES + body.len() > OUTPUT_BYTES {
            self.send()?;
        }
        self.output.extend(request.to_bytes());
        self.output.extend(body);
        Ok(())
    }

    /// Sends it now, after all that waits.
    fn tell(&mut self, request: &Request) -> Result<(), String> {
        self.queue(request, &[])?;
        self.send()
    }

    /// Sends it now, and waits for the answer.
    fn ask(&mut self, request: &Request, answer: &mut [u8]) -> Result<(), String> {
        self.tell(request)?;
        let (began, mut got) = (Instant::now(), 0);
        while got < answer.len() {
            match (&*self.socket).read(&mut answer[got..]) {
                Ok(0) => return Err("the peer's process ended".into()),
                Ok(more) => got += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait(libc::POLLIN, began)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), String> {
        let (began, mut sent) = (Instant::now(), 0);
        while sent < self.output.len() {
            match (&*self.socket).write(&self.output[sent..]) {
                Ok(more) => sent += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait(libc::POLLOUT, began)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        self.output.clear();
        Ok(())
    }

    /// Returns when the socket may be ready: at once for a while, then after a sleep.
    fn wait(&self, events: libc::c_short, began: Instant) -> Result<(), String> {
        let waited = began.elapsed();
        if waited < SPIN {
            std::hint::spin_loop();
            return Ok(());
        }
        let left = OPERATION_TIMEOUT.saturating_sub(waited);
        if left == Duration::ZERO {
            return Err(format!("no answer within {OPERATION_TIMEOUT:?}"));
        }
        // An end of the socket, by either side, is an event too.
        poll(&mut [waiting_for(self.socket.as_raw_fd(), events)], left);
        Ok(())
    }
}

impl Lane for StreamLane {
    fn transports(&self) -> String {
        "tcp".into()
    }

    fn put(&mut self, at: u64, bytes: &[u8]) -> Result<(), String> {
        let starts = (at..).step_by(MAX_TRANSFER_BYTES);
        for (body, at) in bytes.chunks(MAX_TRANSFER_BYTES).zip(starts) {
            self.queue(&Request::Put { at, len: body.len() as u32 }, body)?;
        }
        Ok(())
    }

    fn put_u32(&mut self, at: u64, value: u32) -> Result<(), String> {
        self.tell(&Request::PutU32 { at, value })
    }

    fn put_u64(&mut self, at: u64, value: u64) -> Result<(), String> {
        self.tell(&Request::PutU64 { at, value })
    }

    fn get(&mut self, at: u64, out: &mut [u8]) -> Result<(), String> {
        let starts = (at..).step_by(MAX_TRANSFER_BYTES);
        for (answer, at) in out.chunks_mut(MAX_TRANSFER_BYTES).zip(starts) {
            self.ask(&Request::Get { at, len: answer.len() as u32 }, answer)?;
        }
        Ok(())
    }

    fn get_u32(&mut self, at: u64) -> Result<u32, String> {
        let mut word = [0; 4];
        self.ask(&Request::GetU32 { at }, &mut word)?;
        Ok(u32::from_le_bytes(word))
    }

    fn get_u64(&mut self, at: u64) -> Result<u64, String> {
        let mut word = [0; 8];
        self.ask(&Request::GetU64 { at }, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    fn get_fields(&mut self, at: u64, out: &mut [u64], halves: Halves) -> Result<(), String> {
        const WORDS: usize = MAX_TRANSFER_BYTES / 8;
        for (i, answer) in out.chunks_mut(WORDS).enumerate() {
            let halves = after(halves, i * WORDS);
            let at = at + (i * MAX_TRANSFER_BYTES) as u64;
            let words = answer.len() as u32;
            let request = Request::GetFields { at, words, halves };
            self.ask(&request, bytemuck::cast_slice_mut(answer))?;
            answer.iter_mut().for_each(|word| *word = u64::from_le(*word));
        }
        Ok(())
    }

    fn fetch_add_u32(&mut self, at: u64, value: u32) -> Result<u32, String> {
        let mut word = [0; 4];
        self.ask(&Request::AddU32 { at, value }, &mut word)?;
        Ok(u32::from_le_bytes(word))
    }

    fn fence(&mut self) -> Result<(), String> {
        self.ask(&Request::Fence, &mut [0; 8])
    }

    fn wake(&mut self, at: u64) -> Result<(), String> {
        self.tell(&Request::Wake { at })
    }
}

/// The same halves, counted from a later word, whose index is even.
fn after(halves: Halves, words: usize) -> Halves {
    match halves {
        Halves::Of(bits) => Halves::Of(bits.checked_shr(words as u32).unwrap_or(0)),
        Halves::Odd => Halves::Odd,
        Halves::From(first) => Halves::From(first.saturating_sub(words)),
    }
}
