// tenant_costs: what a step takes by whose rows are in it. Rows of one tenant may cost many times
// what another's do, by the length of their texts or by what is asked for beside tokens.
#pragma once
#include "platform/hd.hpp"

namespace saccade {

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

  SAC_HD double decodes_ns(const uint32_t* decodes) const {
    double ns = base_ns;
    for (uint32_t t = 0; t < SAC_MAX_TENANTS; ++t) ns += decodes[t] * decode_ns[t];
    return ns;
  }
  /// A step of so many rows by tenant. 0 if nothing is known.
  SAC_HD double step_ns(const uint32_t* decodes, const uint32_t* prompt_rows) const {
    double ns = decodes_ns(decodes);
    for (uint32_t t = 0; t < SAC_MAX_TENANTS; ++t) ns += prompt_rows[t] * prompt_ns[t];
    return ns;
  }

  SAC_HD void note(const uint32_t* decodes, const uint32_t* prompt_rows, uint64_t took_ns) {
    const double expected_ns = step_ns(decodes, prompt_rows);
    const double most_ns = kMostSurprise * expected_ns, seen_ns = static_cast<double>(took_ns);
    const double error_ns = (known() && seen_ns > most_ns ? most_ns : seen_ns) - expected_ns;
    double norm = kBaseRows * kBaseRows;
    for (uint32_t t = 0; t < SAC_MAX_TENANTS; ++t) {
      const double d = decodes[t], p = kPromptRows * prompt_rows[t];
      norm += d * d + p * p;
    }
    const double step_ns = (known() ? kRate : 1) * error_ns / norm;
    move(base_ns, step_ns * kBaseRows * kBaseRows);
    for (uint32_t t = 0; t < SAC_MAX_TENANTS; ++t) {
      move(decode_ns[t], step_ns * decodes[t]);
      move(prompt_ns[t], step_ns * kPromptRows * kPromptRows * prompt_rows[t]);
    }
  }

 private:
  /// Nothing costs less than nothing.
  SAC_HD static void move(double& cost_ns, double by_ns) {
    cost_ns = cost_ns + by_ns > 0 ? cost_ns + by_ns : 0;
  }
};

}  // namespace saccade
