#include "shim.h"

#include <stdio.h>
#include <string.h>
#include <ucp/api/ucp.h>

/* The one active message: an offset of the region, as header. */
enum { kWakeMessage = 1 };

/* UCX gives NULL for done, an error as a pointer, or a request. */
static int started(ucs_status_ptr_t pointer, void** request) {
  if (pointer == NULL) return UCS_OK;
  if (UCS_PTR_IS_ERR(pointer)) return UCS_PTR_STATUS(pointer);
  *request = pointer;
  return UCS_INPROGRESS;
}

const char* sacx_status(int status) { return ucs_status_string((ucs_status_t)status); }

const char* sacx_version(void) { return ucp_get_version_string(); }

int sacx_context_create(const char* transports, const char* interfaces, void** context) {
  ucp_config_t* config;
  ucs_status_t status = ucp_config_read(NULL, NULL, &config);
  if (status != UCS_OK) return status;
  /* Without this, endpoints that report a lost peer are not made over shared memory. A UCX that
   * does not know the name refuses it, and has no such endpoints anyway: not an error here. */
  (void)ucp_config_modify(config, "MM_ERROR_HANDLING", "y");
  if (transports != NULL) status = ucp_config_modify(config, "TLS", transports);
  if (status == UCS_OK && interfaces != NULL) {
    status = ucp_config_modify(config, "NET_DEVICES", interfaces);
  }
  if (status != UCS_OK) {
    ucp_config_release(config);
    return status;
  }
  ucp_params_t params = {
      .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
      .features = UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
      .mt_workers_shared = 1,
  };
  ucp_context_h made;
  status = ucp_init(&params, config, &made);
  ucp_config_release(config);
  if (status == UCS_OK) *context = made;
  return status;
}

void sacx_context_destroy(void* context) { ucp_cleanup(context); }

int sacx_memory_map(void* context, void* base, size_t len, int memory_kind, void** memory) {
  ucp_mem_map_params_t params = {
      .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                    UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
      .address = base,
      .length = len,
      .memory_type = memory_kind == 1 ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST,
  };
  ucp_mem_h made;
  ucs_status_t status = ucp_mem_map(context, &params, &made);
  if (status == UCS_OK) *memory = made;
  return status;
}

void sacx_memory_unmap(void* context, void* memory) { ucp_mem_unmap(context, memory); }

int sacx_memory_key(void* context, void* memory, void** key, size_t* len) {
  return ucp_rkey_pack(context, memory, key, len);
}

void sacx_key_release(void* key) { ucp_rkey_buffer_release(key); }

int sacx_worker_create(void* context, void** worker, int* event_fd) {
  ucp_worker_params_t params = {
      .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
      .thread_mode = UCS_THREAD_MODE_SERIALIZED,
  };
  ucp_worker_h made;
  ucs_status_t status = ucp_worker_create(context, &params, &made);
  if (status != UCS_OK) return status;
  status = ucp_worker_get_efd(made, event_fd);
  if (status != UCS_OK) {
    ucp_worker_destroy(made);
    return status;
  }
  *worker = made;
  return UCS_OK;
}

void sacx_worker_destroy(void* worker) { ucp_worker_destroy(worker); }

int sacx_worker_address(void* worker, void** address, size_t* len) {
  ucp_address_t* made;
  ucs_status_t status = ucp_worker_get_address(worker, &made, len);
  if (status == UCS_OK) *address = made;
  return status;
}

void sacx_worker_address_release(void* worker, void* address) {
  ucp_worker_release_address(worker, address);
}

unsigned sacx_worker_progress(void* worker) { return ucp_worker_progress(worker); }

int sacx_worker_arm(void* worker) {
  ucs_status_t status = ucp_worker_arm(worker);
  return status == UCS_ERR_BUSY ? UCS_INPROGRESS : status;
}

int sacx_worker_fence(void* worker) { return ucp_worker_fence(worker); }

static ucs_status_t on_wake(void* argument, const void* header, size_t header_length, void* data,
                            size_t length, const ucp_am_recv_param_t* param) {
  (void)data, (void)length, (void)param;
  const struct sacx_wake_handler* handler = argument;
  uint64_t at;
  if (header_length != sizeof at) return UCS_OK; /* not ours: a hint, so nothing is lost */
  memcpy(&at, header, sizeof at);
  handler->wake(handler->argument, at);
  return UCS_OK;
}

int sacx_worker_on_wake(void* worker, const struct sacx_wake_handler* handler) {
  ucp_am_handler_param_t params = {
      .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                    UCP_AM_HANDLER_PARAM_FIELD_ARG,
      .id = kWakeMessage,
      .cb = on_wake,
      .arg = (void*)handler,
  };
  return ucp_worker_set_am_recv_handler(worker, &params);
}

static void on_failure(void* failed, ucp_ep_h endpoint, ucs_status_t status) {
  (void)endpoint;
  /* SYNC: none needed beyond the word: it is read by the thread that makes progress. */
  __atomic_store_n((int32_t*)failed, (int32_t)status, __ATOMIC_RELAXED);
}

int sacx_endpoint_create(void* worker, const void* address, int32_t* failed, void** endpoint) {
  ucp_ep_params_t params = {
      .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                    UCP_EP_PARAM_FIELD_ERR_HANDLER,
      .address = address,
      .err_mode = UCP_ERR_HANDLING_MODE_PEER,
      .err_handler = {.cb = on_failure, .arg = failed},
  };
  ucp_ep_h made;
  ucs_status_t status = ucp_ep_create(worker, &params, &made);
  if (status == UCS_OK) *endpoint = made;
  return status;
}

int sacx_endpoint_close(void* endpoint, void** request) {
  ucp_request_param_t param = {
      .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
      .flags = UCP_EP_CLOSE_FLAG_FORCE,
  };
  return started(ucp_ep_close_nbx(endpoint, &param), request);
}

void sacx_endpoint_transports(void* endpoint, char* names, size_t len) {
  names[0] = '\0';
#if UCP_API_VERSION >= UCP_VERSION(1, 14)
  enum { kMost = 16 };
  ucp_transport_entry_t entries[kMost];
  ucp_ep_attr_t attr = {
      .field_mask = UCP_EP_ATTR_FIELD_TRANSPORTS,
      .transports = {.entries = entries, .num_entries = kMost, .entry_size = sizeof entries[0]},
  };
  if (ucp_ep_query(endpoint, &attr) != UCS_OK) return;
  for (unsigned i = 0; i < attr.transports.num_entries; ++i) {
    size_t used = strlen(names);
    snprintf(names + used, len - used, "%s%s", i > 0 ? "," : "", entries[i].transport_name);
  }
#else
  (void)endpoint, (void)len;
#endif
}

int sacx_remote_key_unpack(void* endpoint, const void* key, void** remote_key) {
  ucp_rkey_h made;
  ucs_status_t status = ucp_ep_rkey_unpack(endpoint, key, &made);
  if (status == UCS_OK) *remote_key = made;
  return status;
}

void sacx_remote_key_destroy(void* remote_key) { ucp_rkey_destroy(remote_key); }

int sacx_put(void* endpoint, const void* local, size_t len, uint64_t remote, void* key,
             void** request) {
  ucp_request_param_t param = {0};
  return started(ucp_put_nbx(endpoint, local, len, remote, key, &param), request);
}

int sacx_get(void* endpoint, void* local, size_t len, uint64_t remote, void* key, void** request) {
  ucp_request_param_t param = {0};
  return started(ucp_get_nbx(endpoint, local, len, remote, key, &param), request);
}

int sacx_fetch_add_u32(void* endpoint, uint32_t* local, uint64_t remote, void* key,
                       void** request) {
  ucp_request_param_t param = {
      .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER,
      .datatype = ucp_dt_make_contig(sizeof *local),
      .reply_buffer = &local[1],
  };
  return started(ucp_atomic_op_nbx(endpoint, UCP_ATOMIC_OP_ADD, local, 1, remote, key, &param),
                 request);
}

int sacx_wake(void* endpoint, const uint64_t* at, void** request) {
  ucp_request_param_t param = {0};
  return started(ucp_am_send_nbx(endpoint, kWakeMessage, at, sizeof *at, NULL, 0, &param), request);
}

int sacx_flush(void* endpoint, void** request) {
  ucp_request_param_t param = {0};
  return started(ucp_ep_flush_nbx(endpoint, &param), request);
}

int sacx_request_test(void* request) {
  ucs_status_t status = ucp_request_check_status(request);
  if (status != UCS_INPROGRESS) ucp_request_free(request);
  return status;
}
