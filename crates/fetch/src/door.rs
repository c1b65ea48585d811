//! Where regions are found: at a path, or at a device plane of another host.

use std::mem::offset_of;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use saccade_ring::remote::{Peer, RemoteError, RemoteTransport};
use saccade_ring::{RegionError, Transport};

use crate::layout::*;
use crate::region::Region;

/// Between looks for a region at a path.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Between attempts to connect.
const DIAL_EVERY: Duration = Duration::from_millis(250);
/// The same, after the other side has said no.
const DIAL_AFTER_A_REFUSAL: Duration = Duration::from_secs(2);
/// Connections of a plane: for control, network, workers and encoders. With more threads than that
/// some wait for each other.
const LANES: u32 = 8;

/// Where devices put their regions.
#[derive(Debug, Clone)]
pub enum Door {
    /// A file, which each life of the device recreates.
    File(PathBuf),
    /// A device plane of another host that hands its region out.
    Remote(Peer),
}

impl std::fmt::Display for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Door::File(path) => path.display().fmt(f),
            Door::Remote(peer) => peer.fmt(f),
        }
    }
}

/// Whether the region that was found is still the device's.
#[derive(Debug)]
pub(crate) enum Hold {
    /// While this file is at the path.
    File(PathBuf, Identity),
    /// Accesses fail when it is not.
    Connection,
}

impl Hold {
    /// False: the device is gone, or another one is here.
    pub fn holds(&self) -> bool {
        match self {
            Hold::File(path, identity) => Identity::of(path).as_ref() == Some(identity),
            Hold::Connection => true,
        }
    }
}

/// Which file is at a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(path: &Path) -> Option<Identity> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Identity { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// Looks for regions.
#[derive(Debug)]
pub(crate) struct Finder {
    door: Door,
    /// Names this process to a device plane of another host.
    client: u64,
    /// The last complaint about what was found, so that it is made once.
    complaint: String,
    pause: Duration,
}

impl Finder {
    pub fn new(door: Door) -> Finder {
        Finder {
            door,
            client: crate::region::random_u64(),
            complaint: String::new(),
            pause: LOOK_EVERY,
        }
    }

    pub fn door(&self) -> &Door {
        &self.door
    }

    /// How long to wait after nothing was found.
    pub fn pause(&self) -> Duration {
        self.pause
    }

    /// The region that is there, if a device serves it.
    pub fn find(&mut self) -> Option<(Region, Hold)> {
        let (region, hold) = match self.door.clone() {
            Door::File(path) => self.open(path)?,
            Door::Remote(peer) => self.dial(&peer)?,
        };
        let closed = region.layout().device_at(offset_of!(DeviceLine, closed));
        // SYNC: acquire; pairs with the device's release of closed.
        let open = region.transport().get_u32(closed).is_ok_and(|closed| closed == 0);
        if open {
            self.complaint.clear();
        }
        open.then_some((region, hold))
    }

    fn open(&mut self, path: PathBuf) -> Option<(Region, Hold)> {
        let identity = Identity::of(&path)?;
        match Region::open(&path) {
            Ok(region) => Some((region, Hold::File(path, identity))),
            Err(RegionError::Io { .. }) => None,
            Err(error) => {
                self.complain(&error.to_string());
                None
            }
        }
    }

    /// A connection for one life: a plane that has lost one begins another life with the next.
    fn dial(&mut self, peer: &Peer) -> Option<(Region, Hold)> {
        self.pause = DIAL_EVERY;
        let connected = RemoteTransport::connect_once(peer, crate::export::ABI, self.client, LANES);
        let found = connected.and_then(|transport| {
            let chosen = transport.transports();
            Ok((Region::remote(std::sync::Arc::new(transport))?, chosen))
        });
        match found {
            Ok((region, transports)) => {
                tracing::info!(transports, "fetch plane: connected");
                Some((region, Hold::Connection))
            }
            Err(error) => {
                if matches!(error, RemoteError::Handshake(_) | RemoteError::Secret(_)) {
                    self.pause = DIAL_AFTER_A_REFUSAL;
                }
                self.complain(&error.to_string());
                None
            }
        }
    }

    fn complain(&mut self, error: &str) {
        if error != self.complaint {
            tracing::warn!(ring = %self.door, error, "fetch plane: the region there cannot be used");
            error.clone_into(&mut self.complaint);
        }
    }
}
