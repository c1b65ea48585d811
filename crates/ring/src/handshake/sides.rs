//! The two sides of a handshake.

use std::io::{Read, Write};
use std::sync::Arc;

use super::messages::{self, Answer, HELLO_BYTES, HELLO_MAGIC, Hello, PROOF_BYTES, PROOF_MAGIC};
use super::proof::{self, MAC_BYTES};
use super::{Abi, Access, Grant, HandshakeError, Secret, Visitor};

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
    Proof { visitor: Visitor, transcript: Transcript },
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
    visitor: Visitor,
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
            Stage::Proof { visitor, transcript } => self.admit(visitor, transcript),
        }
    }

    /// After a hello.
    fn meet(&mut self) -> Result<Next, HandshakeError> {
        let Hello { visitor, has_secret, .. } = messages::read_hello(&self.bytes, &self.abi)?;
        match (has_secret, self.secret.is_some()) {
            (false, false) => Ok(Next::Grant(Guest { visitor, proven: None })),
            (false, true) => Err(HandshakeError::OnlyListenerHasSecret),
            (true, false) => Err(HandshakeError::OnlyJoinerHasSecret),
            (true, true) => {
                let challenge = messages::challenge(&proof::nonce()?);
                let transcript = Transcript { hello: self.bytes, challenge: challenge.clone() };
                self.stage = Stage::Proof { visitor, transcript };
                Ok(Next::Send(challenge))
            }
        }
    }

    /// After a proof.
    fn admit(&self, visitor: Visitor, transcript: Transcript) -> Result<Next, HandshakeError> {
        let secret = self.secret.as_ref().ok_or(HandshakeError::OnlyJoinerHasSecret)?;
        let (bytes, _) = self.bytes.split_first_chunk().expect("a proof is shorter than a hello");
        let said = messages::read_proof(bytes)?;
        let expected = secret.joiner_proof(&transcript.hello, &transcript.challenge);
        if !proof::same(&said, &expected) {
            return Err(HandshakeError::SecretsDiffer);
        }
        let proven = Some((Arc::clone(secret), transcript));
        Ok(Next::Grant(Guest { visitor, proven }))
    }
}

impl Guest {
    /// Who it is, and what it asks for.
    #[must_use]
    pub fn visitor(&self) -> Visitor {
        self.visitor
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

/// Joins the region of a listener at the other end of the stream. With a secret, both sides prove
/// that they know it; what is returned then comes from such a listener.
///
/// # Errors
/// Why the listener refuses, or is not to be trusted.
pub fn join(
    stream: &mut (impl Read + Write),
    visitor: Visitor,
    abi: &Abi,
    secret: Option<&Secret>,
) -> Result<Grant, HandshakeError> {
    let nonce = proof::nonce()?;
    let hello = messages::hello(&Hello { visitor, has_secret: secret.is_some(), nonce }, abi);
    stream.write_all(&hello)?;
    let said = match secret {
        None => join_openly(stream),
        Some(secret) => join_by_proof(stream, secret, &hello),
    }?;
    let grant = messages::read_grant(&said)?;
    let expected = visitor.access == Access::Ucx;
    if grant.ucx.is_some() != expected {
        let (value, bound) = ((!expected).to_string(), expected.to_string());
        return Err(HandshakeError::Field { field: "grant for UCX", value, bound });
    }
    Ok(grant)
}

fn join_openly(stream: &mut impl Read) -> Result<Vec<u8>, HandshakeError> {
    match messages::read_answer(stream)? {
        Answer::Grant { said, .. } => Ok(said),
        Answer::Challenge(_) => Err(HandshakeError::OnlyListenerHasSecret),
    }
}

/// What a listener's grant says that has proved itself.
fn join_by_proof(
    stream: &mut (impl Read + Write),
    secret: &Secret,
    hello: &[u8],
) -> Result<Vec<u8>, HandshakeError> {
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
    Ok(said)
}
