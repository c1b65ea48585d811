// The persistent kernel's code on threads of the host: the team's scan against the plain one, and
// whole lives against the specification. Meant to be run under ThreadSanitizer.
#include <atomic>

#include "cuda/bench.hpp"
#include "cuda/checks.hpp"
#include "cuda/model/tests/ring_twin.hpp"
#include "cuda/rotation/rotation_twin.hpp"
#include "cuda/thread_machine.hpp"
#include "platform/scan.hpp"

namespace saccade::test {
namespace {

/// Doorbells, what was seen of them, and a team that scans them.
class ScanRig {
 public:
  explicit ScanRig(uint32_t num_slots, uint32_t num_members)
      : doorbells(num_slots),
        seen(num_slots),
        team_(num_members),
        leader_(team_, num_members, &crash_) {
    for (uint32_t rank = 0; rank < num_members; ++rank)
      members_.emplace_back([this, rank] {
        ThreadCrew crew(team_, rank, &crash_);
        serve_scans(team_.board, crew);
      });
  }
  ~ScanRig() {
    dismiss(team_.board, leader_);
    for (std::thread& t : members_) t.join();
  }
  std::vector<uint32_t> scan() {
    std::vector<uint32_t> changed(doorbells.size());
    changed.resize(lead_scan(team_.board, leader_, doorbells.data(), seen.data(),
                             static_cast<uint32_t>(doorbells.size()), changed.data()));
    return changed;
  }
  std::vector<uint32_t> plain_scan() {
    std::vector<uint32_t> changed(doorbells.size());
    changed.resize(scan_changed(doorbells.data(), seen.data(),
                                static_cast<uint32_t>(doorbells.size()), changed.data()));
    return changed;
  }

  std::vector<uint32_t> doorbells;
  std::vector<uint32_t> seen;

 private:
  ThreadTeam team_;
  CrashRecord crash_ = {};
  ThreadCrew leader_;
  std::vector<std::thread> members_;
};

/// Random doorbells: the team finds what the plain scan finds, in the same order.
void check_still_doorbells(Report& report) {
  uint64_t found = 0;
  bool equal = true;
  for (const uint32_t num_slots : {32u, 64u, 96u, 4096u - 32u, 4096u})
    for (const uint32_t members : {1u, 3u, 7u}) {
      ScanRig rig(num_slots, members);
      Random random(num_slots + members);
      for (uint32_t round = 0; round < 20; ++round) {
        for (uint32_t& d : rig.doorbells)
          if (random.one_in(1 + round * 20)) ++d;
        const std::vector<uint32_t> changed = rig.scan();
        equal &= changed == rig.plain_scan();
        found += changed.size();
        if (round % 3 == 0) rig.seen = rig.doorbells;
      }
    }
  report.check(equal && found > 10000, "team scan: " + std::to_string(found) +
                                           " changed slots found as the plain scan finds them");
}

/// Doorbells that change meanwhile: each hit is true, hits stand in order, and none is lost.
void check_moving_doorbells(Report& report) {
  constexpr uint32_t kSlots = 4096;
  constexpr uint32_t kRings = 20000;
  ScanRig rig(kSlots, 3);
  std::atomic<bool> done = false;
  std::thread frontend([&] {
    Random random(7);
    for (uint32_t i = 0; i < kRings; ++i) {
      uint32_t* d = &rig.doorbells[random.in(0, kSlots - 1)];
      store_release(d, load_relaxed(d) + 1);
    }
    done = true;
  });
  bool ok = true;
  uint64_t hits = 0;
  for (bool last = false; !last;) {
    last = done;
    const std::vector<uint32_t> changed = rig.scan();
    ok &= std::is_sorted(changed.begin(), changed.end());
    for (const uint32_t slot : changed) {
      const uint32_t now = load_acquire(&rig.doorbells[slot]);
      ok &= now != rig.seen[slot];
      rig.seen[slot] = now;
    }
    hits += changed.size();
  }
  frontend.join();
  report.check(ok && rig.seen == rig.doorbells, "team scan: " + std::to_string(kRings) +
                                                    " rings meanwhile, " + std::to_string(hits) +
                                                    " hits, none false, none lost");
}

/// The benchmark measures each request; its figures mean nothing here.
void check_bench(Report& report) {
  const Latencies l = measure<WindowRig>(20, [](WindowRig&) {});
  bool ordered = true;
  for (size_t i = 0; i < l.claim_ns.size(); ++i) ordered &= l.claim_ns[i] <= l.first_token_ns[i];
  report.check(ordered && l.first_token_ns.size() == 20 && l.tick_ns.size() >= 20 * kBenchTokens &&
                   l.publish_ns.size() == l.tick_ns.size(),
               "benchmark: 20 requests claimed, then answered");
}

}  // namespace
}  // namespace saccade::test

int main() {
  using namespace saccade::test;
  Report report;
  check_still_doorbells(report);
  check_moving_doorbells(report);
  check_scripts<WindowRig>(report, 2);
  check_scripts<LoopRig>(report, 1);
  check_scripts<HostRig>(report, 2);
  check_crash_record<WindowRig>(report);
  check_crash_record<LoopRig>(report);
  check_windows<WindowRig>(report);
  check_shares(report);
  check_bulk_pipeline(report);
  check_stage_ring(report);
  check_rotation<WindowRig>(report, 1);
  check_rotation<LoopRig>(report, 2);
  check_bench(report);
  return report.failed() == 0 ? 0 : 1;
}
