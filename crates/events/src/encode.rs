//! Events as vLLM writes them: a batch is the array `[seconds, [event, ...], rank]`, an event a map
//! with its kind under `type`, in MessagePack. Fields that have their default are left out, as vLLM
//! does, and integers take the fewest bytes.

use rmp::encode as msgpack;

use crate::adapters::Adapter;
use crate::event::{Event, Medium};

/// There is one scheduler: vLLM's first rank.
const DATA_PARALLEL_RANK: u32 = 0;
/// Blocks of all layers are kept together: one group of caches.
const GROUP_INDEX: u32 = 0;
/// As vLLM calls a cache in which each token sees all before it.
const SPEC_KIND: &str = "full_attention";

/// Consecutive events that become one.
#[derive(Debug)]
enum Run<'a> {
    /// Each block continues the one before it, in one medium.
    Stored {
        parent: Option<u64>,
        salt: u64,
        adapter: Option<&'a Adapter>,
        medium: Medium,
        blocks: Vec<(u64, &'a [u32])>,
    },
    Removed {
        medium: Medium,
        keys: Vec<u64>,
    },
    Cleared,
}

impl<'a> Run<'a> {
    fn of(event: &'a Event) -> Run<'a> {
        match event {
            Event::Stored { key, parent, salt, adapter, medium, tokens } => Run::Stored {
                parent: *parent,
                salt: *salt,
                adapter: adapter.as_deref(),
                medium: *medium,
                blocks: vec![(*key, tokens.as_slice())],
            },
            Event::Removed { key, medium } => Run::Removed { medium: *medium, keys: vec![*key] },
            Event::Cleared => Run::Cleared,
        }
    }

    /// Adds an event. False: it begins a run of its own.
    fn takes(&mut self, event: &'a Event) -> bool {
        match (self, event) {
            (
                Run::Stored { salt: of_all, adapter: theirs, medium: here, blocks, .. },
                Event::Stored { key, parent, salt, adapter, medium, tokens },
            ) => {
                let continues = parent.is_some() && blocks.last().map(|(last, _)| *last) == *parent;
                let is_theirs = salt == of_all && adapter.as_deref() == *theirs;
                if !continues || !is_theirs || medium != here {
                    return false;
                }
                blocks.push((*key, tokens));
                true
            }
            (Run::Removed { medium: here, keys }, Event::Removed { key, medium }) => {
                if medium != here {
                    return false;
                }
                keys.push(*key);
                true
            }
            (Run::Cleared, Event::Cleared) => true,
            _ => false,
        }
    }
}

/// One batch, with the time in seconds since 1970. `block_size` is the tokens of a block.
pub fn encode_batch(seconds: f64, events: &[Event], block_size: u32) -> Vec<u8> {
    let mut runs: Vec<Run> = Vec::new();
    for event in events {
        if !runs.last_mut().is_some_and(|run| run.takes(event)) {
            runs.push(Run::of(event));
        }
    }
    let mut out = Writer(Vec::new());
    out.array(3);
    out.number(seconds);
    out.array(runs.len());
    for run in &runs {
        out.run(run, block_size);
    }
    out.uint(DATA_PARALLEL_RANK.into());
    out.0
}

/// Writing into memory does not fail: the results of `rmp` say nothing.
struct Writer(Vec<u8>);

impl Writer {
    fn array(&mut self, count: usize) {
        let _ = msgpack::write_array_len(&mut self.0, count as u32);
    }
    fn map(&mut self, count: u32) {
        let _ = msgpack::write_map_len(&mut self.0, count);
    }
    fn text(&mut self, text: &str) {
        let _ = msgpack::write_str(&mut self.0, text);
    }
    fn uint(&mut self, value: u64) {
        let _ = msgpack::write_uint(&mut self.0, value);
    }
    fn number(&mut self, value: f64) {
        let _ = msgpack::write_f64(&mut self.0, value);
    }
    fn nil(&mut self) {
        let _ = msgpack::write_nil(&mut self.0);
    }

    fn run(&mut self, run: &Run, block_size: u32) {
        match run {
            Run::Stored { parent, salt, adapter, medium, blocks } => {
                self.map(11);
                self.kind("BlockStored");
                self.hashes(blocks.iter().map(|(key, _)| *key));
                self.text("parent_block_hash");
                match parent {
                    Some(parent) => self.uint(*parent),
                    None => self.nil(),
                }
                self.tokens(blocks);
                self.text("block_size");
                self.uint(block_size.into());
                self.text("lora_id");
                match adapter {
                    Some(adapter) => self.uint(adapter.number.into()),
                    None => self.nil(),
                }
                self.medium(*medium);
                self.text("lora_name");
                match adapter {
                    Some(adapter) => self.text(&adapter.name),
                    None => self.nil(),
                }
                let salt = parent.is_none().then_some(*salt).filter(|salt| *salt != 0);
                self.extra_keys(*adapter, salt, blocks.len());
                self.group();
                self.text("kv_cache_spec_kind");
                self.text(SPEC_KIND);
            }
            Run::Removed { medium, keys } => {
                self.map(4);
                self.kind("BlockRemoved");
                self.hashes(keys.iter().copied());
                self.medium(*medium);
                self.group();
            }
            Run::Cleared => {
                self.map(1);
                self.kind("AllBlocksCleared");
            }
        }
    }

    fn kind(&mut self, kind: &str) {
        self.text("type");
        self.text(kind);
    }
    fn hashes(&mut self, keys: impl ExactSizeIterator<Item = u64>) {
        self.text("block_hashes");
        self.array(keys.len());
        keys.for_each(|key| self.uint(key));
    }
    fn tokens(&mut self, blocks: &[(u64, &[u32])]) {
        self.text("token_ids");
        self.array(blocks.iter().map(|(_, tokens)| tokens.len()).sum());
        let tokens = blocks.iter().flat_map(|(_, tokens)| tokens.iter());
        tokens.for_each(|token| self.uint((*token).into()));
    }
    fn medium(&mut self, medium: Medium) {
        self.text("medium");
        self.text(medium.name());
    }
    fn group(&mut self) {
        self.text("group_idx");
        self.uint(GROUP_INDEX.into());
    }
    /// For each block what its hash depends on beside tokens: the adapter's name, and of the first
    /// of a prompt its salt.
    fn extra_keys(&mut self, adapter: Option<&Adapter>, salt: Option<u64>, count: usize) {
        self.text("extra_keys");
        self.array(count);
        for block in 0..count {
            let salt = salt.filter(|_| block == 0);
            if adapter.is_none() && salt.is_none() {
                self.nil();
                continue;
            }
            self.array(usize::from(adapter.is_some()) + usize::from(salt.is_some()));
            if let Some(adapter) = adapter {
                self.text(&adapter.name);
            }
            if let Some(salt) = salt {
                self.text(&format!("{salt:016x}"));
            }
        }
    }
}
