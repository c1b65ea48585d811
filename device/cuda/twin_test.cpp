// The persistent kernel's code on threads of the host: what a team reads against what one thread
// reads, and whole lives against the specification. Meant to be run under ThreadSanitizer.
#include <atomic>

#include "cuda/bench.hpp"
#include "cuda/checks.hpp"
#include "cuda/model/tests/ring_twin.hpp"
#include "cuda/rotation/rotation_twin.hpp"
#include "cuda/thread_machine.hpp"

namespace saccade::test {
namespace {

/// What peers write, in plain memory, and a team that reads it.
class ReadRig {
 public:
  ReadRig(uint32_t num_slots, uint32_t num_seats, uint32_t num_members)
      : doorbells(num_slots),
        seen(num_slots),
        rung(num_slots),
        cursors(num_slots),
        seat_slots(num_seats, kNoSlotOfSeat),
        seat_cursors(num_seats),
        team_(num_members),
        leader_(team_, num_members, &crash_) {
    peers.rung = rung.data();
    readers.read = seat_cursors.data();
    readers.slots = seat_slots.data();
    readers.end = num_seats;
    for (uint32_t rank = 0; rank < num_members; ++rank)
      members_.emplace_back([this, rank] {
        ThreadCrew crew(team_, rank, &crash_);
        serve_team(team_.board, crew);
      });
  }
  ~ReadRig() {
    dismiss(team_.board, leader_);
    for (std::thread& t : members_) t.join();
  }
  std::vector<uint32_t> read() {
    std::vector<uint32_t> changed(doorbells.size());
    changed.resize(read_peers_by_team(team_.board, leader_, reading(), changed.data()));
    return changed;
  }
  std::vector<uint32_t> read_alone() {
    std::vector<uint32_t> changed(doorbells.size());
    changed.resize(read_peers_alone(reading(), changed.data()));
    return changed;
  }
  void fetch(std::vector<Fetch>& fetches) {
    fetch_by_team(team_.board, leader_, fetches.data(), static_cast<uint32_t>(fetches.size()));
  }

  std::vector<uint32_t> doorbells, seen, rung, cursors, seat_slots, seat_cursors;
  sac_frontend_line frontends[SAC_MAX_FRONTENDS] = {};
  Peers peers = {};
  ReaderCursors readers = {};

 private:
  PeerReading reading() {
    PeerReading r = {};
    r.num_slots = static_cast<uint32_t>(doorbells.size());
    r.num_frontends = SAC_MAX_FRONTENDS;
    r.doorbells = doorbells.data();
    r.reader_cursors = cursors.data();
    r.frontends = frontends;
    r.peers = &peers;
    r.cursors = &readers;
    r.seen = seen.data();
    return r;
  }

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
      ReadRig rig(num_slots, 0, members);
      Random random(num_slots + members);
      for (uint32_t round = 0; round < 20; ++round) {
        for (uint32_t& d : rig.doorbells)
          if (random.one_in(1 + round * 20)) ++d;
        const std::vector<uint32_t> changed = rig.read();
        for (const uint32_t slot : changed) equal &= rig.rung[slot] == rig.doorbells[slot];
        equal &= changed == rig.read_alone();
        found += changed.size();
        if (round % 3 == 0) rig.seen = rig.doorbells;
      }
    }
  report.check(equal && found > 10000, "team reading: " + std::to_string(found) +
                                           " changed slots found as the plain scan finds them");
}

/// Doorbells that change during the scan: each hit is true, hits are in order, and none is lost.
void check_moving_doorbells(Report& report) {
  constexpr uint32_t kSlots = 4096;
  constexpr uint32_t kRings = 20000;
  ReadRig rig(kSlots, 0, 3);
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
    const std::vector<uint32_t> changed = rig.read();
    ok &= std::is_sorted(changed.begin(), changed.end());
    for (const uint32_t slot : changed) {
      ok &= rig.rung[slot] != rig.seen[slot];
      rig.seen[slot] = rig.rung[slot];
    }
    hits += changed.size();
  }
  frontend.join();
  report.check(ok && rig.seen == rig.doorbells, "team reading: " + std::to_string(kRings) +
                                                    " rings meanwhile, " + std::to_string(hits) +
                                                    " hits, none false, none lost");
}

/// Cursors of seated requests and the frontends' lines, for more seats than threads.
void check_lines(Report& report) {
  constexpr uint32_t kSlots = 128, kSeats = 60;
  bool equal = true;
  for (const uint32_t members : {1u, 3u, 7u}) {
    ReadRig rig(kSlots, kSeats, members);
    Random random(members);
    for (uint32_t round = 0; round < 50; ++round) {
      for (uint32_t& cursor : rig.cursors) cursor = random.in(0, 9);
      for (uint32_t seat = 0; seat < kSeats; ++seat)
        rig.seat_slots[seat] = random.one_in(4) ? kNoSlotOfSeat : random.in(0, kSlots - 1);
      for (sac_frontend_line& line : rig.frontends) {
        line.epoch = random.in(0, 99);
        line.heartbeat = random.next();
      }
      rig.read();
      for (uint32_t seat = 0; seat < kSeats; ++seat)
        if (const uint32_t slot = rig.seat_slots[seat]; slot != kNoSlotOfSeat)
          equal &= rig.seat_cursors[seat] == rig.cursors[slot];
      for (uint32_t f = 0; f < SAC_MAX_FRONTENDS; ++f)
        equal &= rig.peers.epochs[f] == rig.frontends[f].epoch &&
                 rig.peers.heartbeats[f] == rig.frontends[f].heartbeat;
    }
  }
  report.check(equal, "team reading: cursors of seats and lines of frontends as they are");
}

/// Many short spans and a few long ones.
void check_fetches(Report& report) {
  bool equal = true;
  uint64_t words = 0;
  for (const uint32_t members : {1u, 3u, 7u}) {
    ReadRig rig(SAC_SLOT_GRANULE, 0, members);
    Random random(members);
    for (uint32_t round = 0; round < 40; ++round) {
      std::vector<std::vector<uint32_t>> from(random.in(1, 30)), to(from.size());
      std::vector<Fetch> fetches;
      for (size_t i = 0; i < from.size(); ++i) {
        from[i].resize(random.one_in(5) ? random.in(0, 3000) : random.in(0, 70));
        for (uint32_t& word : from[i]) word = static_cast<uint32_t>(random.next());
        to[i].resize(from[i].size());
        fetches.push_back({to[i].data(), from[i].data(), static_cast<uint32_t>(from[i].size()), 7});
        words += from[i].size();
      }
      rig.fetch(fetches);
      for (size_t i = 0; i < from.size(); ++i) {
        uint32_t most = 0;
        for (const uint32_t word : from[i]) most = std::max(most, word);
        equal &= to[i] == from[i] && fetches[i].most == most;
      }
    }
  }
  report.check(equal && words > 10000, "team fetches: " + std::to_string(words) +
                                           " words as they were written, the largest of each span");
}

constexpr uint32_t kSeatsAtHome = 600;

/// What the leader does across the bus from step to step while `seats` requests decode: the least
/// of all steps, which is that of steady ticks in which no reader's cursor or doorbell moved.
AccessCounts accesses_of_a_tick(uint32_t seats) {
  const DeviceShape shape = batch_device(seats);
  WindowRig rig(shape, bench_ring());
  AccessCounts before = {}, least = {UINT64_MAX, UINT64_MAX};
  uint64_t last_step = 0;
  rig.machine.at_fire = [&](uint64_t step) {
    if (step == last_step + 1 && step > 20) {
      least.loads = std::min(least.loads, access_counts.loads - before.loads);
      least.fences = std::min(least.fences, access_counts.fences - before.fences);
    }
    before = access_counts;
    last_step = step;
  };
  rig.machine.start(true);
  TestFrontend front(rig.ring, 0);
  front.join();
  rig.machine.run_ticks(2);
  std::vector<Ticket> tickets;
  for (uint32_t i = 0; i < seats; ++i) tickets.push_back(front.submit(ask_of(4, 60, i)));
  for (uint32_t i = 0; i < 50; ++i) {
    rig.machine.run_ticks(1);
    front.beat();
    for (Ticket& t : tickets) front.read(t);
  }
  rig.machine.stop();
  return least;
}

void check_accesses(Report& report) {
  const AccessCounts few = accesses_of_a_tick(4), many = accesses_of_a_tick(64),
                     most = accesses_of_a_tick(256);
  // The arrays of this many seats have no room in the block's own memory.
  const AccessCounts at_home = accesses_of_a_tick(kSeatsAtHome);
  Limits limits = {};
  limits.num_seats = kSeatsAtHome;
  report.check(own_bytes(limits) == own_room(sizeof(OwnMemory)) && at_home.loads == few.loads &&
                   at_home.fences == few.fences,
               "a tick of " + std::to_string(kSeatsAtHome) + " seats, whose arrays stay at home");
  report.check(many.loads == few.loads && most.loads == few.loads && few.loads <= 4,
               "a tick's own loads at 4, 64 and 256 seats: " + std::to_string(few.loads) + ", " +
                   std::to_string(many.loads) + ", " + std::to_string(most.loads));
  report.check(many.fences == few.fences && most.fences == few.fences && few.fences <= 4,
               "a tick's own fences at 4, 64 and 256 seats: " + std::to_string(few.fences) + ", " +
                   std::to_string(many.fences) + ", " + std::to_string(most.fences));
}

/// A GPU that loads lazily: a load waits for what runs, and what spins never ends.
struct LazyGpu {
  bool spins = false;
  std::string hangs;
  std::vector<std::string> did;
  void load(const char* what) {
    if (spins) hangs = what;
    did.push_back(what);
  }
};
struct LazyWay {
  LazyGpu& gpu;
  void load(const Life&, bool) { gpu.load("the scheduler"); }
  void start() { gpu.spins = true; }
};
struct LazyCopies {
  LazyGpu& gpu;
  void start() { gpu.spins = true; }
};

void check_start(Report& report) {
  LazyGpu gpu;
  LazyWay way = {gpu};
  LazyCopies copies = {gpu};
  start_life(way, &copies, Life{}, true);
  report.check(gpu.hangs.empty() && gpu.spins && gpu.did.size() == 1,
               "a life starts: all is loaded before anything spins" + gpu.hangs);
}

void check_watchdog(Report& report) {
  std::mutex mutex;
  std::string text;
  const auto hears = [&](const std::string& sentence) {
    const std::lock_guard lock(mutex);
    text = sentence;
  };
  const auto said = [&] {
    const std::lock_guard lock(mutex);
    return text;
  };
  {
    const Watchdog watchdog(
        "quick", std::chrono::seconds(60), [] { return ""; }, hears);
  }
  const bool silent = said().empty();
  {
    const Watchdog watchdog(
        "a call", std::chrono::milliseconds(1), [] { return "who waited for whom"; }, hears);
    while (said().empty()) std::this_thread::yield();
  }
  report.check(
      silent && said().find("a call") == 0 && said().find("who waited for whom") != text.npos,
      "watchdog: " + said());
}

/// The benchmark measures each request; its figures mean nothing here.
void check_bench(Report& report) {
  const Latencies l = measure<WindowRig>(20, [](WindowRig&) {});
  bool ordered = true;
  for (size_t i = 0; i < l.first_token_ns.size(); ++i) {
    const auto& claims = i % 2 == 0 ? l.claim_ns : l.idle_claim_ns;
    ordered &= i / 2 < claims.size() && claims[i / 2] <= l.first_token_ns[i];
  }
  report.check(ordered && l.first_token_ns.size() == 20 && l.tick_ns.size() >= 20 * kBenchTokens &&
                   l.publish_ns.size() == l.tick_ns.size(),
               "benchmark: 20 requests claimed, then answered");
}

}  // namespace
}  // namespace saccade::test

int main() {
  using namespace saccade::test;
  saccade::test::Report report;
  check_still_doorbells(report);
  check_moving_doorbells(report);
  check_lines(report);
  check_fetches(report);
  check_scripts<WindowRig>(report, 2);
  check_scripts<LeavingRig>(report, 2);
  check_left_steps<LeavingRig>(report);
  check_scripts<LoopRig>(report, 2);
  check_scripts<HostRig>(report, 2);
  check_free_run<WindowRig>(report, 3);
  check_free_run<LeavingRig>(report, 5);
  check_free_run<LoopRig>(report, 4);
  check_crash_record<WindowRig>(report);
  check_crash_record<LoopRig>(report);
  check_cached_prompt<WindowRig>(report);
  check_cached_prompt<HostRig>(report);
  check_windows<WindowRig>(report);
  check_shares(report);
  check_workers(report);
  check_bulk_pipeline(report);
  check_stage_ring(report);
  check_rotation<WindowRig>(report, 1);
  check_rotation<LoopRig>(report, 2);
  check_accesses(report);
  check_start(report);
  check_watchdog(report);
  check_bench(report);
  return report.failed() == 0 ? 0 : 1;
}
