#include "invariants/check.hpp"

#include <vector>

namespace saccade {
namespace {

/// One tier: who holds which of its blocks.
struct Tier {
  const BlockPool& pool;
  const uint32_t* tables;  // [num_seats][max_blocks_per_seq]
  uint32_t Seat::*count;   // entries of a seat's table
};

const char* check_owners(const Scheduler& s, const Tier& tier, std::vector<bool>& held) {
  for (uint32_t i = 0; i < s.seats.num_running; ++i) {
    const uint32_t seat = s.seats.running[i];
    const uint32_t count = s.seats[seat].*tier.count;
    if (count > s.limits.max_blocks_per_seq()) return "a seat holds more blocks than its table has";
    for (uint32_t b = 0; b < count; ++b) {
      const uint32_t block = tier.tables[size_t{seat} * s.limits.max_blocks_per_seq() + b];
      if (block >= tier.pool.num_blocks) return "a block table names a block that does not exist";
      if (held[block]) return "a block has two owners";
      if (tier.pool.states[block].owner != seat)
        return "the pool and a block table disagree on an owner";
      held[block] = true;
    }
  }
  return nullptr;
}

const char* check_free(const Scheduler& s, const BlockPool& pool, std::vector<bool>& held) {
  if (pool.num_free > pool.num_blocks) return "more blocks are free than there are";
  for (uint32_t i = 0; i < pool.num_free; ++i) {
    const uint32_t block = pool.free_ring[(pool.head + i) % pool.num_blocks];
    if (block >= pool.num_blocks) return "the free list names a block that does not exist";
    if (held[block]) return "a free block has an owner, or is free twice";
    if (pool.states[block].owner != kNoOwner) return "a free block is marked as owned";
    if (pool.states[block].fence > s.course.step)
      return "a free block waits for a step that was never launched";
    if (!pool.is_still(block, s.kv.copies)) return "a block is free while a copy touches it";
    held[block] = true;
  }
  return nullptr;
}

const char* check_tier(const Scheduler& s, const Tier& tier) {
  const BlockPool& pool = tier.pool;
  std::vector<bool> held(pool.num_blocks, false);
  if (const char* wrong = check_owners(s, tier, held)) return wrong;
  if (const char* wrong = check_free(s, pool, held)) return wrong;
  uint32_t in_transit = 0;
  for (uint32_t block = 0; block < pool.num_blocks; ++block) {
    if (pool.states[block].down_fence > s.kv.copies.down.asked ||
        pool.states[block].up_fence > s.kv.copies.up.asked)
      return "a block waits for a copy that was never asked for";
    if (held[block]) continue;
    if (pool.states[block].owner != kInTransit) return "a block is neither free nor held";
    if (pool.is_still(block, s.kv.copies)) return "a block is in transit, but no copy touches it";
    ++in_transit;
  }
  return in_transit == pool.num_in_transit ? nullptr : "blocks in transit were not counted";
}

/// Every copy under way is one that its two blocks wait for.
const char* check_queue(const Scheduler& s, const CopyQueue& queue, uint64_t BlockState::*fence) {
  if (queue.done > queue.asked || queue.urgent > queue.asked)
    return "a copy was counted that was never asked for";
  if (queue.asked - queue.done > queue.capacity) return "more copies are under way than fit";
  if (queue.end != queue.asked % queue.capacity) return "a copy queue lost its end";
  for (uint64_t n = queue.done + 1; n <= queue.asked; ++n) {
    const BlockCopy& copy = queue.at(n);
    if (copy.device_block >= s.limits.num_blocks || copy.host_block >= s.limits.num_host_blocks)
      return "a copy names a block that does not exist";
    if (s.kv.pool.states[copy.device_block].*fence < n ||
        s.kv.host_pool.states[copy.host_block].*fence < n)
      return "a block does not wait for its copy";
  }
  return nullptr;
}

const char* check_copies(const Scheduler& s) {
  if (s.limits.num_host_blocks == 0) return s.kv.copies.idle() ? nullptr : "a copy without a tier";
  if (const char* wrong = check_queue(s, s.kv.copies.down, &BlockState::down_fence)) return wrong;
  return check_queue(s, s.kv.copies.up, &BlockState::up_fence);
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
      if (s.kv.pool.states[block].up_fence > s.kv.copies.up.done)
        return "a step ran on a block that a copy was writing";
      if (written && s.kv.pool.states[block].down_fence > s.kv.copies.down.done)
        return "a step wrote a block that a copy was reading";
    }
  }
  return nullptr;
}

/// What a seat's fields say of its rotation (sched/tiers.hpp) agrees.
const char* check_rotation(const Scheduler& s, const Seat& seat) {
  if (seat.down_fence > s.kv.copies.down.asked || seat.up_fence > s.kv.copies.up.asked)
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
    if (const char* wrong = check_rotation(s, seat)) return wrong;
    if (seat.finish == SAC_FINISH_NONE && seat.num_computed >= seat.num_tokens)
      return "a live sequence has nothing left to compute";
  }
  for (uint32_t i = 0; i < s.seats.num_free; ++i) {
    const uint32_t index = s.seats.free[i];
    if (index >= s.limits.num_seats || taken[index]) return "a free seat runs, or is free twice";
    taken[index] = true;
  }
  return nullptr;
}

/// Every slot's request is where its state says: nowhere, in the waiting list, or on a seat.
const char* check_slots(const Scheduler& s) {
  uint32_t waiting = 0;
  for (uint32_t slot = 0; slot < s.limits.num_slots; ++slot) {
    const Request& r = s.slots[slot];
    waiting += r.state == SAC_STATE_PREFILL_PENDING ? 1 : 0;
    if (r.seat == kNone) {
      if (r.state > SAC_STATE_PREFILL_PENDING && r.state != SAC_STATE_DECODE_COMPLETED)
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

}  // namespace

const char* check_invariants(const Scheduler& s) {
  if (const char* wrong = check_tier(s, {s.kv.pool, s.kv.block_tables, &Seat::num_blocks}))
    return wrong;
  if (const char* wrong = check_tier(s, {s.kv.host_pool, s.kv.host_tables, &Seat::num_host}))
    return wrong;
  if (const char* wrong = check_copies(s)) return wrong;
  if (const char* wrong = check_batch(s)) return wrong;
  if (const char* wrong = check_seats(s)) return wrong;
  if (const char* wrong = check_waiting(s)) return wrong;
  return check_slots(s);
}

}  // namespace saccade
