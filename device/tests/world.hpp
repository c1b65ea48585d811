// A seeded world around one device: frontends that submit, read slowly, cancel, die and return,
// under a clock of its own. Everything follows from the seed and the options.
#pragma once
#include <algorithm>
#include <deque>
#include <string>

#include "tests/random.hpp"
#include "tests/test_device.hpp"

namespace saccade::test {

/// Odds are "one in n per chance"; 0 = never.
struct WorldOptions {
  RingShape ring;
  DeviceShape device;
  uint32_t num_requests;  // of each frontend
  uint32_t submit_odds;
  uint32_t cancel_odds;
  uint32_t reset_odds;          // that a frontend resets the prefixes
  uint32_t read_odds;           // that a request is looked at in a tick
  uint32_t records_max;         // read at one look
  uint32_t silence_odds;        // that a frontend falls silent
  uint32_t during_odds;         // that frontends act while a step runs
  uint32_t step_ms_max;         // the clock moves up to so far per tick
  uint32_t jump_odds = 0;       // that the clock jumps by minutes, as after a machine slept
  uint32_t wrong_end_odds = 0;  // that a step says it ended before it began, or has yet to
  uint32_t acting_ticks = 400;  // frontends stir at most so long, then everything is served
  uint32_t stalled_odds = 0;    // that a request's reader never reads, or trickles, to the end
  uint32_t trickle_odds = 0;    // that one that trickles takes a record when it is looked at
  uint32_t num_tenants = 1;
};

/// Swarm: each seed has its own mixture of tight and wide bounds.
inline WorldOptions world_options(uint64_t seed) {
  Random r(seed * 2654435761u + 17);
  WorldOptions o = {};
  o.ring.num_frontends = r.in(1, 8);
  o.ring.num_slots = SAC_SLOT_GRANULE * r.in(o.ring.num_frontends, o.ring.num_frontends + 2);
  o.ring.out_ring_words = 16 * r.in(4, 12);
  o.device.num_seats = r.pick({1u, 2u, 3u, 8u, 33u});
  o.device.max_num_batched_tokens = o.device.num_seats + r.pick({0u, 1u, 7u, 64u});
  o.device.max_model_len = r.in(2, 96);
  o.device.block_size = r.pick({1u, 4u, 8u, 16u});
  const uint32_t one = ceil_div(o.device.max_model_len, o.device.block_size);
  o.device.num_blocks = one + (r.one_in(3) ? 0 : r.in(0, 4 * one));
  o.device.vocab_size = r.pick({2u, 50u, 997u, 151936u});
  for (uint32_t i = r.in(0, 2); i > 0; --i)
    o.device.eos_ids.push_back(r.in(0, o.device.vocab_size - 1));
  o.device.policy = r.one_in(3) ? PrefillPolicy::kInline : PrefillPolicy::kChunked;
  o.device.log_words = 1 << 20;
  o.device.prefix_caching = Random(seed + 41).one_in(2);
  o.device.embedding_size = Random(seed + 73).pick({0u, 5u, 21u});
  o.device.adapter_keys.resize(Random(seed + 79).pick({0u, 1u, 3u}));
  // Hashes, as a device is given: small numbers would meet the count of resets in a salt.
  Random keys(seed + 89);
  for (uint64_t& key : o.device.adapter_keys) key = keys.next();
  if (o.device.adapter_keys.size() == 3 && keys.one_in(2))
    o.device.adapter_keys.back() = o.device.adapter_keys.front();  // holds the same
  o.reset_odds = Random(seed + 43).pick({0u, 0u, 100u});
  o.num_requests = r.in(1, 40);
  o.submit_odds = r.in(1, 6);
  o.cancel_odds = r.pick({0u, 0u, 40u, 400u});
  o.read_odds = r.pick({1u, 1u, 2u, 9u});
  o.records_max = r.pick({1u, 4u, 1000u});
  o.silence_odds = r.pick({0u, 0u, 60u, 500u});
  o.during_odds = r.pick({0u, 1u, 3u});
  o.step_ms_max = r.pick({1u, 50u, 900u});
  // Room in each slot's part for the longest prompt with the lists that `draw_ask` adds, also where
  // the last frontend has more slots than its share of the arena was cut for.
  const uint64_t words = o.device.max_model_len + 2 * 4 + 4;
  o.ring.arena_bytes = 3 * o.ring.num_slots * ((4 * words + 127) / 128 * 128);
  return o;
}

/// The same, with a second tier, and an engine that is fast or slow, steady or not.
inline WorldOptions tiered_world_options(uint64_t seed) {
  WorldOptions o = world_options(seed);
  Random r(seed * 6364136223846793005u + 29);
  const uint32_t one = ceil_div(o.device.max_model_len, o.device.block_size);
  o.device.num_host_blocks = r.pick({1u, one, 4 * one, 40 * one, 400 * one});
  o.device.eager_window = r.pick({0u, 1u, 5u, 1000u});
  o.device.copies.per_tick = r.pick({one, 4 * one, UINT32_MAX});
  o.device.copies.stop_odds = r.pick({0u, 0u, 10u, 100u});
  o.device.copies.lie_odds = r.pick({0u, 0u, 7u});
  o.device.copy_seed = seed;
  o.device.scheduling = r.pick({Policy::kFcfs, Policy::kFcfs, Policy::kWf, Policy::kSf,
                                Policy::kLvf, Policy::kGoodput, Policy::kChurn});
  o.device.settings.min_run_ns = r.pick({0u, 100'000'000u, 2'000'000'000u});
  o.device.settings.max_wait_ns = r.pick({100'000'000ull, 60'000'000'000ull});
  o.device.settings.b_xfer_blocks = r.pick({1u, 10u, 2400u});
  return o;
}

/// A fetch plane beside it, with a store that fills as the world goes on: fast or slow, steady or
/// not, and in some worlds one that dies or lies.
inline void add_fetch_plane(WorldOptions& o, uint64_t seed) {
  Random r(seed * 0x2545f4914f6cdd1dull + 5);
  o.device.prefix_caching = true;
  FetchLimits& l = o.device.fetch;
  l.chunk_tokens = o.device.block_size * r.pick({1u, 1u, 2u, 4u});
  l.queue_len = r.pick({1u, 4u, 64u});
  l.num_entries = r.pick({1u, 3u, 40u});
  l.num_frames = r.pick({1u, 2u, 9u});
  l.first_come = r.one_in(3) ? 1 : 0;
  l.always = r.one_in(2) ? 1 : 0;
  l.synchronous = r.one_in(6) ? 1 : 0;
  l.late_ns = r.pick({1'000'000ull, 300'000'000ull, 60'000'000'000ull, 60'000'000'000ull});
  FetchManner& m = o.device.fetch_manner;
  o.device.num_events = r.pick({0u, 4u, 1024u});
  m.events_odds = r.pick({1u, 1u, 30u});
  m.per_tick = r.pick({1u, 4u, UINT32_MAX});
  m.known_odds = r.pick({0u, 1u, 1u});
  m.stop_odds = r.pick({0u, 20u, 200u});
  m.stop_ticks = r.pick({3u, 60u});
  m.trouble_odds = r.pick({0u, 0u, 4u, 30u});
  m.miss_odds = r.pick({0u, 0u, 10u});
  m.die_odds = r.pick({0u, 0u, 50u, 400u});
  m.lie_odds = r.pick({0u, 0u, 0u, 60u});
}

/// How the reader of a request behaves while the world acts.
enum class Manner { kReads, kTrickles, kNeverReads };

/// A request and what it must yield.
struct Judged : Ticket {
  Expected expected;
  Manner manner = Manner::kReads;
  size_t words_checked = 0;
};

class World {
 public:
  World(uint64_t seed, const WorldOptions& o)
      : options_(o),
        random_(seed),
        resets_(seed + 47),
        readers_(seed + 59),
        tenants_(seed + 67),
        embeddings_(seed + 71),
        adapters_(seed + 83),
        ring_(o.ring),
        device_(ring_, o.device),
        last_status_(o.ring.num_slots, 0) {
    for (uint32_t f = 0; f < o.ring.num_frontends; ++f) {
      actors_.emplace_back(ring_, f);
      actors_.back().front.join();
    }
    for (uint32_t slot = 0; slot < o.ring.num_slots; ++slot)
      last_status_[slot] = ring_.status_word(slot);
    device_.step.during = [this] {
      if (random_.one_in(options_.during_odds)) act();
      // Which blocks leave first is the policy's business: whatever it says, all else must hold.
      if (options_.device.prefix_caching && random_.one_in(16))
        device_.s.kv.store.eviction.chosen = random_.in(0, kNumKeepRates - 1);
    };
  }

  /// The whole life of the world: random acts; then all that are read must end, whatever the other
  /// readers do; then an honest end. Throws what went wrong.
  void run() {
    for (uint32_t i = 0; i < options_.acting_ticks && !all_submitted(); ++i) tick();
    phase_ = Phase::kCompany;
    keep_company();
    phase_ = Phase::kSettling;
    const uint64_t bound = ticks_bound();
    for (uint64_t i = 0; !std::all_of(tickets_.begin(), tickets_.end(), is_complete); ++i) {
      if (i > bound) throw std::runtime_error("requests did not end within the bound on ticks");
      tick();
    }
    for (uint32_t i = 0; i < 3 || (!device_.s.kv.store.copies.idle() && i < 10000); ++i) tick();
    check_rest();
    if (options_.device.num_events != 0) check_routers();
  }
  const TestDevice& device() const { return device_; }
  TestDevice& device() { return device_; }
  const std::deque<Judged>& tickets() const { return tickets_; }

 private:
  enum class Phase {
    kActing,    // frontends submit, cancel, die and return
    kCompany,   // everyone is alive and submits nothing more; who reads at all reads at once
    kSettling,  // everyone reads at once
  };
  /// Within this many ticks some request that is read gets a record, or ends, whatever is unread.
  static constexpr uint64_t kCompanyTicks = 4000;

  struct Actor {
    TestFrontend front;
    std::vector<Judged*> live = {};
    uint32_t submitted = 0;
    uint32_t silent_ticks = 0;  // it does nothing, not even beat, for so long
    bool rejoins = false;       // when it returns, it does so as a new life
    Actor(TestRing& ring, uint32_t index) : front(ring, index) {}
  };

  void tick() {
    device_.now_ns += uint64_t{random_.in(0, options_.step_ms_max)} * 1'000'000;
    if (random_.one_in(options_.jump_odds))
      device_.now_ns += uint64_t{random_.in(1, 600)} * 1'000'000'000;
    device_.step.done = 0;
    if (random_.one_in(options_.wrong_end_odds))
      device_.step.done = random_.one_in(2) ? random_.in(1, 1000) : device_.now_ns + random_.next();
    act();
    device_.tick();
    check_statuses();
  }

  void act() {
    for (Actor& a : actors_) {
      if (a.silent_ticks != 0 && phase_ == Phase::kActing) {
        --a.silent_ticks;
        continue;
      }
      if (a.rejoins) rejoin(a);
      a.silent_ticks = 0;
      a.front.beat();
      if (phase_ == Phase::kActing) stir(a);
      read_all(a);
    }
  }

  /// A new life knows nothing of the requests of the old one.
  void rejoin(Actor& a) {
    for (Judged* t : a.live) t->lost = true;
    a.live.clear();
    a.front.join();
    a.rejoins = false;
  }

  void stir(Actor& a) {
    const bool may = a.front.acked() && a.submitted < options_.num_requests;
    for (uint32_t n = may && random_.one_in(options_.submit_odds) ? random_.in(1, 3) : 0; n > 0;
         --n) {
      if (a.submitted == options_.num_requests || a.front.free_slot() == kNoSlot) break;
      const Ask ask = draw_ask();
      tickets_.push_back({a.front.submit(ask), expect(ask, device_.shape), draw_manner()});
      a.live.push_back(&tickets_.back());
      ++a.submitted;
    }
    for (Judged* t : a.live)
      if (random_.one_in(options_.cancel_odds)) a.front.cancel(*t);
    if (resets_.one_in(options_.reset_odds)) a.front.reset_prefixes();
    if (random_.one_in(options_.silence_odds)) {
      a.silent_ticks = random_.in(1, 40);
      a.rejoins = random_.one_in(2);
    }
  }

  void read_all(Actor& a) {
    for (Judged* t : a.live)
      if (phase_ != Phase::kActing || random_.one_in(options_.read_odds)) {
        a.front.read(*t, records_to_read(*t));
        check_ticket(*t);
      }
    std::erase_if(a.live, [](const Ticket* t) { return t->complete(); });
  }
  uint32_t records_to_read(const Judged& t) {
    if (phase_ == Phase::kSettling) return UINT32_MAX;
    if (t.manner == Manner::kTrickles) return readers_.one_in(options_.trickle_odds) ? 1 : 0;
    if (t.manner == Manner::kNeverReads) return 0;
    return phase_ == Phase::kActing ? random_.in(0, options_.records_max) : UINT32_MAX;
  }
  Manner draw_manner() {
    if (!readers_.one_in(options_.stalled_odds)) return Manner::kReads;
    return readers_.one_in(2) ? Manner::kTrickles : Manner::kNeverReads;
  }

  std::vector<uint32_t> own_prompt() {
    const DeviceShape& d = device_.shape;
    return prompt_of(random_.in(1, d.max_model_len - 1), random_.in(0, 1000), d.vocab_size);
  }
  /// One of few documents, cut off anywhere; or what another request got, with a new end.
  std::vector<uint32_t> shared_prompt() {
    const DeviceShape& d = device_.shape;
    if (random_.one_in(4)) return own_prompt();
    std::vector<uint32_t> prompt =
        prompt_of(random_.in(1, d.max_model_len - 1), random_.in(0, 2), d.vocab_size);
    if (!tickets_.empty() && random_.one_in(2)) {
      const Judged& turn = tickets_[random_.in(0, static_cast<uint32_t>(tickets_.size()) - 1)];
      prompt = turn.ask.prompt;
      if ((turn.ask.flags & SAC_REQ_PROMPT_LOGPROBS) == 0)
        for (uint32_t token : turn.tokens()) prompt.push_back(token);
      prompt.push_back(random_.in(0, d.vocab_size - 1));
      prompt.resize(std::min<size_t>(prompt.size(), d.max_model_len - 1));
    }
    if (random_.one_in(3)) prompt[random_.in(0, static_cast<uint32_t>(prompt.size()) - 1)] ^= 1;
    for (uint32_t& token : prompt) token %= d.vocab_size;
    return prompt;
  }

  Ask draw_ask() {
    const DeviceShape& d = device_.shape;
    Ask ask;
    // Where there is a store, half of the prompts are in it or nowhere.
    const bool apart = d.fetch.enabled() && random_.one_in(2);
    ask.prompt = d.prefix_caching && !apart ? shared_prompt() : own_prompt();
    const auto len = static_cast<uint32_t>(ask.prompt.size());
    ask.max_tokens = random_.in(1, d.max_model_len - len);
    ask.min_tokens = random_.one_in(4) ? random_.in(0, ask.max_tokens) : 0;
    ask.flags = random_.in(0, SAC_REQ_EMBED - 1);
    ask.num_top_logprobs = random_.one_in(2) ? random_.in(0, SAC_MAX_TOP_LOGPROBS) : 0;
    ask.seed = random_.next();
    if (d.prefix_caching) {
      ask.cache_salt = random_.one_in(4) ? 1 : 0;
      if (random_.one_in(2)) ask.flags &= ~SAC_REQ_PROMPT_LOGPROBS;
    }
    for (uint32_t i = random_.in(0, 4); i > 0; --i)
      ask.logit_bias.push_back({random_.in(0, d.vocab_size - 1), 1.0f});
    for (uint32_t i = random_.in(0, 4); i > 0; --i)
      ask.stop_ids.push_back(random_.in(0, d.vocab_size - 1));
    ask.adapter = adapters_.in(0, static_cast<uint32_t>(d.adapter_keys.size()));
    ask.tenant = tenants_.in(0, options_.num_tenants - 1);
    ask.tenant_weight = tenants_.pick({0u, 1u, 1u, 7u, SAC_MAX_TENANT_WEIGHT});
    if (d.embedding_size == 0 || !embeddings_.one_in(6)) return ask;
    Ask embed = embed_ask(ask.prompt, d.embedding_size);
    embed.cache_salt = ask.cache_salt;
    embed.adapter = ask.adapter;
    embed.tenant = ask.tenant;
    embed.tenant_weight = ask.tenant_weight;
    return embed;
  }

  /// What was read of a request is the beginning of what it must yield; all of it if it ended well.
  static void check_ticket(Judged& t) {
    if (t.num_endings > 1) throw std::runtime_error("a request ended twice");
    const Expected& e = t.expected;
    if (t.words.size() > e.words.size()) throw std::runtime_error("a request got too many tokens");
    for (; t.words_checked < t.words.size(); ++t.words_checked)
      if (t.words[t.words_checked] != e.words[t.words_checked])
        throw std::runtime_error("a request got a token that is not its own");
    if (!t.complete() || t.lost || t.finish == SAC_FINISH_CANCELLED) return;
    if (t.finish != e.finish || t.words.size() != e.words.size())
      throw std::runtime_error("a request ended otherwise than it must");
  }

  /// Under one ticket the count never falls, and after the end nothing changes but to EMPTY.
  void check_statuses() {
    for (uint32_t slot = 0; slot < options_.ring.num_slots; ++slot) {
      const uint64_t was = last_status_[slot];
      const uint64_t is = ring_.status_word(slot);
      last_status_[slot] = is;
      if (was == is || sac_status_ticket(was) != sac_status_ticket(is)) continue;
      if (sac_status_state(is) == SAC_STATE_EMPTY) continue;
      if (sac_status_state(was) == SAC_STATE_DECODE_COMPLETED)
        throw std::runtime_error("a status changed after its request had ended");
      if (sac_status_state(was) == SAC_STATE_EMPTY)
        throw std::runtime_error("a request rose again under the ticket it was lost with");
      if (sac_status_count(is) < sac_status_count(was))
        throw std::runtime_error("a count of records fell");
    }
  }

  void check_rest() const {
    if (!device_.idle()) throw std::runtime_error("blocks or seats are still taken at the end");
    for (uint64_t word : last_status_)
      if (sac_status_state(word) != SAC_STATE_EMPTY &&
          sac_status_state(word) != SAC_STATE_DECODE_COMPLETED)
        throw std::runtime_error("a slot is still taken at the end");
    const sac_device_stats& st = device_.s.report.stats;
    if (st.requests_accepted != st.requests_finished)
      throw std::runtime_error("accepted requests were not all finished");
    if (st.requests_rejected != 0) throw std::runtime_error("a good request was refused");
  }

  /// Routers know what is findable, from events alone.
  void check_routers() {
    FakeFetchPlane& plane = *device_.plane;
    KvBlocks& store = device_.s.kv.store;
    plane.manner = {};
    const KvEvents& events = store.events;
    for (uint32_t i = 0; i < 100 || events.retelling != 0 || events.read != events.written; ++i) {
      if (i > 100 + 20 * store.num_blocks) throw std::runtime_error("routers are never told all");
      device_.tick();
    }
    std::map<uint64_t, RoutedBlock> there[kNumTiers];
    for (uint32_t block = 0; block < store.num_blocks; ++block) {
      if (store.blocks[block].kind != BlockKind::kFull) continue;
      const PrefixEntry& e = store.table.entry(block);
      const uint64_t parent = e.parent == kNoEntry ? 0 : store.table.entry(e.parent).key;
      if (mixed_with_adapter(e.owner) != e.salt)
        throw std::runtime_error("routers are told of another adapter than the block's");
      for (uint32_t tier = 0; tier < kNumTiers; ++tier)
        if (store.blocks[block].places[tier] != kNoBlock)
          there[tier][e.key] = {parent, e.owner.salt, e.owner.adapter};
    }
    for (uint32_t tier = 0; tier < kNumTiers; ++tier)
      if (there[tier] != plane.routers.blocks[tier])
        throw std::runtime_error("routers know of other blocks than are there");
  }

  /// The salt that keeps this owner's prefixes apart.
  uint64_t mixed_with_adapter(const PrefixOwner& owner) const {
    const std::vector<uint64_t>& keys = options_.device.adapter_keys;
    for (uint32_t adapter = 1; adapter <= keys.size(); ++adapter)
      if (owner.adapter == adapter_name(adapter))
        return mix_bits(owner.salt ^ mix_bits(keys[adapter - 1]));
    if (owner.adapter != 0) throw std::runtime_error("a block is of an adapter that there is not");
    return owner.salt;
  }

  bool all_submitted() const {
    for (const Actor& a : actors_)
      if (a.submitted < options_.num_requests) return false;
    return true;
  }
  static bool is_complete(const Judged& t) { return t.complete(); }

  /// Ticks until every request that is read has ended.
  void keep_company() {
    uint64_t waited = 0;
    for (size_t progress = 0, left = 1; left != 0; ++waited) {
      if (waited > kCompanyTicks)
        throw std::runtime_error("requests that are read wait for unread ones");
      size_t sum = left = 0;
      for (const Judged& t : tickets_) {
        if (t.manner != Manner::kReads) continue;
        sum += t.words.size() + (t.complete() ? 1 : 0);
        left += t.complete() ? 0 : 1;
      }
      if (sum != progress) waited = 0;
      progress = sum;
      if (left != 0) tick();
    }
  }
  /// The oldest request gets at least one row per step (per two under the inline policy).
  uint64_t ticks_bound() const {
    uint64_t rows = 100;
    for (const Ticket& t : tickets_) rows += 2 * (t.ask.prompt.size() + t.ask.max_tokens + 2);
    // Rows may wait for copies, of which each takes ticks: of a whole request, both ways.
    const uint64_t blocks =
        options_.device.num_host_blocks == 0 ? 0 : device_.s.launch.tables.max_blocks_per_seq;
    // And for a store, which may stand still: of each request, once.
    const uint64_t waits = options_.device.fetch.enabled() ? 400 * tickets_.size() : 0;
    return rows * (1 + 40 * blocks) + waits;
  }

  const WorldOptions options_;
  Random random_;
  Random resets_;      // of its own: worlds without resets are what they were
  Random readers_;     // the same
  Random tenants_;     // the same
  Random embeddings_;  // the same
  Random adapters_;    // the same
  TestRing ring_;
  TestDevice device_;
  std::deque<Actor> actors_;
  std::deque<Judged> tickets_;
  std::vector<uint64_t> last_status_;
  Phase phase_ = Phase::kActing;
};

}  // namespace saccade::test
