// Threads of one block as fibers of one host thread: each runs until it waits for others.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

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
#endif

namespace saccade::test {

#if defined(__x86_64__)
/// Where a stack was left: its pointer, below what a call must preserve. swapcontext would make a
/// system call each way.
class Context {
 public:
  /// The next switch to it calls `entry`, which never returns, on this stack.
  void begin(unsigned char* stack, size_t bytes, void (*entry)()) {
    const auto end = reinterpret_cast<uintptr_t>(stack + bytes) & ~uintptr_t{15};
    auto** top = reinterpret_cast<void**>(end);
    *--top = nullptr;  // where a return address would be: the stack is aligned as behind a call
    *--top = reinterpret_cast<void*>(entry);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    pointer_ = top;
  }
  void switch_to(Context& other) { switch_stacks(&pointer_, other.pointer_); }

 private:
  __attribute__((naked, noinline)) static void switch_stacks(void** /*from*/, void* /*to*/) {
    asm("push %rbp\n\t"
        "push %rbx\n\t"
        "push %r12\n\t"
        "push %r13\n\t"
        "push %r14\n\t"
        "push %r15\n\t"
        "mov %rsp, (%rdi)\n\t"
        "mov %rsi, %rsp\n\t"
        "pop %r15\n\t"
        "pop %r14\n\t"
        "pop %r13\n\t"
        "pop %r12\n\t"
        "pop %rbx\n\t"
        "pop %rbp\n\t"
        "ret");
  }
  void* pointer_ = nullptr;
};
#else
class Context {
 public:
  void begin(unsigned char* stack, size_t bytes, void (*entry)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack;
    context_.uc_stack.ss_size = bytes;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
  }
  void switch_to(Context& other) { swapcontext(&context_, &other.context_); }

 private:
  ucontext_t context_;
};
#endif

/// A body with a stack of its own. resume() runs it until it calls yield() or ends. The next body
/// goes on where the last one ended.
class Fiber {
 public:
  static constexpr size_t kStackBytes = 128 * 1024;

  Fiber() : stack_(new unsigned char[kStackBytes]) {}
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void start(std::function<void()> body) {
    // A body that was given up leaves its frames behind.
    if (!done_ || !begun_) inside_.begin(stack_.get(), kStackBytes, &main);
    begun_ = true;
    body_ = std::move(body);
    done_ = false;
    failure_ = nullptr;
  }
  bool done() const { return done_; }
  /// Rethrows what the body threw.
  void resume() {
    entering = this;
    before_entry();
    outside_.switch_to(inside_);
    after_entry();
    if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  void yield() {
    before_exit();
    inside_.switch_to(outside_);
    after_exit();
  }

 private:
  static void main() {
    Fiber& self = *entering;
    self.after_exit();
    for (;;) {
      try {
        self.body_();
      } catch (...) {
        self.failure_ = std::current_exception();
      }
      self.done_ = true;
      self.yield();
    }
  }

  // What ASan must know of a switch, on either side of it.
#if defined(SAC_FIBER_ASAN)
  void before_entry() { __sanitizer_start_switch_fiber(&host_fake_, stack_.get(), kStackBytes); }
  void after_entry() { __sanitizer_finish_switch_fiber(host_fake_, nullptr, nullptr); }
  void before_exit() { __sanitizer_start_switch_fiber(&fake_, host_stack_, host_bytes_); }
  void after_exit() { __sanitizer_finish_switch_fiber(fake_, &host_stack_, &host_bytes_); }
  void* host_fake_ = nullptr;
  void* fake_ = nullptr;
  const void* host_stack_ = nullptr;
  size_t host_bytes_ = 0;
#else
  void before_entry() {}
  void after_entry() {}
  void before_exit() {}
  void after_exit() {}
#endif

  static inline thread_local Fiber* entering = nullptr;
  std::unique_ptr<unsigned char[]> stack_;
  Context outside_;
  Context inside_;
  std::function<void()> body_;
  std::exception_ptr failure_;
  bool begun_ = false;
  bool done_ = true;
};

}  // namespace saccade::test
