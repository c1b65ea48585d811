//! The ring regions of a run: files in shared memory for as long as processes join them, no longer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use saccade_ring::{
    Finish, FrontendRing, JoinOptions, Reader, Record, Region, RegionLimits, RequestParams,
    ShmTransport, Sink, Submission, Submitter, Ticket, default_region_dir,
};

use super::ranks::VOCAB_SIZE;

/// Prefix of the files of this benchmark; the id of the process that made them follows.
const FILE_PREFIX: &str = "saccade-micro-";
/// The device idles between steps for as long as a loaded host makes it: only the benchmark's own
/// waits decide that something is lost.
const DEVICE_LOST_AFTER: Duration = Duration::from_secs(600);

/// One region, and this process as its frontend.
pub(crate) struct Feed {
    region: Region,
    submitter: Submitter<ShmTransport>,
    reader: Reader<ShmTransport>,
}

/// Takes tokens and drops them; remembers a request that did not end as it should.
#[derive(Default)]
struct Discard {
    wrong: Option<String>,
}

impl Sink for Discard {
    fn room(&mut self, _: Ticket) -> usize {
        usize::MAX
    }
    fn record(&mut self, _: Ticket, _: Record<'_>) {}
    fn finished(&mut self, ticket: Ticket, finish: Finish, _: u32) {
        if finish != Finish::Length {
            self.wrong = Some(format!("the request in slot {} ended: {finish:?}", ticket.slot));
        }
    }
    fn lost(&mut self, ticket: Ticket) {
        self.wrong = Some(format!("the request in slot {} was lost", ticket.slot));
    }
}

/// A request, the same for each region that it is put into.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub prompt: Vec<u32>,
    pub max_tokens: u32,
}

impl Ask {
    pub(crate) fn new(number: u32, prompt_len: u32, max_tokens: u32) -> Ask {
        let token = |i: u32| (number.wrapping_mul(7919) ^ i.wrapping_mul(31)) % VOCAB_SIZE;
        Ask { prompt: (0..prompt_len).map(token).collect(), max_tokens }
    }
}

impl Feed {
    /// Makes a region for `num_seqs` requests and joins it as its frontend, before there is a
    /// device.
    fn create(dir: &Path, index: usize, num_seqs: u32) -> anyhow::Result<Feed> {
        let path = dir.join(format!("{FILE_PREFIX}{}-{index}", std::process::id()));
        let limits = RegionLimits {
            num_slots: (2 * num_seqs).next_multiple_of(32).min(4096),
            num_frontends: 1,
            out_ring_words: 64,
            arena_bytes: 4 << 20,
        };
        let region = Region::create(&path, &limits)?;
        let options = JoinOptions { device_lost_after: DEVICE_LOST_AFTER, ..Default::default() };
        let ring = FrontendRing::join_with(region.transport(), 0, options)?;
        let (submitter, reader) = ring.split();
        Ok(Feed { region, submitter, reader })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.region.path().into()
    }

    /// Puts one request and shows that this frontend lives.
    ///
    /// # Errors
    /// If the ring does not take it.
    pub(crate) fn put(&self, ask: &Ask) -> anyhow::Result<()> {
        let params = RequestParams {
            max_tokens: ask.max_tokens,
            ignore_eos: true,
            temperature: 0.0,
            ..Default::default()
        };
        let submission = Submission {
            prompt: &ask.prompt,
            logit_bias: &[],
            stop_ids: &[],
            grammar: &[],
            params,
        };
        self.submitter.try_submit(&submission).context("put a request")?;
        Ok(())
    }

    pub(crate) fn heartbeat(&self) {
        self.submitter.heartbeat();
    }

    /// Reads what was produced, so that slots come free.
    ///
    /// # Errors
    /// If a request ended for another reason than its length.
    pub(crate) fn read(&mut self) -> anyhow::Result<()> {
        let mut discard = Discard::default();
        self.reader.poll(&mut discard);
        discard.wrong.map_or(Ok(()), |wrong| Err(anyhow::anyhow!(wrong)))
    }
}

/// The regions of one run. Their files exist while signals that end this process are held back, and
/// are gone after [`Feeds::unlink`], or when this is dropped.
pub(crate) struct Feeds {
    pub feeds: Vec<Feed>,
    held: Option<HeldSignals>,
}

impl Feeds {
    /// # Errors
    /// If a region cannot be made.
    pub(crate) fn create(count: usize, num_seqs: u32) -> anyhow::Result<Feeds> {
        let dir = default_region_dir(64 << 20);
        remove_files_of_the_dead(&dir);
        let held = Some(HeldSignals::hold()?);
        let feeds =
            (0..count).map(|i| Feed::create(&dir, i, num_seqs)).collect::<Result<_, _>>()?;
        Ok(Feeds { feeds, held })
    }

    /// All have joined: the names go, the memory stays.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub(crate) fn unlink(&mut self) -> anyhow::Result<()> {
        for feed in &self.feeds {
            let path = feed.region.path();
            std::fs::remove_file(path).with_context(|| format!("remove {}", path.display()))?;
        }
        self.held = None;
        Ok(())
    }
}

impl Drop for Feeds {
    fn drop(&mut self) {
        // Regions remove their files; only then may a signal end this process.
        self.feeds.clear();
        self.held = None;
    }
}

/// Files that a killed process (nothing else leaves any) has left.
fn remove_files_of_the_dead(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|n| n.strip_prefix(FILE_PREFIX)) else { continue };
        let pid = rest.split('-').next().and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Another user's file stays; it does no harm.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// SIGINT, SIGTERM and SIGHUP wait while this lives.
struct HeldSignals {
    before: libc::sigset_t,
}

impl HeldSignals {
    fn hold() -> anyhow::Result<HeldSignals> {
        // SAFETY: all-zero sigset_t are valid storage; the calls fill them and change the mask of
        // this thread.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&mut set, signal);
            }
            let code = libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            anyhow::ensure!(code == 0, "cannot hold signals back");
            Ok(HeldSignals { before })
        }
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        // SAFETY: `before` was filled by `hold`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}
