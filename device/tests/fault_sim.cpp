// Fault simulation as a command: chains of random worlds until each seed has had its ticks. Every
// world has its own mixture of bounds, tiers, dead frontends, cancels, slow readers, readers that
// never read or trickle, tenants, late and lying copy engines, clocks that jump and steps that lie
// about their end; every invariant is checked after every tick, every token against what its
// request must yield, and requests that are read must end while unread ones are still there.
//
//   fault_sim [--seeds FROM-TO] [--ticks N] [--corpus FILE] [--plant NAME]
//
//   --seeds 1-1000   which seeds                      --ticks 10000   of each seed, at least
//   --corpus FILE    the seeds of a file instead: "seed ticks  what it found", a line each
//   --plant NAME     breaks the scheduler now and then; the run must then fail (exit 0 if it does)
//
// Exit 1 with the seed and the violation if one is found.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>

#include "tests/world.hpp"

namespace saccade::test {
namespace {

WorldOptions faulty_world_options(uint64_t seed) {
  Random r(seed * 0xd1342543de82ef95ull + 3);
  WorldOptions o = r.one_in(4) ? world_options(seed) : tiered_world_options(seed);
  o.device.log_words = 1 << 17;
  o.device.overlapped = !r.one_in(4);
  if (o.device.num_host_blocks == 0)
    o.device.scheduling = r.pick(
        {Policy::kFcfs, Policy::kFcfs, Policy::kWf, Policy::kSf, Policy::kLvf, Policy::kGoodput});
  o.device.slo_ttft_ns = r.pick({1000ull, 5'000'000'000ull, 3'600'000'000'000ull});
  o.device.slo_tbt_ns = r.pick({1000ull, 100'000'000ull, 86'400'000'000'000ull});
  o.jump_odds = r.pick({0u, 0u, 30u, 300u});
  o.wrong_end_odds = r.pick({0u, 3u, 50u});
  o.num_requests = r.in(1, 200);
  o.acting_ticks = r.pick({100u, 1000u, 3000u});
  if (Random(seed + 53).one_in(3)) add_fetch_plane(o, seed);
  Random readers(seed + 61);
  o.stalled_odds = readers.pick({0u, 0u, 2u, 5u});
  o.trickle_odds = readers.pick({1u, 10u, 100u});
  o.num_tenants = Random(seed + 71).pick({1u, 1u, 2u, 3u, SAC_MAX_TENANTS});
  return o;
}

// ---- planted bugs: each must be found, or the simulation proves nothing

using Plant = std::function<bool(Scheduler&)>;  // false: nothing there to break now

struct NamedPlant {
  const char* name;
  Plant plant;
  uint32_t odds = 50;  // at one step in this many
};

bool with_seat(Scheduler& s, const std::function<bool(uint32_t, Seat&)>& act) {
  for (uint32_t i = 0; i < s.seats.num_running; ++i)
    if (s.seats[s.seats.running[i]].num_blocks > 1 &&
        act(s.seats.running[i], s.seats[s.seats.running[i]]))
      return true;
  return false;
}

bool with_block(Scheduler& s, BlockKind kind, const std::function<bool(KvBlock&, uint32_t)>& act) {
  for (uint32_t block = 0; block < s.kv.store.num_blocks; ++block)
    if (s.kv.store.blocks[block].kind == kind && act(s.kv.store.blocks[block], block)) return true;
  return false;
}

const NamedPlant kPlants[] = {
    {"free-owned-block",
     [](Scheduler& s) {
       return with_seat(s, [&s](uint32_t seat, Seat&) {
         s.kv.device().pool.release(s.kv.block_table(seat)[0], s.course.step, s.kv.store.copies);
         return true;
       });
     }},
    {"shared-block",
     [](Scheduler& s) {
       return with_seat(s, [&s](uint32_t seat, Seat&) {
         s.kv.block_table(seat)[0] = s.kv.block_table(seat)[1];
         return true;
       });
     }},
    {"lost-block",
     [](Scheduler& s) {
       return with_seat(s, [](uint32_t, Seat& seat) { return --seat.num_blocks, true; });
     }},
    {"copies-believed-early",
     [](Scheduler& s) {
       if (s.kv.store.copies.up.in_flight() < 2) return false;
       s.kv.store.copies.up.done = s.kv.store.copies.up.asked;
       return true;
     }},
    {"wrong-token",
     [](Scheduler& s) {
       return with_seat(s, [&s](uint32_t index, Seat& seat) {
         if (seat.num_produced == 0) return false;
         s.seats.tokens(index)[seat.num_tokens - 1] ^= 1;
         return true;
       });
     }},
    {"forgotten-request",
     [](Scheduler& s) {
       if (s.waiting.count == 0) return false;
       waiting_remove(s.waiting, s.slots, s.waiting.head);
       return true;
     }},
    // ---- of shared blocks
    {"reference-lost",
     [](Scheduler& s) {
       return with_block(s, BlockKind::kFull, [](KvBlock& b, uint32_t) {
         if (b.users[kDeviceTier] == 0) return false;
         return --b.users[kDeviceTier], true;
       });
     }},
    {"reference-too-many",
     [](Scheduler& s) {
       return with_block(s, BlockKind::kFull,
                         [](KvBlock& b, uint32_t) { return ++b.users[kDeviceTier], true; });
     }},
    {"full-too-early",
     [](Scheduler& s) {
       return with_block(s, BlockKind::kPending,
                         [](KvBlock& b, uint32_t) { return b.kind = BlockKind::kFull, true; });
     }},
    {"evicted-in-use",
     [](Scheduler& s) {
       return with_block(s, BlockKind::kFull, [&s](KvBlock& b, uint32_t block) {
         if (b.users[kDeviceTier] == 0 || s.kv.device().idle.contains(block)) return false;
         return s.kv.device().idle.add_newest(block), true;
       });
     }},
    {"order-turned",
     [](Scheduler& s) {
       Recency& idle = s.kv.device().idle;
       if (idle.count < 2) return false;
       const uint32_t first = idle.oldest;
       idle.remove(first);
       idle.add_newest(first);
       return true;
     }},
    {"salt-forgotten",
     [](Scheduler& s) {
       return with_block(s, BlockKind::kFull, [&s](KvBlock&, uint32_t block) {
         PrefixEntry& e = s.kv.store.table.buckets.entries[block];
         if (e.salt == 0) return false;
         return e.salt = 0, true;
       });
     }},
    {"owner-mistaken",
     [](Scheduler& s) {
       return with_block(s, BlockKind::kFull, [&s](KvBlock&, uint32_t block) {
         return s.kv.store.table.buckets.entries[block].owner.adapter ^= 1, true;
       });
     }},
    {"tokens-changed",
     [](Scheduler& s) {
       return with_block(s, BlockKind::kFull, [&s](KvBlock&, uint32_t block) {
         s.kv.store.table.tokens[size_t{block} * s.kv.block_size] ^= 1;
         return true;
       });
     }},
    {"found-after-eviction",
     [](Scheduler& s) {
       const uint32_t block = s.kv.store.first_unused;
       if (block >= s.kv.store.num_blocks || s.seats.num_running == 0) return false;
       const uint32_t* tokens = s.seats.tokens(s.seats.running[0]);
       s.kv.store.table.insert(block, {1, 0, kNoEntry, tokens}, {});
       s.kv.store.blocks[block].kind = BlockKind::kFull;
       return true;
     }},
    {"parent-gone",
     [](Scheduler& s) {
       return with_block(s, BlockKind::kFull, [&s](KvBlock& b, uint32_t block) {
         if (b.children[kDeviceTier] == 0) return false;
         return forget(s.kv.store, block), true;
       });
     }},
    {"other-block-in-table",
     [](Scheduler& s) {
       return with_seat(s, [&s](uint32_t seat, Seat&) {
         std::swap(s.kv.table(seat)[0], s.kv.table(seat)[1]);
         std::swap(s.kv.block_table(seat)[0], s.kv.block_table(seat)[1]);
         return true;
       });
     }},
    // ---- of the traffic with the fetch plane
    {"frame-lent-twice",
     [](Scheduler& s) {
       if (s.fetch.num_frames_in(FrameUse::kLoading) == 0) return false;
       for (uint32_t f = 0; f < s.limits.fetch.num_frames; ++f)
         if (s.fetch.frames[f].use == FrameUse::kLoading) return free_frame(s.fetch, f), true;
       return false;
     }},
    {"load-believed-early",
     [](Scheduler& s) {
       return with_seat(s, [&s](uint32_t, Seat& seat) {
         if (seat.fetch == 0) return false;
         seat.num_computed = s.fetch.entries[seat.fetch - 1].chunks * s.limits.fetch.chunk_tokens;
         return seat.fetch = 0, true;
       });
     }},
    {"other-chunk-loaded",
     [](Scheduler& s) {
       for (uint32_t f = 0; f < s.limits.fetch.num_frames; ++f) {
         FetchFrame& frame = s.fetch.frames[f];
         if (frame.use == FrameUse::kLoading && frame.chunk > 0) return --frame.chunk, true;
       }
       return false;
     },
     1},
    {"stored-before-copied",
     [](Scheduler& s) {
       for (uint32_t f = 0; f < s.limits.fetch.num_frames; ++f)
         if (s.fetch.frames[f].use == FrameUse::kLowering) return s.fetch.frames[f].fence = 0, true;
       return false;
     }},
    {"answer-forgotten",
     [](Scheduler& s) {
       for (uint32_t e = 0; e < s.limits.fetch.num_entries; ++e)
         if (s.fetch.entries[e].use == EntryUse::kLookup)
           return s.fetch.entries[e].use = EntryUse::kFound, true;
       return false;
     }},
    {"row-of-another",
     [](Scheduler& s) {
       for (uint32_t e = 0; e < s.limits.fetch.num_entries; ++e)
         if (s.fetch.entries[e].lent != 0) return s.fetch.view.row(e)[0] ^= 1, true;
       return false;
     }},
    {"event-forgotten",
     [](Scheduler& s) {
       return with_block(s, BlockKind::kFull, [&s](KvBlock& b, uint32_t) {
         if (!s.kv.store.events.enabled() || b.told == 0) return false;
         return b.told = 0, true;
       });
     }},
    {"repeated-record",
     [](Scheduler& s) {
       return with_seat(s, [](uint32_t, Seat& seat) {
         if (seat.num_produced == 0) return false;
         --seat.num_records;
         return true;
       });
     }},
};

const NamedPlant* find_plant(const char* name) {
  for (const NamedPlant& p : kPlants)
    if (std::strcmp(p.name, name) == 0) return &p;
  return nullptr;
}

/// Breaks something now and then, from inside a running step.
void plant_in(World& world, const NamedPlant& bug, uint64_t seed) {
  auto random = std::make_shared<Random>(seed);
  HookedStep& step = world.device().step;
  step.during = [&bug, random, act = step.during, &s = world.device().s] {
    if (act) act();
    if (random->one_in(bug.odds)) bug.plant(s);
  };
}

// ---- runs

/// FNV-1a over the words of decision logs: two schedulers that print the same decided the same.
struct DecisionDigest {
  uint64_t value = 0xcbf29ce484222325;

  void add(const DecisionLog& log) {
    for (uint64_t i = 0; i < log.used; ++i) value = (value ^ log.words[i]) * 0x100000001b3;
    value ^= log.dropped;
  }
};

struct Totals {
  DecisionDigest decisions;
  uint64_t worlds = 0, ticks = 0, tokens = 0, preemptions = 0, rotations = 0, reclaimed = 0;
  uint64_t loaded = 0, stored = 0, given_up = 0, planes = 0;

  void add(const Scheduler& s) {
    ++worlds;
    decisions.add(s.report.log);
    ticks += s.course.tick;
    tokens += s.report.stats.decode_tokens;
    preemptions += s.report.stats.preemptions;
    rotations += s.report.stats.rotations;
    reclaimed += s.report.stats.requests_reclaimed;
    const sac_fetch_stats& fetch = s.report.fetch;
    loaded += fetch.loads[SAC_FETCH_DONE];
    stored += fetch.stores[SAC_FETCH_DONE];
    given_up += fetch.loads_given_up + fetch.lookups_given_up;
    planes += fetch.planes_joined;
  }
};

/// Worlds of one seed until they have had `ticks` ticks together. Throws what went wrong.
void run_seed(uint64_t seed, uint64_t ticks, const NamedPlant* bug, Totals& totals) {
  const uint64_t end = totals.ticks + ticks;
  for (uint64_t link = 0; totals.ticks < end; ++link) {
    const uint64_t own = seed + (link << 32);
    World world(own, faulty_world_options(own));
    if (bug != nullptr) plant_in(world, *bug, own);
    world.run();
    totals.add(world.device().s);
  }
}

struct Job {
  uint64_t seed;
  uint64_t ticks;
};

std::vector<Job> read_corpus(const char* path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(std::string("cannot read ") + path);
  std::vector<Job> jobs;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Job job = {};
    if (words >> job.seed >> job.ticks) jobs.push_back(job);
  }
  return jobs;
}

struct Asked {
  std::vector<Job> jobs;
  const NamedPlant* bug = nullptr;
};

Asked parse(int argc, char** argv) {
  uint64_t from = 1, to = 1000, ticks = 10000;
  const char* corpus = nullptr;
  Asked asked;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const char* value = argv[i + 1];
    if (flag == "--seeds" && std::sscanf(value, "%lu-%lu", &from, &to) >= 1) {
      if (std::strchr(value, '-') == nullptr) to = from;
    } else if (flag == "--ticks") {
      ticks = std::strtoull(value, nullptr, 10);
    } else if (flag == "--corpus") {
      corpus = value;
    } else if (flag == "--plant" && (asked.bug = find_plant(value)) != nullptr) {
    } else {
      throw std::runtime_error("cannot use " + flag + " " + value);
    }
  }
  if (corpus != nullptr) {
    asked.jobs = read_corpus(corpus);
  } else {
    for (uint64_t seed = from; seed <= to; ++seed) asked.jobs.push_back({seed, ticks});
  }
  return asked;
}

int run(const Asked& asked) {
  Totals totals;
  const auto began = std::chrono::steady_clock::now();
  for (const Job& job : asked.jobs) {
    try {
      run_seed(job.seed, job.ticks, asked.bug, totals);
    } catch (const std::exception& e) {
      std::printf("seed %lu: %s (after %lu ticks)\n", job.seed, e.what(), totals.ticks);
      if (asked.bug != nullptr) return 0;
      std::printf("replay: fault_sim --seeds %lu --ticks %lu\n", job.seed, job.ticks);
      return 1;
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::printf(
      "%zu seeds, %lu worlds, %lu ticks in %.0f s: clean. tokens %lu, preemptions %lu, rotations "
      "%lu, requests reclaimed %lu, chunks loaded %lu, stored %lu, loads given up %lu, fetch "
      "planes "
      "%lu; digest of the decisions %016lx\n",
      asked.jobs.size(), totals.worlds, totals.ticks, took.count(), totals.tokens,
      totals.preemptions, totals.rotations, totals.reclaimed, totals.loaded, totals.stored,
      totals.given_up, totals.planes, totals.decisions.value);
  if (asked.bug == nullptr) return 0;
  std::printf("the planted bug %s was not found\n", asked.bug->name);
  return 1;
}

}  // namespace
}  // namespace saccade::test

int main(int argc, char** argv) {
  try {
    return saccade::test::run(saccade::test::parse(argc, argv));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "fault_sim: %s\n", e.what());
    return 2;
  }
}
