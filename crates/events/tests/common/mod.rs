//! A device that tells events by the rules of `device/kv/kv_blocks.hpp`, over a random tree.

#![allow(dead_code, clippy::unwrap_used)] // shared by tests, each of which uses a part

use std::collections::HashMap;
use std::mem::offset_of;
use std::path::Path;

use bytemuck::Zeroable;
use saccade_chunk::{CHUNK_TOKENS, Dtype, Geometry, ModelId};
use saccade_events::Adapters;
use saccade_fetch::layout::*;
use saccade_fetch::{Limits, Region};
use saccade_ring::Transport;

/// Blocks that are looked at in a tick while the table is resent.
const RETOLD_BLOCKS: usize = 256;
const NUM_TIERS: usize = 2;
/// Names of adapters, in their order.
pub const ADAPTERS: [&str; 2] = ["sql", "Ünterstützung"];

/// splitmix64.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

pub fn create(path: &Path, num_events: u32, block_size: u32) -> Region {
    let geometry = Geometry {
        num_layers: 1,
        kv_heads: 1,
        head_dim: 16,
        num_tokens: CHUNK_TOKENS,
        dtype: Dtype::Bf16,
    };
    let limits = Limits {
        queue_len: 16,
        num_entries: 1,
        entry_tokens: CHUNK_TOKENS as u32,
        num_frames: 0,
        block_size,
        geometry,
        model_id: ModelId::new(b"weights", b"settings", &geometry),
        num_events,
        device_wakes: false,
    };
    Region::create(path, &limits).unwrap()
}

/// The writing side of the ring.
pub struct Ring {
    pub region: Region,
    pub written: u64,
    pub read: u64,
    pub dropped: u64,
}

impl Ring {
    pub fn new(region: Region) -> Ring {
        Ring { region, written: 0, read: 0, dropped: 0 }
    }
    pub fn num_events(&self) -> u64 {
        self.region.layout().num_events().into()
    }
    pub fn room(&self) -> u64 {
        self.num_events() - (self.written - self.read)
    }
    pub fn write(&mut self, event: &KvEvent, tokens: &[u32]) -> bool {
        if self.room() == 0 {
            return false;
        }
        let at = self.region.layout().event_at(self.written);
        self.region.transport().put(at, bytemuck::bytes_of(event)).unwrap();
        let behind = at + size_of::<KvEvent>() as u64;
        self.region.transport().put(behind, bytemuck::cast_slice(tokens)).unwrap();
        self.written += 1;
        true
    }
    pub fn plane_word(&self, field: usize) -> u64 {
        self.region.transport().get_u64(self.region.layout().plane_at(field)).unwrap()
    }
    pub fn put(&self, field: usize, value: u64) {
        self.region.transport().put_u64(self.region.layout().device_at(field), value).unwrap();
    }
    pub fn look(&mut self) {
        let read = self.plane_word(offset_of!(PlaneLine, events_read));
        if read > self.read && read <= self.written {
            self.read = read;
        }
    }
    pub fn show(&self) {
        self.put(offset_of!(DeviceLine, events_dropped), self.dropped);
        self.put(offset_of!(DeviceLine, events_written), self.written);
    }
    pub fn close(&self) {
        let at = self.region.layout().device_at(offset_of!(DeviceLine, closed));
        self.region.transport().put_u32(at, 1).unwrap();
    }
    /// A plane's new life.
    pub fn begin_epoch(&self) {
        let at = self.region.layout().plane_at(offset_of!(PlaneLine, epoch));
        let epoch = self.region.transport().get_u32(at).unwrap();
        self.region.transport().put_u32(at, epoch + 1).unwrap();
    }
    pub fn epoch(&self) -> u32 {
        let at = self.region.layout().plane_at(offset_of!(PlaneLine, epoch));
        self.region.transport().get_u32(at).unwrap()
    }
}

pub fn event(kind: u32, tier: u32, key: u64, parent_key: u64) -> KvEvent {
    KvEvent { kind, tier, key, parent_key, ..KvEvent::zeroed() }
}

/// By key the parent's key, the salt, the adapter's name, the tokens, and where the block is.
pub type Table = HashMap<u64, (Option<u64>, u64, Option<String>, Vec<u32>, [bool; NUM_TIERS])>;

#[derive(Clone, Debug)]
pub struct Block {
    pub key: u64,
    pub parent: Option<usize>,
    pub salt: u64,
    /// Its name.
    pub adapter: Option<&'static str>,
    pub tokens: Vec<u32>,
    pub at: [bool; NUM_TIERS],
    told: [bool; NUM_TIERS],
    children: [u32; NUM_TIERS],
}

pub struct Device {
    pub ring: Ring,
    pub random: Random,
    pub blocks: Vec<Option<Block>>,
    block_size: u32,
    max_blocks: usize,
    epoch: u32,
    retelling: bool,
    cleared: bool,
    skipped: bool,
    next: usize,
    pub retold: u64,
}

impl Device {
    pub fn new(region: Region, seed: u64, max_blocks: usize) -> Device {
        let block_size = region.layout().block_size();
        Device {
            ring: Ring::new(region),
            random: Random(seed),
            blocks: vec![None; max_blocks],
            block_size,
            max_blocks,
            epoch: 0,
            retelling: false,
            cleared: false,
            skipped: false,
            next: 0,
            retold: 0,
        }
    }

    /// A tick with this many changes of the table.
    pub fn tick(&mut self, changes: usize) {
        self.ring.look();
        let epoch = self.ring.epoch();
        if epoch != self.epoch {
            self.epoch = epoch;
            self.tell_anew();
        }
        for _ in 0..changes {
            self.change();
        }
        self.retell();
        self.ring.show();
    }

    pub fn is_settled(&self) -> bool {
        !self.retelling && self.ring.read == self.ring.written
    }

    fn change(&mut self) {
        let index = self.random.below(self.max_blocks);
        let tier = self.random.below(NUM_TIERS);
        match &self.blocks[index] {
            None => self.add(index),
            Some(block) if !block.at[tier] => {
                if block.parent.is_none_or(|p| self.block(p).at[tier]) {
                    self.arrive(index, tier);
                }
            }
            Some(block) if block.children[tier] == 0 && self.random.below(2) == 0 => {
                self.leave(index, tier);
            }
            Some(_) => {}
        }
    }

    fn block(&self, index: usize) -> &Block {
        self.blocks[index].as_ref().unwrap()
    }
    fn block_mut(&mut self, index: usize) -> &mut Block {
        self.blocks[index].as_mut().unwrap()
    }

    /// A new block, on the device, mostly behind another one there.
    fn add(&mut self, index: usize) {
        let parent = self.random.below(self.max_blocks);
        let parent = self.blocks[parent].as_ref().filter(|b| b.at[0]).map(|_| parent);
        if parent.is_none() && self.random.below(8) != 0 {
            return;
        }
        let (salt, adapter) = match parent {
            Some(parent) => (self.block(parent).salt, self.block(parent).adapter),
            None => {
                let salted = self.random.below(2) != 0;
                let salt = if salted { self.random.next() } else { 0 };
                (salt, [None, Some(ADAPTERS[0]), Some(ADAPTERS[1])][self.random.below(3)])
            }
        };
        let tokens = (0..self.block_size).map(|_| self.token()).collect();
        let key = self.random.next() | 1;
        let none = [false; NUM_TIERS];
        let (at, told, children) = (none, none, [0; 2]);
        let block = Block { key, parent, salt, adapter, tokens, at, told, children };
        self.blocks[index] = Some(block);
        self.arrive(index, 0);
    }

    fn token(&mut self) -> u32 {
        let bits = 1 + self.random.below(32);
        (self.random.next() >> (64 - bits)) as u32
    }

    fn arrive(&mut self, index: usize, tier: usize) {
        self.block_mut(index).at[tier] = true;
        if let Some(parent) = self.block(index).parent {
            self.block_mut(parent).children[tier] += 1;
        }
        self.tell_stored(index, tier);
    }

    fn leave(&mut self, index: usize, tier: usize) {
        let block = self.block_mut(index);
        block.at[tier] = false;
        let told = std::mem::replace(&mut block.told[tier], false);
        let (key, parent, gone) = (block.key, block.parent, block.at == [false; 2]);
        if told && !self.ring.write(&event(SAC_KV_REMOVED, tier as u32, key, 0), &[]) {
            self.lose();
        }
        if let Some(parent) = parent {
            self.block_mut(parent).children[tier] -= 1;
        }
        if gone {
            self.blocks[index] = None;
        }
    }

    fn tell_anew(&mut self) {
        (self.retelling, self.cleared, self.skipped, self.next) = (true, false, false, 0);
    }
    fn lose(&mut self) {
        self.ring.dropped += 1;
        self.tell_anew();
    }

    fn tell_stored(&mut self, index: usize, tier: usize) {
        let block = self.block(index).clone();
        if block.told[tier] {
            return;
        }
        let parent = block.parent.map(|p| self.block(p));
        if parent.is_some_and(|p| !p.told[tier]) {
            self.skipped = true;
            return;
        }
        let mut stored = event(SAC_KV_STORED, tier as u32, block.key, parent.map_or(0, |p| p.key));
        stored.salt = block.salt;
        stored.adapter = block.adapter.map_or(0, Adapters::hash_of);
        if !self.ring.write(&stored, &block.tokens) {
            return self.lose();
        }
        self.block_mut(index).told[tier] = true;
    }

    fn retell(&mut self) {
        if !self.retelling || self.ring.room() < self.ring.num_events() / 2 {
            return;
        }
        if !self.cleared {
            self.cleared = true;
            self.retold += 1;
            self.blocks.iter_mut().flatten().for_each(|b| b.told = [false; 2]);
            assert!(self.ring.write(&event(SAC_KV_CLEARED, 0, 0, 0), &[]));
        }
        for _ in 0..RETOLD_BLOCKS {
            if self.next == self.blocks.len() {
                break;
            }
            for tier in 0..NUM_TIERS {
                self.tell_chain(self.next, tier);
            }
            if self.ring.room() == 0 {
                return;
            }
            self.next += 1;
        }
        if self.next == self.blocks.len() {
            (self.retelling, self.next, self.skipped) = (self.skipped, 0, false);
        }
    }

    fn tell_chain(&mut self, index: usize, tier: usize) {
        while self.retelling
            && self.blocks[index].as_ref().is_some_and(|b| b.at[tier] && !b.told[tier])
            && self.ring.room() != 0
        {
            let mut first = index;
            while let Some(parent) = self.block(first).parent.filter(|p| !self.block(*p).told[tier])
            {
                first = parent;
            }
            self.tell_stored(first, tier);
        }
    }

    /// What routers must know.
    pub fn truth(&self) -> Table {
        let of = |b: &Block| {
            let parent = b.parent.map(|p| self.block(p).key);
            (b.key, (parent, b.salt, b.adapter.map(str::to_owned), b.tokens.clone(), b.at))
        };
        self.blocks.iter().flatten().map(of).collect()
    }
}
