// pacing: how many rows prompts get of a step in which streams decode. A long step delays the next
// token of each, so the rows are as many as fit before the first of these is due by its stream's
// own target, judged by what steps have cost of late. Where that is not known, or no stream
// decodes, the step's budget is the only bound.
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

/// Time until the first token of the batch's decodes is due, by each stream's own target. Those of
/// tenants over their shares (a bit each in `over`) are late by their tenants' doing.
SAC_HD inline uint64_t first_due_ns(const Seats& seats, const Launch& launch, uint64_t over,
                                    uint64_t now_ns) {
  uint64_t first_ns = kMostPlannedNs;
  for (uint32_t i = 0; i < launch.batch.num_seqs; ++i) {
    const uint32_t seat_index = launch.seqs[i].seat;
    const Seat& seat = seats[seat_index];
    const Wishes& wishes = seats.wishes[seat_index];
    const uint64_t target_ns = wishes.slo_tbt_ns;
    if (seat.num_produced == 0 || target_ns == 0 || (over >> wishes.tenant & 1) != 0) continue;
    const uint64_t due_ns = seat.last_token_ns + target_ns;
    const uint64_t left_ns = due_ns > now_ns ? due_ns - now_ns : 0;
    first_ns = left_ns < first_ns ? left_ns : first_ns;
  }
  return first_ns;
}

/// The cost of rows is asked for as many as this: that of one is a few nanoseconds.
inline constexpr uint64_t kManyRows = 1024;

/// Rows that prompts may have beside the decodes of the batch, of `most_rows` in all.
SAC_HD inline uint32_t paced_rows(const StepCost& cost, const Seats& seats, const Launch& launch,
                                  uint64_t over, uint32_t most_rows, uint64_t now_ns) {
  const uint32_t left_rows = most_rows - launch.batch.num_rows;
  const uint64_t alone_ns = cost.decodes.cost_ns(1), many_ns = cost.prompts.cost_ns(kManyRows);
  if (launch.batch.num_seqs == 0 || alone_ns == 0 || many_ns == 0) return left_rows;
  const uint64_t due_ns = first_due_ns(seats, launch, over, now_ns);
  const uint64_t planned_ns = due_ns - due_ns / kSpareParts;
  const uint64_t least_ns = kLongestStretch * alone_ns;
  const uint64_t step_ns = planned_ns > least_ns ? planned_ns : least_ns;
  const uint64_t rows = (step_ns - alone_ns) * kManyRows / many_ns;
  if (rows >= left_rows) return left_rows;
  return min_u32(left_rows, max_u32(static_cast<uint32_t>(rows), kLeastPromptRows));
}

}  // namespace saccade
