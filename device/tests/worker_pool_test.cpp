// The worker pool: every item once and in order of phases, whichever worker falls behind.
#include "cpu/worker_pool.hpp"

#include <doctest/doctest.h>

#include <deque>

#include "platform/clock.hpp"
#include "tests/test_model.hpp"

using namespace saccade;
using namespace saccade::test;

namespace {

constexpr uint32_t kMaxPhases = 12;
constexpr uint32_t kMaxItems = 40;

/// A job of random phases that records what ran, and when relative to other phases.
struct Recorder {
  uint32_t num_phases = 0;
  uint32_t counts[kMaxPhases] = {};
  std::atomic<uint32_t> runs[kMaxPhases][kMaxItems] = {};
  std::atomic<uint32_t> phase_done[kMaxPhases] = {};
  std::atomic<uint32_t> violations{0};
  // The background worker that stays away, between two phases and holding no item, until `back`.
  uint32_t away_worker = ~0u;
  std::atomic<bool>* away = nullptr;
  std::atomic<bool>* back = nullptr;
};

void record(void* context, WorkerPool::Worker& worker) {
  Recorder& r = *static_cast<Recorder*>(context);
  const uint32_t phases = r.num_phases, away_worker = r.away_worker;
  std::atomic<bool>*const away = r.away, *const back = r.back;
  uint32_t counts[kMaxPhases];
  std::copy(r.counts, r.counts + kMaxPhases, counts);
  for (uint32_t p = 0; p < phases; ++p) {
    worker.for_each(counts[p], [&r, p](uint32_t item) {
      if (p > 0 && r.phase_done[p - 1].load() != r.counts[p - 1]) r.violations.fetch_add(1);
      r.runs[p][item].fetch_add(1);
      r.phase_done[p].fetch_add(1);
    });
    if (worker.index() == away_worker) {
      *away = true;
      back->wait(false);
    }
  }
}

void check_all_once(const Recorder& r) {
  CHECK(r.violations.load() == 0);
  for (uint32_t p = 0; p < r.num_phases; ++p) {
    CHECK(r.phase_done[p].load() == r.counts[p]);
    for (uint32_t i = 0; i < r.counts[p]; ++i) REQUIRE(r.runs[p][i].load() == 1);
  }
}

}  // namespace

TEST_CASE("every item runs once, after all of the phase before") {
  for (uint32_t threads : {1u, 2u, 3u, 7u}) {
    WorkerPool pool(threads);
    Rng rng(threads);
    for (uint32_t job = 0; job < 300; ++job) {
      Recorder r;
      r.num_phases = rng() % (kMaxPhases + 1);
      for (uint32_t p = 0; p < r.num_phases; ++p) {
        r.counts[p] = rng() % 3 == 0 ? rng() % 3 : rng() % kMaxItems;
      }
      // A phase without items has nothing to wait for: the one before counts as its past too.
      for (uint32_t p = 1; p < r.num_phases; ++p) r.counts[p] = std::max(r.counts[p], 1u);
      const uint64_t start_ns = monotonic_ns();
      pool.start(record, &r);
      pool.wait();
      CHECK(pool.done());
      CHECK(pool.done_ns() >= start_ns);
      CHECK(pool.done_ns() <= monotonic_ns());
      check_all_once(r);
    }
  }
}

TEST_CASE("items that are published run once, in order, though some are computed twice") {
  for (uint32_t threads : {1u, 2u, 5u}) {
    WorkerPool pool(threads);
    for (uint32_t job = 0; job < 100; ++job) {
      struct Sums {
        std::atomic<uint32_t> published[3][64] = {};
        std::atomic<uint32_t> early{0};
      } sums;
      pool.start(
          [](void* context, WorkerPool::Worker& worker) {
            Sums& s = *static_cast<Sums*>(context);
            uint32_t made = 0;
            for (uint32_t p = 0; p < 3; ++p) {
              worker.for_each_published(
                  64, [&made](uint32_t item) { made = item + 1; },
                  [&s, &made, p](uint32_t item) {
                    if (p > 0) s.early += s.published[p - 1][item].load() == 0 ? 1 : 0;
                    s.published[p][item] += made == item + 1 ? 1 : 100;
                  });
            }
          },
          &sums);
      pool.wait();
      CHECK(sums.early.load() == 0);
      for (auto& phase : sums.published) {
        for (auto& item : phase) REQUIRE(item.load() == 1);
      }
    }
  }
}

#if !defined(__SANITIZE_THREAD__)  // where no worker helps out
TEST_CASE("a worker that is away with an item to publish does not hold up the job") {
  // Outlives the jobs: the worker that is away reads it when it comes back.
  static std::atomic<bool> away{false}, back{false};
  static std::atomic<uint32_t> published{0}, late_published{0};
  away = back = false;
  published = late_published = 0;
  WorkerPool pool(2);
  const auto job = [](void*, WorkerPool::Worker& worker) {
    bool late = false;
    worker.for_each_published(
        20,
        [&late](uint32_t) {
          if (away.exchange(true)) return;
          back.wait(false);
          late = true;
        },
        [&late](uint32_t) {
          published += 1;
          late_published += late ? 1 : 0;
          late = false;
        });
  };
  pool.start(job, nullptr);
  pool.wait();  // would never return if it waited for the worker that is away
  CHECK(published.load() == 20);
  pool.start(job, nullptr);
  pool.wait();
  CHECK(published.load() == 40);
  back = true;
  back.notify_all();
  pool.start(job, nullptr);
  pool.wait();
  CHECK(published.load() == 60);
  CHECK(late_published.load() == 0);
}
#endif

TEST_CASE("a worker that is away without an item does not hold up the job") {
  // All outlive the worker that is away: it may come back to any of them.
  std::atomic<bool> away{false}, back{false};
  std::deque<Recorder> jobs;
  WorkerPool pool(3);
  // A job's items may be done before the worker has heard of it. Once it is away, twenty more.
  for (uint32_t while_away = 0; while_away < 20; while_away += away.load() ? 1 : 0) {
    Recorder& r = jobs.emplace_back();
    r.num_phases = 6;
    std::fill(r.counts, r.counts + 6, 9u);
    r.away_worker = 1;
    r.away = &away;
    r.back = &back;
    pool.start(record, &r);
    pool.wait();  // would never return if it waited for the worker that is away
    check_all_once(r);
  }
  back = true;
  back.notify_all();
}
