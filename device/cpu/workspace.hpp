// Activations and per-worker memory of the step, allocated once.
#pragma once
#include <vector>

#include "cpu/kernels.hpp"
#include "cpu/memory_region.hpp"
#include "cpu/moe.hpp"
#include "platform/layout.hpp"

namespace saccade {

/// One worker's scratch memory.
struct WorkerScratch {
  float* tiles = nullptr;  // of MatmulArgs
  float* attention = nullptr;
  SampleScratch sample = {};
};

class Workspace {
 public:
  /// keeps_masks: there are grammars.
  Workspace(const sac_model_config& config, const Kernels& kernels, uint32_t max_num_seqs,
            uint32_t max_rows, uint32_t max_len, uint32_t num_threads, bool keeps_masks);

  /// Most ranges of attention whose parts fit.
  uint32_t max_parts() const { return max_parts_; }
  /// One range's part of a query head.
  float* part(uint32_t range, uint32_t head) const {
    return parts + range * part_stride + head * head_part;
  }

  /// Those of a seat; a step draws at most one token of it.
  KeptMasks kept_masks(uint32_t seat) const {
    if (kept_ == nullptr) return {};
    return {kept_ + size_t{seat} * kKeptMasks,
            kept_words_ + size_t{seat} * kKeptMasks * mask_words_, mask_words_};
  }

  float* x = nullptr;           // [max_rows][hidden]: the residual stream, f32
  Activations normed = {};      // [max_rows][hidden]
  float* qkv = nullptr;         // [max_rows][qkv_width]: all q heads, all k heads, all v heads
  Activations mixed = {};       // [max_rows][heads * head_dim]: attention's result
  float* parts = nullptr;       // [max_parts][heads][head_part]: attention's, of rows that are cut
  Activations gated = {};       // [max_rows][intermediate]
  Activations final_rows = {};  // [logit_rows][hidden]: rows of one logits tile, normed
  int8_t* quantized = nullptr;  // the activations of one product in 8 bits, where weights are
  float* quantized_scales = nullptr;
  float* logits = nullptr;  // [logit_rows][logits_stride]
  MoeSpace moe = {};        // of models with experts
  uint32_t qkv_width = 0;
  size_t part_stride = 0;  // floats of a range: all heads
  size_t head_part = 0;
  uint32_t logits_stride = 0;
  uint32_t logit_rows = 0;  // height of a logits tile: bounds the buffer at any number of samples
  std::vector<WorkerScratch> workers;

 private:
  static constexpr uint32_t kMaxLogitRows = 64;
  /// Rows of the longest context that can be cut by it in one step: beyond these the rows alone are
  /// work for every worker.
  static constexpr uint32_t kMaxCutRows = 8;

  size_t lay_out(Layout layout, const sac_model_config& config, uint32_t max_rows);
  void lay_out_moe(Layout& layout, const sac_model_config& config, uint32_t max_rows);
  Activations take_activations(Layout& layout, uint32_t rows, uint32_t k) const;

  KeptMask* kept_ = nullptr;        // [num_seats_][kKeptMasks]
  uint32_t* kept_words_ = nullptr;  // [num_seats_][kKeptMasks][mask_words_]
  const uint32_t mask_words_;
  const uint32_t num_seats_;  // that keep masks
  const Kernels& kernels_;    // before region_, which needs them
  const bool tiled_;
  const uint32_t max_parts_;
  MemoryRegion region_;
};

}  // namespace saccade
