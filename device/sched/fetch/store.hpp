// store: what was computed is stored behind, chunk by chunk, while frames are free and nothing in
// need waits for copies. It never delays a request; what finds no room is dropped and counted.
#pragma once
#include "sched/fetch/desk.hpp"
#include "sched/filing.hpp"
#include "sched/report.hpp"

namespace saccade {

/// The last block of a chunk is still what it was when it was computed.
SAC_HD inline bool is_there(const KvBlocks& store, const ComputedChunk& chunk) {
  return store.blocks[chunk.last_block].kind == BlockKind::kFull &&
         store.table.entry(chunk.last_block).key == chunk.key;
}

/// Blocks up to and with the last one of a chunk; 0 if one of the chunk is not on the device, or is
/// still on its way there.
SAC_HD inline uint32_t depth_of(const KvTiers& kv, const ComputedChunk& chunk) {
  uint32_t depth = 0;
  for (uint32_t block = chunk.last_block; block != kNoEntry;
       block = kv.store.table.entry(block).parent, ++depth)
    if (depth < kv.write_behind.blocks_per_chunk && !is_at_hand(kv, block)) return 0;
  return depth;
}

/// A copy of an idle block was asked for: it does not count as free before that is done.
SAC_HD inline void note_copy_of_idle(KvBlocks& store, uint32_t block) {
  KvTier& device = store.tiers[kDeviceTier];
  KvBlock& b = store.blocks[block];
  if (!device.is_idle(block) || (b.unsettled >> kDeviceTier & 1) != 0) return;
  b.unsettled |= 1u << kDeviceTier;
  ++device.num_unsettled;
}

/// Copies a chunk of `depth` blocks into a frame, and its tokens into a row.
SAC_HD inline void lower_chunk(FetchDesk& desk, KvTiers& kv, const ComputedChunk& chunk,
                               uint32_t depth, uint32_t entry_index) {
  KvBlocks& store = kv.store;
  const uint32_t per_chunk = kv.write_behind.blocks_per_chunk;
  const uint32_t index = take_frame(desk, FrameUse::kLowering, entry_index, depth / per_chunk - 1);
  FetchFrame& frame = desk.frames[index];
  uint32_t* row = desk.view.row(entry_index);
  const uint32_t first_place = kv.num_host_blocks + index * per_chunk;
  uint32_t block = chunk.last_block;
  for (uint32_t d = depth; d > 0; --d, block = store.table.entry(block).parent) {
    const uint32_t* tokens = store.table.tokens_of(block);
    for (uint32_t i = 0; i < kv.block_size; ++i)
      store_relaxed(row + size_t{d - 1} * kv.block_size + i, tokens[i]);
    if (d + per_chunk <= depth) continue;
    const uint32_t place = store.blocks[block].places[kDeviceTier];
    const uint32_t within = (d - 1) % per_chunk;
    frame.fence = store.copies.down.ask({place, first_place + within}, false);
    store.tiers[kDeviceTier].pool.states[place].down_fence = frame.fence;
    note_copy_of_idle(store, block);
  }
  desk.entries[entry_index].num_tokens = depth * kv.block_size;
}

/// Begins to store the chunk that has waited for longest. False: there is none, or no room.
SAC_HD inline bool begin_store(FetchDesk& desk, KvTiers& kv, Report& report) {
  const uint32_t busy =
      desk.num_frames_in(FrameUse::kLowering) + desk.num_frames_in(FrameUse::kStoring);
  if (kv.write_behind.count == 0 || desk.free_frame == kNone || busy >= desk.frames_for_stores())
    return false;
  const CopyQueue& down = kv.store.copies.down;
  if (down.urgent > down.done) return false;
  const uint32_t entry = take_entry(desk, EntryUse::kStoring, 0, kNone);
  if (entry == kNone) return false;
  const ComputedChunk chunk = kv.write_behind.take();
  const uint32_t depth = is_there(kv.store, chunk) ? depth_of(kv, chunk) : 0;
  if (depth == 0) {
    ++report.fetch.stores_evicted;
    leave_entry(desk, entry);
    return true;
  }
  desk.entries[entry].salt = kv.store.table.entry(chunk.last_block).salt;
  lower_chunk(desk, kv, chunk, depth, entry);
  return true;
}

/// A store has this long for a chunk: no request waits for it, but its frame is lent.
inline constexpr uint64_t kStoreBudgetNs = 10'000'000'000;

/// Chunks whose copies are done go to the plane.
SAC_HD inline void hand_over(FetchDesk& desk, const KvTiers& kv) {
  for (uint32_t f = 0; f < desk.limits.num_frames && desk.num_frames_in(FrameUse::kLowering) != 0;
       ++f) {
    FetchFrame& frame = desk.frames[f];
    if (frame.use != FrameUse::kLowering || frame.fence > kv.store.copies.down.done) continue;
    if (!has_room(desk)) return;
    set_use(desk, frame, FrameUse::kStoring);
    frame.command = ask(desk, {SAC_FETCH_STORE, frame.entry, frame.chunk, f, kStoreBudgetNs});
  }
}

/// One chunk at most begins in a tick: its copies are then few beside what a request may need.
SAC_HD inline void store_behind(FetchDesk& desk, KvTiers& kv, Report& report, uint64_t now_ns) {
  hand_over(desk, kv);
  if (desk.epoch != 0 && desk.stores == 0) kv.write_behind.count = 0;  // it is not to be stored
  if (kv.write_behind.count != 0 && desk.is_served(now_ns)) begin_store(desk, kv, report);
}

}  // namespace saccade
