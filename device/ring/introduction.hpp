// What only the host knows of a device, as frontends read it: one list of its fields, for every
// kind of device and every place of the ring.
#pragma once
#include "platform/atomics.hpp"

namespace saccade {

/// Copies it to a line of the ring; visible to frontends with phase READY.
inline void introduce(const sac_device_line& told, sac_device_line* line) {
  store_relaxed(&line->vocab_hash, told.vocab_hash);
  store_relaxed(&line->grammar_words, told.grammar_words);
  store_relaxed(&line->embedding_size, told.embedding_size);
  store_relaxed(&line->num_adapters, told.num_adapters);
  store_relaxed(&line->kv_block_bytes, told.kv_block_bytes);
  store_relaxed(&line->process_start_ticks, told.process_start_ticks);
  store_relaxed(&line->pid, told.pid);
}

}  // namespace saccade
