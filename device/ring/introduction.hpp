// What only the host knows of a device, as frontends read it: one list of its fields, for every
// kind of device and every place of the ring; and what it measured.
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

/// Frontends that wait for a measurement wait for its generation.
inline void publish_roof(const sac_device_roof& roof, sac_device_roof* line) {
  uint64_t words[sizeof(roof) / sizeof(uint64_t)];
  __builtin_memcpy(words, &roof, sizeof(roof));
  auto* to = reinterpret_cast<uint64_t*>(line);
  for (size_t i = 1; i < sizeof(roof) / sizeof(uint64_t); ++i) store_relaxed(to + i, words[i]);
  store_relaxed(&line->num_threads, roof.num_threads);
  // SYNC: release, with the frontends' acquire of the generation.
  store_release(&line->generation, roof.generation);
}

}  // namespace saccade
