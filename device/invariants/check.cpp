#include "invariants/check.hpp"

#include <algorithm>
#include <vector>

namespace saccade {
namespace {

/// Seats that use each block, by tier: counted from their tables.
struct Uses {
  std::vector<uint32_t> of[kNumTiers];
};

/// The entries of a seat's table that it uses, and where.
struct Used {
  uint32_t count;
  uint32_t tier;
};
Used used_by(const Seat& seat) {
  if (seat.num_blocks != 0) return {seat.num_blocks, kDeviceTier};
  return {seat.num_host, kHostTier};
}

const char* count_uses(const Scheduler& s, Uses& uses) {
  const KvBlocks& store = s.kv.store;
  for (std::vector<uint32_t>& tier : uses.of) tier.assign(store.num_blocks, 0);
  for (uint32_t i = 0; i < s.seats.num_running; ++i) {
    const uint32_t seat_index = s.seats.running[i];
    const Used used = used_by(s.seats[seat_index]);
    if (used.count > s.kv.max_blocks_per_seq) return "a seat uses more blocks than its table has";
    for (uint32_t b = 0; b < used.count; ++b) {
      const uint32_t block = s.kv.table(seat_index)[b];
      if (block >= store.num_blocks) return "a table names a block that does not exist";
      if (store.blocks[block].places[used.tier] == kNoBlock)
        return "a seat uses a block where it is not";
      if (used.tier == kDeviceTier &&
          s.kv.block_table(seat_index)[b] != store.blocks[block].places[kDeviceTier])
        return "a step would look for a block where it is not";
      ++uses.of[used.tier][block];
    }
  }
  return nullptr;
}

/// Blocks that are not in use are in one list, and nowhere else.
const char* check_unused(const KvBlocks& store) {
  uint32_t listed = 0, unused = 0;
  for (uint32_t b = store.first_unused; b < store.num_blocks; b = store.blocks[b].next)
    if (store.blocks[b].kind != BlockKind::kNone || ++listed > store.num_blocks)
      return "the list of unused blocks is broken";
  for (uint32_t b = 0; b < store.num_blocks; ++b)
    unused += store.blocks[b].kind == BlockKind::kNone ? 1 : 0;
  return listed == unused ? nullptr : "a block is lost";
}

const char* check_users(const KvBlocks& store, const Uses& uses, uint32_t block) {
  const KvBlock& b = store.blocks[block];
  for (uint32_t tier = 0; tier < kNumTiers; ++tier) {
    if (b.users[tier] != uses.of[tier][block]) return "references and holders of a block differ";
    const bool listed = store.tiers[tier].is_idle(block);
    if (listed != is_idle_in(b, tier)) return "a block that is in use may be evicted, or is lost";
    const bool unsettled = (b.unsettled >> tier & 1) != 0;
    if (unsettled && (!listed || is_still_in(store, block, tier)))
      return "a block is said to be copied, and is not";
    if (listed && !unsettled && !is_still_in(store, block, tier))
      return "a block counts as free while a copy touches it";
  }
  const uint32_t users = b.users[kDeviceTier] + b.users[kHostTier];
  if (b.kind == BlockKind::kPrivate && users != 1) return "a private block has not one user";
  if (b.kind == BlockKind::kPending && (b.users[kDeviceTier] != 1 || users != 1))
    return "a block that is being filled has not one user";
  return b.places[kDeviceTier] == kNoBlock && b.places[kHostTier] == kNoBlock ? "a block is nowhere"
                                                                              : nullptr;
}

/// What is findable is found by what it holds, and so is its parent.
/// Findable blocks that continue each block, by tier.
struct Children {
  std::vector<uint32_t> in[kNumTiers];
};

const char* count_in_parent(const KvBlocks& store, uint32_t block, Children& children) {
  const uint32_t parent = store.table.entry(block).parent;
  for (uint32_t tier = 0; tier < kNumTiers; ++tier) {
    if (store.blocks[block].places[tier] == kNoBlock) continue;
    if (store.blocks[parent].places[tier] == kNoBlock)
      return "a block is in a tier without the block that it continues";
    ++children.in[tier][parent];
  }
  return nullptr;
}

bool same_owner(const PrefixOwner& a, const PrefixOwner& b) {
  return a.salt == b.salt && a.adapter == b.adapter;
}

const char* check_findable(const Scheduler& s, uint32_t block, Children& children) {
  const KvBlocks& store = s.kv.store;
  const PrefixEntry& e = store.table.entry(block);
  const uint32_t* tokens = store.table.tokens_of(block);
  uint64_t before = chain_root(s.kv.seed, e.salt);
  if (e.parent != kNoEntry) {
    if (!is_findable(store.blocks[e.parent])) return "a block is findable whose parent is gone";
    if (store.blocks[block].kind == BlockKind::kFull &&
        store.blocks[e.parent].kind != BlockKind::kFull)
      return "a block is full whose parent is not";
    if (const char* wrong = count_in_parent(store, block, children)) return wrong;
    before = store.table.entry(e.parent).key;
    if (!same_owner(store.table.entry(e.parent).owner, e.owner))
      return "a block and the one that it continues have two owners";
  }
  if (e.key != chain_key(before, hash_tokens(tokens, s.kv.block_size, s.kv.seed)))
    return "a block is filed under content that it does not have";
  return store.table.find({e.key, e.salt, e.parent, tokens}) == block
             ? nullptr
             : "a findable block is not found, or is there twice";
}

const char* check_blocks(const Scheduler& s) {
  const KvBlocks& store = s.kv.store;
  Uses uses;
  if (const char* wrong = count_uses(s, uses)) return wrong;
  if (const char* wrong = check_unused(store)) return wrong;
  Children children;
  for (std::vector<uint32_t>& tier : children.in) tier.assign(store.num_blocks, 0);
  for (uint32_t block = 0; block < store.num_blocks; ++block) {
    if (store.blocks[block].kind == BlockKind::kNone) continue;
    if (const char* wrong = check_users(store, uses, block)) return wrong;
    if (!is_findable(store.blocks[block])) continue;
    if (const char* wrong = check_findable(s, block, children)) return wrong;
  }
  for (uint32_t block = 0; block < store.num_blocks; ++block)
    for (uint32_t tier = 0; tier < kNumTiers; ++tier)
      if (store.blocks[block].kind != BlockKind::kNone &&
          store.blocks[block].children[tier] != children.in[tier][block])
        return "the blocks that continue one were not counted";
  return nullptr;
}

/// A seat's filed blocks hold its tokens.
const char* check_filed(const Scheduler& s, uint32_t seat_index) {
  const Seat& seat = s.seats[seat_index];
  if (seat.num_filed > seat.num_blocks || seat.num_filed * s.kv.block_size > seat.num_computed)
    return "a block was filed that is not full";
  for (uint32_t b = 0; b < seat.num_filed; ++b) {
    const uint32_t block = s.kv.table(seat_index)[b];
    if (s.kv.store.blocks[block].kind != BlockKind::kFull) return "a filed block is not findable";
    const uint32_t parent = b == 0 ? kNoEntry : s.kv.table(seat_index)[b - 1];
    const uint32_t* tokens = s.seats.tokens(seat_index) + size_t{b} * s.kv.block_size;
    if (!s.kv.store.table.holds(block, {0, seat.cache_salt, parent, tokens}))
      return "a seat uses a block of other tokens";
    if (!same_owner(s.kv.store.table.entry(block).owner, seat.owner))
      return "routers are told of another owner than the request's";
  }
  return nullptr;
}

const char* check_free(const Scheduler& s, const BlockPool& pool, std::vector<bool>& known) {
  if (pool.num_free > pool.num_blocks) return "more places are free than there are";
  for (uint32_t i = 0; i < pool.num_free; ++i) {
    const uint32_t place = pool.free_ring[(pool.head + i) % pool.num_blocks];
    if (place >= pool.num_blocks) return "the free list names a place that does not exist";
    if (known[place]) return "a free place has an owner, or is free twice";
    if (pool.states[place].owner != kNoOwner) return "a free place is marked as owned";
    if (pool.states[place].fence > s.course.step)
      return "a free place waits for a step that was never launched";
    if (!pool.is_still(place, s.kv.store.copies)) return "a place is free while a copy touches it";
    known[place] = true;
  }
  return nullptr;
}

const char* check_places(const Scheduler& s, uint32_t tier) {
  const KvBlocks& store = s.kv.store;
  const BlockPool& pool = store.tiers[tier].pool;
  std::vector<bool> known(pool.num_blocks, false);
  for (uint32_t block = 0; block < store.num_blocks; ++block) {
    const uint32_t place = store.blocks[block].places[tier];
    if (store.blocks[block].kind == BlockKind::kNone || place == kNoBlock) continue;
    if (place >= pool.num_blocks) return "a block is at a place that does not exist";
    if (known[place]) return "a place has two owners";
    if (pool.states[place].owner != block) return "a place and a block disagree on the owner";
    known[place] = true;
  }
  if (const char* wrong = check_free(s, pool, known)) return wrong;
  uint32_t in_transit = 0;
  for (uint32_t place = 0; place < pool.num_blocks; ++place) {
    const BlockState& state = pool.states[place];
    if (state.down_fence > store.copies.down.asked || state.up_fence > store.copies.up.asked)
      return "a place waits for a copy that was never asked for";
    if (known[place]) continue;
    if (state.owner != kInTransit) return "a place is neither free nor owned";
    if (pool.is_still(place, store.copies)) return "a place is in transit, but no copy touches it";
    ++in_transit;
  }
  return in_transit == pool.num_in_transit ? nullptr : "places in transit were not counted";
}

/// Idle blocks in the order in which they would leave.
struct Leaving {
  std::vector<bool> passed;
  uint32_t unsettled = 0;
};

const char* check_list(const KvBlocks& store, uint32_t tier, const Recency& list, bool cold,
                       Leaving& leaving) {
  uint32_t count = 0, older = kNoEntry;
  for (uint32_t at = list.oldest; at != kNoEntry; at = list.links[at].newer) {
    if (++count > store.num_blocks || list.links[at].older != older)
      return "the list of idle blocks is broken";
    const KvBlock& b = store.blocks[at];
    if ((b.cold >> tier & 1) != (cold ? 1 : 0))
      return "a block is in the other list of idle blocks";
    if (cold && b.children[tier] != b.cold_children[tier])
      return "a cold block is continued by one that is not";
    leaving.unsettled += b.unsettled >> tier & 1;
    leaving.passed[at] = true;
    older = at;
    const uint32_t parent = parent_of(store, at);
    if (parent != kNoEntry && leaving.passed[parent])
      return "a block would be evicted before its children";
  }
  return count == list.count && older == list.newest ? nullptr
                                                     : "the list of idle blocks lost its end";
}

const char* check_idle(const KvBlocks& store, uint32_t tier) {
  const KvTier& t = store.tiers[tier];
  Leaving leaving;
  leaving.passed.assign(store.num_blocks, false);
  if (const char* wrong = check_list(store, tier, t.cold, true, leaving)) return wrong;
  if (const char* wrong = check_list(store, tier, t.idle, false, leaving)) return wrong;
  return leaving.unsettled == t.num_unsettled ? nullptr
                                              : "idle blocks that are copied were not counted";
}

/// Every copy under way is one that its two blocks wait for.
const char* check_queue(const Scheduler& s, const CopyQueue& queue, uint64_t BlockState::*fence) {
  if (queue.done > queue.asked || queue.urgent > queue.asked)
    return "a copy was counted that was never asked for";
  if (queue.asked - queue.done > queue.capacity) return "more copies are under way than fit";
  if (queue.end != queue.asked % queue.capacity) return "a copy queue lost its end";
  for (uint64_t n = queue.done + 1; n <= queue.asked; ++n) {
    const BlockCopy& copy = queue.at(n);
    const uint32_t host = s.limits.num_host_blocks;
    if (copy.device_block >= s.limits.num_blocks ||
        copy.host_block >= host + s.limits.num_frame_blocks())
      return "a copy names a block that does not exist";
    if (s.kv.device().pool.states[copy.device_block].*fence < n ||
        (copy.host_block < host && s.kv.host().pool.states[copy.host_block].*fence < n))
      return "a block does not wait for its copy";
  }
  return nullptr;
}

/// The two directions are not ordered: nothing is read from host memory before it is there.
const char* check_order(const KvBlocks& store) {
  for (uint64_t n = store.copies.up.done + 1; n <= store.copies.up.asked; ++n) {
    const uint32_t from = store.copies.up.at(n).host_block;
    if (from >= store.tiers[kHostTier].pool.num_blocks) continue;  // see check_fetches
    if (store.tiers[kHostTier].pool.states[from].down_fence > store.copies.down.done)
      return "a copy up reads what a copy down is still writing";
  }
  return nullptr;
}

const char* check_copies(const Scheduler& s) {
  if (s.limits.num_host_blocks + s.limits.num_frame_blocks() == 0)
    return s.kv.store.copies.idle() ? nullptr : "a copy without a tier";
  if (const char* wrong = check_queue(s, s.kv.store.copies.down, &BlockState::down_fence))
    return wrong;
  if (const char* wrong = check_queue(s, s.kv.store.copies.up, &BlockState::up_fence)) return wrong;
  return check_order(s.kv.store);
}

/// The last step read no block that a copy was writing, and wrote none that a copy was reading.
const char* check_batch(const Scheduler& s) {
  const StepBatch& batch = s.launch.batch;
  for (uint32_t i = 0; i < batch.num_seqs; ++i) {
    const StepSeq& q = batch.seqs[i];
    const uint32_t end = s.kv.blocks_for(q.first_position + q.num_rows);
    if (end > s.seats[q.seat].num_blocks) return "a step ran outside of its seat's blocks";
    for (uint32_t b = 0; b < end; ++b) {
      const uint32_t block = s.launch.tables.block_table(q.seat)[b];
      const bool written = b >= q.first_position / s.limits.block_size;
      if (s.kv.device().pool.states[block].up_fence > s.kv.store.copies.up.done)
        return "a step ran on a block that a copy was writing";
      if (written && s.kv.device().pool.states[block].down_fence > s.kv.store.copies.down.done)
        return "a step wrote a block that a copy was reading";
      const KvBlock& shared = s.kv.store.blocks[s.kv.table(q.seat)[b]];
      if (written && (shared.kind == BlockKind::kFull || shared.users[kDeviceTier] != 1))
        return "a step wrote a block that others use or find";
    }
  }
  return nullptr;
}

/// What a seat's fields say of its rotation (sched/tiers.hpp) agrees.
const char* check_rotation(const Scheduler& s, const Seat& seat) {
  if (seat.down_fence > s.kv.store.copies.down.asked || seat.up_fence > s.kv.store.copies.up.asked)
    return "a seat waits for a copy that was never asked for";
  if (seat.num_blocks == 0)
    return s.kv.blocks_for(seat.num_computed) == seat.num_host
               ? nullptr
               : "host memory does not hold what a rotated request has computed";
  if (seat.num_computed > s.limits.block_size * seat.num_blocks)
    return "KV was computed outside a seat's blocks";
  return seat.num_host <= seat.num_computed / s.limits.block_size
             ? nullptr
             : "host memory holds a block that was not full";
}

const char* check_seats(const Scheduler& s) {
  uint32_t sharing = 0, held = 0, adapted = 0;
  if (s.seats.num_running + s.seats.num_free != s.limits.num_seats) return "a seat is lost";
  std::vector<bool> taken(s.limits.num_seats, false);
  for (uint32_t i = 0; i < s.seats.num_running; ++i) {
    const uint32_t index = s.seats.running[i];
    if (index >= s.limits.num_seats || taken[index]) return "a seat runs twice";
    taken[index] = true;
    const Seat& seat = s.seats[index];
    if (i > 0 && s.seats[s.seats.running[i - 1]].arrival >= seat.arrival)
      return "the running list is not in order of arrival";
    if (seat.slot >= s.limits.num_slots || s.slots[seat.slot].seat != index)
      return "a slot and its seat disagree";
    if (seat.num_tokens > s.limits.max_model_len) return "a sequence exceeds max_model_len";
    const sac_descriptor& asked = s.slots[seat.slot].descriptor;
    if (s.seats.params[index].adapter != asked.adapter || asked.adapter > s.limits.num_adapters)
      return "a seat has an adapter that its request did not name";
    if (has_adapter(seat) != (asked.adapter != 0))
      return "a seat and its request disagree about an adapter";
    if (const char* wrong = check_rotation(s, seat)) return wrong;
    if (const char* wrong = check_filed(s, index)) return wrong;
    sharing += seat.shares;
    held += seat.held;
    adapted += has_adapter(seat) ? 1 : 0;
    if (seat.held != 0 && seat.num_blocks != 0) return "a request that is held has blocks";
    if (seat.finish == SAC_FINISH_NONE && seat.num_computed >= seat.num_tokens)
      return "a live sequence has nothing left to compute";
  }
  if (sharing != s.seats.num_sharing) return "requests that share blocks were not counted";
  if (held != s.seats.num_held) return "requests that are held were not counted";
  if (adapted != s.seats.num_adapted) return "requests with adapters were not counted";
  for (uint32_t i = 0; i < s.seats.num_free; ++i) {
    const uint32_t index = s.seats.free[i];
    if (index >= s.limits.num_seats || taken[index]) return "a free seat runs, or is free twice";
    taken[index] = true;
  }
  return nullptr;
}

/// Every slot's request is where its state says: nowhere, in the waiting list, on a seat, or
/// parked.
const char* check_slots(const Scheduler& s) {
  uint32_t waiting = 0;
  for (uint32_t slot = 0; slot < s.limits.num_slots; ++slot) {
    const Request& r = s.slots[slot];
    waiting += r.state == SAC_STATE_PREFILL_PENDING && !is_aside(s.fetch, r) ? 1 : 0;
    if (r.seat == kNone) {
      if (r.state > SAC_STATE_PREFILL_PENDING && r.state != SAC_STATE_DECODE_COMPLETED &&
          !is_parked(r))
        return "a request runs without a seat";
    } else if (r.seat >= s.limits.num_seats || s.seats[r.seat].slot != slot ||
               s.seats[r.seat].ticket != r.ticket) {
      return "a request names a seat that is not its own";
    }
  }
  return waiting == s.waiting.count ? nullptr : "a waiting request is not in the waiting list";
}

const char* check_waiting(const Scheduler& s) {
  uint32_t count = 0;
  uint32_t prev = kNone;
  for (uint32_t slot = s.waiting.head; slot != kNone; slot = s.slots[slot].next) {
    if (slot >= s.limits.num_slots) return "the waiting list names a slot that does not exist";
    const Request& r = s.slots[slot];
    if (++count > s.limits.num_slots) return "the waiting list is a circle";
    if (r.prev != prev) return "the waiting list is not linked both ways";
    if (r.state != SAC_STATE_PREFILL_PENDING || r.seat != kNone)
      return "a waiting request has a seat or another state";
    if (prev != kNone && s.slots[prev].arrival >= r.arrival)
      return "the waiting list is not in order of arrival";
    if (r.candidate >= s.waiting.count || s.waiting.candidate_slots[r.candidate] != slot ||
        s.waiting.candidates[r.candidate].order != r.arrival)
      return "a waiting request is not among the candidates";
    prev = slot;
  }
  if (prev != s.waiting.tail || count != s.waiting.count) return "the waiting list lost its end";
  return nullptr;
}

/// The pages of a parked request: as many as its words take, and no one else's.
const char* check_pages_of(const Parking& parking, const Request& r, const ParkedRequest& kept,
                           std::vector<bool>& known) {
  uint64_t left = 0, pages = 0;
  for (const uint32_t words : {kept.seat.num_tokens, 2 * r.descriptor.num_logit_bias,
                               r.descriptor.num_stop_ids, r.descriptor.grammar_words})
    left += ceil_div(words, kPageWords);
  for (uint32_t p = kept.first_page; p != kNone; p = parking.next_page[p], ++pages) {
    if (p >= parking.num_pages || pages == left || known[p]) return "a page has two owners";
    known[p] = true;
  }
  return pages == left ? nullptr : "a parked request lost a page";
}

/// Requests that return: in order of arrival, and none of them looked at any more.
const char* check_returning(const Scheduler& s) {
  const Parking& parking = s.parking;
  uint32_t count = 0, prev = kNone;
  for (uint32_t slot = parking.head; slot != kNone; prev = slot, slot = s.slots[slot].next) {
    if (slot >= s.limits.num_slots || ++count > parking.num_returning || !is_parked(s.slots[slot]))
      return "the line of returning requests is broken";
    if (s.slots[slot].prev != prev || (parking.asleep[slot / 32] >> slot % 32 & 1) != 0 ||
        (prev != kNone && s.slots[prev].arrival >= s.slots[slot].arrival))
      return "the line of returning requests is not in order";
  }
  return prev == parking.tail && count == parking.num_returning
             ? nullptr
             : "the line of returning requests lost its end";
}

const char* check_parking(const Scheduler& s) {
  const Parking& parking = s.parking;
  std::vector<bool> known(parking.num_pages, false);
  uint32_t parked = 0, asleep = 0, free = 0;
  for (uint32_t slot = 0; slot < s.limits.num_slots; ++slot) {
    const bool sleeps = (parking.asleep[slot / 32] >> slot % 32 & 1) != 0;
    asleep += sleeps ? 1 : 0;
    if (!is_parked(s.slots[slot])) {
      if (sleeps) return "a request that is not parked is looked at";
      continue;
    }
    ++parked;
    const ParkedRequest& kept = parking.requests[slot];
    if (kept.seat.slot != slot || kept.seat.ticket != s.slots[slot].ticket)
      return "a parked request is another's";
    if (kept.seat.num_blocks != 0 || kept.seat.num_host != 0 || kept.seat.num_computed != 0 ||
        kept.seat.held != 0 || has_ended(kept.seat))
      return "a parked request holds something";
    if (const char* wrong = check_pages_of(parking, s.slots[slot], kept, known)) return wrong;
  }
  if (parked != parking.num_parked || asleep + parking.num_returning != parked)
    return "parked requests were not counted";
  for (uint32_t p = parking.first_free_page; p != kNone; p = parking.next_page[p], ++free) {
    if (p >= parking.num_pages || known[p]) return "a free page has an owner, or is free twice";
    known[p] = true;
  }
  if (free != parking.num_free_pages || std::find(known.begin(), known.end(), false) != known.end())
    return "a page is lost";
  return check_returning(s);
}

}  // namespace

const char* check_invariants(const Scheduler& s) {
  if (const char* wrong = check_blocks(s)) return wrong;
  for (uint32_t tier = 0; tier < kNumTiers; ++tier) {
    if (const char* wrong = check_places(s, tier)) return wrong;
    if (const char* wrong = check_idle(s.kv.store, tier)) return wrong;
  }
  if (const char* wrong = check_copies(s)) return wrong;
  if (const char* wrong = check_batch(s)) return wrong;
  if (const char* wrong = check_seats(s)) return wrong;
  if (const char* wrong = check_waiting(s)) return wrong;
  if (const char* wrong = check_parking(s)) return wrong;
  if (const char* wrong = check_fetches(s)) return wrong;
  return check_slots(s);
}

}  // namespace saccade
