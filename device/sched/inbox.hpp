// What frontends wrote, as this tick read it, and what of it was acted upon.
#pragma once
#include "kv/prefix_table.hpp"
#include "platform/layout.hpp"
#include "ring/peers.hpp"
#include "sched/limits.hpp"

namespace saccade {

struct FrontendWatch {
  uint64_t heartbeat;
  uint64_t changed_ns;   // when the heartbeat last moved
  uint32_t acked_epoch;  // epoch whose predecessors hold nothing
  uint32_t lost;         // 1 while given up, until its heartbeat moves again
  uint32_t reclaimed;    // 1: given up, and nothing of it is left
};

/// Spans that are usually fetched at once, at most.
inline constexpr uint32_t kFewFetches = 32;

struct Inbox {
  RingView ring;
  uint32_t epoch;     // of this device: a request that names another is stale
  Peers peers;        // as read in this tick
  uint32_t* seen;     // [num_slots]: doorbell word acted upon
  uint32_t* changed;  // [num_slots]: slots whose doorbell differed from that in the last reading
  uint32_t num_changed;
  ReadAhead ahead;
  Fetch fetches[kFewFetches];  // scratch; where the state is near, so are these
  Fetch* many_fetches;         // [num_slots + SAC_MAX_FRONTENDS]: the same, for more
  uint32_t* prompt;            // [max_model_len]: scratch; null where prefixes are not shared
  uint32_t generations[SAC_MAX_FRONTENDS];  // of prefixes, as read with the last new requests
  FrontendWatch watch[SAC_MAX_FRONTENDS];
  uint32_t rope_switch_len;  // as of the limits
  // Set from outside before the first tick; a reset leaves them as they are.
  uint64_t* adapter_keys;   // [num_adapters]: a hash of what each holds
  uint64_t* adapter_names;  // [num_adapters]: a hash of what routers know each by; not 0

  /// Slots whose frontend waits for an ack or was given up are left alone.
  SAC_HD bool is_served(uint32_t slot) const {
    const uint32_t frontend = ring.frontend_of(slot);
    return watch[frontend].lost == 0 && watch[frontend].acked_epoch == peers.epochs[frontend];
  }
  /// What separates the prefixes of a request from those of others, beside the salt it names:
  /// blocks that were filed before any frontend moved its generation have other salts, and so have
  /// those of prompts on the other side of the length at which rope changes its angles, and those
  /// of each adapter.
  SAC_HD uint64_t salt_of(const sac_descriptor& d) const {
    const uint64_t salt = salt_beside_adapter(d);
    return d.adapter == 0 ? salt : mix_bits(salt ^ mix_bits(adapter_keys[d.adapter - 1]));
  }
  /// What routers are told in its place. Adapters that hold the same share blocks, which have one
  /// owner: the first of these adapters.
  SAC_HD PrefixOwner owner_of(const sac_descriptor& d) const {
    const uint64_t salt = salt_beside_adapter(d);
    if (d.adapter == 0) return {salt, 0};
    uint32_t first = 0;
    while (adapter_keys[first] != adapter_keys[d.adapter - 1]) ++first;
    return {salt, adapter_names[first]};
  }

 private:
  SAC_HD uint64_t salt_beside_adapter(const sac_descriptor& d) const {
    uint64_t apart = rope_switch_len != 0 && d.prompt_len > rope_switch_len ? 1 : 0;
    for (uint32_t f = 0; f < ring.num_frontends; ++f) apart += 2 * uint64_t{generations[f]};
    return apart == 0 ? d.cache_salt : mix_bits(d.cache_salt ^ mix_bits(apart));
  }
};

inline void lay_out(Inbox& inbox, const Limits& l, Layout& at) {
  inbox.seen = at.take<uint32_t>(l.num_slots);
  inbox.changed = at.take<uint32_t>(l.num_slots);
  inbox.many_fetches = at.take<Fetch>(size_t{l.num_slots} + SAC_MAX_FRONTENDS);
  inbox.peers.rung = at.take<uint32_t>(l.num_slots);
  inbox.adapter_keys = at.take<uint64_t>(l.num_adapters);
  inbox.adapter_names = at.take<uint64_t>(l.num_adapters);
  if (l.prefix_caching != 0) inbox.prompt = at.take<uint32_t>(l.max_model_len);
}
SAC_HD inline void reset(Inbox& inbox, const Limits& l) {
  inbox.rope_switch_len = l.rope_switch_len;
  inbox.ahead = ReadAhead{};
  inbox.num_changed = 0;
  for (uint32_t& generation : inbox.generations) generation = 0;
}

}  // namespace saccade
