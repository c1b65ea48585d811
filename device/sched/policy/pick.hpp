// What the policies share: order, budgets, and the exchange of requests on the device for requests
// off it.
#pragma once
#include "sched/policy/policy.hpp"

namespace saccade {

SAC_HD inline bool is_running(const Candidate& c) { return c.state == CandidateState::kRunning; }

/// A request that has yielded no token has not been served, whatever it once held.
SAC_HD inline bool waits_for_first_token(const Candidate& c) { return c.first_token_ns == 0; }

/// It has a seat, or there is one for it.
SAC_HD inline bool has_seat_for(const FreeSeats& seats, const Candidate& c) {
  return c.state != CandidateState::kWaiting || seats.has_one_for(c.tenant);
}

SAC_HD inline uint64_t since(uint64_t now_ns, uint64_t then_ns) {
  return now_ns > then_ns ? now_ns - then_ns : 0;
}

/// How long a request that is not on the device has been without it.
SAC_HD inline uint64_t waited_ns(const PolicyInput& in, const Candidate& c) {
  return since(in.now_ns, waits_for_first_token(c) ? c.arrival_ns : c.last_token_ns);
}

/// Ties: the more important class, then the older request. No two candidates are equal.
SAC_HD inline bool older(const Candidate& a, const Candidate& b) {
  return a.priority != b.priority ? a.priority < b.priority : a.order < b.order;
}

/// Does candidate a rank before candidate b? Larger keys first.
SAC_HD inline bool ranks_before(const PolicyInput& in, const int64_t* keys, uint32_t a,
                                uint32_t b) {
  if (keys[a] != keys[b]) return keys[a] > keys[b];
  return older(in.candidates[a], in.candidates[b]);
}

/// Candidates by rank, sorted only as far as the caller asks: items[0 .. sorted) are in place, the
/// rest are a backward heap with its top at the end of the array. In place; n steps to build, log n
/// for each item asked for.
class Ranking {
 public:
  /// `kFirst`: from the top of the rank; else from the bottom.
  enum class End : uint32_t { kFirst, kLast };

  SAC_HD Ranking(const PolicyInput& in, const int64_t* keys, uint32_t* items, uint32_t count,
                 End end)
      : in_(&in), keys_(keys), items_(items), count_(count), end_(end) {
    heapify();
  }

  SAC_HD uint32_t size() const { return count_; }

  /// Drops the items not asked for yet that `keep(candidate)` rejects. One step per item.
  template <class Keep>
  SAC_HD void thin(const Keep& keep) {
    uint32_t kept = sorted_;
    for (uint32_t i = sorted_; i < count_; ++i)
      if (keep(items_[i])) items_[kept++] = items_[i];
    count_ = kept;
    heapify();
  }

  /// The i-th from the chosen end; i < size().
  SAC_HD uint32_t at(uint32_t i) {
    while (sorted_ <= i) {
      const uint32_t top = items_[count_ - 1];
      items_[count_ - 1] = items_[sorted_];
      items_[sorted_++] = top;
      sink(0);
    }
    return items_[i];
  }

 private:
  SAC_HD uint32_t& node(uint32_t i) { return items_[count_ - 1 - i]; }

  SAC_HD bool precedes(uint32_t a, uint32_t b) const {
    return end_ == End::kFirst ? ranks_before(*in_, keys_, a, b) : ranks_before(*in_, keys_, b, a);
  }

  SAC_HD void heapify() {
    for (uint32_t i = (count_ - sorted_) / 2; i > 0; --i) sink(i - 1);
  }

  SAC_HD void sink(uint32_t root) {
    const uint32_t left = count_ - sorted_;
    for (uint32_t child = 2 * root + 1; child < left; child = 2 * root + 1) {
      if (child + 1 < left && precedes(node(child + 1), node(child))) ++child;
      if (!precedes(node(child), node(root))) return;
      const uint32_t item = node(child);
      node(child) = node(root);
      node(root) = item;
      root = child;
    }
  }

  const PolicyInput* in_;
  const int64_t* keys_;
  uint32_t* items_;
  uint32_t count_;
  End end_;
  uint32_t sorted_ = 0;
};

/// Key of age alone: older first, whatever the class.
SAC_HD inline int64_t age_key(const Candidate& c) { return -static_cast<int64_t>(c.order); }

/// Free blocks that may be given away: running requests keep what their next token needs.
SAC_HD inline uint64_t spare_blocks(const PolicyInput& in) {
  return in.free_blocks > in.growth_blocks ? in.free_blocks - in.growth_blocks : 0;
}

SAC_HD inline uint64_t blocks_of(const PolicyInput& in, const uint32_t* list, uint32_t count) {
  uint64_t blocks = 0;
  for (uint32_t i = 0; i < count; ++i) blocks += in.candidates[list[i]].blocks;
  return blocks;
}

/// May this one be preempted by choice? Not before it has yielded a token (its prompt would have
/// waited for nothing), and not before it has run for a while.
SAC_HD inline bool may_leave(const PolicyInput& in, const Candidate& c) {
  return is_running(c) && c.fixed == 0 && c.produced != 0 &&
         since(in.now_ns, c.entered_ns) > in.settings.min_run_ns;
}

/// Requests of tenants over their shares rank below all others: below every key of a policy, but
/// for one that is overdue, which ranks as others do in time.
inline constexpr int64_t kOverShare = -(int64_t{1} << 62);

SAC_HD inline bool is_over_share(const PolicyInput& in, const Candidate& c) {
  return (in.over >> c.tenant & 1) != 0;
}

/// Requests that may come in, listed in out.bring_in, and that may leave, listed in out.scratch.
struct Sides {
  uint32_t num_entrants;
  uint32_t num_leavers;
};

/// Gives each candidate its key and lists both sides, in one pass: with thousands of candidates,
/// this is most of the work.
template <class Key>
SAC_HD inline Sides take_sides(const PolicyInput& in, PolicyOutput& out, const Key& key_of) {
  Sides sides = {0, 0};
  out.num_bring_in = out.num_preempt = 0;
  for (uint32_t i = 0; i < in.num_candidates; ++i) {
    const Candidate& c = in.candidates[i];
    out.keys[i] = key_of(c) + (is_over_share(in, c) ? kOverShare : 0);
    if (!is_running(c)) {
      out.bring_in[sides.num_entrants++] = i;
    } else if (may_leave(in, c)) {
      out.scratch[sides.num_leavers++] = i;
    }
  }
  return sides;
}

/// Entrants by rank of out.keys. The first i entries of out.bring_in may be overwritten once the
/// i-th was asked for.
SAC_HD inline Ranking rank_entrants(const PolicyInput& in, PolicyOutput& out, const Sides& sides) {
  return {in, out.keys, out.bring_in, sides.num_entrants, Ranking::End::kFirst};
}

/// Requests that may leave, from the bottom of the rank of out.keys.
SAC_HD inline Ranking rank_leavers(const PolicyInput& in, PolicyOutput& out, const Sides& sides) {
  return {in, out.keys, out.scratch, sides.num_leavers, Ranking::End::kLast};
}

/// When to filter the rest of a ranking, so that this costs no more than asking for its items one
/// by one: after 1, 2, 4 .. useless items.
class Patience {
 public:
  /// One more was useless. True: filter now.
  SAC_HD bool ends() {
    if (++useless_ < limit_) return false;
    limit_ *= 2;
    return true;
  }

 private:
  uint32_t useless_ = 0;
  uint32_t limit_ = 1;
};

}  // namespace saccade
