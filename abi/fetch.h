/* Saccade: the seam between the device plane and the fetch plane. Rules as in wire.h: C11-clean,
 * fixed widths, no pointers, every 128-byte line has one writer, offsets count from the start of
 * the region.
 *
 * The device makes a region for each of its lives, so that nothing written for an earlier life can
 * reach a later one. A fetch plane joins it, carries out commands and reports each one exactly
 * once. Whatever a command names (an entry, a frame) is lent to the fetch plane until then; the
 * device takes it back sooner only when a new life of the fetch plane has begun, and that begins
 * only after the process of the old one has ended, or, across hosts, its access to the region.
 */
#ifndef SACCADE_ABI_FETCH_H
#define SACCADE_ABI_FETCH_H

#include "wire.h"

#define SAC_FETCH_MAGIC UINT64_C(0x3148435445464353) /* "SCFETCH1", little-endian */
#define SAC_FETCH_VERSION 1u
/* FNV-1a 64 of fetch.layout.txt; a test recomputes it. */
#define SAC_FETCH_LAYOUT_HASH UINT64_C(0x2bf59e3954c6cb51)

#define SAC_CHUNK_TOKENS 256u     /* a chunk: what a store keeps under one name */
#define SAC_MAX_FETCH_QUEUE 4096u /* commands, and completions, that a region can hold */
#define SAC_MAX_FETCH_ENTRIES 8192u
#define SAC_MAX_FETCH_FRAMES 4096u
#define SAC_MAX_KV_EVENTS (1u << 20)
#define SAC_FETCH_HEARTBEAT_MS 100u /* the plane's heartbeat moves at least this often */

/* ---- what the device asks for -------------------------------------------------------------- */
#define SAC_FETCH_LOOKUP 1u /* how many chunks of these tokens are there, from the first on? */
#define SAC_FETCH_LOAD 2u   /* write a chunk's KV into a frame */
#define SAC_FETCH_STORE 3u  /* keep the KV in a frame as a chunk */
#define SAC_FETCH_CANCEL 4u /* the answer to command `target` is not wanted any more */

/* ---- how it went ----------------------------------------------------------------------------- */
#define SAC_FETCH_DONE 0u      /* LOAD: the whole frame is written; STORE: it is kept, or was */
#define SAC_FETCH_MISS 1u      /* LOAD: the store has no such chunk (any more) */
#define SAC_FETCH_LATE 2u      /* not done within the command's budget */
#define SAC_FETCH_TROUBLE 3u   /* the store failed; `detail` says how */
#define SAC_FETCH_REJECTED 4u  /* LOAD: what came is not that chunk; `detail` says why */
#define SAC_FETCH_FULL 5u      /* STORE: the store has no room */
#define SAC_FETCH_DROPPED 6u   /* STORE: the plane has no room; nothing was tried */
#define SAC_FETCH_CANCELLED 7u /* the device asked */
#define SAC_FETCH_INVALID 8u   /* the command breaks a bound; the last of SAC_NUM_FETCH_RESULTS */

/* ---- `detail` of REJECTED: why what came is not that chunk --------------------------------- */
#define SAC_FETCH_REJECT_LENGTH 1u   /* truncated, followed by other bytes, or too long */
#define SAC_FETCH_REJECT_MAGIC 2u    /* not a chunk */
#define SAC_FETCH_REJECT_VERSION 3u  /* another program wrote it */
#define SAC_FETCH_REJECT_CHECKSUM 4u /* a bit has changed */
#define SAC_FETCH_REJECT_NAME 5u     /* under this name, and of another */
#define SAC_FETCH_REJECT_MODEL 6u    /* of other weights or settings */
#define SAC_FETCH_REJECT_SPAN 7u     /* of other positions, or of another shape */
#define SAC_FETCH_REJECT_CODEC 8u    /* of a codec that this program does not have */
#define SAC_FETCH_REJECT_PAYLOAD 9u  /* its checksum is right, and its code is not */

/* ---- `detail` of TROUBLE: how the store failed ---------------------------------------------- */
#define SAC_FETCH_TROUBLE_INTERNAL 1u    /* a stage of the plane failed; the store did not */
#define SAC_FETCH_TROUBLE_UNREACHABLE 2u /* no connection, or it was lost */
#define SAC_FETCH_TROUBLE_REFUSED 3u     /* the store may not be used so: key, bucket, rights */
#define SAC_FETCH_TROUBLE_PROTOCOL 4u    /* its answer is none */
#define SAC_FETCH_TROUBLE_RESTING 5u     /* it failed often and is left alone for a while */
#define SAC_FETCH_TROUBLE_TOO_LARGE 6u   /* the value exceeds what the plane has room for */
#define SAC_FETCH_TROUBLE_TIMEOUT 7u     /* no answer within the deadline of the store */
#define SAC_FETCH_TROUBLE_BUSY 8u        /* too many calls to it are on their way */

/* ---- region header: written once by the device; magic last with release -----------------------
 */
typedef struct sac_fetch_header {
  SAC_ALIGNAS(128) uint64_t magic;
  uint32_t version;
  uint32_t header_bytes; /* sizeof(sac_fetch_header) */
  uint64_t layout_hash;
  uint64_t region_bytes;
  uint64_t instance_id;  /* random; another one at the same path: a new life of the device */
  uint32_t queue_len;    /* of each queue; a power of two */
  uint32_t num_entries;  /* rows of tokens */
  uint32_t entry_tokens; /* of a row */
  uint32_t num_frames;   /* 0: nothing is fetched or stored */
  uint64_t frame_bytes;  /* block_bytes * blocks of a chunk */
  uint64_t block_bytes;  /* of all layers, K and V */
  uint32_t block_size;   /* tokens of a block; divides SAC_CHUNK_TOKENS */
  uint32_t num_layers;
  uint32_t kv_heads;
  uint32_t head_dim;
  uint32_t dtype;       /* 0 = f32, 1 = bf16, 2 = f16, 4 = fp8 (e4m3) */
  uint32_t num_events;  /* of the event ring; a power of two, or 0: no events are written */
  uint32_t event_bytes; /* of one: sac_kv_event and the tokens of a block, up to a multiple of 64 */
  uint32_t device_wakes;  /* 1: the device wakes a plane that waits on commands_written */
  uint8_t model_id[32];   /* of weights and of all else that KV depends on beside tokens */
  uint64_t device_offset; /* sac_fetch_device_line */
  uint64_t plane_offset;  /* sac_fetch_plane_line */
  uint64_t commands_offset;
  uint64_t completions_offset;
  uint64_t tokens_offset; /* uint32_t[num_entries][entry_tokens] */
  uint64_t frames_offset; /* [num_frames][frame_bytes] */
  uint64_t events_offset; /* [num_events][event_bytes] */
  uint8_t _pad0[256 - 192];
} sac_fetch_header;
SAC_STATIC_ASSERT(sizeof(sac_fetch_header) == 256, "fetch header is 256 bytes");
SAC_STATIC_ASSERT(offsetof(sac_fetch_header, model_id) == 104, "fetch header offsets");

/* ---- device line: writer = device ---------------------------------------------------------------
 */
typedef struct sac_fetch_device_line {
  SAC_ALIGNAS(128) uint32_t commands_written; /* modulo 2^32; futex word of a waiting plane */
  uint32_t completions_read;
  uint32_t acked_epoch; /* life of the plane for which both of these began at 0 */
  uint32_t closed;      /* 1: this life of the device has ended */
  uint64_t heartbeat;   /* +1 per tick */
  uint64_t events_written;
  uint64_t events_dropped; /* the ring was full; a reader must forget all that it knew */
  uint8_t _pad0[128 - 40];
} sac_fetch_device_line;
SAC_STATIC_ASSERT(sizeof(sac_fetch_device_line) == 128, "device line is one line");

/* ---- plane line: writer = the fetch plane
 * --------------------------------------------------------- */
typedef struct sac_fetch_plane_line {
  SAC_ALIGNAS(128) uint32_t epoch; /* +1 at each start of a plane; 0 = none has ever joined */
  uint32_t waiting;                /* 1 while it may be woken through commands_written */
  uint32_t commands_read;
  uint32_t completions_written;
  uint64_t heartbeat;
  uint64_t events_read;
  uint32_t pid;
  uint32_t breaker; /* 0 = the store is used, 1 = it failed and rests, 2 = it is being tried */
  uint32_t stores;  /* 1: chunks are to be stored */
  uint32_t _pad0;
  uint8_t _pad1[128 - 48];
} sac_fetch_plane_line;
SAC_STATIC_ASSERT(sizeof(sac_fetch_plane_line) == 128, "plane line is one line");

/* ---- command: writer = device, before it counts it
 * -------------------------------------------------- * Row `entry` holds num_tokens tokens, whole
 * chunks, and does not change before the completion. Chunk c is tokens [256 c, 256 (c + 1)); its
 * name depends on all tokens before its end and on the salt. CANCEL names no row and no frame, and
 * has no completion. */
typedef struct sac_fetch_command {
  uint64_t id; /* never used twice in a region; not 0 */
  uint64_t salt;
  uint64_t target; /* CANCEL: the id of a command */
  uint32_t op;     /* SAC_FETCH_* */
  uint32_t entry;
  uint32_t num_tokens;
  uint32_t chunk;     /* LOAD, STORE */
  uint32_t frame;     /* LOAD, STORE */
  uint32_t budget_us; /* from when the plane reads it */
  uint8_t _pad0[64 - 48];
} sac_fetch_command;
SAC_STATIC_ASSERT(sizeof(sac_fetch_command) == 64, "command is 64 bytes");

/* ---- completion: writer = plane, before it counts it; in any order
 * ---------------------------------- */
typedef struct sac_fetch_completion {
  uint64_t id; /* of the command */
  uint32_t op;
  uint32_t result;      /* SAC_FETCH_DONE ... */
  uint32_t detail;      /* TROUBLE, REJECTED: a number for the metrics */
  uint32_t num_chunks;  /* LOOKUP: found from the first on */
  uint64_t coded_bytes; /* LOAD, STORE: as the store keeps it */
  uint8_t _pad0[64 - 32];
} sac_fetch_completion;
SAC_STATIC_ASSERT(sizeof(sac_fetch_completion) == 64, "completion is 64 bytes");

/* ---- KV event: writer = device; followed by the block's tokens, uint32_t[block_size]
 * ----------------- */
#define SAC_KV_STORED 1u  /* a block can be found */
#define SAC_KV_REMOVED 2u /* it cannot any more */
#define SAC_KV_CLEARED 3u /* no block can */
#define SAC_KV_ON_DEVICE 0u
#define SAC_KV_ON_HOST 1u
typedef struct sac_kv_event {
  uint64_t key;        /* of the block */
  uint64_t parent_key; /* of the block before it; 0: it is the first */
  uint64_t salt;       /* of its prefix, beside the adapter */
  uint32_t kind;       /* SAC_KV_STORED ... */
  uint32_t tier;       /* SAC_KV_ON_* */
  /* The hash of its adapter's name, as told with sac_device_set_adapter; 0: the model as it is. A
   * hash and not a number: a reader that knows of other adapters finds no name, and no wrong one.
   */
  uint64_t adapter;
  uint8_t _pad0[64 - 40];
} sac_kv_event;
SAC_STATIC_ASSERT(sizeof(sac_kv_event) == 64, "event is 64 bytes");

/* Frame f, block b of its chunk: frames_offset + f * frame_bytes + b * block_bytes, as the device
 * keeps blocks: [layer][k, v][token][kv_head][head_dim]. */

#endif /* SACCADE_ABI_FETCH_H */
