//! A device plane in Rust for tests: it serves a region with scripted tokens and no model.
//!
//! It implements the device's side of `abi/README.md` exactly (order of stores, epochs,
//! acknowledgements, backpressure), in the plainest way, and over a [`Transport`], so that the
//! model checks can run it. It trusts the frontends' descriptors no more than the real one does.

use std::mem::offset_of;
use std::time::Duration;

use bytemuck::Zeroable;

use crate::layout::*;
use crate::region::{RegionError, RegionLayout};
use crate::transport::{Transport, TransportError};

// The path is spelled out because the model checks include this file from elsewhere.
#[path = "testing/thread.rs"]
mod thread;

pub use thread::FakeDeviceThread;

/// What a fake device has and reports.
#[derive(Clone, Copy, Debug)]
pub struct FakeConfig {
    /// Exclusive bound on token ids.
    pub vocab_size: u32,
    /// Longest sequence in tokens.
    pub max_model_len: u32,
    /// Requests served at a time; the others wait as pending.
    pub max_num_seqs: u32,
    /// Records that each running request gets per tick, if its reader keeps up.
    pub records_per_tick: u32,
    /// Bytes of a KV block.
    pub kv_block_bytes: u64,
    /// KV blocks of host memory.
    pub num_host_blocks: u32,
    /// Pid that it reports, and the start ticks of that process.
    pub process: (u32, u64),
    /// Hash of its tokens' bytes, and words of a grammar that it has room for.
    pub grammars: (u64, u32),
    /// Values of an embedding; 0: refused.
    pub embedding_size: u32,
    /// Adapters that a request may name; each gives other tokens.
    pub num_adapters: u32,
    /// Whether it measures a roof, which it invents.
    pub measures_roof: bool,
}

impl Default for FakeConfig {
    fn default() -> FakeConfig {
        FakeConfig {
            vocab_size: 32_000,
            max_model_len: 4096,
            max_num_seqs: 64,
            records_per_tick: 1,
            kv_block_bytes: 0,
            num_host_blocks: 0,
            process: (0, 0),
            grammars: (0, 0),
            embedding_size: 0,
            num_adapters: 0,
            measures_roof: false,
        }
    }
}

/// A request as the fake device has copied it.
#[derive(Clone, Debug)]
pub struct FakeRequest {
    /// Its descriptor.
    pub descriptor: Descriptor,
    /// Its prompt.
    pub prompt: Vec<u32>,
    /// Its logit bias: token id and bias.
    pub logit_bias: Vec<(u32, f32)>,
    /// Its stop ids.
    pub stop_ids: Vec<u32>,
    /// The automaton of its answer; not walked here.
    pub grammar: Vec<u32>,
}

/// The `i`-th token that a request produces, or `None` to finish it as failed.
pub type Script = Box<dyn FnMut(&FakeRequest, u32) -> Option<u32> + Send>;

/// The seed by which the fake device scripts a request's tokens: each adapter has its own.
fn scripted_seed(d: &Descriptor) -> u64 {
    d.seed ^ u64::from(d.adapter) << 32
}

/// The default script: a function of the prompt, the seed and the index alone, below `vocab_size`.
#[must_use]
pub fn scripted_token(prompt: &[u32], seed: u64, i: u32, vocab_size: u32) -> u32 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed;
    for word in prompt.iter().chain([&i]) {
        hash = (hash ^ u64::from(*word)).wrapping_mul(0x0100_0000_01b3);
    }
    ((hash ^ hash >> 32) % u64::from(vocab_size)) as u32
}

/// Value `i` of a prompt's embedding: a function of both alone, in [-0.5, 0.5).
#[must_use]
pub fn scripted_value(prompt: &[u32], i: u32) -> f32 {
    scripted_token(prompt, 1, i, 1 << 20) as f32 / (1 << 20) as f32 - 0.5
}

/// One request that the fake device serves.
#[derive(Debug)]
struct Seat {
    descriptor: Descriptor,
    /// The copied input; present while the request runs.
    request: Option<FakeRequest>,
    ticket: u32,
    /// Records written.
    count: u32,
    stride: u32,
    capacity: u32,
}

/// Serves a region from the thread that calls [`tick`](Self::tick).
pub struct FakeDevice<T: Transport> {
    transport: T,
    layout: RegionLayout,
    config: FakeConfig,
    script: Script,
    epoch: u32,
    heartbeat: u64,
    published: u32,
    /// Epoch of each frontend as last acknowledged.
    frontends: Vec<u32>,
    /// Last status word of each slot.
    statuses: Vec<u64>,
    seats: Vec<Option<Seat>>,
    num_running: u32,
    stats: DeviceStats,
    dirty: bool,
    roof_generation: u32,
    roofs_asked: u32,
}

impl<T: Transport> FakeDevice<T> {
    /// Joins a region as its device, in phase LOADING of a new epoch.
    ///
    /// # Errors
    /// When the region does not fit this build.
    pub fn join(transport: T, config: FakeConfig) -> Result<FakeDevice<T>, RegionError> {
        let layout = RegionLayout::read(&transport)?;
        let line = |field| layout.device_at(field);
        let epoch = transport.get_u32(line(offset_of!(DeviceLine, epoch)))?.wrapping_add(1);
        let heartbeat = transport.get_u64(line(offset_of!(DeviceLine, heartbeat)))?;
        let published = transport.get_u32(line(offset_of!(DeviceLine, publish_count)))?;
        let slots = layout.num_slots() as usize;
        let vocab_size = config.vocab_size;
        let script = Box::new(move |request: &FakeRequest, i| {
            Some(scripted_token(&request.prompt, scripted_seed(&request.descriptor), i, vocab_size))
        });
        transport.put_u32(line(offset_of!(DeviceLine, phase)), SAC_PHASE_LOADING)?;
        transport.put_u32(line(offset_of!(DeviceLine, epoch)), epoch)?;
        let mut device = FakeDevice {
            layout,
            config,
            script,
            epoch,
            heartbeat,
            published,
            frontends: vec![0; layout.num_frontends() as usize],
            statuses: vec![0; slots],
            seats: (0..slots).map(|_| None).collect(),
            num_running: 0,
            stats: DeviceStats::zeroed(),
            dirty: false,
            roof_generation: 0,
            roofs_asked: 0,
            transport,
        };
        device.beat()?;
        Ok(device)
    }

    /// Replaces the script.
    pub fn set_script(&mut self, script: Script) {
        self.script = script;
    }

    /// Reclaims every slot of older epochs, acknowledges the frontends, and goes READY.
    ///
    /// # Errors
    /// When the region cannot be reached.
    pub fn ready(&mut self) -> Result<(), TransportError> {
        for slot in 0..self.layout.num_slots() {
            self.empty_slot(slot)?;
        }
        for frontend in 0..self.layout.num_frontends() {
            self.acknowledge(frontend)?;
        }
        let config = self.config;
        self.put_line(offset_of!(DeviceLine, vocab_size), config.vocab_size)?;
        self.put_line(offset_of!(DeviceLine, max_model_len), config.max_model_len)?;
        self.put_line(offset_of!(DeviceLine, block_size), 16)?;
        self.put_line(offset_of!(DeviceLine, num_blocks), 4096)?;
        self.put_line(offset_of!(DeviceLine, max_num_seqs), config.max_num_seqs)?;
        self.put_line(offset_of!(DeviceLine, max_num_batched_tokens), 2048)?;
        self.put_line_u64(offset_of!(DeviceLine, kv_block_bytes), config.kv_block_bytes)?;
        self.put_line(offset_of!(DeviceLine, num_host_blocks), config.num_host_blocks)?;
        self.put_line_u64(offset_of!(DeviceLine, process_start_ticks), config.process.1)?;
        self.put_line(offset_of!(DeviceLine, pid), config.process.0)?;
        self.put_line_u64(offset_of!(DeviceLine, vocab_hash), config.grammars.0)?;
        self.put_line(offset_of!(DeviceLine, grammar_words), config.grammars.1)?;
        self.put_line(offset_of!(DeviceLine, embedding_size), config.embedding_size)?;
        self.put_line(offset_of!(DeviceLine, num_adapters), config.num_adapters)?;
        if config.measures_roof {
            self.measure_roof()?;
        }
        self.put_phase(SAC_PHASE_READY)
    }

    /// Roofs asked for so far, all frontends together.
    fn count_asked(&self) -> Result<u32, TransportError> {
        let field = offset_of!(FrontendLine, roofs_asked);
        let of = |f| self.transport.get_u32(self.layout.frontend_at(f, field));
        (0..self.layout.num_frontends()).map(of).sum()
    }

    /// Each of its roofs reads a byte more per second.
    fn measure_roof(&mut self) -> Result<(), TransportError> {
        self.roofs_asked = self.count_asked()?;
        self.roof_generation += 1;
        let mut line = DeviceRoof::zeroed();
        line.num_threads = 2;
        line.kernels[..4].copy_from_slice(b"fake");
        line.packed_bytes = 1000;
        line.huge_page_bytes = 600;
        line.step_weight_bytes = 800;
        line.row_flop = 400;
        line.read_bytes_per_s = 8000 + u64::from(self.roof_generation);
        line.product_mflop_per_s[..2].copy_from_slice(&[1, 3]);
        self.transport.put(self.layout.roof_at(), bytemuck::bytes_of(&line))?;
        // SYNC: release; pairs with the frontends' acquire of the generation.
        self.transport.put_u32(self.layout.roof_at(), self.roof_generation)
    }

    /// Writes a phase (`SAC_PHASE_*`), for example FAILED.
    ///
    /// # Errors
    /// When the region cannot be reached.
    pub fn put_phase(&mut self, phase: u32) -> Result<(), TransportError> {
        self.put_line(offset_of!(DeviceLine, phase), phase)?;
        self.dirty = true;
        self.publish()
    }

    /// Life of this device.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Requests that hold a slot, running or not.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.seats.iter().flatten().count()
    }

    /// Changes the counters that it publishes with its next tick.
    pub fn set_stats(&mut self, change: impl FnOnce(&mut DeviceStats)) {
        change(&mut self.stats);
    }

    /// Requests that came and ended, refused ones included.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.stats.requests_finished + self.stats.requests_rejected
    }

    /// One tick: new frontends, new tickets and cancels, then records, then the publication.
    ///
    /// # Errors
    /// When the region cannot be reached.
    pub fn tick(&mut self) -> Result<(), TransportError> {
        for frontend in 0..self.layout.num_frontends() {
            let epoch = self.frontend_epoch(frontend)?;
            if epoch != self.frontends[frontend as usize] {
                for slot in self.layout.slots_of(frontend) {
                    self.empty_slot(slot)?;
                }
                self.acknowledge(frontend)?;
            }
        }
        for slot in 0..self.layout.num_slots() {
            self.drain(slot)?;
        }
        for slot in 0..self.layout.num_slots() {
            self.advance(slot)?;
        }
        let asked = self.config.measures_roof && self.count_asked()? != self.roofs_asked;
        if asked && self.in_flight() == 0 {
            self.measure_roof()?;
        }
        self.stats.ticks += 1;
        self.transport.put(self.layout.stats_at(), bytemuck::bytes_of(&self.stats))?;
        self.beat()?;
        self.publish()
    }

    /// Sleeps until a frontend kicks, at most `timeout`: the device's half of `wake`.
    ///
    /// # Errors
    /// When the region cannot be reached.
    pub fn sleep(&mut self, timeout: Duration) -> Result<(), TransportError> {
        let (t, kick) = (&self.transport, self.layout.kick_at());
        let sleeping = self.layout.device_at(offset_of!(DeviceLine, sleeping));
        let seen = t.get_u32(kick)?;
        t.put_u32(sleeping, 1)?;
        // SYNC: partner is the fence of `wake::kick_device` between its add and its look at
        // `sleeping`.
        t.fence();
        if !self.has_news()? {
            self.transport.wait_word(kick, seen, timeout)?;
        }
        self.transport.put_u32(sleeping, 0)
    }

    /// True if a doorbell has not been looked at.
    fn has_news(&self) -> Result<bool, TransportError> {
        for slot in 0..self.layout.num_slots() {
            let doorbell = self.transport.get_u32(self.layout.doorbell_at(slot))?;
            let served = self.seats[slot as usize].as_ref();
            let cancel = doorbell & SAC_DOORBELL_CANCEL != 0;
            let ticket = sac_status_ticket(self.statuses[slot as usize]);
            if sac_doorbell_ticket(doorbell) != ticket || (cancel && served.is_some()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Looks at one doorbell.
    fn drain(&mut self, slot: u32) -> Result<(), TransportError> {
        // SYNC: acquire; pairs with the frontend's release of the doorbell.
        let doorbell = self.transport.get_u32(self.layout.doorbell_at(slot))?;
        let ticket = sac_doorbell_ticket(doorbell);
        let cancel = doorbell & SAC_DOORBELL_CANCEL != 0;
        if ticket != sac_status_ticket(self.statuses[slot as usize]) {
            self.drop_seat(slot);
            if cancel {
                self.stats.requests_rejected += 1;
                return self.put_status(
                    slot,
                    ticket,
                    SAC_STATE_DECODE_COMPLETED,
                    SAC_FINISH_CANCELLED,
                    0,
                );
            }
            return self.accept(slot, ticket);
        }
        match &self.seats[slot as usize] {
            Some(seat) if cancel => {
                let count = seat.count;
                self.finish(slot, SAC_FINISH_CANCELLED, count)
            }
            _ => Ok(()),
        }
    }

    fn accept(&mut self, slot: u32, ticket: u32) -> Result<(), TransportError> {
        let mut descriptor = Descriptor::zeroed();
        let at = self.layout.descriptor_at(slot);
        self.transport.get(at, bytemuck::bytes_of_mut(&mut descriptor))?;
        let refused = if descriptor.device_epoch != self.epoch {
            SAC_FINISH_STALE_EPOCH
        } else if !self.in_bounds(slot, &descriptor) {
            SAC_FINISH_INVALID
        } else {
            let stride = match descriptor.flags & SAC_REQ_EMBED {
                0 => sac_record_stride(descriptor.flags, descriptor.num_top_logprobs),
                _ => sac_embedding_words(self.config.embedding_size),
            };
            let capacity = self.layout.out_ring_words() / stride;
            let seat = Seat { descriptor, request: None, ticket, count: 0, stride, capacity };
            self.seats[slot as usize] = Some(seat);
            self.stats.requests_accepted += 1;
            return self.put_status(slot, ticket, SAC_STATE_PREFILL_PENDING, 0, 0);
        };
        self.stats.requests_rejected += 1;
        self.put_status(slot, ticket, SAC_STATE_DECODE_COMPLETED, refused, 0)
    }

    /// Whether a descriptor is in bounds, but for its token ids: those are checked when copied.
    fn in_bounds(&self, slot: u32, d: &Descriptor) -> bool {
        let frontend = (0..self.layout.num_frontends())
            .find(|&frontend| self.layout.slots_of(frontend).contains(&slot));
        let share = frontend.map_or(0..0, |frontend| self.layout.arena_of(frontend));
        let total = u64::from(d.prompt_len) + u64::from(d.max_tokens);
        let end = d.arena_extent.checked_add(4 * extent_words(d));
        d.prompt_len > 0
            && self.output_in_bounds(d)
            && total <= u64::from(self.config.max_model_len)
            && d.num_logit_bias <= SAC_MAX_LOGIT_BIAS
            && d.num_stop_ids <= SAC_MAX_STOP_IDS
            && d.tenant < SAC_MAX_TENANTS
            && d.tenant_weight <= SAC_MAX_TENANT_WEIGHT
            && d.grammar_words <= self.config.grammars.1
            && d.adapter <= self.config.num_adapters
            && d.num_top_logprobs <= SAC_MAX_TOP_LOGPROBS
            && d.flags & !SAC_REQ_KNOWN_FLAGS == 0
            && d.arena_extent >= share.start
            && end.is_some_and(|end| end <= share.end)
    }

    fn output_in_bounds(&self, d: &Descriptor) -> bool {
        if d.flags & SAC_REQ_EMBED == 0 {
            return d.max_tokens > 0;
        }
        self.config.embedding_size > 0 && d.flags == SAC_REQ_EMBED && d.max_tokens == 0
    }

    /// Copies the input of a request that gets its seat, or `None` if a token id is out of bounds.
    fn copy_input(&self, d: Descriptor) -> Result<Option<FakeRequest>, TransportError> {
        let mut words = vec![0u32; extent_words(&d) as usize];
        let at = self.layout.arena_at(d.arena_extent);
        self.transport.get(at, bytemuck::cast_slice_mut(&mut words))?;
        let (prompt, rest) = words.split_at(d.prompt_len as usize);
        let (bias, rest) = rest.split_at(2 * d.num_logit_bias as usize);
        let (stop_ids, grammar) = rest.split_at(d.num_stop_ids as usize);
        let bias = bias.chunks_exact(2).map(|pair| (pair[0], f32::from_bits(pair[1])));
        let request = FakeRequest {
            descriptor: d,
            prompt: prompt.to_vec(),
            logit_bias: bias.collect(),
            stop_ids: stop_ids.to_vec(),
            grammar: grammar.to_vec(),
        };
        let biased = request.logit_bias.iter().map(|(id, _)| id);
        let largest = prompt.iter().chain(stop_ids).chain(biased).max();
        Ok(largest.is_none_or(|&id| id < self.config.vocab_size).then_some(request))
    }

    /// Gives one request its seat, if there is one, and then its next records.
    fn advance(&mut self, slot: u32) -> Result<(), TransportError> {
        let Some(seat) = &self.seats[slot as usize] else { return Ok(()) };
        if seat.request.is_none() {
            if self.num_running >= self.config.max_num_seqs {
                return Ok(());
            }
            let Some(request) = self.copy_input(seat.descriptor)? else {
                return self.finish(slot, SAC_FINISH_INVALID, 0);
            };
            self.seats[slot as usize].as_mut().map(|seat| seat.request.insert(request));
            self.num_running += 1;
        }
        let Some(mut seat) = self.seats[slot as usize].take() else { return Ok(()) };
        let (ticket, before) = (seat.ticket, seat.count);
        let end = self.produce_all(slot, &mut seat)?;
        let count = seat.count;
        self.seats[slot as usize] = Some(seat);
        if let Some(finish) = end {
            return self.finish(slot, finish, count);
        }
        let state =
            if count == before { SAC_STATE_DECODE_PAUSED } else { SAC_STATE_DECODE_PROCESSING };
        self.put_status(slot, ticket, state, SAC_FINISH_NONE, count)
    }

    /// Writes this tick's records, as far as the reader keeps up; returns the finish reason if one
    /// of them was the last.
    fn produce_all(&mut self, slot: u32, seat: &mut Seat) -> Result<Option<u32>, TransportError> {
        // SYNC: acquire; pairs with the reader's release of the cursor after its reads.
        let cursor = self.transport.get_u32(self.layout.cursor_at(slot))?;
        let Some(request) = &seat.request else { return Ok(None) };
        if request.descriptor.flags & SAC_REQ_EMBED != 0 {
            return self.produce_embedding(slot, request, &mut seat.count).map(Some);
        }
        for _ in 0..self.config.records_per_tick {
            if seat.count >= cursor.saturating_add(seat.capacity) {
                break;
            }
            let d = &request.descriptor;
            let echoed = if d.flags & SAC_REQ_PROMPT_LOGPROBS != 0 { d.prompt_len - 1 } else { 0 };
            let produced = seat.count.checked_sub(echoed);
            let token = match produced {
                None => Some(request.prompt[seat.count as usize + 1]),
                Some(i) => (self.script)(request, i),
            };
            let Some(token) = token else { return Ok(Some(SAC_FINISH_ERROR)) };
            let at = self.layout.out_ring_at(slot, seat.count % seat.capacity * seat.stride);
            self.put_record(at, token, seat.count, seat.stride)?;
            seat.count += 1;
            let Some(i) = produced else { continue };
            self.stats.decode_tokens += 1;
            if i + 1 > d.min_tokens && request.stop_ids.contains(&token) {
                return Ok(Some(SAC_FINISH_STOP));
            }
            if i + 1 == d.max_tokens {
                return Ok(Some(SAC_FINISH_LENGTH));
            }
        }
        Ok(None)
    }

    /// Writes the one record of a request for an embedding: each adapter has its own values.
    fn produce_embedding(
        &self,
        slot: u32,
        request: &FakeRequest,
        count: &mut u32,
    ) -> Result<u32, TransportError> {
        let size = self.config.embedding_size;
        let first = request.descriptor.adapter << 16;
        let value = |i| scripted_value(&request.prompt, first | i);
        let bits = |i| if i < size { value(i).to_bits() } else { 0 };
        for word in 0..sac_embedding_words(size) {
            let both = u64::from(bits(2 * word + 1)) << 32 | u64::from(bits(2 * word));
            let at = self.layout.out_ring_at(slot, word);
            self.transport.put(at, &both.to_le_bytes())?;
        }
        *count = 1;
        Ok(SAC_FINISH_STOP)
    }

    /// Writes record `i`. Its logprobs encode their position: minus the record's index, minus 1/32
    /// per rank of an alternative.
    fn put_record(&self, at: u64, token: u32, i: u32, stride: u32) -> Result<(), TransportError> {
        for rank in 0..stride {
            let logprob = -(i as f32) - rank as f32 / 32.0;
            let id = if rank == 0 { token } else { (token + rank) % self.config.vocab_size };
            let word = u64::from(logprob.to_bits()) << 32 | u64::from(id);
            self.transport.put(at + 8 * u64::from(rank), &word.to_le_bytes())?;
        }
        Ok(())
    }

    fn finish(&mut self, slot: u32, finish: u32, count: u32) -> Result<(), TransportError> {
        let Some(seat) = &self.seats[slot as usize] else { return Ok(()) };
        let ticket = seat.ticket;
        self.drop_seat(slot);
        self.stats.requests_finished += 1;
        self.put_status(slot, ticket, SAC_STATE_DECODE_COMPLETED, finish, count)
    }

    /// Gives a frontend up, as the device does when its heartbeat has stopped for too long: what it
    /// has in flight ends as cancelled, and is served again from its next ticket on.
    ///
    /// # Errors
    /// When the region cannot be reached.
    pub fn give_up(&mut self, frontend: u32) -> Result<(), TransportError> {
        for slot in self.layout.slots_of(frontend) {
            let count = self.seats[slot as usize].as_ref().map_or(0, |seat| seat.count);
            self.finish(slot, SAC_FINISH_CANCELLED, count)?;
        }
        self.publish()
    }

    fn drop_seat(&mut self, slot: u32) {
        if self.seats[slot as usize].take().is_some_and(|seat| seat.request.is_some()) {
            self.num_running -= 1;
        }
    }

    /// Reclaims a slot: EMPTY with its doorbell's ticket.
    fn empty_slot(&mut self, slot: u32) -> Result<(), TransportError> {
        let doorbell = self.transport.get_u32(self.layout.doorbell_at(slot))?;
        if self.seats[slot as usize].is_some() {
            self.stats.requests_reclaimed += 1;
        }
        self.drop_seat(slot);
        let ticket = sac_doorbell_ticket(doorbell);
        self.put_status(slot, ticket, SAC_STATE_EMPTY, SAC_FINISH_NONE, 0)
    }

    fn frontend_epoch(&self, frontend: u32) -> Result<u32, TransportError> {
        // SYNC: acquire; pairs with the joining frontend's release of its epoch.
        self.transport.get_u32(self.layout.frontend_at(frontend, offset_of!(FrontendLine, epoch)))
    }

    /// How often a frontend has reset the prefixes.
    ///
    /// # Errors
    /// When the region cannot be reached.
    pub fn prefix_generation(&self, frontend: u32) -> Result<u32, TransportError> {
        let field = offset_of!(FrontendLine, prefix_generation);
        self.transport.get_u32(self.layout.frontend_at(frontend, field))
    }

    fn acknowledge(&mut self, frontend: u32) -> Result<(), TransportError> {
        let epoch = self.frontend_epoch(frontend)?;
        self.frontends[frontend as usize] = epoch;
        self.dirty = true;
        self.transport.put_u32(self.layout.ack_at(frontend), epoch)
    }

    fn put_status(
        &mut self,
        slot: u32,
        ticket: u32,
        state: u32,
        finish: u32,
        count: u32,
    ) -> Result<(), TransportError> {
        let word = sac_status_word(ticket, state, finish, count);
        if self.statuses[slot as usize] == word {
            return Ok(());
        }
        self.statuses[slot as usize] = word;
        self.dirty = true;
        // SYNC: release; pairs with the reader's acquire, after which it reads the records.
        self.transport.put_u64(self.layout.status_at(slot), word)
    }

    fn put_line(&self, field: usize, value: u32) -> Result<(), TransportError> {
        self.transport.put_u32(self.layout.device_at(field), value)
    }

    fn put_line_u64(&self, field: usize, value: u64) -> Result<(), TransportError> {
        self.transport.put_u64(self.layout.device_at(field), value)
    }

    fn beat(&mut self) -> Result<(), TransportError> {
        self.heartbeat += 1;
        let at = self.layout.device_at(offset_of!(DeviceLine, heartbeat));
        self.transport.put_u64(at, self.heartbeat)
    }

    /// Raises publish_count if anything was written, and wakes the readers that wait for it.
    fn publish(&mut self) -> Result<(), TransportError> {
        if !std::mem::take(&mut self.dirty) {
            return Ok(());
        }
        self.published = self.published.wrapping_add(1);
        let at = self.layout.device_at(offset_of!(DeviceLine, publish_count));
        self.transport.put_u32(at, self.published)?;
        // SYNC: partner is the fence of `wake::wait_publish` between `waiting = 1` and its last
        // look at publish_count.
        self.transport.fence();
        for frontend in 0..self.layout.num_frontends() {
            let waiting = self.layout.frontend_at(frontend, offset_of!(FrontendLine, waiting));
            if self.transport.get_u32(waiting)? == 1 {
                return self.transport.wake_word(at);
            }
        }
        Ok(())
    }
}

/// Words of a descriptor's arena extent.
fn extent_words(d: &Descriptor) -> u64 {
    u64::from(d.prompt_len)
        + 2 * u64::from(d.num_logit_bias)
        + u64::from(d.num_stop_ids)
        + u64::from(d.grammar_words)
}
