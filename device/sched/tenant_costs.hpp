// tenant_costs: what a step takes by whose rows are in it. Rows of one tenant may cost many times
// what another's do, by the length of their texts or by what is asked for beside tokens.
#pragma once
#include "platform/hd.hpp"

namespace saccade {

/// A step's rows by tenant.
struct TenantRows {
  const uint32_t* decodes;  // [num_tenants]
  const uint32_t* prompts;  // [num_tenants], rows of prompts
  uint32_t num_tenants;
};

/// A step takes base_ns, and what its tenant's rows of that kind cost for each row: learned by
/// normalised least mean squares, step by step. Where steps do not tell two of these apart, their
/// sum is right.
struct TenantCosts {
  double base_ns;
  double decode_ns[SAC_MAX_TENANTS];
  double prompt_ns[SAC_MAX_TENANTS];

  /// The base, and a row of a prompt, in decodes, when an error is divided between them.
  static constexpr double kBaseRows = 8;
  static constexpr double kPromptRows = 1.0 / 16;
  /// The part of an error that is made good at once.
  static constexpr double kRate = 0.25;
  /// A step counts for at most this many times what was expected: a thread that lost its core for a
  /// while says little about steps.
  static constexpr double kMostSurprise = 2;

  SAC_HD bool known() const { return base_ns > 0; }

  /// A step of the decodes alone. 0 if nothing is known.
  SAC_HD double decodes_ns(const TenantRows& rows) const {
    double ns = base_ns;
    for (uint32_t t = 0; t < rows.num_tenants; ++t) ns += rows.decodes[t] * decode_ns[t];
    return ns;
  }
  SAC_HD double step_ns(const TenantRows& rows) const {
    double ns = decodes_ns(rows);
    for (uint32_t t = 0; t < rows.num_tenants; ++t) ns += rows.prompts[t] * prompt_ns[t];
    return ns;
  }

  SAC_HD void note(const TenantRows& rows, uint64_t took_ns) {
    const double expected_ns = step_ns(rows);
    const double most_ns = kMostSurprise * expected_ns, seen_ns = static_cast<double>(took_ns);
    const double error_ns = (known() && seen_ns > most_ns ? most_ns : seen_ns) - expected_ns;
    double norm = kBaseRows * kBaseRows;
    for (uint32_t t = 0; t < rows.num_tenants; ++t) {
      const double d = rows.decodes[t], p = kPromptRows * rows.prompts[t];
      norm += d * d + p * p;
    }
    const double part_ns = (known() ? kRate : 1) * error_ns / norm;
    move(base_ns, part_ns * kBaseRows * kBaseRows);
    for (uint32_t t = 0; t < rows.num_tenants; ++t) {
      move(decode_ns[t], part_ns * rows.decodes[t]);
      move(prompt_ns[t], part_ns * kPromptRows * kPromptRows * rows.prompts[t]);
    }
  }

 private:
  /// Nothing costs less than nothing.
  SAC_HD static void move(double& cost_ns, double by_ns) {
    cost_ns = cost_ns + by_ns > 0 ? cost_ns + by_ns : 0;
  }
};

}  // namespace saccade
