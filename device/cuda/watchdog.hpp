// A witness for what may never return. A call into the driver can wait for a kernel that waits for
// this very process; then no thread inside it can report anything. The watchdog has a thread of its
// own, reads pinned memory only, and never calls CUDA.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace saccade {

/// Exit code of a process whose GPU or driver hangs: nothing but its end stops a kernel.
inline constexpr int kExitHung = 4;

/// Guards the scope it lives in: when the scope outlasts the budget, `expired` is called once with
/// a sentence that names the scope and what `record` says.
class Watchdog {
 public:
  using Record = std::function<std::string()>;
  using Expired = std::function<void(const std::string&)>;

  Watchdog(const char* what, std::chrono::milliseconds budget, Record record,
           Expired expired = end_process)
      : thread_([this, what, budget, record = std::move(record), expired = std::move(expired)] {
          std::unique_lock<std::mutex> lock(mutex_);
          if (done_.wait_for(lock, budget, [this] { return over_; })) return;
          const std::string said = record();
          expired(std::string(what) + ": no return within " + std::to_string(budget.count()) +
                  " ms; crash record: " + (said.empty() ? "none" : said));
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      over_ = true;
    }
    done_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  [[noreturn]] static void end_process(const std::string& sentence) {
    std::fprintf(stderr, "the GPU hangs: %s\n", sentence.c_str());
    std::_Exit(kExitHung);
  }

  std::mutex mutex_;
  std::condition_variable done_;
  bool over_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace saccade
