//! What two sides say to each other over a plain socket before a region is lent (cargo feature
//! `remote`).
//!
//! | | joining side | listener |
//! |---|---|---|
//! | 1 | hello: version, region expected, id, access, whether it has a secret, nonce | |
//! | 2 | | challenge: nonce (if both have a secret) |
//! | 3 | proof: MAC over 1 and 2 | |
//! | 4 | | grant: the region, how UCX reaches it, MAC over 1, 2 and the grant |
//!
//! Instead of 2 or 4 the listener may refuse, with a sentence. After a grant the socket carries the
//! data ([`Access::Stream`]), or stays open in silence so that each side learns at once when the
//! other's process ends.
//! Everything is little-endian, has a magic, a version, bounds, and a checksum.
//!
//! The joining side proves itself first, so that a listener gives nothing away to a stranger, not
//! even a MAC. It uses nothing of a grant before the listener's MAC holds: UCX parses addresses and
//! keys without a bound. Both nonces are in both MACs, so neither can be used again; the roles are
//! in them too, so neither can be sent back. What follows the handshake is not protected by it: see
//! SECURITY.md.
//!
//! Nothing here touches a socket: [`Greeting`] is fed bytes, [`join`] takes a stream.

mod lines;
mod messages;
mod proof;
mod secret_file;
mod sides;

use std::io;

use crate::layout::{SAC_ABI_VERSION, SAC_LAYOUT_HASH};

pub use lines::Lines;
pub use messages::{Grant, MAX_BLOB_BYTES, MAX_REASON_BYTES, UcxGrant, refusal};
pub use proof::Secret;
pub use secret_file::{MAX_SECRET_BYTES, MIN_SECRET_BYTES, SecretError, SecretFile};
pub use sides::{Greeting, Guest, Next, join};

/// Which header describes the region that is handed out: what both sides must have been built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abi {
    /// For people.
    pub name: &'static str,
    /// Version of the header.
    pub version: u32,
    /// Hash of its layout.
    pub layout_hash: u64,
}

impl Abi {
    /// `abi/wire.h`.
    pub const RING: Abi = Abi {
        name: "the ring of this build",
        version: SAC_ABI_VERSION,
        layout_hash: SAC_LAYOUT_HASH,
    };
}

/// Connections of one process that carry data, at most.
pub const MAX_LANES: u32 = 64;

/// Who asks for a region, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visitor {
    /// Id of its transport: a new connection replaces an older one.
    pub client: u64,
    /// What it asks for.
    pub access: Access,
}

/// How a visitor means to reach the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// By the connection of the handshake, one of several: below [`MAX_LANES`]. The first, 0,
    /// replaces all that the same client had before.
    Stream {
        /// Which one.
        lane: u32,
    },
    /// By UCX.
    Ucx,
}

/// Why two sides do not come together.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
pub enum HandshakeError {
    /// A field breaks its bound.
    #[error("{field} is {value}, must be {bound}")]
    Field {
        /// Of the message that it names.
        field: &'static str,
        /// What it was.
        value: String,
        /// What it may be.
        bound: String,
    },
    /// The listener asks for a proof that the joining side cannot give.
    #[error("only the listener has a secret: name it with --ring-secret-file on both sides")]
    OnlyListenerHasSecret,
    /// The joining side asks for a proof that the listener cannot give.
    #[error("only the joining side has a secret: name it with --ring-secret-file on both sides")]
    OnlyJoinerHasSecret,
    /// The joining side does not know the listener's secret.
    #[error("the secrets of the two sides differ (--ring-secret-file)")]
    SecretsDiffer,
    /// A listener that lends a region without having proved itself.
    #[error("the listener has not proved that it knows the secret (--ring-secret-file)")]
    ListenerUnproved,
    /// No nonce can be drawn.
    #[error("the system gives no random numbers")]
    NoRandomness,
    /// The other side said no.
    #[error("refused: {0}")]
    Refused(String),
    /// The other side ended, or said too little in time.
    #[error("no answer: {0}")]
    Io(String),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> HandshakeError {
        HandshakeError::Io(error.to_string())
    }
}
