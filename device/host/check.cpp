#include "host/check.hpp"

#include <vector>

namespace saccade {
namespace {

const char* check_blocks(const Scheduler& s) {
  std::vector<uint32_t> owner(s.limits.num_blocks, kNoOwner);
  uint32_t held = 0;
  for (uint32_t i = 0; i < s.num_running; ++i) {
    const uint32_t seat = s.running[i];
    const uint32_t count = s.seats[seat].num_blocks;
    if (count > s.limits.max_blocks_per_seq()) return "a seat holds more blocks than its table has";
    for (uint32_t b = 0; b < count; ++b) {
      const uint32_t block = s.tables.block_table(seat)[b];
      if (block >= s.limits.num_blocks) return "a block table names a block that does not exist";
      if (owner[block] != kNoOwner) return "a block has two owners";
      if (s.pool.owner[block] != seat) return "the pool and a block table disagree on an owner";
      owner[block] = seat;
      ++held;
    }
  }
  if (s.pool.num_free > s.limits.num_blocks || held != s.pool.used())
    return "a block is neither free nor held by a running seat";
  for (uint32_t i = 0; i < s.pool.num_free; ++i) {
    const uint32_t block = s.pool.free_ring[(s.pool.head + i) % s.limits.num_blocks];
    if (block >= s.limits.num_blocks) return "the free list names a block that does not exist";
    if (owner[block] != kNoOwner) return "a free block has an owner";
    if (s.pool.owner[block] != kNoOwner) return "a free block is marked as owned";
    owner[block] = 0;  // a block that is free twice is found by this
  }
  return nullptr;
}

const char* check_seats(const Scheduler& s) {
  if (s.num_running + s.num_free_seats != s.limits.num_seats) return "a seat is lost";
  std::vector<bool> taken(s.limits.num_seats, false);
  for (uint32_t i = 0; i < s.num_running; ++i) {
    const uint32_t index = s.running[i];
    if (index >= s.limits.num_seats || taken[index]) return "a seat runs twice";
    taken[index] = true;
    const Seat& seat = s.seats[index];
    if (i > 0 && s.seats[s.running[i - 1]].arrival >= seat.arrival)
      return "the running list is not in order of arrival";
    if (seat.slot >= s.limits.num_slots || s.requests[seat.slot].seat != index)
      return "a slot and its seat disagree";
    if (seat.num_tokens > s.limits.max_model_len) return "a sequence exceeds max_model_len";
    if (seat.num_computed > s.limits.block_size * seat.num_blocks)
      return "KV was computed outside a seat's blocks";
    if (seat.finish == SAC_FINISH_NONE && seat.num_computed >= seat.num_tokens)
      return "a live sequence has nothing left to compute";
  }
  for (uint32_t i = 0; i < s.num_free_seats; ++i) {
    const uint32_t index = s.free_seats[i];
    if (index >= s.limits.num_seats || taken[index]) return "a free seat runs, or is free twice";
    taken[index] = true;
  }
  return nullptr;
}

/// Every slot's request is where its state says: nowhere, in the waiting list, or on a seat.
const char* check_slots(const Scheduler& s) {
  uint32_t waiting = 0;
  for (uint32_t slot = 0; slot < s.limits.num_slots; ++slot) {
    const Request& r = s.requests[slot];
    waiting += r.state == SAC_STATE_PREFILL_PENDING ? 1 : 0;
    if (r.seat == kNone) {
      if (r.state > SAC_STATE_PREFILL_PENDING && r.state != SAC_STATE_DECODE_COMPLETED)
        return "a request runs without a seat";
    } else if (r.seat >= s.limits.num_seats || s.seats[r.seat].slot != slot ||
               s.seats[r.seat].ticket != r.ticket) {
      return "a request names a seat that is not its own";
    }
  }
  return waiting == s.num_waiting ? nullptr : "a waiting request is not in the waiting list";
}

const char* check_waiting(const Scheduler& s) {
  uint32_t count = 0;
  uint32_t prev = kNone;
  for (uint32_t slot = s.waiting_head; slot != kNone; slot = s.requests[slot].next) {
    if (slot >= s.limits.num_slots) return "the waiting list names a slot that does not exist";
    const Request& r = s.requests[slot];
    if (++count > s.limits.num_slots) return "the waiting list is a circle";
    if (r.prev != prev) return "the waiting list is not linked both ways";
    if (r.state != SAC_STATE_PREFILL_PENDING || r.seat != kNone)
      return "a waiting request has a seat or another state";
    if (prev != kNone && s.requests[prev].arrival >= r.arrival)
      return "the waiting list is not in order of arrival";
    prev = slot;
  }
  if (prev != s.waiting_tail || count != s.num_waiting) return "the waiting list lost its end";
  return nullptr;
}

}  // namespace

const char* check_invariants(const Scheduler& s) {
  if (const char* wrong = check_blocks(s)) return wrong;
  if (const char* wrong = check_seats(s)) return wrong;
  if (const char* wrong = check_waiting(s)) return wrong;
  return check_slots(s);
}

}  // namespace saccade
