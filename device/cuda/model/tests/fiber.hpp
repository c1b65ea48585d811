// Threads of one block as fibers of one host thread: each runs until it waits for others.
#pragma once
#include <ucontext.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

// g++ and clang each have a name for it.
#if defined(__SANITIZE_ADDRESS__)
#define SAC_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SAC_FIBER_ASAN 1
#endif
#endif
#if defined(SAC_FIBER_ASAN)
#include <sanitizer/common_interface_defs.h>
#else
#include <csetjmp>
#define SAC_FIBER_ASAN 0
#endif

namespace saccade::test {

/// A body with a stack of its own. resume() runs it until it calls yield() or ends. The next body
/// goes on where the last one ended: only the first entry makes system calls.
class Fiber {
 public:
  static constexpr size_t kStackBytes = 128 * 1024;

  Fiber() : stack_(new unsigned char[kStackBytes]) {}
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void start(std::function<void()> body) {
    if (!done_) begun_ = false;  // the last body was given up: its frames stay where they are
    body_ = std::move(body);
    done_ = false;
    failure_ = nullptr;
  }
  bool done() const { return done_; }
  /// Rethrows what the body threw.
  void resume() {
    if (!begun_) {
      begin();
    } else {
      enter();
    }
    if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

#if SAC_FIBER_ASAN
  void yield() {
    __sanitizer_start_switch_fiber(&fake_, host_stack_, host_bytes_);
    swapcontext(&context_, &host_);
    __sanitizer_finish_switch_fiber(fake_, &host_stack_, &host_bytes_);
  }
#else
  void yield() {
    if (_setjmp(inside_) == 0) _longjmp(outside_, 1);
  }
#endif

 private:
  static void main(unsigned low, unsigned high) {
    auto* self = reinterpret_cast<Fiber*>(uintptr_t{low} | uintptr_t{high} << 32);
    self->entered();
    for (;;) {
      try {
        self->body_();
      } catch (...) {
        self->failure_ = std::current_exception();
      }
      self->done_ = true;
      self->yield();
    }
  }
  void begin() {
    begun_ = true;
    prepare();
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_.get();
    context_.uc_stack.ss_size = kStackBytes;
    context_.uc_link = nullptr;
    const auto self = reinterpret_cast<uintptr_t>(this);
    makecontext(&context_, reinterpret_cast<void (*)()>(&main), 2, static_cast<unsigned>(self),
                static_cast<unsigned>(self >> 32));
    enter();
  }

#if SAC_FIBER_ASAN
  void prepare() {}
  void entered() { __sanitizer_finish_switch_fiber(fake_, &host_stack_, &host_bytes_); }
  void enter() {
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, stack_.get(), kStackBytes);
    swapcontext(&host_, &context_);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
  }
  ucontext_t host_;
  void* fake_ = nullptr;
  const void* host_stack_ = nullptr;
  size_t host_bytes_ = 0;
#else
  // swapcontext makes a system call each way; only the first entry needs it.
  void prepare() { inside_set_ = false; }
  void entered() {}
  void enter() {
    if (_setjmp(outside_) != 0) return;
    if (!inside_set_) {
      inside_set_ = true;
      setcontext(&context_);
    }
    _longjmp(inside_, 1);
  }
  jmp_buf outside_;
  jmp_buf inside_;
  bool inside_set_ = false;
#endif

  std::unique_ptr<unsigned char[]> stack_;
  ucontext_t context_;
  std::function<void()> body_;
  std::exception_ptr failure_;
  bool begun_ = false;
  bool done_ = true;
};

}  // namespace saccade::test
