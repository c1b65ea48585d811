// A fetch plane for tests, with a store of its own: as fast, slow, forgetful or hostile as its seed
// says. It keeps what it is given under the tokens and the salt, checks that this is their KV, and
// writes frames at any moment between a command and its completion.
#pragma once
#include <cstring>
#include <map>
#include <set>

#include "ring/fetch_view.hpp"
#include "tests/kv_memory.hpp"
#include "tests/test_ring.hpp"

namespace saccade::test {

/// Odds are "one in n"; 0 = never.
struct FetchManner {
  uint32_t per_tick = UINT32_MAX;  // commands that are completed between two ticks, at most
  uint32_t stop_odds = 0;          // per tick: it stands still for some ticks
  uint32_t stop_ticks = 20;
  uint32_t trouble_odds = 0;  // per command: it fails, in any way
  uint32_t miss_odds = 0;     // per load: the store has lost the chunk
  uint32_t die_odds = 0;      // per tick: its process ends, and another one starts some ticks later
  uint32_t lie_odds = 0;      // per tick: it breaks the protocol, then is replaced
  uint32_t ticks_per_load = 0;  // not 0: it does nothing at random, and one load after the other
  uint32_t known_odds = 0;      // per lookup: others have stored chunks of this prompt
  uint32_t events_odds = 1;     // per tick: it reads events
  bool stores = true;
};

/// What a router is told of a block.
struct RoutedBlock {
  uint64_t parent_key;
  uint64_t salt;
  uint64_t adapter;
  bool operator==(const RoutedBlock&) const = default;
};

/// What a router knows from events alone: blocks by tier and key.
struct RoutersView {
  std::map<uint64_t, RoutedBlock> blocks[2];
  uint64_t num_events = 0;
  uint64_t num_cleared = 0;

  void take(const sac_kv_event& e) {
    ++num_events;
    if (e.kind == SAC_KV_CLEARED) {
      ++num_cleared;
      blocks[0].clear();
      blocks[1].clear();
      return;
    }
    std::map<uint64_t, RoutedBlock>& tier = blocks[e.tier];
    if (e.kind == SAC_KV_REMOVED) {
      if (tier.erase(e.key) == 0) throw std::runtime_error("a block was removed that was not told");
      return;
    }
    const auto parent = tier.find(e.parent_key);
    if (e.parent_key != 0 && parent == tier.end())
      throw std::runtime_error("a block was told before the block that it continues");
    if (e.parent_key != 0 && parent->second.adapter != e.adapter)
      throw std::runtime_error("a block was told under another adapter than the one before it");
    if (!tier.insert({e.key, {e.parent_key, e.salt, e.adapter}}).second)
      throw std::runtime_error("a block was told twice");
  }
};

class FakeFetchPlane {
 public:
  /// What a store has: KV by salt and tokens. Planes may share it.
  using Chunks = std::map<std::pair<uint64_t, std::vector<uint32_t>>, std::vector<uint64_t>>;

  FakeFetchPlane(const FetchShape& shape, KvMemory& kv, uint32_t num_host_blocks, Chunks& chunks,
                 const FetchManner& how, uint64_t seed)
      : manner(how),
        shape_(shape),
        kv_(kv),
        first_place_(num_host_blocks),
        chunks_(chunks),
        random_(seed),
        region_(aligned_bytes(fetch_region_bytes(shape))) {
    make_fetch_region(region_.get(), shape, 1, &view);
    auto* header = reinterpret_cast<sac_fetch_header*>(region_.get());
    line_ = reinterpret_cast<sac_fetch_plane_line*>(region_.get() + header->plane_offset);
    completions_ =
        reinterpret_cast<sac_fetch_completion*>(region_.get() + header->completions_offset);
  }

  /// Time passes.
  void advance() {
    if (away_ticks_ != 0) {
      if (--away_ticks_ == 0) join();
      return;
    }
    if (random_.one_in(manner.die_odds)) return die();
    if (random_.one_in(manner.stop_odds)) still_ticks_ = random_.in(1, manner.stop_ticks);
    if (still_ticks_ != 0 && still_ticks_-- != 0) return;
    ++line_->heartbeat;
    if (random_.one_in(manner.events_odds)) read_events();
    if (view.device->acked_epoch != line_->epoch) return;
    if (random_.one_in(manner.lie_odds)) return lie();
    read_commands();
    if (manner.ticks_per_load != 0) return serve_in_order();
    complete_some();
  }
  /// A new process.
  void join() {
    open_.clear();
    line_->commands_read = line_->completions_written = 0;
    line_->stores = manner.stores ? 1 : 0;
    store_release(&line_->epoch, line_->epoch + 1);
  }
  /// Its process ends; nothing is written by it any more.
  void die(uint32_t ticks = 0) {
    open_.clear();
    away_ticks_ = ticks != 0 ? ticks : random_.in(1, 60);
  }
  void read_events() {
    for (; line_->events_read != view.device->events_written; ++line_->events_read)
      routers.take(*reinterpret_cast<const sac_kv_event*>(
          view.events + line_->events_read % view.num_events * view.event_bytes));
  }
  size_t num_open() const { return open_.size(); }

  FetchManner manner;
  FetchView view = {};
  RoutersView routers;
  uint64_t lookups = 0, loads = 0, stores = 0, cancels = 0;

 private:
  struct Open {
    sac_fetch_command command;
    bool begun;  // a load has written its frame, a store has read it
    bool cancelled;
    std::vector<uint64_t> kv;
    uint32_t result;
  };

  uint32_t per_chunk() const { return shape_.chunk_tokens / shape_.block_size; }
  uint64_t* frame(uint32_t index) {
    return kv_.host.data() + (size_t{first_place_} + size_t{index} * per_chunk()) * kv_.block_size;
  }
  std::vector<uint32_t> tokens(const sac_fetch_command& c, uint32_t count) const {
    const uint32_t* row = view.row(c.entry);
    return {row, row + count};
  }
  [[noreturn]] static void fail(const char* what) { throw std::runtime_error(what); }

  void check(const sac_fetch_command& c) const {
    if (c.entry >= shape_.num_entries || c.num_tokens > shape_.entry_tokens ||
        c.num_tokens % shape_.chunk_tokens != 0 || c.num_tokens == 0)
      fail("the fetch plane was given a row that it has not");
    if (c.op == SAC_FETCH_LOOKUP) return;
    if (c.frame >= shape_.num_frames || (c.chunk + 1) * shape_.chunk_tokens > c.num_tokens)
      fail("the fetch plane was given a frame or a chunk that there is not");
    for (const Open& o : open_)
      if (o.command.op != SAC_FETCH_LOOKUP && o.command.frame == c.frame)
        fail("a frame was lent twice");
  }

  void read_commands() {
    while (line_->commands_read != view.device->commands_written) {
      const sac_fetch_command c = view.commands[line_->commands_read++ % shape_.queue_len];
      if (c.op == SAC_FETCH_CANCEL) {
        ++cancels;
        for (Open& o : open_) o.cancelled |= o.command.id == c.target;
        continue;
      }
      if (!ids_.insert(c.id).second) fail("an id was used twice");
      check(c);
      ++(c.op == SAC_FETCH_LOOKUP ? lookups : c.op == SAC_FETCH_LOAD ? loads : stores);
      open_.push_back({c, false, false, {}, SAC_FETCH_DONE});
    }
  }

  /// What a load or a store does to its frame, some time before it is completed.
  void begin(Open& o) {
    o.begun = true;
    const sac_fetch_command& c = o.command;
    const size_t words = size_t{shape_.chunk_tokens};
    if (random_.one_in(manner.trouble_odds))
      o.result = random_.pick({SAC_FETCH_LATE, SAC_FETCH_TROUBLE, SAC_FETCH_REJECTED});
    if (c.op == SAC_FETCH_LOOKUP) {
      if (random_.one_in(manner.known_odds)) learn(c);
      return;
    }
    const auto name = std::make_pair(c.salt, tokens(c, (c.chunk + 1) * shape_.chunk_tokens));
    if (c.op == SAC_FETCH_STORE) {
      const std::vector<uint64_t> kv(frame(c.frame), frame(c.frame) + words);
      check_kv(name.second, kv);
      if (o.result == SAC_FETCH_DONE) chunks_[name] = kv;
      return;
    }
    const auto found = chunks_.find(name);
    if (found == chunks_.end() || random_.one_in(manner.miss_odds)) o.result = SAC_FETCH_MISS;
    if (o.result == SAC_FETCH_DONE) {
      std::copy(found->second.begin(), found->second.end(), frame(c.frame));
    } else {
      // What did not come may have been written in part.
      std::fill(frame(c.frame), frame(c.frame) + random_.in(0, shape_.chunk_tokens), 0xbadbad);
    }
  }
  /// `kv` is that of the last chunk of these tokens.
  void check_kv(const std::vector<uint32_t>& tokens, const std::vector<uint64_t>& kv) const {
    uint64_t right = 0;
    for (size_t p = 0; p < tokens.size(); ++p) {
      right = KvMemory::word(right, tokens[p]);
      if (p + kv.size() >= tokens.size() && kv[p + kv.size() - tokens.size()] != right)
        fail("a chunk was stored with KV that is not its own");
    }
  }

  /// As another device would have stored them.
  void learn(const sac_fetch_command& c) {
    const uint32_t most = c.num_tokens / shape_.chunk_tokens;
    const uint32_t chunks = manner.ticks_per_load != 0 ? most : random_.in(0, most);
    const uint32_t end = chunks * shape_.chunk_tokens;
    const std::vector<uint32_t> all = tokens(c, end);
    std::vector<uint64_t> kv;
    uint64_t word = 0;
    for (uint32_t p = 0; p < end; ++p) {
      word = KvMemory::word(word, all[p]);
      kv.push_back(word);
      if ((p + 1) % shape_.chunk_tokens != 0) continue;
      chunks_[{c.salt, {all.begin(), all.begin() + p + 1}}] = kv;
      kv.clear();
    }
  }

  uint32_t count_chunks(const sac_fetch_command& c) const {
    uint32_t chunks = 0;
    while (chunks * shape_.chunk_tokens < c.num_tokens &&
           chunks_.contains({c.salt, tokens(c, (chunks + 1) * shape_.chunk_tokens)}))
      ++chunks;
    return chunks;
  }

  void complete_some() {
    for (Open& o : open_)
      if (!o.begun && random_.one_in(2)) begin(o);
    uint32_t most = manner.per_tick == UINT32_MAX ? UINT32_MAX : random_.in(0, manner.per_tick);
    while (!open_.empty() && most-- != 0) {
      const size_t which = random_.in(0, static_cast<uint32_t>(open_.size()) - 1);
      Open& o = open_[which];
      if (!o.begun) begin(o);
      complete(o);
      open_.erase(open_.begin() + static_cast<long>(which));
    }
  }
  /// Lookups at once, loads at a steady rate.
  void serve_in_order() {
    std::erase_if(open_, [this](Open& o) {
      if (o.command.op != SAC_FETCH_LOOKUP) return false;
      begin(o);
      complete(o);
      return true;
    });
    if (open_.empty() || ++load_ticks_ < manner.ticks_per_load) return;
    load_ticks_ = 0;
    begin(open_.front());
    complete(open_.front());
    open_.erase(open_.begin());
  }
  void complete(const Open& o) {
    if (line_->completions_written - view.device->completions_read == shape_.queue_len)
      fail("there is no room for a completion");
    sac_fetch_completion c = {};
    c.id = o.command.id;
    c.op = o.command.op;
    c.result = o.cancelled && random_.one_in(2) ? SAC_FETCH_CANCELLED : o.result;
    c.num_chunks = c.op == SAC_FETCH_LOOKUP ? count_chunks(o.command) : 0;
    c.coded_bytes = 100;
    completions_[line_->completions_written % shape_.queue_len] = c;
    store_release(&line_->completions_written, line_->completions_written + 1);
  }

  /// It says what cannot be true, and is replaced soon after.
  void lie() {
    sac_fetch_completion c = {};
    c.id = random_.one_in(2) && !open_.empty() ? open_[0].command.id : random_.next();
    c.op = random_.in(0, 5);
    c.result = random_.one_in(2) ? random_.in(0, 12) : SAC_FETCH_DONE;
    c.num_chunks = static_cast<uint32_t>(random_.next());
    // A true completion of a load or a lookup would be one: only what is none is sent.
    for (const Open& o : open_)
      if (o.command.id == c.id && o.command.op == c.op) c.op = 77;
    completions_[line_->completions_written % shape_.queue_len] = c;
    line_->completions_written += random_.one_in(4) ? static_cast<uint32_t>(random_.next()) : 1;
    die();
  }

  const FetchShape shape_;
  KvMemory& kv_;
  const uint32_t first_place_;
  Chunks& chunks_;
  Random random_;
  AlignedBytes region_;
  sac_fetch_plane_line* line_ = nullptr;
  sac_fetch_completion* completions_ = nullptr;
  std::vector<Open> open_ = {};
  std::set<uint64_t> ids_ = {};
  uint32_t still_ticks_ = 0;
  uint32_t load_ticks_ = 0;
  uint32_t away_ticks_ = 3;
};

}  // namespace saccade::test
