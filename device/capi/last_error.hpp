// How functions of the C interfaces fail: a code, and a sentence that belongs to the thread.
#pragma once
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "capi/saccade_device.h"

namespace saccade {

inline thread_local std::string last_error;

inline int fail(int code, std::string sentence) {
  last_error = std::move(sentence);
  return code;
}

/// Runs `body`, which returns 0 or an error code; turns exceptions into codes.
template <class Body>
int guarded(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(SAC_ERR_MEMORY, "out of memory");
  } catch (const std::exception& e) {
    return fail(SAC_ERR_MEMORY, e.what());
  }
}

}  // namespace saccade
