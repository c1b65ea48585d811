//! The way to a region's bytes: they are mapped here, or a peer of a network has them.

use std::fmt;
use std::sync::Arc;

use saccade_ring::{ShmTransport, Transport};

/// How a region is reached.
#[derive(Clone)]
pub enum Way {
    /// Its bytes are mapped.
    Mapped(ShmTransport),
    /// By puts and gets. Once one has failed with [`TransportError::Down`], all do: what follows a
    /// fence is never there without what came before it.
    Remote(Arc<dyn Transport>),
}

impl Way {
    /// What this thread has put is in the region, before anything that another thread puts after
    /// this. Threads of a process order that themselves where the bytes are mapped; those of a
    /// remote way have connections of their own, and nothing orders one after another.
    pub(crate) fn settle(&self) {
        match self {
            Way::Mapped(_) => {}
            // SYNC: returns when the region has all of it; pairs with the device's acquire of the
            // count that is put later. If it fails, so does that put.
            Way::Remote(remote) => remote.fence(),
        }
    }

    fn transport(&self) -> &dyn Transport {
        match self {
            Way::Mapped(memory) => memory,
            Way::Remote(remote) => remote,
        }
    }

    /// Whether looking costs a way through a network, and waiters are not woken.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self, Way::Remote(_))
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Mapped(memory) => f.debug_tuple("Mapped").field(memory).finish(),
            Way::Remote(_) => f.debug_struct("Remote").finish_non_exhaustive(),
        }
    }
}

impl Transport for Way {
    saccade_ring::forward_transport!(self => self.transport());
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::mem::offset_of;
    use std::sync::{Mutex, PoisonError};
    use std::thread::ThreadId;
    use std::time::Duration;

    use bytemuck::Zeroable;
    use saccade_chunk::{Dtype, Geometry, ModelId};
    use saccade_ring::TransportError;

    use super::*;
    use crate::commands::Request;
    use crate::frame::Frame;
    use crate::layout::*;
    use crate::region::{Limits, Region};
    use crate::session::{Outcome, Session};

    /// What a thread puts lands when that thread fences, and not before: as late as a network may
    /// bring it.
    struct Late {
        memory: ShmTransport,
        under_way: Mutex<HashMap<ThreadId, Vec<Put>>>,
    }

    /// Where, and what.
    type Put = (u64, Vec<u8>);

    impl Late {
        fn hold(&self, at: u64, bytes: &[u8]) -> Result<(), TransportError> {
            let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
            let mine = under_way.entry(std::thread::current().id()).or_default();
            mine.push((at, bytes.to_vec()));
            Ok(())
        }
    }

    impl Transport for Late {
        fn region_bytes(&self) -> u64 {
            self.memory.region_bytes()
        }
        fn put(&self, at: u64, bytes: &[u8]) -> Result<(), TransportError> {
            self.hold(at, bytes)
        }
        fn put_u32(&self, at: u64, value: u32) -> Result<(), TransportError> {
            self.hold(at, &value.to_le_bytes())
        }
        fn put_u64(&self, at: u64, value: u64) -> Result<(), TransportError> {
            self.hold(at, &value.to_le_bytes())
        }
        fn get(&self, at: u64, out: &mut [u8]) -> Result<(), TransportError> {
            self.memory.get(at, out)
        }
        fn get_u32(&self, at: u64) -> Result<u32, TransportError> {
            self.memory.get_u32(at)
        }
        fn get_u64(&self, at: u64) -> Result<u64, TransportError> {
            self.memory.get_u64(at)
        }
        fn get_words(&self, at: u64, out: &mut [u64]) -> Result<(), TransportError> {
            self.memory.get_words(at, out)
        }
        fn fetch_add_u32(&self, at: u64, value: u32) -> Result<u32, TransportError> {
            self.memory.fetch_add_u32(at, value)
        }
        fn fence(&self) {
            let mut under_way = self.under_way.lock().unwrap();
            for (at, bytes) in under_way.remove(&std::thread::current().id()).unwrap_or_default() {
                self.memory.put(at, &bytes).unwrap();
            }
        }
        fn wake_word(&self, _: u64) -> Result<(), TransportError> {
            Ok(())
        }
        fn wait_word(&self, _: u64, _: u32, timeout: Duration) -> Result<(), TransportError> {
            std::thread::sleep(timeout);
            Ok(())
        }
    }

    /// A region as the device has it, and the way of a plane to it.
    fn regions() -> (tempfile::TempDir, Region, Region) {
        let geometry = Geometry {
            num_layers: 1,
            kv_heads: 1,
            head_dim: 8,
            num_tokens: 256,
            dtype: Dtype::F16,
        };
        let limits = Limits {
            queue_len: 4,
            num_entries: 1,
            entry_tokens: 256,
            num_frames: 2,
            block_size: 64,
            geometry,
            model_id: ModelId::new(b"weights", b"settings", &geometry),
            num_events: 0,
            device_wakes: false,
        };
        let folder = tempfile::tempdir().unwrap();
        let here = Region::create(&folder.path().join("fetch"), &limits).unwrap();
        let Way::Mapped(memory) = here.transport().clone() else { panic!("made here") };
        let late = Late { memory, under_way: Mutex::default() };
        let there = Region::remote(Arc::new(late)).unwrap();
        (folder, here, there)
    }

    #[test]
    fn a_plane_has_landed_when_it_counts_as_written() {
        let (_folder, here, there) = regions();
        let kv: Vec<u8> = (0..here.layout().geometry().plane_bytes()).map(|i| i as u8).collect();
        Frame::new(&there, 1).write_plane(1, &kv).unwrap();
        let mut got = vec![0; kv.len()];
        Frame::new(&here, 1).read_plane(1, &mut got).unwrap();
        assert!(got == kv, "a piece is under way");
        got.fill(0);
        Frame::new(&there, 1).read_plane(1, &mut got).unwrap();
        assert!(got == kv);
    }

    /// Each is counted by another thread. A count that is under way when the next one lands would
    /// set the device's back, or tell it of completions that are not there.
    #[test]
    fn completions_of_several_threads_land_in_their_order() {
        let (_folder, here, there) = regions();
        let session = Session::new(there, Arc::default());
        for number in 0..3 {
            let command = Command {
                id: u64::from(number) + 1,
                op: SAC_FETCH_LOOKUP,
                num_tokens: 256,
                ..Command::zeroed()
            };
            let request = Request::check(here.layout(), &command).unwrap();
            let ticket = session.accept(&command, &request, Duration::from_secs(60)).unwrap();
            let finish = move || ticket.finish(Outcome::of(SAC_FETCH_DONE, 0));
            std::thread::spawn(finish).join().unwrap();
            let written = here.layout().plane_at(offset_of!(PlaneLine, completions_written));
            assert_eq!(here.transport().get_u32(written), Ok(number + 1));
            let mut completion = Completion::zeroed();
            let at = here.layout().completion_at(number);
            here.transport().get(at, bytemuck::bytes_of_mut(&mut completion)).unwrap();
            assert_eq!(completion.id, u64::from(number) + 1);
        }
    }
}
