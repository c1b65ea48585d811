/* Saccade: the seam. Every byte that crosses between planes is defined here and nowhere else.
 *
 * C11-clean, also C++20 and CUDA: fixed widths, no pointers, no bit-fields, no atomics in the types
 * (C, C++ and Rust disagree on those; each side reaches words through its own atomic references,
 * with the orders of README.md). Every 128-byte line has one writer, named in the comment of its
 * type; the one exception is sac_wake, which carries no data. Offsets count from the start of the
 * region.
 *
 * Changing anything here changes wire.layout.txt and SAC_LAYOUT_HASH: see README.md.
 */
#ifndef SACCADE_ABI_WIRE_H
#define SACCADE_ABI_WIRE_H

#ifdef __cplusplus
#include <cstddef>
#include <cstdint>
#define SAC_STATIC_ASSERT static_assert
#define SAC_ALIGNAS(n) alignas(n) /* on the first member: C has no aligned struct types */
#else
#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>
#define SAC_STATIC_ASSERT _Static_assert
#define SAC_ALIGNAS(n) _Alignas(n)
#endif

#define SAC_MAGIC UINT64_C(0x3145444143434153) /* "SACCADE1", little-endian */
#define SAC_ABI_VERSION 1u
/* FNV-1a 64 of wire.layout.txt; a test recomputes it. */
#define SAC_LAYOUT_HASH UINT64_C(0x7fb6d2e1f54ca445)

/* ---- bounds ------------------------------------------------------------------------------- */

#define SAC_LINE_BYTES 128u      /* one writer per line of this size */
#define SAC_MAX_SLOTS 4096u      /* slots in a region, all frontends together */
#define SAC_SLOT_GRANULE 32u     /* slots of one frontend: a multiple, so that no line is shared */
#define SAC_MAX_FRONTENDS 16u    /* frontends that can share one device */
#define SAC_MAX_TOP_LOGPROBS 20u /* alternatives per token */
#define SAC_MAX_LOGIT_BIAS 1024u /* pairs per request */
#define SAC_MAX_STOP_IDS 128u    /* stop token ids per request */
#define SAC_MAX_TENANTS 64u
#define SAC_MAX_TENANT_WEIGHT 1000u
#define SAC_MAX_ADAPTERS 256u
#define SAC_MIN_OUT_RING_WORDS 64u /* per slot; holds 3 tokens with 20 alternatives */
#define SAC_MAX_OUT_RING_WORDS 65536u
#define SAC_ARENA_ALIGN_BYTES 64u     /* extents start at multiples of this */
#define SAC_GRAMMAR_STACK 32u         /* places of a grammar's stack */
#define SAC_GRAMMAR_PLAIN_BYTES 32u   /* of plain text that a state speaks of at most */
#define SAC_GRAMMAR_PLAIN_PLACES 8u   /* of the stack that must be free for it */
#define SAC_MAX_GRAMMAR_WORDS 196608u /* 65535 states and as many edges; a device may hold less */
#define SAC_MAX_FORCED_TOKENS 16u     /* that a grammar appends behind one that was drawn */

/* ---- slot states --------------------------------------------------------------------------- *
 * A slot is idle when its status is EMPTY or DECODE_COMPLETED and status.ticket == doorbell.ticket:
 * its frontend may then ring a new ticket. A slot whose doorbell names another ticket than its
 * status counts as PREFILL_PENDING even before the device writes it. Edges, owners: README.md. */
#define SAC_STATE_EMPTY 0u
#define SAC_STATE_PREFILL_PENDING 1u    /* known to the device, waiting for a seat */
#define SAC_STATE_PREFILL_PROCESSING 2u /* holds KV blocks; prompt being computed */
#define SAC_STATE_DECODE_PROCESSING 3u  /* produces a token per step */
#define SAC_STATE_DECODE_PAUSED 4u      /* held: reader behind, preempted, or rotated out */
#define SAC_STATE_DECODE_COMPLETED 5u   /* count and finish reason are final; nothing is held */
#define SAC_STATE_FETCH_PENDING 6u      /* prefix KV is being asked for */
#define SAC_STATE_FETCH_PROCESSING 7u   /* prefix KV is being written into reserved blocks */

/* ---- finish reasons (valid in DECODE_COMPLETED) ------------------------------------------- */
#define SAC_FINISH_NONE 0u
#define SAC_FINISH_STOP 1u      /* an id that ends it, the last token; or the embedding is there */
#define SAC_FINISH_LENGTH 2u    /* max_tokens, or the model's length limit */
#define SAC_FINISH_CANCELLED 3u /* the frontend asked */
#define SAC_FINISH_INVALID 4u   /* the descriptor or a token id broke a bound; nothing was run */
#define SAC_FINISH_STALE_EPOCH 5u /* submitted to an earlier life of the device */
#define SAC_FINISH_ERROR 6u       /* the step failed for this request */

/* ---- device phases ------------------------------------------------------------------------ */
#define SAC_PHASE_ABSENT 0u
#define SAC_PHASE_LOADING 1u
#define SAC_PHASE_READY 2u
#define SAC_PHASE_FAILED 3u

/* ---- request flags ------------------------------------------------------------------------ */
#define SAC_REQ_IGNORE_EOS 1u      /* end-of-sequence ids of the model do not stop it */
#define SAC_REQ_LOGPROBS 2u        /* logprob of each produced token (num_top_logprobs may be 0) */
#define SAC_REQ_PROMPT_LOGPROBS 4u /* records of prompt tokens 1..n-1 come before the others */
#define SAC_REQ_EMBED 8u           /* one record, the embedding of the prompt */
#define SAC_REQ_KNOWN_FLAGS 15u

/* ---- region header: written once by the creator; magic last with release ------------------ */
typedef struct sac_region_header {
  SAC_ALIGNAS(128) uint64_t magic;
  uint32_t abi_version;
  uint32_t header_bytes; /* sizeof(sac_region_header) */
  uint64_t layout_hash;
  uint64_t region_bytes;
  uint64_t instance_id; /* random; tells two regions at one path apart */
  uint32_t num_slots;
  uint32_t num_frontends;
  uint32_t out_ring_words; /* 8-byte words in each slot's output ring */
  uint32_t _pad0;
  uint64_t device_offset;      /* sac_device_line */
  uint64_t stats_offset;       /* sac_device_stats */
  uint64_t acks_offset;        /* sac_frontend_ack[num_frontends] */
  uint64_t wake_offset;        /* sac_wake */
  uint64_t frontends_offset;   /* sac_frontend_line[num_frontends] */
  uint64_t doorbells_offset;   /* uint32_t[num_slots] */
  uint64_t cursors_offset;     /* uint32_t[num_slots] */
  uint64_t status_offset;      /* sac_status[num_slots] */
  uint64_t descriptors_offset; /* sac_descriptor[num_slots] */
  uint64_t out_ring_offset;    /* uint64_t[num_slots][out_ring_words] */
  uint64_t arena_offset;
  uint64_t arena_bytes;
  uint64_t fetch_stats_offset; /* sac_fetch_stats */
  uint64_t roof_offset;        /* sac_device_roof */
  uint8_t _pad1[256 - 168];
} sac_region_header;
SAC_STATIC_ASSERT(sizeof(sac_region_header) == 256, "region header is 256 bytes");
SAC_STATIC_ASSERT(offsetof(sac_region_header, device_offset) == 56, "header offsets");

/* ---- device line: writer = device --------------------------------------------------------- */
typedef struct sac_device_line {
  SAC_ALIGNAS(128) uint32_t epoch; /* +1 at each start of a device; 0 = none has ever joined */
  uint32_t phase;         /* SAC_PHASE_*; READY is written after slots of older epochs are EMPTY */
  uint64_t heartbeat;     /* +1 per tick, and while loading */
  uint32_t publish_count; /* +1 when a tick wrote tokens or states; futex word of token readers */
  uint32_t sleeping;      /* 1 while the idle device may be woken by sac_wake.device_kick */
  uint64_t load_done_bytes;
  uint64_t load_total_bytes;
  uint32_t vocab_size; /* the rest is valid in phase READY */
  uint32_t max_model_len;
  uint32_t block_size; /* tokens */
  uint32_t num_blocks;
  uint32_t max_num_seqs;
  uint32_t max_num_batched_tokens;
  uint64_t kv_block_bytes;      /* of all layers, K and V; 0: blocks take no memory */
  uint64_t process_start_ticks; /* field 22 of /proc/<pid>/stat: detects a pid that was reused or
                                   belongs to another namespace */
  uint32_t pid;                 /* of the host process behind the device; 0 = unknown */
  uint32_t num_host_blocks;     /* KV blocks of host memory; 0 = there is one tier */
  uint64_t vocab_hash;     /* of the tokens' bytes, as this device knows them; 0 = it does not */
  uint32_t grammar_words;  /* that a request may bring; 0 = grammars are refused */
  uint32_t embedding_size; /* values of an embedding; 0 = they are refused */
  uint32_t num_adapters;   /* that a request may name, 0 .. SAC_MAX_ADAPTERS */
  uint8_t _pad0[128 - 108];
} sac_device_line;
SAC_STATIC_ASSERT(sizeof(sac_device_line) == 128, "device line is one line");

/* ---- what memory and arithmetic allow the device's steps: writer = device; each word relaxed,
 * then generation with release. A reader during a measurement may see words of two. -------- */
#define SAC_ROOF_ROWS 9u /* 1, 2, 4 ... 256 rows */
#define SAC_KERNELS_NAME_BYTES 16u
typedef struct sac_device_roof {
  SAC_ALIGNAS(128) uint32_t generation;    /* +1 per measurement; 0 = this device has none */
  uint32_t num_threads;                    /* that run its steps */
  uint8_t kernels[SAC_KERNELS_NAME_BYTES]; /* name of the kernel set, zeros behind it */
  uint64_t packed_bytes;                   /* all weights, as the kernels read them */
  uint64_t huge_page_bytes;                /* of those, in huge pages */
  uint64_t step_weight_bytes;              /* that a step of one row reads */
  uint64_t row_flop;         /* operations of a row with those weights, logits included */
  uint64_t read_bytes_per_s; /* the packed weights, by the step's threads, without a product */
  uint32_t product_mflop_per_s[SAC_ROOF_ROWS]; /* operands in caches; 0 = no step has these rows */
  uint8_t _pad0[128 - 100];
} sac_device_roof;
SAC_STATIC_ASSERT(sizeof(sac_device_roof) == 128, "the device's roof is one line");

/* ---- device statistics: writer = device; each word relaxed, refreshed once per tick ------- */
typedef struct sac_device_stats {
  SAC_ALIGNAS(128) uint64_t ticks;
  uint64_t steps;
  uint64_t prefill_tokens; /* prompt tokens computed, recomputation included */
  uint64_t decode_tokens;  /* decode rows computed */
  uint64_t preemptions;    /* requests whose blocks were taken, to be recomputed */
  uint64_t recomputed_tokens;
  uint64_t requests_accepted;
  uint64_t requests_rejected;   /* SAC_FINISH_INVALID, SAC_FINISH_STALE_EPOCH */
  uint64_t requests_finished;   /* all finish reasons of accepted requests */
  uint64_t requests_reclaimed;  /* of frontends that went away */
  uint64_t reader_stalls;       /* times a request was held because its reader was behind */
  uint64_t step_ns;             /* time between launch and completion, summed */
  uint64_t host_wait_ns;        /* no step ran: the host had to act (device/sched/idle.hpp) */
  uint64_t reader_wait_ns;      /* no step ran: all requests were held for slow readers */
  uint64_t copy_wait_ns;        /* no step ran: copies between the tiers were waited for */
  uint64_t rotations;           /* times that KV of a request went down to host memory */
  uint64_t blocks_down_eager;   /* copied to host memory ahead of need, in the background */
  uint64_t blocks_down_urgent;  /* copied to host memory because their room was needed */
  uint64_t blocks_up;           /* copied back */
  uint64_t prefix_query_tokens; /* of prompts, looked up when their requests were admitted */
  uint64_t prefix_hit_tokens;   /* of those: their KV was there, or was taken over from another */
  uint64_t prefix_evictions;    /* findable blocks that left both tiers */
  uint32_t num_running;
  uint32_t num_waiting;
  uint32_t num_paused;
  uint32_t blocks_used;
  uint32_t blocks_used_max;
  uint32_t last_step_tokens; /* rows of the last step */
  uint32_t last_step_seqs;
  uint32_t num_rotated;      /* requests whose KV is in host memory only; among num_running */
  uint32_t host_blocks_used; /* KV blocks of host memory */
  uint32_t host_blocks_used_max;
  uint32_t blocks_cached; /* of the device: findable, used by no request; counted as free */
  uint32_t host_blocks_cached;
  uint64_t forced_tokens; /* appended without a draw, of requests that have ended */
  uint8_t _pad0[256 - 232];
} sac_device_stats;
SAC_STATIC_ASSERT(sizeof(sac_device_stats) == 256, "device statistics are two lines");

/* ---- statistics of the fetch plane (fetch.h): writer = device; as above ------------------- */
#define SAC_NUM_FETCH_RESULTS 9u  /* SAC_FETCH_DONE ... of fetch.h */
#define SAC_NUM_FETCH_DETAILS 16u /* details of a result; what is beyond counts as the last */
typedef struct sac_fetch_stats {
  SAC_ALIGNAS(128) uint64_t lookups[SAC_NUM_FETCH_RESULTS]; /* prompts, by result */
  uint64_t loads[SAC_NUM_FETCH_RESULTS];                    /* chunks */
  uint64_t stores[SAC_NUM_FETCH_RESULTS];                   /* chunks */
  uint64_t rejections[SAC_NUM_FETCH_DETAILS];               /* SAC_FETCH_REJECTED, by detail */
  uint64_t troubles[SAC_NUM_FETCH_DETAILS];                 /* SAC_FETCH_TROUBLE, by detail */
  uint64_t looked_up_tokens; /* of prompts, that a store was asked for */
  uint64_t lookups_skipped;  /* no entry was free */
  uint64_t lookups_given_up; /* no answer came in time */
  uint64_t requests_loaded;  /* that began to load chunks */
  uint64_t loads_refused;    /* requests whose chunks were expected to come later than computed */
  uint64_t loads_given_up;   /* requests whose chunks did not all come, or not in time */
  uint64_t stores_dropped;   /* chunks that found no room in the line */
  uint64_t stores_evicted;   /* chunks that left the device while they were in it */
  uint64_t fetched_tokens;   /* of prompts, whose KV came */
  uint64_t loaded_bytes;     /* as the store keeps them */
  uint64_t stored_bytes;
  uint64_t commands_lost;  /* with a plane that died */
  uint64_t planes_joined;  /* lives of the plane */
  uint64_t planes_broken;  /* that broke the protocol */
  uint32_t num_aside;      /* requests that wait for an answer */
  uint32_t num_loading;    /* requests whose chunks are being loaded */
  uint32_t frames_used;    /* of num_frames */
  uint32_t num_frames;     /* 0: there is no fetch plane */
  uint32_t stores_waiting; /* chunks in the line */
  uint32_t plane_epoch;    /* 0: none has joined */
  uint32_t plane_alive;    /* 1: its heart beats */
  uint32_t breaker;        /* as in sac_fetch_plane_line */
  uint8_t _pad0[640 - 616];
} sac_fetch_stats;
SAC_STATIC_ASSERT(sizeof(sac_fetch_stats) == 640, "fetch statistics are five lines");

/* ---- frontend acknowledgement: writer = device -------------------------------------------- */
typedef struct sac_frontend_ack {
  uint32_t epoch; /* the frontend epoch whose predecessors no longer hold a slot */
  uint32_t lost;  /* times the device gave this frontend up because its heartbeat stalled */
  uint64_t _pad0;
} sac_frontend_ack;
SAC_STATIC_ASSERT(sizeof(sac_frontend_ack) == 16, "frontend ack is 16 bytes");

/* ---- wake hint: any frontend, atomic add; several writers, carries no data ---------------- */
typedef struct sac_wake {
  SAC_ALIGNAS(128) uint32_t device_kick;
  uint8_t _pad0[124];
} sac_wake;
SAC_STATIC_ASSERT(sizeof(sac_wake) == 128, "wake is one line");

/* ---- frontend line: writer = that frontend ------------------------------------------------ */
typedef struct sac_frontend_line {
  SAC_ALIGNAS(128) uint32_t epoch; /* +1 at each start of this frontend; 0 = never joined */
  uint32_t waiting;                /* 1 while its token reader may be woken through publish_count */
  uint64_t heartbeat;              /* moves at least every SAC_FRONTEND_HEARTBEAT_MS while alive */
  uint32_t prefix_generation;      /* +1: requests after it share no block with ones before; the
                                      count survives restarts, like the epoch */
  uint32_t roofs_asked;            /* +1: the idle device shall measure its roof again */
  uint8_t _pad0[104];
} sac_frontend_line;
SAC_STATIC_ASSERT(sizeof(sac_frontend_line) == 128, "frontend line is one line");
#define SAC_FRONTEND_HEARTBEAT_MS 100u
#define SAC_FRONTEND_LOST_MS 5000u /* slots are reclaimed after a heartbeat stalls this long */

/* ---- doorbell: uint32_t per slot, writer = the slot's frontend ----------------------------- *
 * (ticket << 1) | cancel. A new ticket submits what the descriptor says; the same ticket with the
 * cancel bit asks to end it. Tickets of a slot grow by one, modulo 2^24; they survive restarts. */
#define SAC_DOORBELL_CANCEL 1u
#define SAC_TICKET_MASK 0xffffffu

/* ---- status: writer = device; 16 bytes a slot, so 4096 slots are one read of 64 KiB ------- */
typedef struct sac_status {
  uint64_t word; /* count 0-31, state 32-35, finish 36-39, ticket 40-63; never torn */
  uint32_t num_computed_tokens; /* progress: positions whose KV is resident */
  uint32_t num_cached_tokens;   /* of the prompt, positions that came from a cache */
} sac_status;
SAC_STATIC_ASSERT(sizeof(sac_status) == 16, "status is 16 bytes");
SAC_STATIC_ASSERT(sizeof(sac_status) * SAC_MAX_SLOTS == 65536, "all statuses in one 64 KiB read");
#define SAC_STATUS_STATE_SHIFT 32u
#define SAC_STATUS_FINISH_SHIFT 36u
#define SAC_STATUS_TICKET_SHIFT 40u

/* ---- descriptor: writer = the slot's frontend, before it rings; constant until DECODE_COMPLETED *
 * The arena extent holds, in this order and without gaps: uint32_t token[prompt_len],
 * { uint32_t token; float bias; } logit_bias[num_logit_bias], uint32_t stop_id[num_stop_ids],
 * uint32_t grammar[grammar_words].
 * The device copies it when it accepts the request; the extent is free once the state has left
 * PREFILL_PENDING. */
typedef struct sac_descriptor {
  SAC_ALIGNAS(128) uint64_t sequence; /* order of arrival within this frontend */
  uint64_t arena_extent;              /* offset in the arena, a multiple of SAC_ARENA_ALIGN_BYTES */
  uint32_t device_epoch;              /* the life of the device that this request was meant for */
  uint32_t flags;                     /* SAC_REQ_* */
  uint32_t prompt_len; /* tokens, 1 .. max_model_len - 1; one more with SAC_REQ_EMBED */
  uint32_t max_tokens; /* to produce, >= 1; prompt_len + max_tokens <= max_model_len. 0 with
                          SAC_REQ_EMBED, which takes no other flag, and nothing that is for tokens:
                          the next four and grammar_words are 0 too */
  uint32_t min_tokens; /* stop ids do not count before */
  uint32_t num_logit_bias;
  uint32_t num_stop_ids;
  uint32_t num_top_logprobs; /* 0 .. SAC_MAX_TOP_LOGPROBS */
  float temperature;         /* 0 = greedy; 0 .. 100 */
  float top_p;               /* (0, 1] */
  float min_p;               /* [0, 1] */
  uint32_t top_k;            /* 0 = all */
  float repetition_penalty;  /* (0, 10] */
  float presence_penalty;    /* [-2, 2] */
  float frequency_penalty;   /* [-2, 2] */
  int32_t priority;          /* lower is earlier; used by the priority policies */
  uint64_t seed;             /* key of the counter-based generator */
  uint64_t cache_salt;       /* separates prefixes of tenants; 0 = shared */
  float slo_ttft_s;          /* 0 = the server's default */
  float slo_tbt_s;
  uint32_t tenant;        /* who shares the device with others, 0 .. SAC_MAX_TENANTS - 1 */
  uint32_t tenant_weight; /* of its share, 0 .. SAC_MAX_TENANT_WEIGHT; 0 counts as 1 */
  uint32_t grammar_words; /* of the grammar that the answer obeys; 0 = none */
  uint32_t adapter;       /* 1 .. num_adapters: the model with this adapter; 0 = as it is */
  uint8_t _pad0[256 - 120];
} sac_descriptor;
SAC_STATIC_ASSERT(sizeof(sac_descriptor) == 256, "descriptor is two lines");

/* ---- output ring: writer = device; uint64_t[out_ring_words] per slot ----------------------- *
 * Record i of a request is at word (i % capacity) * stride, with stride = 1 + num_top_logprobs if
 * any logprob flag is set, else 1, and capacity = out_ring_words / stride. Its first word is the
 * token, the others its alternatives, best first: id in bits 0-31, float logprob in bits 32-63.
 * The device writes record i only when i < cursor + capacity; the cursor (uint32_t per slot, writer
 * = frontend) counts records read, and starts at 0 with each ticket.
 *
 * A request with SAC_REQ_EMBED has one record instead, of sac_embedding_words(embedding_size)
 * words, then it ends: what the final norm makes of the prompt's last token, float i in half i % 2
 * of word i / 2, the lower half first. A device whose embeddings do not fit a slot's output ring
 * has an embedding_size of 0. */

/* ---- grammar: part of an arena extent ------------------------------------------------------- *
 * An automaton over the bytes of an answer, with a stack of SAC_GRAMMAR_STACK places:
 *   word 0, 1   its states (1 .. 65535) and its edges
 *   states + 1  bits 0-15 the state's first edge; the next state's is where they end
 *               bits 16-21 plain, bit 22 final, bit 23 default, bits 24-31 need; the last word has
 *               only an edge
 *   edges       two words each: low byte | high byte << 8 | target << 16, then the state that is
 *               pushed or SAC_GRAMMAR_NO_PUSH. Those of a state are ascending and disjoint. Of a
 *               state with bit 23 the last is no edge: its target is a state without that bit,
 *               whose edges are also this one's for the bytes that its own do not cover.
 *   forced      what is left, two words each, ascending: a state and the token that follows it
 * It starts in state 0 with an empty stack. A byte takes the state's edge that covers it; without
 * one, a final state is left for the top of the stack, which is taken off, and the byte is looked
 * at again. An edge must leave room: with `depth` states beneath, depth + need of where it leads,
 * and of what it pushes, must not exceed the stack. The answer may end where the state, and all on
 * the stack, are final. `plain` speaks of texts of characters other than '"', '\\' and controls,
 * where SAC_GRAMMAR_PLAIN_PLACES of the stack are free: SAC_GRAMMAR_PLAIN_BYTES says that any text
 * of that many may follow, whatever is on the stack; a smaller n says that any of n characters may,
 * and none of more; 0 says nothing. A forced token says that the only text which may follow its
 * state begins with it: the device appends it without a draw, up to SAC_MAX_FORCED_TOKENS behind
 * one that was drawn, but none that ends the answer. A request with SAC_REQ_LOGPROBS, records of
 * several words or logit biases, or whose output ring holds fewer records than twice as many, is
 * served as if it had none. The device checks all but these claims: a false one harms its own
 * request. */
#define SAC_GRAMMAR_EDGE_MASK 0xffffu
#define SAC_GRAMMAR_PLAIN_SHIFT 16u
#define SAC_GRAMMAR_PLAIN_MASK 0x3fu
#define SAC_GRAMMAR_FINAL (1u << 22)
#define SAC_GRAMMAR_DEFAULT (1u << 23)
#define SAC_GRAMMAR_NEED_SHIFT 24u
#define SAC_GRAMMAR_NO_PUSH 0xffffu

/* ---- pure helpers, the same in every language --------------------------------------------- */
#ifdef __CUDACC__
#define SAC_HD __host__ __device__
#else
#define SAC_HD
#endif
#ifdef __cplusplus
#define SAC_PURE SAC_HD static inline constexpr
#else
#define SAC_PURE static inline
#endif

SAC_PURE uint64_t sac_status_word(uint32_t ticket, uint32_t state, uint32_t finish,
                                  uint32_t count) {
  return ((uint64_t)(ticket & SAC_TICKET_MASK) << SAC_STATUS_TICKET_SHIFT) |
         ((uint64_t)(finish & 15u) << SAC_STATUS_FINISH_SHIFT) |
         ((uint64_t)(state & 15u) << SAC_STATUS_STATE_SHIFT) | count;
}
SAC_PURE uint32_t sac_status_count(uint64_t word) { return (uint32_t)word; }
SAC_PURE uint32_t sac_status_state(uint64_t word) {
  return (uint32_t)(word >> SAC_STATUS_STATE_SHIFT) & 15u;
}
SAC_PURE uint32_t sac_status_finish(uint64_t word) {
  return (uint32_t)(word >> SAC_STATUS_FINISH_SHIFT) & 15u;
}
SAC_PURE uint32_t sac_status_ticket(uint64_t word) {
  return (uint32_t)(word >> SAC_STATUS_TICKET_SHIFT) & SAC_TICKET_MASK;
}
SAC_PURE uint32_t sac_doorbell(uint32_t ticket, uint32_t cancel) {
  return ((ticket & SAC_TICKET_MASK) << 1) | cancel;
}
SAC_PURE uint32_t sac_doorbell_ticket(uint32_t doorbell) {
  return (doorbell >> 1) & SAC_TICKET_MASK;
}
SAC_PURE uint32_t sac_record_stride(uint32_t flags, uint32_t num_top_logprobs) {
  return (flags & (SAC_REQ_LOGPROBS | SAC_REQ_PROMPT_LOGPROBS)) ? 1u + num_top_logprobs : 1u;
}
/* Words of the record that is an embedding. */
SAC_PURE uint32_t sac_embedding_words(uint32_t embedding_size) {
  return embedding_size / 2 + embedding_size % 2;
}
/* First slot of a frontend; the last one takes the remainder. frontend may be num_frontends. */
SAC_PURE uint32_t sac_first_slot(uint32_t num_slots, uint32_t num_frontends, uint32_t frontend) {
  return frontend >= num_frontends
             ? num_slots
             : (num_slots / SAC_SLOT_GRANULE / num_frontends) * SAC_SLOT_GRANULE * frontend;
}
/* Start of a frontend's share of the arena, by the same rule. */
SAC_PURE uint64_t sac_first_arena_byte(uint64_t arena_bytes, uint32_t num_frontends,
                                       uint32_t frontend) {
  return frontend >= num_frontends
             ? arena_bytes
             : (arena_bytes / SAC_LINE_BYTES / num_frontends) * SAC_LINE_BYTES * frontend;
}

#endif /* SACCADE_ABI_WIRE_H */
