/* What the ring needs of UCX, as plain functions: UCX's own interface is structures with field
 * masks, macros and tagged pointers, which only C can follow from one version to the next.
 *
 * Statuses: 0 = done, 1 = under way, below 0 = a ucs_status_t (see sacx_status). Nothing here
 * keeps state of its own, and nothing blocks. A worker and its endpoint are for one thread at a
 * time, under the caller's lock.
 */
#ifndef SACCADE_RING_UCX_SHIM_H
#define SACCADE_RING_UCX_SHIM_H

#include <stddef.h>
#include <stdint.h>

const char* sacx_status(int status);
const char* sacx_version(void);

/* Memory that peers may reach: RMA, 32-bit atomics, one small message, and event descriptors.
 * transports replaces UCX_TLS, interfaces UCX_NET_DEVICES, unless they are NULL. */
int sacx_context_create(const char* transports, const char* interfaces, void** context);
void sacx_context_destroy(void* context);

/* Registers len bytes at base; memory_kind: 0 = host, 1 = a CUDA device. */
int sacx_memory_map(void* context, void* base, size_t len, int memory_kind, void** memory);
void sacx_memory_unmap(void* context, void* memory);
/* The packed remote key; release it with sacx_key_release. */
int sacx_memory_key(void* context, void* memory, void** key, size_t* len);
void sacx_key_release(void* key);

int sacx_worker_create(void* context, void** worker, int* event_fd);
void sacx_worker_destroy(void* worker);
int sacx_worker_address(void* worker, void** address, size_t* len);
void sacx_worker_address_release(void* worker, void* address);
/* Above 0 if it made progress. */
unsigned sacx_worker_progress(void* worker);
/* 0: the event descriptor will signal new events; 1: some are pending already, progress first. */
int sacx_worker_arm(void* worker);
/* Orders all earlier operations before all later ones. */
int sacx_worker_fence(void* worker);
/* Handler of a peer's sacx_wake: wake(argument, at), called within sacx_worker_progress. */
struct sacx_wake_handler {
  void (*wake)(void* argument, uint64_t at);
  void* argument;
};
/* The handler must outlive the worker. */
int sacx_worker_on_wake(void* worker, const struct sacx_wake_handler* handler);

/* *failed becomes a status below 0 when the peer is lost; it must outlive the endpoint. */
int sacx_endpoint_create(void* worker, const void* address, int32_t* failed, void** endpoint);
/* Begins to close without waiting for the peer. */
int sacx_endpoint_close(void* endpoint, void** request);
/* Names of the transports in use, comma-separated; empty before UCX 1.14. */
void sacx_endpoint_transports(void* endpoint, char* names, size_t len);
int sacx_remote_key_unpack(void* endpoint, const void* key, void** remote_key);
void sacx_remote_key_destroy(void* remote_key);

/* Operations. What local points to must stay until the request is done. */
int sacx_put(void* endpoint, const void* local, size_t len, uint64_t remote, void* key,
             void** request);
int sacx_get(void* endpoint, void* local, size_t len, uint64_t remote, void* key, void** request);
/* Adds local[0]; local[1] becomes the previous value. */
int sacx_fetch_add_u32(void* endpoint, uint32_t* local, uint64_t remote, void* key, void** request);
/* Asks the peer's process to wake the sleepers on the word at *at. */
int sacx_wake(void* endpoint, const uint64_t* at, void** request);
/* Done once the peer has done all operations so far. */
int sacx_flush(void* endpoint, void** request);
/* Frees the request unless it is still under way. */
int sacx_request_test(void* request);

#endif
