// Copies of KV blocks between device and host memory, on the CPU device.
//
//   copy_bench [block KiB = 1792] [blocks = 96] [rounds = 15]
//
// Both directions at once, the same bytes each time, in interleaved rounds:
//   memcpy     two threads, one memcpy of the whole extent each: the yardstick
//   engine     the copy engine, block by block, block-first layout
//   segments   two threads, layer-first layout as in PagedAttention: one memcpy per layer, K or V,
//              and block
//   one way    the same segments, first down, then up: engines that swap in what they swapped out
//
// Then the time of a decode step alone, while the engine copies both ways without pause, and while
// it makes the background copies that such steps cause. Medians; ratios are within a round.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include "cpu/copy_engine.hpp"
#include "cpu/memory_region.hpp"
#include "tests/random.hpp"
#include "tests/step_harness.hpp"

using namespace saccade;
using namespace saccade::test;

namespace {

constexpr uint32_t kLayers = 28;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Two pools of 2 * blocks each: the lower half goes down, the upper half comes up.
struct Pools {
  Pools(size_t bytes, uint32_t count)
      : block_bytes(bytes),
        blocks(count),
        device(2 * block_bytes * blocks, "the device pool"),
        host(2 * block_bytes * blocks, "the host pool"),
        order(blocks) {
    std::memset(device.data(), 1, device.bytes());
    std::memset(host.data(), 2, host.bytes());
    // Blocks of a request are scattered over its pool.
    std::iota(order.begin(), order.end(), 0u);
    Random random(3);
    for (uint32_t i = blocks; i > 1; --i) std::swap(order[i - 1], order[random.in(0, i - 1)]);
  }
  unsigned char* at(const MemoryRegion& region, size_t offset) const {
    return static_cast<unsigned char*>(region.data()) + offset;
  }
  size_t half() const { return block_bytes * blocks; }

  size_t block_bytes;
  uint32_t blocks;
  MemoryRegion device;
  MemoryRegion host;
  std::vector<uint32_t> order;
};

template <class Down, class Up>
double both_s(Down down, Up up) {
  const double start = now_s();
  std::thread other(up);
  down();
  other.join();
  return now_s() - start;
}

double memcpy_s(const Pools& p) {
  return both_s([&] { std::memcpy(p.at(p.host, 0), p.at(p.device, 0), p.half()); },
                [&] { std::memcpy(p.at(p.device, p.half()), p.at(p.host, p.half()), p.half()); });
}

/// Layer first: [layer][k|v][block] in both pools, one segment at a time.
void copy_segments(const Pools& p, const MemoryRegion& to, const MemoryRegion& from, size_t base) {
  const size_t segment = p.block_bytes / (2 * kLayers);
  for (uint32_t i = 0; i < p.blocks; ++i) {
    for (uint32_t plane = 0; plane < 2 * kLayers; ++plane) {
      const size_t row = base + size_t{plane} * p.blocks * segment;
      std::memcpy(p.at(to, row + p.order[i] * segment),
                  p.at(from, row + p.order[p.blocks - 1 - i] * segment), segment);
    }
  }
}

double segments_s(const Pools& p) {
  return both_s([&] { copy_segments(p, p.host, p.device, 0); },
                [&] { copy_segments(p, p.device, p.host, p.half()); });
}

double one_way_s(const Pools& p) {
  const double start = now_s();
  copy_segments(p, p.host, p.device, 0);
  copy_segments(p, p.device, p.host, p.half());
  return now_s() - start;
}

/// The engine with its own queues.
class Bench {
 public:
  explicit Bench(const Pools& p) : pools_(p), rings_(4 * size_t{p.blocks}) {
    copies_.down.ring = rings_.data();
    copies_.up.ring = rings_.data() + 2 * p.blocks;
    copies_.down.reset(2 * p.blocks);
    copies_.up.reset(2 * p.blocks);
    engine_ = std::make_unique<CopyEngine>(
        CopyPools{p.at(p.device, 0), p.at(p.host, 0), p.block_bytes}, copies_);
  }
  void ask(uint32_t downs, uint32_t ups) {
    const auto& order = pools_.order;
    for (uint32_t i = 0; i < downs; ++i)
      copies_.down.ask({order[i], order[pools_.blocks - 1 - i]}, true);
    for (uint32_t i = 0; i < ups; ++i)
      copies_.up.ask({pools_.blocks + order[i], pools_.blocks + order[pools_.blocks - 1 - i]},
                     true);
    engine_->submit(copies_.down, copies_.up);
  }
  bool done() {
    copies_.down.done = engine_->down_done();
    copies_.up.done = engine_->up_done();
    return copies_.idle();
  }
  double all_s() {
    const double start = now_s();
    ask(pools_.blocks, pools_.blocks);
    while (!done()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    return now_s() - start;
  }

 private:
  const Pools& pools_;
  std::vector<BlockCopy> rings_;
  Copies copies_ = {};
  std::unique_ptr<CopyEngine> engine_;
};

void compare_copies(const Pools& p, Bench& bench, uint32_t rounds) {
  std::vector<double> plain, ratio, segments, one_way;
  for (uint32_t r = 0; r < rounds; ++r) {
    const double yardstick = memcpy_s(p);
    const double engine = bench.all_s();
    plain.push_back(yardstick);
    ratio.push_back(yardstick / engine);
    segments.push_back(segments_s(p) / engine);
    one_way.push_back(one_way_s(p) / engine);
  }
  const double gb = static_cast<double>(2 * p.half()) / 1e9;
  std::printf("both ways, %u blocks of %zu KiB each way\n", p.blocks, p.block_bytes >> 10);
  std::printf("  memcpy, two threads         %6.2f GB/s (read and write count once)\n",
              gb / median(plain));
  std::printf("  engine / memcpy             %6.3f\n", median(ratio));
  std::printf("  engine / segments           %6.3f\n", median(segments));
  std::printf("  engine / segments, one way  %6.3f\n", median(one_way));
}

sac_model_config decoder() {
  sac_model_config c = {};
  c.num_layers = kLayers;
  c.hidden_size = 1024;
  c.intermediate_size = 3072;
  c.num_heads = 16;
  c.num_kv_heads = 8;
  c.head_dim = c.rotary_dim = 128;
  c.vocab_size = 32000;
  c.dtype = SAC_DTYPE_BF16;
  c.qk_norm = 1;
  c.tied_embeddings = 1;
  c.rms_norm_eps = 1e-6f;
  return c;
}

/// One decode step of 8 sequences.
double step_s(StepHarness& h) {
  for (uint32_t seat = 0; seat < 8; ++seat) h.add(seat, 128, 1, true);
  const double start = now_s();
  h.run();
  return now_s() - start;
}

void compare_steps(const Pools& p, Bench& bench, uint32_t rounds) {
  HarnessOptions o;
  o.num_threads = std::max(1u, std::thread::hardware_concurrency());
  o.num_seats = 8;
  StepHarness h(decoder(), o);
  h.step->fill_dummy(3);
  TestModel rope;
  rope.config = decoder();
  fill_rope(rope, o.max_len, 1e4);
  h.step->set_rope(rope.cos.data(), rope.sin.data(), rope.cos.size());
  for (uint32_t seat = 0; seat < 8; ++seat)
    h.seat_prompt(seat, std::vector<uint32_t>(200, 1), greedy(128));
  step_s(h);
  std::vector<double> alone, busy, background;
  for (uint32_t r = 0; r < rounds; ++r) {
    const double base = step_s(h);
    alone.push_back(base);
    bench.ask(p.blocks, p.blocks);  // more than a step can outlast
    busy.push_back(step_s(h) / base);
    while (!bench.done()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    bench.ask(1, 0);  // 8 sequences fill a block of 16 tokens every other step
    background.push_back(step_s(h) / base);
    while (!bench.done()) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  std::printf("a decode step of 8 sequences on %u threads\n", o.num_threads);
  std::printf("  alone                       %6.2f ms\n", 1e3 * median(alone));
  std::printf("  both directions busy        %6.3f x\n", median(busy));
  std::printf("  one background copy         %6.3f x\n", median(background));
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, uint32_t fallback) {
    return argc > i ? static_cast<uint32_t>(std::atoi(argv[i])) : fallback;
  };
  const size_t block_bytes = size_t{argument(1, 1792)} << 10;
  const uint32_t blocks = argument(2, 96), rounds = argument(3, 15);
  if (block_bytes == 0 || block_bytes % (2 * kLayers * 64) != 0 || blocks == 0 || rounds == 0) {
    std::fprintf(stderr, "block KiB must be a multiple of 7, the others at least 1\n");
    return 2;
  }
  const Pools pools(block_bytes, blocks);
  Bench bench(pools);
  memcpy_s(pools);
  compare_copies(pools, bench, rounds);
  compare_steps(pools, bench, rounds);
}
