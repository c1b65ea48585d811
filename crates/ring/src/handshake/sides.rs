//! The two sides of a handshake.

use std::io::{Read, Write};
use std::sync::Arc;

use super::messages::{self, Answer, HELLO_BYTES, HELLO_MAGIC, Hello, PROOF_BYTES, PROOF_MAGIC};
use super::proof::{self, MAC_BYTES};
use super::{Abi, Grant, HandshakeError, Secret};

/// The listener's side of one handshake, as far as it has come. The peer has no access yet, and
/// costs the listener this value and a socket.
#[derive(Debug)]
pub struct Greeting {
    abi: Abi,
    secret: Option<Arc<Secret>>,
    bytes: [u8; HELLO_BYTES],
    got: usize,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Hello,
    Proof { client: u64, transcript: Transcript },
}

/// Both sides' words before the grant.
#[derive(Debug)]
struct Transcript {
    hello: [u8; HELLO_BYTES],
    challenge: Vec<u8>,
}

/// What a listener does next.
#[derive(Debug)]
pub enum Next {
    /// It waits for more of a message.
    Wait,
    /// It sends these bytes, and waits for the answer.
    Send(Vec<u8>),
    /// It may grant the region.
    Grant(Guest),
}

/// A peer that may be granted the region.
#[derive(Debug)]
pub struct Guest {
    client: u64,
    proven: Option<(Arc<Secret>, Transcript)>,
}

impl Greeting {
    /// For a peer that has just come. With a secret, the peer must prove that it knows it.
    #[must_use]
    pub fn new(abi: Abi, secret: Option<Arc<Secret>>) -> Greeting {
        Greeting { abi, secret, bytes: [0; HELLO_BYTES], got: 0, stage: Stage::Hello }
    }

    /// Room for what is missing of the message that is expected.
    pub fn room(&mut self) -> &mut [u8] {
        let end = self.expected_bytes();
        &mut self.bytes[self.got..end]
    }

    /// That message, for people.
    #[must_use]
    pub fn expects(&self) -> &'static str {
        match self.stage {
            Stage::Hello => "hello",
            Stage::Proof { .. } => "proof",
        }
    }

    fn expected_bytes(&self) -> usize {
        match self.stage {
            Stage::Hello => HELLO_BYTES,
            Stage::Proof { .. } => PROOF_BYTES,
        }
    }

    /// Goes on after `more` bytes were written into [`Self::room`].
    ///
    /// # Errors
    /// Why the peer is to be refused.
    pub fn received(&mut self, more: usize) -> Result<Next, HandshakeError> {
        self.got = (self.got + more).min(self.expected_bytes());
        let magic = match self.stage {
            Stage::Hello => HELLO_MAGIC,
            Stage::Proof { .. } => PROOF_MAGIC,
        };
        messages::check_beginning(magic, &self.bytes[..self.got])?;
        if self.got < self.expected_bytes() {
            return Ok(Next::Wait);
        }
        self.got = 0;
        match std::mem::replace(&mut self.stage, Stage::Hello) {
            Stage::Hello => self.meet(),
            Stage::Proof { client, transcript } => self.admit(client, transcript),
        }
    }

    /// After a hello.
    fn meet(&mut self) -> Result<Next, HandshakeError> {
        let Hello { client, has_secret, .. } = messages::read_hello(&self.bytes, &self.abi)?;
        match (has_secret, self.secret.is_some()) {
            (false, false) => Ok(Next::Grant(Guest { client, proven: None })),
            (false, true) => Err(HandshakeError::OnlyListenerHasSecret),
            (true, false) => Err(HandshakeError::OnlyJoinerHasSecret),
            (true, true) => {
                let challenge = messages::challenge(&proof::nonce()?);
                let transcript = Transcript { hello: self.bytes, challenge: challenge.clone() };
                self.stage = Stage::Proof { client, transcript };
                Ok(Next::Send(challenge))
            }
        }
    }

    /// After a proof.
    fn admit(&self, client: u64, transcript: Transcript) -> Result<Next, HandshakeError> {
        let secret = self.secret.as_ref().ok_or(HandshakeError::OnlyJoinerHasSecret)?;
        let (bytes, _) = self.bytes.split_first_chunk().expect("a proof is shorter than a hello");
        let said = messages::read_proof(bytes)?;
        let expected = secret.joiner_proof(&transcript.hello, &transcript.challenge);
        if !proof::same(&said, &expected) {
            return Err(HandshakeError::SecretsDiffer);
        }
        let proven = Some((Arc::clone(secret), transcript));
        Ok(Next::Grant(Guest { client, proven }))
    }
}

impl Guest {
    /// The id of its transport.
    #[must_use]
    pub fn client(&self) -> u64 {
        self.client
    }

    /// The bytes that grant it the region.
    ///
    /// # Errors
    /// An address or key that is too long.
    pub fn grant(&self, grant: &Grant) -> Result<Vec<u8>, HandshakeError> {
        messages::grant(grant, |said| match &self.proven {
            None => [0; MAC_BYTES],
            Some((secret, Transcript { hello, challenge })) => {
                secret.listener_proof(hello, challenge, said)
            }
        })
    }
}

/// Joins the region of a listener at the other end of the stream, as this client. With a secret,
/// both sides prove that they know it; what is returned then comes from such a listener.
///
/// # Errors
/// Why the listener refuses, or is not to be trusted.
pub fn join(
    stream: &mut (impl Read + Write),
    client: u64,
    abi: &Abi,
    secret: Option<&Secret>,
) -> Result<Grant, HandshakeError> {
    let nonce = proof::nonce()?;
    let hello = messages::hello(&Hello { client, has_secret: secret.is_some(), nonce }, abi);
    stream.write_all(&hello)?;
    match secret {
        None => join_openly(stream),
        Some(secret) => join_by_proof(stream, secret, &hello),
    }
}

fn join_openly(stream: &mut impl Read) -> Result<Grant, HandshakeError> {
    match messages::read_answer(stream)? {
        Answer::Grant { said, .. } => messages::read_grant(&said),
        Answer::Challenge(_) => Err(HandshakeError::OnlyListenerHasSecret),
    }
}

fn join_by_proof(
    stream: &mut (impl Read + Write),
    secret: &Secret,
    hello: &[u8],
) -> Result<Grant, HandshakeError> {
    let Answer::Challenge(challenge) = messages::read_answer(stream)? else {
        return Err(HandshakeError::ListenerUnproved);
    };
    stream.write_all(&messages::proof(&secret.joiner_proof(hello, &challenge)))?;
    let Answer::Grant { said, mac } = messages::read_answer(stream)? else {
        return Err(HandshakeError::ListenerUnproved);
    };
    if !proof::same(&mac, &secret.listener_proof(hello, &challenge, &said)) {
        return Err(HandshakeError::ListenerUnproved);
    }
    messages::read_grant(&said)
}
