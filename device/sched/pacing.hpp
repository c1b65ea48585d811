// pacing: how many rows prompts get of a step in which streams decode. A long step delays the next
// token of each, so the rows are as many as fit before the first of these is due by its stream's
// own target, judged by what steps have cost of late. Where a prompt's first token would come late
// that way, streams that have been faster than their targets, which are means, lend it that time.
// Where costs are not known, or no stream decodes, the step's budget is the only bound.
#pragma once
#include "sched/launch.hpp"
#include "sched/seats.hpp"

namespace saccade {

/// Prompts get at least this many rows of a step, whatever is due. Shorter chunks are not measured.
inline constexpr uint32_t kLeastPromptRows = 16;
/// And a step may take this many times as long as its decodes alone: where they already miss their
/// targets, prompts still have half of the time.
inline constexpr uint64_t kLongestStretch = 2;
/// One in this many parts of the time until a token is due is left unplanned.
inline constexpr uint64_t kSpareParts = 8;
/// First tokens are to come within one in this many parts of their targets: prompts that will come
/// behind these need the rest.
inline constexpr uint64_t kPromptParts = 2;
/// A stream that lends time has gaps of at most this many targets.
inline constexpr uint64_t kMostGap = 2;
/// One measurement counts for at most this many times what was expected: a thread that lost its
/// core for a while says little about steps.
inline constexpr uint64_t kMostSurprise = 2;
/// Longer targets are as good as this one.
inline constexpr uint64_t kMostPlannedNs = 3'600'000'000'000;

/// What a step took that held only decodes, and what each row of a prompt adds to one.
SAC_HD inline void note_tempered(Pace& pace, uint64_t took_ns, uint64_t count) {
  const uint64_t most_ns = kMostSurprise * pace.cost_ns(count);
  pace.note(pace.units == 0 || took_ns < most_ns ? took_ns : most_ns, count);
}
SAC_HD inline void note_cost(StepCost& cost, const StepBatch& batch, uint32_t num_decodes,
                             uint64_t took_ns) {
  const uint32_t prompt_rows = batch.num_rows - num_decodes;
  if (prompt_rows == 0) return note_tempered(cost.decodes, took_ns, 1);
  if (prompt_rows < kLeastPromptRows) return;
  const uint64_t alone_ns = cost.decodes.cost_ns(1);
  note_tempered(cost.prompts, took_ns > alone_ns ? took_ns - alone_ns : 1, prompt_rows);
}

/// What a stream has in hand by its target as a mean, up to what it may lend.
SAC_HD inline uint64_t in_hand_ns(const Seat& seat, uint64_t target_ns) {
  const uint64_t most_ns = (kMostGap - 1) * target_ns;
  const uint64_t spent_ns = seat.last_token_ns - seat.first_token_ns;
  // More tokens than these would be in hand beyond what may be lent.
  const uint64_t tokens = min_u64(seat.num_produced - 1, spent_ns / target_ns + kMostGap);
  const uint64_t due_ns = tokens * target_ns;
  return due_ns > spent_ns ? min_u64(due_ns - spent_ns, most_ns) : 0;
}

/// Time until the first token of the batch's decodes is due, by each stream's own target, and by
/// what it has in hand if streams lend. Those of tenants over their shares (a bit each in `over`)
/// are late by their tenants' doing.
SAC_HD inline uint64_t first_due_ns(const Seats& seats, const Launch& launch, uint64_t over,
                                    bool lend, uint64_t now_ns) {
  uint64_t first_ns = kMostPlannedNs;
  for (uint32_t i = 0; i < launch.batch.num_seqs; ++i) {
    const uint32_t seat_index = launch.seqs[i].seat;
    const Seat& seat = seats[seat_index];
    const Wishes& wishes = seats.wishes[seat_index];
    const uint64_t target_ns = wishes.slo_tbt_ns;
    if (seat.num_produced == 0 || target_ns == 0 || (over >> wishes.tenant & 1) != 0) continue;
    const uint64_t due_ns =
        seat.last_token_ns + target_ns + (lend ? in_hand_ns(seat, target_ns) : 0);
    first_ns = min_u64(first_ns, due_ns > now_ns ? due_ns - now_ns : 0);
  }
  return first_ns;
}

/// The cost of rows is asked for as many as this: that of one is a few nanoseconds.
inline constexpr uint64_t kManyRows = 1024;

/// What the rows of a step may be, and what they cost.
struct Pacing {
  uint64_t alone_ns;   // a step of the decodes alone
  uint64_t many_ns;    // what kManyRows rows of prompts add
  uint32_t most_rows;  // that prompts may have

  SAC_HD bool known() const { return alone_ns != 0 && many_ns != 0; }

  /// Rows of prompts in a step that ends before this much time has passed.
  SAC_HD uint32_t rows_within(uint64_t due_ns) const {
    const uint64_t planned_ns = due_ns - due_ns / kSpareParts;
    const uint64_t step_ns = max_u64(planned_ns, kLongestStretch * alone_ns);
    const uint64_t rows = (step_ns - alone_ns) * kManyRows / many_ns;
    if (rows >= most_rows) return most_rows;
    return min_u32(most_rows, max_u32(static_cast<uint32_t>(rows), kLeastPromptRows));
  }
  /// What this many rows take, in steps of `per_step`.
  SAC_HD uint64_t prompts_ns(uint64_t rows, uint32_t per_step) const {
    return rows * alone_ns / per_step + rows * many_ns / kManyRows;
  }
};

/// With `per_step` rows of prompts a step, some prompt's first token would come late. Prompts are
/// computed oldest first; is_prompt(seat_index): it is one that can be computed.
template <class IsPrompt>
SAC_HD inline bool is_too_slow(const Pacing& pacing, const Seats& seats, uint32_t per_step,
                               uint64_t over, uint64_t now_ns, const IsPrompt& is_prompt) {
  uint64_t rows = 0;
  for (uint32_t i = 0; i < seats.num_running; ++i) {
    const uint32_t seat_index = seats.running[i];
    const Seat& seat = seats[seat_index];
    const Wishes& wishes = seats.wishes[seat_index];
    if (!is_prompt(seat_index) || (over >> wishes.tenant & 1) != 0) continue;
    rows += seat.num_tokens - seat.num_computed;
    const uint64_t target_ns = wishes.slo_ttft_ns / kPromptParts;
    if (seat.num_produced != 0 || target_ns == 0) continue;  // it had its first token
    if (now_ns + pacing.prompts_ns(rows, per_step) > wishes.arrival_ns + target_ns) return true;
  }
  return false;
}

/// Rows that prompts may have beside the decodes of the batch, of `most_rows` in all.
template <class IsPrompt>
SAC_HD inline uint32_t paced_rows(const StepCost& cost, const Seats& seats, const Launch& launch,
                                  uint64_t over, uint32_t most_rows, uint64_t now_ns,
                                  const IsPrompt& is_prompt) {
  const Pacing pacing = {cost.decodes.cost_ns(1), cost.prompts.cost_ns(kManyRows),
                         most_rows - launch.batch.num_rows};
  const uint32_t num_decodes = launch.batch.num_seqs;
  const bool has_prompts = num_decodes < seats.num_running;
  if (num_decodes == 0 || !has_prompts || !pacing.known() || pacing.most_rows == 0)
    return pacing.most_rows;
  const uint32_t rows = pacing.rows_within(first_due_ns(seats, launch, over, false, now_ns));
  if (rows == pacing.most_rows || !is_too_slow(pacing, seats, rows, over, now_ns, is_prompt))
    return rows;
  return pacing.rows_within(first_due_ns(seats, launch, over, true, now_ns));
}

}  // namespace saccade
