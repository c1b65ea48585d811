//! Both sides of the handshake before a region is lent, against a peer that says anything. The
//! first byte says which side is under test, how it means to reach the region, whether it has a
//! secret, and whether the input is what the peer sends or only the bodies of its messages, which
//! get heads and checksums here. The second byte says how many bytes come at a time.
//!
//! Whatever a stranger says: a listener with a secret never lets it in, and a joining side with a
//! secret never believes a grant. Without a secret what is granted is within its bounds.
#![no_main]

use std::io::{self, Read, Write};
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use saccade_ring::handshake::{Abi, Access, Greeting, MAX_BLOB_BYTES, Next, Secret, Visitor, join};
use saccade_ring::layout::{SAC_ABI_VERSION, SAC_LAYOUT_HASH};

/// Gives what it has, and hears nothing.
struct Peer<'a>(&'a [u8]);

impl Read for Peer<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl Write for Peer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A message with this body, as the peer of this version would send it.
fn message(magic: &[u8; 8], word: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(word.to_le_bytes());
    bytes.extend(body);
    let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// A hello for the right region, and a proof.
fn joining_side(bodies: &[u8]) -> Vec<u8> {
    let Some((hello, rest)) = bodies.split_first_chunk::<48>() else { return Vec::new() };
    let hello = [&SAC_LAYOUT_HASH.to_le_bytes()[..], hello].concat();
    let proof = &rest[..rest.len().min(32)];
    [message(b"SACUCXH1", SAC_ABI_VERSION, &hello), message(b"SACUCXP1", 0, proof)].concat()
}

/// A challenge, unless the visitor has no secret, and a grant.
fn listener(bodies: &[u8], has_secret: bool) -> Vec<u8> {
    let answer = |magic, body: &[u8]| message(magic, body.len() as u32, body);
    if !has_secret {
        return answer(b"SACUCXG1", bodies);
    }
    let (challenge, grant) = bodies.split_at(bodies.len().min(32));
    [answer(b"SACUCXC1", challenge), answer(b"SACUCXG1", grant)].concat()
}

fn listen(secret: Option<Arc<Secret>>, step: usize, mut said: &[u8]) {
    let has_secret = secret.is_some();
    let mut greeting = Greeting::new(Abi::RING, secret);
    while !said.is_empty() {
        let room = greeting.room();
        assert!(!room.is_empty(), "it would take a silent peer for one that has ended");
        let taken = room.len().min(step).min(said.len());
        room[..taken].copy_from_slice(&said[..taken]);
        said = &said[taken..];
        match greeting.received(taken) {
            Ok(Next::Wait | Next::Send(_)) => {}
            Ok(Next::Grant(_)) => {
                assert!(!has_secret, "256 bits of a proof were guessed");
                return;
            }
            Err(error) => {
                assert!(error.to_string().len() < 512);
                return;
            }
        }
    }
}

fn visit(access: Access, secret: Option<Arc<Secret>>, said: &[u8]) {
    match join(&mut Peer(said), Visitor { client: 1, access }, &Abi::RING, secret.as_deref()) {
        Ok(grant) => {
            assert!(secret.is_none(), "256 bits of a proof were guessed");
            assert_eq!(grant.ucx.is_some(), access == Access::Ucx);
            if let Some(ucx) = grant.ucx {
                assert!(ucx.base.checked_add(grant.region_bytes).is_some());
                assert!((1..=MAX_BLOB_BYTES).contains(&ucx.address.len()));
                assert!((1..=MAX_BLOB_BYTES).contains(&ucx.key.len()));
            }
        }
        Err(error) => {
            let said = error.to_string();
            assert!(said.len() < 4096 && !said.contains(char::is_control), "{said:?}");
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some(([choice, step], said)) = data.split_first_chunk() else { return };
    let secret = (choice & 1 != 0).then(|| Arc::new(Secret::new(&[7; 32])));
    let (visits, dressed) = (choice & 2 != 0, choice & 4 != 0);
    let access = if choice & 8 == 0 { Access::Ucx } else { Access::Stream { lane: 0 } };
    let dressed = match (dressed, visits) {
        (false, _) => said.to_vec(),
        (true, false) => joining_side(said),
        (true, true) => listener(said, secret.is_some()),
    };
    if visits {
        visit(access, secret, &dressed);
    } else {
        listen(secret, usize::from(*step).max(1), &dressed);
    }
});
