/* Prints every struct, field and constant of fetch.h in a form that a diff can read. The committed
 * output is fetch.layout.txt; SAC_FETCH_LAYOUT_HASH is the FNV-1a 64 of that file, and is the one
 * constant that is not in it. See README.md. */
#include <inttypes.h>
#include <stdio.h>

#include "fetch.h"

#define CONSTANT(name) printf("constant %s %" PRIu64 "\n", #name, (uint64_t)(name))
#define STRUCT(type) \
  printf("struct %s size %zu align %zu\n", #type, sizeof(struct type), _Alignof(struct type))
#define FIELD(type, field)                                                   \
  printf("  %s offset %zu size %zu\n", #field, offsetof(struct type, field), \
         sizeof(((struct type*)0)->field))

static void constants(void) {
  CONSTANT(SAC_FETCH_MAGIC);
  CONSTANT(SAC_FETCH_VERSION);
  CONSTANT(SAC_CHUNK_TOKENS);
  CONSTANT(SAC_MAX_FETCH_QUEUE);
  CONSTANT(SAC_MAX_FETCH_ENTRIES);
  CONSTANT(SAC_MAX_FETCH_FRAMES);
  CONSTANT(SAC_MAX_KV_EVENTS);
  CONSTANT(SAC_FETCH_HEARTBEAT_MS);
  CONSTANT(SAC_FETCH_LOOKUP);
  CONSTANT(SAC_FETCH_LOAD);
  CONSTANT(SAC_FETCH_STORE);
  CONSTANT(SAC_FETCH_CANCEL);
  CONSTANT(SAC_FETCH_DONE);
  CONSTANT(SAC_FETCH_MISS);
  CONSTANT(SAC_FETCH_LATE);
  CONSTANT(SAC_FETCH_TROUBLE);
  CONSTANT(SAC_FETCH_REJECTED);
  CONSTANT(SAC_FETCH_FULL);
  CONSTANT(SAC_FETCH_DROPPED);
  CONSTANT(SAC_FETCH_CANCELLED);
  CONSTANT(SAC_FETCH_INVALID);
  CONSTANT(SAC_FETCH_REJECT_LENGTH);
  CONSTANT(SAC_FETCH_REJECT_MAGIC);
  CONSTANT(SAC_FETCH_REJECT_VERSION);
  CONSTANT(SAC_FETCH_REJECT_CHECKSUM);
  CONSTANT(SAC_FETCH_REJECT_NAME);
  CONSTANT(SAC_FETCH_REJECT_MODEL);
  CONSTANT(SAC_FETCH_REJECT_SPAN);
  CONSTANT(SAC_FETCH_REJECT_CODEC);
  CONSTANT(SAC_FETCH_REJECT_PAYLOAD);
  CONSTANT(SAC_FETCH_TROUBLE_INTERNAL);
  CONSTANT(SAC_FETCH_TROUBLE_UNREACHABLE);
  CONSTANT(SAC_FETCH_TROUBLE_REFUSED);
  CONSTANT(SAC_FETCH_TROUBLE_PROTOCOL);
  CONSTANT(SAC_FETCH_TROUBLE_RESTING);
  CONSTANT(SAC_FETCH_TROUBLE_TOO_LARGE);
  CONSTANT(SAC_FETCH_TROUBLE_TIMEOUT);
  CONSTANT(SAC_FETCH_TROUBLE_BUSY);
  CONSTANT(SAC_KV_STORED);
  CONSTANT(SAC_KV_REMOVED);
  CONSTANT(SAC_KV_CLEARED);
  CONSTANT(SAC_KV_ON_DEVICE);
  CONSTANT(SAC_KV_ON_HOST);
}

static void region_header(void) {
  STRUCT(sac_fetch_header);
  FIELD(sac_fetch_header, magic);
  FIELD(sac_fetch_header, version);
  FIELD(sac_fetch_header, header_bytes);
  FIELD(sac_fetch_header, layout_hash);
  FIELD(sac_fetch_header, region_bytes);
  FIELD(sac_fetch_header, instance_id);
  FIELD(sac_fetch_header, queue_len);
  FIELD(sac_fetch_header, num_entries);
  FIELD(sac_fetch_header, entry_tokens);
  FIELD(sac_fetch_header, num_frames);
  FIELD(sac_fetch_header, frame_bytes);
  FIELD(sac_fetch_header, block_bytes);
  FIELD(sac_fetch_header, block_size);
  FIELD(sac_fetch_header, num_layers);
  FIELD(sac_fetch_header, kv_heads);
  FIELD(sac_fetch_header, head_dim);
  FIELD(sac_fetch_header, dtype);
  FIELD(sac_fetch_header, num_events);
  FIELD(sac_fetch_header, event_bytes);
  FIELD(sac_fetch_header, device_wakes);
  FIELD(sac_fetch_header, model_id);
  FIELD(sac_fetch_header, device_offset);
  FIELD(sac_fetch_header, plane_offset);
  FIELD(sac_fetch_header, commands_offset);
  FIELD(sac_fetch_header, completions_offset);
  FIELD(sac_fetch_header, tokens_offset);
  FIELD(sac_fetch_header, frames_offset);
  FIELD(sac_fetch_header, events_offset);
  FIELD(sac_fetch_header, _pad0);
}

static void lines(void) {
  STRUCT(sac_fetch_device_line);
  FIELD(sac_fetch_device_line, commands_written);
  FIELD(sac_fetch_device_line, completions_read);
  FIELD(sac_fetch_device_line, acked_epoch);
  FIELD(sac_fetch_device_line, closed);
  FIELD(sac_fetch_device_line, heartbeat);
  FIELD(sac_fetch_device_line, events_written);
  FIELD(sac_fetch_device_line, events_dropped);
  FIELD(sac_fetch_device_line, _pad0);
  STRUCT(sac_fetch_plane_line);
  FIELD(sac_fetch_plane_line, epoch);
  FIELD(sac_fetch_plane_line, waiting);
  FIELD(sac_fetch_plane_line, commands_read);
  FIELD(sac_fetch_plane_line, completions_written);
  FIELD(sac_fetch_plane_line, heartbeat);
  FIELD(sac_fetch_plane_line, events_read);
  FIELD(sac_fetch_plane_line, pid);
  FIELD(sac_fetch_plane_line, breaker);
  FIELD(sac_fetch_plane_line, stores);
  FIELD(sac_fetch_plane_line, _pad0);
  FIELD(sac_fetch_plane_line, _pad1);
}

static void entries(void) {
  STRUCT(sac_fetch_command);
  FIELD(sac_fetch_command, id);
  FIELD(sac_fetch_command, salt);
  FIELD(sac_fetch_command, target);
  FIELD(sac_fetch_command, op);
  FIELD(sac_fetch_command, entry);
  FIELD(sac_fetch_command, num_tokens);
  FIELD(sac_fetch_command, chunk);
  FIELD(sac_fetch_command, frame);
  FIELD(sac_fetch_command, budget_us);
  FIELD(sac_fetch_command, _pad0);
  STRUCT(sac_fetch_completion);
  FIELD(sac_fetch_completion, id);
  FIELD(sac_fetch_completion, op);
  FIELD(sac_fetch_completion, result);
  FIELD(sac_fetch_completion, detail);
  FIELD(sac_fetch_completion, num_chunks);
  FIELD(sac_fetch_completion, coded_bytes);
  FIELD(sac_fetch_completion, _pad0);
  STRUCT(sac_kv_event);
  FIELD(sac_kv_event, key);
  FIELD(sac_kv_event, parent_key);
  FIELD(sac_kv_event, salt);
  FIELD(sac_kv_event, kind);
  FIELD(sac_kv_event, tier);
  FIELD(sac_kv_event, adapter);
  FIELD(sac_kv_event, _pad0);
}

int main(void) {
  constants();
  region_header();
  lines();
  entries();
  return 0;
}
