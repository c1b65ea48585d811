#include "cuda/launch/shape_grid.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace saccade {
namespace {

/// Sorted, without repetition.
std::vector<uint32_t> distinct(std::vector<uint32_t> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

/// Class c of `bounds` holds the values up to bounds[c] and above bounds[c - 1].
void append_classes(std::vector<uint16_t>& words, const std::vector<uint32_t>& bounds) {
  uint16_t c = 0;
  for (uint32_t value = 0; value <= bounds.back(); ++value) {
    if (value > bounds[c]) ++c;
    words.push_back(c);
  }
}

/// Counts of decodes: each up to 4, then every 4, 8, 16 and so on, an eighth apart at most.
std::vector<uint32_t> decode_counts(uint32_t max) {
  std::vector<uint32_t> counts = {max};
  for (uint32_t n = 1, stride = 1; n < max; n += stride) {
    counts.push_back(n);
    while (stride * 8 <= n + stride) stride *= 2;
  }
  return distinct(std::move(counts));
}

std::vector<uint32_t> powers(uint32_t first, uint32_t factor, uint32_t max) {
  std::vector<uint32_t> values = {max};
  for (uint64_t v = first; v < max; v *= factor) values.push_back(static_cast<uint32_t>(v));
  return distinct(std::move(values));
}

}  // namespace

ShapeGrid::ShapeGrid(std::vector<GraphShape> shapes, uint32_t max_rows, uint32_t max_seqs,
                     bool has_adapters)
    : shapes_(std::move(shapes)) {
  const auto is_largest = [&](const GraphShape& s) {
    return s.rows == max_rows && s.seqs == max_seqs && s.has_prefill &&
           s.has_adapters == has_adapters;
  };
  if (std::none_of(shapes_.begin(), shapes_.end(), is_largest))
    shapes_.push_back({max_rows, max_seqs, true, has_adapters});
  std::vector<uint32_t> rows, seqs;
  for (const GraphShape& s : shapes_) {
    if (s.rows < s.seqs || s.rows > max_rows || s.seqs == 0 || s.seqs > max_seqs)
      throw std::runtime_error("a graph of " + std::to_string(s.rows) + " rows and " +
                               std::to_string(s.seqs) + " sequences is outside the bounds");
    rows.push_back(s.rows);
    seqs.push_back(s.seqs);
  }
  if (shapes_.size() > UINT16_MAX) throw std::runtime_error("more than 65535 graphs");
  rows = distinct(std::move(rows));
  seqs = distinct(std::move(seqs));
  append_classes(words_, rows);
  append_classes(words_, seqs);
  for (uint32_t kind = 0; kind < (has_adapters ? 4u : 2u); ++kind)
    for (const uint32_t r : rows)
      for (const uint32_t s : seqs)
        words_.push_back(tightest({r, s, (kind & 1) != 0, (kind & 2) != 0}));
  table_.max_rows = max_rows;
  table_.max_seqs = max_seqs;
  table_.num_seq_classes = static_cast<uint32_t>(seqs.size());
  table_.num_cells = static_cast<uint32_t>(rows.size() * seqs.size());
  const auto largest = std::find_if(shapes_.begin(), shapes_.end(), is_largest);
  table_.largest = static_cast<uint32_t>(largest - shapes_.begin());
}

/// The tightest shape that serves what `least` serves: fewest rows, then fewest sequences, then
/// without adapters, then without prefill.
uint16_t ShapeGrid::tightest(const GraphShape& least) const {
  const auto key = [](const GraphShape& s) {
    return (uint64_t{s.rows} << 32) | (uint64_t{s.seqs} << 2) | (s.has_adapters ? 2u : 0u) |
           (s.has_prefill ? 1u : 0u);
  };
  const GraphShape* best = nullptr;
  for (const GraphShape& s : shapes_) {
    const bool fits = s.rows >= least.rows && s.seqs >= least.seqs &&
                      (!least.has_prefill || s.has_prefill) &&
                      (!least.has_adapters || s.has_adapters);
    if (fits && (best == nullptr || key(s) < key(*best))) best = &s;
  }
  return static_cast<uint16_t>(best - shapes_.data());  // the largest fits every class
}

ShapeGrid ShapeGrid::standard(uint32_t max_rows, uint32_t max_seqs, bool has_adapters) {
  std::vector<GraphShape> shapes;
  for (uint32_t adapters = 0; adapters < (has_adapters ? 2u : 1u); ++adapters) {
    for (const uint32_t n : decode_counts(max_seqs)) shapes.push_back({n, n, false, adapters != 0});
    for (const uint32_t rows : powers(16, 2, max_rows))
      for (const uint32_t seqs : powers(1, 4, max_seqs))
        if (seqs <= rows) shapes.push_back({rows, seqs, true, adapters != 0});
  }
  return ShapeGrid(std::move(shapes), max_rows, max_seqs, has_adapters);
}

ShapeTable ShapeGrid::table(const uint16_t* words) const {
  ShapeTable t = table_;
  t.row_class = words;
  t.seq_class = t.row_class + t.max_rows + 1;
  t.graph = t.seq_class + t.max_seqs + 1;
  return t;
}

}  // namespace saccade
