// A ring without a region, and the one frontend on it: what a simulated run needs of the other
// planes. No prompt is stored. An extent of the arena names a slot, and the prompt of the request
// in it is made when the device reads it (VirtualEnv::fetch): as long as the device may read it,
// the slot is taken. Extents overlap, and the arena is as long as its bounds require.
#pragma once
#include "platform/layout.hpp"
#include "ring/peers.hpp"
#include "sim/saccade_sim.h"

namespace saccade::sim {

/// The output rings are the smallest that there are.
struct VirtualRing {
  RingView view = {};
  sac_frontend_line* frontend = nullptr;
  uint32_t* doorbells = nullptr;
  uint32_t* cursors = nullptr;
  sac_descriptor* descriptors = nullptr;

  /// Hands out every part of the ring from `at`, which must be zeroed; measures with a null one.
  void lay_out(Layout& at, uint32_t num_slots, uint32_t max_model_len) {
    view.num_slots = num_slots;
    view.num_frontends = 1;
    view.out_ring_words = SAC_MIN_OUT_RING_WORDS;
    const uint64_t prompt_bytes = uint64_t{max_model_len} * 4;
    view.arena_bytes =
        SAC_ARENA_ALIGN_BYTES *
        (num_slots + (prompt_bytes + SAC_ARENA_ALIGN_BYTES - 1) / SAC_ARENA_ALIGN_BYTES);
    view.device = at.take<sac_device_line>(1);
    view.stats = at.take<sac_device_stats>(1);
    view.acks = at.take<sac_frontend_ack>(1);
    view.wake = at.take<sac_wake>(1);
    view.frontends = frontend = at.take<sac_frontend_line>(1);
    view.doorbells = doorbells = at.take<uint32_t>(num_slots);
    view.cursors = cursors = at.take<uint32_t>(num_slots);
    view.status = at.take<sac_status>(num_slots);
    view.descriptors = descriptors = at.take<sac_descriptor>(num_slots);
    view.out_rings = at.take<uint64_t>(size_t{num_slots} * view.out_ring_words);
    view.arena = at.take<unsigned char>(view.arena_bytes);
  }

  void join() { frontend->epoch = 1; }
  void beat() { ++frontend->heartbeat; }

  /// Does this fetch read a prompt? Then `request` is the one that it is of.
  bool is_prompt(const Fetch& fetch, uint64_t& request) const {
    const auto from = reinterpret_cast<uintptr_t>(fetch.from);
    const auto arena = reinterpret_cast<uintptr_t>(view.arena);
    if (fetch.words == 0 || from < arena || from >= arena + view.arena_bytes) return false;
    request = descriptors[(from - arena) / SAC_ARENA_ALIGN_BYTES].sequence;
    return true;
  }

  /// Submits to a free slot, as a frontend does: descriptor, cursor, doorbell. `sequence`: the
  /// index of the request.
  void submit(uint32_t slot, uint64_t sequence, const sac_sim_request& r) {
    sac_descriptor d = {};
    d.sequence = sequence;
    d.device_epoch = view.device->epoch;
    d.arena_extent = uint64_t{slot} * SAC_ARENA_ALIGN_BYTES;
    d.seed = sequence;
    d.flags = SAC_REQ_IGNORE_EOS;
    d.prompt_len = r.prompt_len;
    d.max_tokens = r.output_len;
    d.top_p = 1.0f;
    d.repetition_penalty = 1.0f;
    d.priority = r.priority;
    d.slo_ttft_s = r.slo_ttft_s;
    d.slo_tbt_s = r.slo_tbt_s;
    descriptors[slot] = d;
    cursors[slot] = 0;
    const uint32_t ticket = (sac_doorbell_ticket(doorbells[slot]) + 1) & SAC_TICKET_MASK;
    doorbells[slot] = sac_doorbell(ticket, 0);
  }
};

}  // namespace saccade::sim
