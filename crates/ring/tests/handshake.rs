//! Handshakes of two sides, of which one may be a stranger, or have one between them.
#![cfg(feature = "remote")]

use std::io::{self, Read, Write};
use std::sync::Arc;

use proptest::prelude::*;
use saccade_ring::handshake::{
    Abi, Access, Grant, Greeting, HandshakeError, Next, Secret, UcxGrant, Visitor, join, refusal,
};

const CLIENT: Visitor = Visitor { client: 9, access: Access::Ucx };
/// Magic, version and a word come before a message's body, a checksum behind it.
const HEAD_BYTES: usize = 16;
const SUM_BYTES: usize = 8;

fn secret(of: &str) -> Arc<Secret> {
    Arc::new(Secret::new(of.as_bytes()))
}

fn region() -> Grant {
    let ucx =
        UcxGrant { base: 4096, stores_in_order: true, address: vec![1; 300], key: vec![2; 33] };
    Grant { region_bytes: 1 << 20, instance_id: 7, ucx: Some(ucx) }
}

/// One in the middle: changes messages, which are counted from 0 in the order of the handshake.
type Meddle<'a> = dyn Fn(usize, &mut Vec<u8>) + 'a;

/// The listener at the other end of the joining side's stream.
struct Listener<'a> {
    greeting: Greeting,
    meddle: &'a Meddle<'a>,
    /// Every message as it was sent.
    said: Vec<Vec<u8>>,
    /// What the joining side has not yet read.
    answer: Vec<u8>,
    /// The listener has let it in.
    granted: bool,
}

impl Listener<'_> {
    fn new<'a>(secret: Option<Arc<Secret>>, meddle: &'a Meddle<'a>) -> Listener<'a> {
        Listener {
            greeting: Greeting::new(Abi::RING, secret),
            meddle,
            said: Vec::new(),
            answer: Vec::new(),
            granted: false,
        }
    }

    fn deliver(&mut self, mut message: Vec<u8>) -> Vec<u8> {
        self.said.push(message.clone());
        (self.meddle)(self.said.len() - 1, &mut message);
        message
    }

    fn respond(&mut self, next: Result<Next, HandshakeError>) {
        let answer = match next {
            Ok(Next::Wait) => return,
            Ok(Next::Send(challenge)) => challenge,
            Ok(Next::Grant(guest)) => {
                assert_eq!(guest.visitor(), CLIENT);
                self.granted = true;
                guest.grant(&region()).expect("in bounds")
            }
            Err(error) => refusal(&error.to_string()),
        };
        let answer = self.deliver(answer);
        self.answer.extend(answer);
    }
}

/// What a listener does with bytes, as many at a time as it has room for.
fn feed(greeting: &mut Greeting, mut bytes: &[u8]) -> Result<Next, HandshakeError> {
    loop {
        let room = greeting.room();
        let taken = bytes.read(room).expect("a slice");
        match greeting.received(taken)? {
            Next::Wait if bytes.is_empty() => return Ok(Next::Wait),
            Next::Wait => {}
            next => return Ok(next),
        }
    }
}

impl Write for Listener<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let message = self.deliver(bytes.to_vec());
        let next = feed(&mut self.greeting, &message);
        self.respond(next);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Listener<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let taken = self.answer.len().min(out.len());
        out[..taken].copy_from_slice(&self.answer[..taken]);
        self.answer.drain(..taken);
        Ok(taken)
    }
}

/// A listener that says what it was told to, whatever it hears.
struct Recording<'a>(&'a [u8]);

impl Write for Recording<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Recording<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

fn nothing(_: usize, _: &mut Vec<u8>) {}

/// All messages of a handshake that succeeds: hello, challenge, proof, grant.
fn transcript() -> Vec<Vec<u8>> {
    let mut listener = Listener::new(Some(secret("a")), &nothing);
    let joined = join(&mut listener, CLIENT, &Abi::RING, Some(&secret("a")));
    assert_eq!(joined, Ok(region()));
    assert_eq!(listener.said.len(), 4);
    listener.said
}

/// FNV-1a: what is changed on the way gets a right checksum, as an attacker would do it.
fn repair(message: &mut Vec<u8>) {
    let end = message.len().saturating_sub(SUM_BYTES);
    let sum = message[..end].iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    message.truncate(end);
    message.extend(sum.to_le_bytes());
}

#[test]
fn only_two_that_know_the_same_come_together() {
    let cases = [
        (None, None, Ok(region())),
        (Some("a"), Some("a"), Ok(region())),
        (None, Some("a"), Err(HandshakeError::OnlyListenerHasSecret)),
        (Some("a"), None, Err(HandshakeError::OnlyJoinerHasSecret)),
        (Some("b"), Some("a"), Err(HandshakeError::SecretsDiffer)),
    ];
    for (joiner, listener, expected) in cases {
        let mut there = Listener::new(listener.map(secret), &nothing);
        let ours = joiner.map(secret);
        let joined = join(&mut there, CLIENT, &Abi::RING, ours.as_deref());
        // The joining side learns the listener's reason.
        let expected = expected.map_err(|error| HandshakeError::Refused(error.to_string()));
        assert_eq!(joined, expected, "{joiner:?} joins {listener:?}");
        assert_eq!(there.granted, joined.is_ok(), "{joiner:?} joins {listener:?}");
    }
}

/// A listener that knows no secret lends what it likes to one that asks for a proof, or says that
/// it has none: neither is believed.
#[test]
fn an_unproved_grant_is_not_used() {
    let mut open = Listener::new(None, &nothing);
    assert_eq!(join(&mut open, CLIENT, &Abi::RING, None), Ok(region()));
    let grant = open.said.pop().expect("a grant");
    for script in [grant.clone(), [transcript()[1].clone(), grant].concat()] {
        let joined = join(&mut Recording(&script), CLIENT, &Abi::RING, Some(&secret("a")));
        assert_eq!(joined, Err(HandshakeError::ListenerUnproved));
    }
    let challenge = transcript()[1].clone();
    let twice = [challenge.clone(), challenge.clone()].concat();
    let joined = join(&mut Recording(&twice), CLIENT, &Abi::RING, Some(&secret("a")));
    assert_eq!(joined, Err(HandshakeError::ListenerUnproved));
    let joined = join(&mut Recording(&challenge), CLIENT, &Abi::RING, None);
    assert_eq!(joined, Err(HandshakeError::OnlyListenerHasSecret));
}

#[test]
fn what_was_said_before_proves_nothing_again() {
    let heard = transcript();
    let mut greeting = Greeting::new(Abi::RING, Some(secret("a")));
    assert!(matches!(feed(&mut greeting, &heard[0]), Ok(Next::Send(_))));
    let again = feed(&mut greeting, &heard[2]);
    assert_eq!(again.err(), Some(HandshakeError::SecretsDiffer));
    let script = [&heard[1][..], &heard[3]].concat();
    let joined = join(&mut Recording(&script), CLIENT, &Abi::RING, Some(&secret("a")));
    assert_eq!(joined, Err(HandshakeError::ListenerUnproved));
}

/// A proof of one role is none of the other.
#[test]
fn what_a_side_said_itself_proves_nothing_to_it() {
    // To the joining side: its own proof, as the MAC of a grant.
    struct Mirror {
        grant: Vec<u8>,
        answers: Vec<u8>,
    }
    impl Write for Mirror {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if bytes.starts_with(b"SACUCXP1") {
                let mac = self.grant.len() - SUM_BYTES - 32;
                self.grant[mac..mac + 32].copy_from_slice(&bytes[HEAD_BYTES..HEAD_BYTES + 32]);
                repair(&mut self.grant);
                self.answers = self.grant.clone();
            }
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    impl Read for Mirror {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let taken = (&self.answers[..]).read(out)?;
            self.answers.drain(..taken);
            Ok(taken)
        }
    }
    let heard = transcript();
    let mut mirror = Mirror { grant: heard[3].clone(), answers: heard[1].clone() };
    let joined = join(&mut mirror, CLIENT, &Abi::RING, Some(&secret("a")));
    assert_eq!(joined, Err(HandshakeError::ListenerUnproved));

    // To the listener: the MAC of a grant, as a proof.
    let mut greeting = Greeting::new(Abi::RING, Some(secret("a")));
    assert!(matches!(feed(&mut greeting, &heard[0]), Ok(Next::Send(_))));
    let mut proof = heard[2].clone();
    let mac = heard[3].len() - SUM_BYTES - 32;
    proof[HEAD_BYTES..HEAD_BYTES + 32].copy_from_slice(&heard[3][mac..mac + 32]);
    repair(&mut proof);
    assert_eq!(feed(&mut greeting, &proof).err(), Some(HandshakeError::SecretsDiffer));
}

/// Whatever one in the middle changes, with a right checksum: nothing is joined that way.
#[test]
fn one_in_the_middle_changes_nothing_unnoticed() {
    for message in 0..4 {
        for at in 0..transcript()[message].len() - SUM_BYTES {
            let meddle = |index: usize, bytes: &mut Vec<u8>| {
                if index == message {
                    bytes[at] ^= 0x10;
                    repair(bytes);
                }
            };
            let mut listener = Listener::new(Some(secret("a")), &meddle);
            let joined = join(&mut listener, CLIENT, &Abi::RING, Some(&secret("a")));
            assert!(joined.is_err(), "message {message}, byte {at}");
            assert_eq!(listener.granted, message == 3, "message {message}, byte {at}");
        }
    }
}

#[test]
fn a_listener_names_what_is_wrong_as_soon_as_it_shows() {
    let heard = transcript();
    let mut foreign = heard[0].clone();
    foreign[8] = 9;
    for (bytes, expected) in [
        (b"GET / HT".to_vec(), "hello magic is "),
        (b"SACUCXH1\x01\0\0\0".to_vec(), "hello version is 0x1, must be 0x3 (this build)"),
        (foreign, "hello version is 0x9"),
        // More than a hello: what follows is taken for a proof.
        ([&heard[0][..], &heard[0]].concat(), "proof magic is "),
        ([&heard[0][..], b"SACUCXP1\x01\0\0\0"].concat(), "proof version is 0x1"),
    ] {
        let mut greeting = Greeting::new(Abi::RING, Some(secret("a")));
        let mut rest = &bytes[..];
        let mut outcome = Ok(Next::Wait);
        while outcome.is_ok() && !rest.is_empty() {
            let room = greeting.room();
            let taken = rest.read(room).expect("a slice");
            outcome = greeting.received(taken);
        }
        let error = outcome.expect_err(expected).to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn an_answer_that_ends_early_is_no_answer() {
    let heard = transcript();
    let script = [&heard[1][..], &heard[3]].concat();
    for end in 0..script.len() {
        let joined = join(&mut Recording(&script[..end]), CLIENT, &Abi::RING, Some(&secret("a")));
        assert!(matches!(joined, Err(HandshakeError::Io(_))), "{end} bytes: {joined:?}");
    }
}

/// Messages with right heads and checksums, and nonsense.
fn chatter() -> impl Strategy<Value = Vec<u8>> {
    let magic = prop::sample::select(vec!["SACUCXH1", "SACUCXP1", "SACUCXC1", "SACUCXG1"]);
    let message = (magic, prop::collection::vec(any::<u8>(), 0..200)).prop_map(|(magic, body)| {
        let mut bytes = magic.as_bytes().to_vec();
        bytes.extend(2u32.to_le_bytes());
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(body);
        bytes.extend([0; SUM_BYTES]);
        repair(&mut bytes);
        bytes
    });
    let noise = prop::collection::vec(any::<u8>(), 0..200);
    prop::collection::vec(prop_oneof![message, noise], 0..4).prop_map(|parts| parts.concat())
}

proptest! {
    /// In pieces of any size, as a slow peer sends them, it is the same handshake.
    #[test]
    fn pieces_of_any_size_are_put_together(pieces in prop::collection::vec(1usize..60, 1..20)) {
        let heard = transcript();
        let mut greeting = Greeting::new(Abi::RING, Some(secret("a")));
        let mut sizes = pieces.into_iter().cycle();
        let mut rest = &heard[0][..];
        let challenged = loop {
            let piece = sizes.next().expect("endless").min(rest.len());
            prop_assert!(piece > 0, "a whole hello, and no answer");
            greeting.room()[..piece].copy_from_slice(&rest[..piece]);
            rest = &rest[piece..];
            match greeting.received(piece) {
                Ok(Next::Wait) => {}
                other => break other,
            }
        };
        prop_assert!(matches!(challenged, Ok(Next::Send(_))) && rest.is_empty());
    }

    #[test]
    fn a_stranger_is_never_let_in(bytes in chatter()) {
        let mut greeting = Greeting::new(Abi::RING, Some(secret("a")));
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match feed(&mut greeting, rest) {
                Ok(Next::Grant(_)) => prop_assert!(false, "let in"),
                Ok(Next::Send(_)) => rest = &rest[80.min(rest.len())..],
                Ok(Next::Wait) | Err(_) => break,
            }
        }
        let joined = join(&mut Recording(&bytes), CLIENT, &Abi::RING, Some(&secret("a")));
        prop_assert!(joined.is_err());
    }
}
