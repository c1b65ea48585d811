/* Prints every struct, field, constant and helper of wire.h in a form that a diff can read. The
 * committed output is wire.layout.txt; SAC_LAYOUT_HASH is the FNV-1a 64 of that file, and is the
 * one constant that is not in it. See README.md. */
#include <inttypes.h>
#include <stdio.h>

#include "wire.h"

#define CONSTANT(name) printf("constant %s %" PRIu64 "\n", #name, (uint64_t)(name))
#define STRUCT(type) \
  printf("struct %s size %zu align %zu\n", #type, sizeof(struct type), _Alignof(struct type))
#define FIELD(type, field)                                                   \
  printf("  %s offset %zu size %zu\n", #field, offsetof(struct type, field), \
         sizeof(((struct type*)0)->field))
#define SAMPLE(call) printf("sample %s %" PRIu64 "\n", #call, (uint64_t)(call))

static void constants(void) {
  CONSTANT(SAC_MAGIC);
  CONSTANT(SAC_ABI_VERSION);
  CONSTANT(SAC_LINE_BYTES);
  CONSTANT(SAC_MAX_SLOTS);
  CONSTANT(SAC_SLOT_GRANULE);
  CONSTANT(SAC_MAX_FRONTENDS);
  CONSTANT(SAC_MAX_TOP_LOGPROBS);
  CONSTANT(SAC_MAX_LOGIT_BIAS);
  CONSTANT(SAC_MAX_STOP_IDS);
  CONSTANT(SAC_MAX_TENANTS);
  CONSTANT(SAC_MAX_TENANT_WEIGHT);
  CONSTANT(SAC_MAX_ADAPTERS);
  CONSTANT(SAC_MIN_OUT_RING_WORDS);
  CONSTANT(SAC_MAX_OUT_RING_WORDS);
  CONSTANT(SAC_ARENA_ALIGN_BYTES);
  CONSTANT(SAC_GRAMMAR_STACK);
  CONSTANT(SAC_GRAMMAR_PLAIN_BYTES);
  CONSTANT(SAC_GRAMMAR_PLAIN_PLACES);
  CONSTANT(SAC_MAX_GRAMMAR_WORDS);
  CONSTANT(SAC_GRAMMAR_EDGE_MASK);
  CONSTANT(SAC_GRAMMAR_PLAIN_SHIFT);
  CONSTANT(SAC_GRAMMAR_PLAIN_MASK);
  CONSTANT(SAC_GRAMMAR_FINAL);
  CONSTANT(SAC_GRAMMAR_DEFAULT);
  CONSTANT(SAC_GRAMMAR_NEED_SHIFT);
  CONSTANT(SAC_GRAMMAR_NO_PUSH);
  CONSTANT(SAC_MAX_FORCED_TOKENS);
  CONSTANT(SAC_STATE_EMPTY);
  CONSTANT(SAC_STATE_PREFILL_PENDING);
  CONSTANT(SAC_STATE_PREFILL_PROCESSING);
  CONSTANT(SAC_STATE_DECODE_PROCESSING);
  CONSTANT(SAC_STATE_DECODE_PAUSED);
  CONSTANT(SAC_STATE_DECODE_COMPLETED);
  CONSTANT(SAC_STATE_FETCH_PENDING);
  CONSTANT(SAC_STATE_FETCH_PROCESSING);
  CONSTANT(SAC_FINISH_NONE);
  CONSTANT(SAC_FINISH_STOP);
  CONSTANT(SAC_FINISH_LENGTH);
  CONSTANT(SAC_FINISH_CANCELLED);
  CONSTANT(SAC_FINISH_INVALID);
  CONSTANT(SAC_FINISH_STALE_EPOCH);
  CONSTANT(SAC_FINISH_ERROR);
  CONSTANT(SAC_PHASE_ABSENT);
  CONSTANT(SAC_PHASE_LOADING);
  CONSTANT(SAC_PHASE_READY);
  CONSTANT(SAC_PHASE_FAILED);
  CONSTANT(SAC_REQ_IGNORE_EOS);
  CONSTANT(SAC_REQ_LOGPROBS);
  CONSTANT(SAC_REQ_PROMPT_LOGPROBS);
  CONSTANT(SAC_REQ_EMBED);
  CONSTANT(SAC_REQ_KNOWN_FLAGS);
  CONSTANT(SAC_ROOF_ROWS);
  CONSTANT(SAC_KERNELS_NAME_BYTES);
  CONSTANT(SAC_NUM_FETCH_RESULTS);
  CONSTANT(SAC_NUM_FETCH_DETAILS);
  CONSTANT(SAC_FRONTEND_HEARTBEAT_MS);
  CONSTANT(SAC_FRONTEND_LOST_MS);
  CONSTANT(SAC_DOORBELL_CANCEL);
  CONSTANT(SAC_TICKET_MASK);
  CONSTANT(SAC_STATUS_STATE_SHIFT);
  CONSTANT(SAC_STATUS_FINISH_SHIFT);
  CONSTANT(SAC_STATUS_TICKET_SHIFT);
}

static void region_header(void) {
  STRUCT(sac_region_header);
  FIELD(sac_region_header, magic);
  FIELD(sac_region_header, abi_version);
  FIELD(sac_region_header, header_bytes);
  FIELD(sac_region_header, layout_hash);
  FIELD(sac_region_header, region_bytes);
  FIELD(sac_region_header, instance_id);
  FIELD(sac_region_header, num_slots);
  FIELD(sac_region_header, num_frontends);
  FIELD(sac_region_header, out_ring_words);
  FIELD(sac_region_header, _pad0);
  FIELD(sac_region_header, device_offset);
  FIELD(sac_region_header, stats_offset);
  FIELD(sac_region_header, acks_offset);
  FIELD(sac_region_header, wake_offset);
  FIELD(sac_region_header, frontends_offset);
  FIELD(sac_region_header, doorbells_offset);
  FIELD(sac_region_header, cursors_offset);
  FIELD(sac_region_header, status_offset);
  FIELD(sac_region_header, descriptors_offset);
  FIELD(sac_region_header, out_ring_offset);
  FIELD(sac_region_header, arena_offset);
  FIELD(sac_region_header, arena_bytes);
  FIELD(sac_region_header, fetch_stats_offset);
  FIELD(sac_region_header, roof_offset);
  FIELD(sac_region_header, _pad1);
}

static void device_structs(void) {
  STRUCT(sac_device_line);
  FIELD(sac_device_line, epoch);
  FIELD(sac_device_line, phase);
  FIELD(sac_device_line, heartbeat);
  FIELD(sac_device_line, publish_count);
  FIELD(sac_device_line, sleeping);
  FIELD(sac_device_line, load_done_bytes);
  FIELD(sac_device_line, load_total_bytes);
  FIELD(sac_device_line, vocab_size);
  FIELD(sac_device_line, max_model_len);
  FIELD(sac_device_line, block_size);
  FIELD(sac_device_line, num_blocks);
  FIELD(sac_device_line, max_num_seqs);
  FIELD(sac_device_line, max_num_batched_tokens);
  FIELD(sac_device_line, kv_block_bytes);
  FIELD(sac_device_line, process_start_ticks);
  FIELD(sac_device_line, pid);
  FIELD(sac_device_line, num_host_blocks);
  FIELD(sac_device_line, vocab_hash);
  FIELD(sac_device_line, grammar_words);
  FIELD(sac_device_line, embedding_size);
  FIELD(sac_device_line, num_adapters);
  FIELD(sac_device_line, _pad0);
  STRUCT(sac_device_roof);
  FIELD(sac_device_roof, generation);
  FIELD(sac_device_roof, num_threads);
  FIELD(sac_device_roof, kernels);
  FIELD(sac_device_roof, packed_bytes);
  FIELD(sac_device_roof, huge_page_bytes);
  FIELD(sac_device_roof, step_weight_bytes);
  FIELD(sac_device_roof, row_flop);
  FIELD(sac_device_roof, read_bytes_per_s);
  FIELD(sac_device_roof, product_mflop_per_s);
  FIELD(sac_device_roof, _pad0);
  STRUCT(sac_device_stats);
  FIELD(sac_device_stats, ticks);
  FIELD(sac_device_stats, steps);
  FIELD(sac_device_stats, prefill_tokens);
  FIELD(sac_device_stats, decode_tokens);
  FIELD(sac_device_stats, preemptions);
  FIELD(sac_device_stats, recomputed_tokens);
  FIELD(sac_device_stats, requests_accepted);
  FIELD(sac_device_stats, requests_rejected);
  FIELD(sac_device_stats, requests_finished);
  FIELD(sac_device_stats, requests_reclaimed);
  FIELD(sac_device_stats, reader_stalls);
  FIELD(sac_device_stats, step_ns);
  FIELD(sac_device_stats, host_wait_ns);
  FIELD(sac_device_stats, reader_wait_ns);
  FIELD(sac_device_stats, copy_wait_ns);
  FIELD(sac_device_stats, rotations);
  FIELD(sac_device_stats, blocks_down_eager);
  FIELD(sac_device_stats, blocks_down_urgent);
  FIELD(sac_device_stats, blocks_up);
  FIELD(sac_device_stats, prefix_query_tokens);
  FIELD(sac_device_stats, prefix_hit_tokens);
  FIELD(sac_device_stats, prefix_evictions);
  FIELD(sac_device_stats, num_running);
  FIELD(sac_device_stats, num_waiting);
  FIELD(sac_device_stats, num_paused);
  FIELD(sac_device_stats, blocks_used);
  FIELD(sac_device_stats, blocks_used_max);
  FIELD(sac_device_stats, last_step_tokens);
  FIELD(sac_device_stats, last_step_seqs);
  FIELD(sac_device_stats, num_rotated);
  FIELD(sac_device_stats, host_blocks_used);
  FIELD(sac_device_stats, host_blocks_used_max);
  FIELD(sac_device_stats, blocks_cached);
  FIELD(sac_device_stats, host_blocks_cached);
  FIELD(sac_device_stats, forced_tokens);
  FIELD(sac_device_stats, _pad0);
  STRUCT(sac_fetch_stats);
  FIELD(sac_fetch_stats, lookups);
  FIELD(sac_fetch_stats, loads);
  FIELD(sac_fetch_stats, stores);
  FIELD(sac_fetch_stats, rejections);
  FIELD(sac_fetch_stats, troubles);
  FIELD(sac_fetch_stats, looked_up_tokens);
  FIELD(sac_fetch_stats, lookups_skipped);
  FIELD(sac_fetch_stats, lookups_given_up);
  FIELD(sac_fetch_stats, requests_loaded);
  FIELD(sac_fetch_stats, loads_refused);
  FIELD(sac_fetch_stats, loads_given_up);
  FIELD(sac_fetch_stats, stores_dropped);
  FIELD(sac_fetch_stats, stores_evicted);
  FIELD(sac_fetch_stats, fetched_tokens);
  FIELD(sac_fetch_stats, loaded_bytes);
  FIELD(sac_fetch_stats, stored_bytes);
  FIELD(sac_fetch_stats, commands_lost);
  FIELD(sac_fetch_stats, planes_joined);
  FIELD(sac_fetch_stats, planes_broken);
  FIELD(sac_fetch_stats, num_aside);
  FIELD(sac_fetch_stats, num_loading);
  FIELD(sac_fetch_stats, frames_used);
  FIELD(sac_fetch_stats, num_frames);
  FIELD(sac_fetch_stats, stores_waiting);
  FIELD(sac_fetch_stats, plane_epoch);
  FIELD(sac_fetch_stats, plane_alive);
  FIELD(sac_fetch_stats, breaker);
  FIELD(sac_fetch_stats, _pad0);
  STRUCT(sac_frontend_ack);
  FIELD(sac_frontend_ack, epoch);
  FIELD(sac_frontend_ack, lost);
  FIELD(sac_frontend_ack, _pad0);
  STRUCT(sac_status);
  FIELD(sac_status, word);
  FIELD(sac_status, num_computed_tokens);
  FIELD(sac_status, num_cached_tokens);
}

static void frontend_structs(void) {
  STRUCT(sac_wake);
  FIELD(sac_wake, device_kick);
  FIELD(sac_wake, _pad0);
  STRUCT(sac_frontend_line);
  FIELD(sac_frontend_line, epoch);
  FIELD(sac_frontend_line, waiting);
  FIELD(sac_frontend_line, heartbeat);
  FIELD(sac_frontend_line, prefix_generation);
  FIELD(sac_frontend_line, roofs_asked);
  FIELD(sac_frontend_line, _pad0);
  STRUCT(sac_descriptor);
  FIELD(sac_descriptor, sequence);
  FIELD(sac_descriptor, arena_extent);
  FIELD(sac_descriptor, device_epoch);
  FIELD(sac_descriptor, flags);
  FIELD(sac_descriptor, prompt_len);
  FIELD(sac_descriptor, max_tokens);
  FIELD(sac_descriptor, min_tokens);
  FIELD(sac_descriptor, num_logit_bias);
  FIELD(sac_descriptor, num_stop_ids);
  FIELD(sac_descriptor, num_top_logprobs);
  FIELD(sac_descriptor, temperature);
  FIELD(sac_descriptor, top_p);
  FIELD(sac_descriptor, min_p);
  FIELD(sac_descriptor, top_k);
  FIELD(sac_descriptor, repetition_penalty);
  FIELD(sac_descriptor, presence_penalty);
  FIELD(sac_descriptor, frequency_penalty);
  FIELD(sac_descriptor, priority);
  FIELD(sac_descriptor, seed);
  FIELD(sac_descriptor, cache_salt);
  FIELD(sac_descriptor, slo_ttft_s);
  FIELD(sac_descriptor, slo_tbt_s);
  FIELD(sac_descriptor, tenant);
  FIELD(sac_descriptor, tenant_weight);
  FIELD(sac_descriptor, grammar_words);
  FIELD(sac_descriptor, adapter);
  FIELD(sac_descriptor, _pad0);
}

/* The helpers are part of the contract: every language must pack a word the same way. */
static void helpers(void) {
  SAMPLE(sac_status_word(0xabcdef, 5, 3, 0x12345678));
  SAMPLE(sac_status_word(0xffffffff, 0xff, 0xff, 1));
  SAMPLE(sac_status_count(UINT64_C(0xabcdef3512345678)));
  SAMPLE(sac_status_state(UINT64_C(0xabcdef3512345678)));
  SAMPLE(sac_status_finish(UINT64_C(0xabcdef3512345678)));
  SAMPLE(sac_status_ticket(UINT64_C(0xabcdef3512345678)));
  SAMPLE(sac_doorbell(0xffffffff, 1));
  SAMPLE(sac_doorbell(0x123456, 0));
  SAMPLE(sac_doorbell_ticket(0x2468ad));
  SAMPLE(sac_record_stride(1, 5));
  SAMPLE(sac_record_stride(2, 5));
  SAMPLE(sac_record_stride(4, 0));
  SAMPLE(sac_embedding_words(7));
  SAMPLE(sac_embedding_words(0xffffffff));
  SAMPLE(sac_first_slot(4096, 3, 0));
  SAMPLE(sac_first_slot(4096, 3, 1));
  SAMPLE(sac_first_slot(4096, 3, 2));
  SAMPLE(sac_first_slot(4096, 3, 3));
  SAMPLE(sac_first_arena_byte(1048576, 3, 1));
  SAMPLE(sac_first_arena_byte(1048576, 3, 3));
}

int main(void) {
  constants();
  region_header();
  device_structs();
  frontend_structs();
  helpers();
  return 0;
}
