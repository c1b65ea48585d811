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

/// A sentence that may itself not be had for want of memory.
inline int fail_with(const std::exception& e) noexcept {
  try {
    return fail(SAC_ERR_MEMORY, e.what());
  } catch (...) {
    last_error.clear();
    return SAC_ERR_MEMORY;
  }
}

/// Runs `body`, which returns 0 or an error code; turns exceptions into codes: none may reach a
/// caller that is not C++. Every exported function that can throw is one such body.
template <class Body>
int guarded(Body body) noexcept {
  try {
    return body();
  } catch (const std::exception& e) {
    return fail_with(e);
  } catch (...) {
    last_error.clear();
    return SAC_ERR_MEMORY;
  }
}

}  // namespace saccade
