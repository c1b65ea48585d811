// A block of a GPU on one host thread: device_block.cuh's counterpart, by the PTX ISA's words.
//
// Where hardware leaves room, the emulation takes the side that exposes mistakes: shared memory
// begins as NaN, an asynchronous copy arrives only when it is waited for, warps run in an order
// drawn from a seed, bulk copies arrive in any order, a product of a warpgroup reads its operands
// only when it is waited for, and a thread that waits for others which never come is an error.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "cuda/model/block_ops.hpp"
#include "cuda/model/sequence_shape.hpp"
#include "cuda/model/tests/fiber.hpp"
#include "tests/random.hpp"

namespace saccade::test {

/// One copy in flight.
struct PendingCopy {
  unsigned char* to;
  unsigned char data[16];
};

/// A barrier in shared memory. A phase ends when no arrival is awaited and no byte is in flight.
struct EmulatedBarrier {
  uint16_t arrivals;
  uint16_t awaited;
  int32_t bytes : 31;
  uint32_t parity : 1;  // of the running phase
};
static_assert(sizeof(EmulatedBarrier) == sizeof(uint64_t));

/// A bulk copy in flight.
struct BulkCopy {
  unsigned char* to;
  const unsigned char* from;
  uint32_t bytes;
  EmulatedBarrier* barrier;
};

/// A product of a warpgroup, of which this thread has a part, that has not been waited for.
struct PendingProduct {
  float (*d)[4];
  uint32_t eights;
  std::array<std::array<float, 16>, 2> a;  // of the thread's two rows, where registers had them
  uint64_t a_descriptor;                   // otherwise
  bool in_registers;
  uint64_t b;
  bool transposed;
  bool add;
};

/// The address of an element of an operand of wgmma: PTX ISA, "matrix descriptor" and "swizzling
/// modes". Rows are of 128 bytes; k runs along them, or down them (transposed): then further
/// columns are the first distance away. The exchange is of address bits 4 to 6 with bits 7 to 9.
inline uint32_t operand_address(uint64_t descriptor, bool transposed, uint32_t row, uint32_t k) {
  const auto field = [descriptor](uint32_t bit) {
    return static_cast<uint32_t>(descriptor >> bit & 0x3fff) << 4;
  };
  if (descriptor >> 62 != 1) throw std::runtime_error("operand without the exchange of 128 bytes");
  if ((descriptor >> 49 & 7) != 0) throw std::runtime_error("operand with a base offset");
  const uint32_t down = transposed ? k : row, along = transposed ? row % 64 : k;
  const uint32_t panel = transposed ? row / 64 * field(16) : 0;
  const uint32_t address = field(0) + panel + down / 8 * field(32) + down % 8 * 128 + along * 2;
  return address ^ (address >> 7 & 7) << 4;
}

/// What the lanes of a warp exchange. Two sets: a lane may reach the next exchange while others
/// still read this one.
struct WarpBoard {
  uint64_t words[2][gpu::kWarpThreads][4];
  uint32_t arrived = 0;
  uint32_t generation = 0;
};

/// The state of the block that runs.
struct BlockState {
  gpu::Grid grid;
  gpu::Grid at;
  uint32_t num_threads = 0;
  unsigned char* shared = nullptr;
  size_t shared_bytes = 0;
  uint32_t arrived = 0;
  uint32_t generation = 0;
  uint64_t steps = 0;  // of any thread: tells progress from deadlock
  std::vector<WarpBoard> warps;
  std::vector<BulkCopy> copies;
  Random* random = nullptr;
};

class EmulatedBlock {
 public:
  EmulatedBlock(BlockState& state, Fiber& fiber, uint32_t thread)
      : s_(state), fiber_(fiber), thread_(thread) {}

  uint32_t thread() const { return thread_; }
  uint32_t lane() const { return thread_ % gpu::kWarpThreads; }
  uint32_t warp() const { return thread_ / gpu::kWarpThreads; }
  uint32_t x() const { return s_.at.x; }
  uint32_t y() const { return s_.at.y; }
  uint32_t z() const { return s_.at.z; }
  uint32_t grid_x() const { return s_.grid.x; }
  unsigned char* shared() const { return s_.shared; }
  uint32_t shared_address(const void* at) const {
    return kSharedBase + static_cast<uint32_t>(static_cast<const unsigned char*>(at) - s_.shared);
  }
  void launch_next() const {}
  /// Blocks run one after another: this shows only that no thread forgets to wait.
  void await_previous() const { awaited_ = true; }
  /// Before the thread leaves.
  void check_end() const {
    if (!awaited_) fail("a thread that did not wait for the kernel before");
    if (!open_products_.empty() || !product_groups_.empty()) fail("a product was not waited for");
  }

  void sync() const { meet(s_.arrived, s_.generation, s_.num_threads); }
  void warp_sync() const { meet_warp(); }

  template <class T>
  T shuffle_xor(T value, uint32_t mask) const {
    return shuffle(value, lane() ^ mask);
  }
  template <class T>
  T shuffle(T value, uint32_t lane) const {
    return read<T>(trade(value), lane % gpu::kWarpThreads);
  }
  template <class T>
  T shuffle_up(T value, uint32_t by) const {
    const uint32_t from = lane() >= by ? lane() - by : lane();
    return read<T>(trade(value), from);
  }
  uint32_t ballot(bool vote) const {
    const uint32_t set = trade(vote ? 1u : 0u);
    uint32_t votes = 0;
    for (uint32_t l = 0; l < gpu::kWarpThreads; ++l) votes |= read<uint32_t>(set, l) << l;
    return votes;
  }

  static uint32_t popcount(uint32_t word) {
    return static_cast<uint32_t>(__builtin_popcount(word));
  }

  void fence() const {}
  template <class T>
  T load_far(const T* at) const {
    return *at;
  }

  uint32_t add(uint32_t* at, uint32_t value) const { return std::exchange(*at, *at + value); }
  void add(uint64_t* at, uint64_t value) const { *at += value; }
  void add(float* at, float value) const { *at += value; }
  void max(uint32_t* at, uint32_t value) const { *at = *at > value ? *at : value; }
  void min(uint32_t* at, uint32_t value) const { *at = *at < value ? *at : value; }
  uint32_t exchange(uint32_t* at, uint32_t value) const { return std::exchange(*at, value); }

  void copy16(void* shared_to, const void* global_from, bool real = true) const {
    check_aligned(shared_to);
    PendingCopy copy = {static_cast<unsigned char*>(shared_to), {}};
    if (real) {
      if (reinterpret_cast<uintptr_t>(global_from) % 16 != 0) fail("copy16 from unaligned memory");
      std::memcpy(copy.data, global_from, 16);
    }
    std::memset(copy.to, 0xff, 16);  // until it arrives, nothing that was there before
    open_.push_back(copy);
  }
  void commit() const { groups_.push_back(std::exchange(open_, {})); }
  template <uint32_t kLeft>
  void wait() const {
    while (groups_.size() > kLeft) {
      for (const PendingCopy& c : groups_.front()) std::memcpy(c.to, c.data, 16);
      groups_.erase(groups_.begin());
    }
  }

  void barrier_init(uint64_t* barrier, uint32_t arrivals) const {
    const auto expected = static_cast<uint16_t>(arrivals);
    *at(barrier) = {expected, expected, 0, 0};
  }
  void barrier_fence() const {}
  void barrier_arrive(uint64_t* barrier) const {
    EmulatedBarrier& e = *at(barrier);
    if (e.awaited == 0) fail("an arrival beyond those of a phase");
    --e.awaited;
    end_phase(e);
  }
  void barrier_expect(uint64_t* barrier, uint32_t bytes) const {
    at(barrier)->bytes += static_cast<int32_t>(bytes);
    barrier_arrive(barrier);
  }
  void barrier_wait(uint64_t* barrier, uint32_t parity) const {
    ++s_.steps;
    while (at(barrier)->parity == parity) {
      if (!s_.copies.empty()) {
        ++s_.steps;  // a copy in flight will arrive: this is no deadlock
        if (s_.random->one_in(2)) deliver();
      }
      fiber_.yield();
    }
    ++s_.steps;
  }
  void bulk_copy(void* shared_to, const void* global_from, uint32_t bytes,
                 uint64_t* barrier) const {
    auto* to = static_cast<unsigned char*>(shared_to);
    check_aligned(to);
    check_aligned(to + bytes - 16);
    const auto* from = static_cast<const unsigned char*>(global_from);
    if (reinterpret_cast<uintptr_t>(from) % 16 != 0 || bytes % 16 != 0) fail("unaligned bulk copy");
    std::memset(to, 0xff, bytes);
    s_.copies.push_back({to, from, bytes, at(barrier)});
  }

  static constexpr bool kHasWarpgroupMma = true;
  void warpgroup_fence() const {}
  /// The sums may not be touched until they are waited for.
  template <uint32_t kEights>
  void warpgroup_mma(float (&d)[kEights][4], uint64_t a, uint64_t b, bool add) const {
    begin_product(d, {&d[0], kEights, {}, a, false, b, false, add});
  }
  template <bool kTransposed, uint32_t kEights>
  void warpgroup_mma(float (&d)[kEights][4], const uint32_t (&a)[4], uint64_t b, bool add) const {
    begin_product(d, {&d[0], kEights, rows_of_warp(a), 0, true, b, kTransposed, add});
  }
  void shared_fence() const {}
  template <uint32_t kRegisters>
  void take_registers() const {}
  template <uint32_t kRegisters>
  void leave_registers() const {}
  template <uint32_t kEights>
  void begin_product(float (&d)[kEights][4], const PendingProduct& product) const {
    open_products_.push_back(product);
    std::vector<float>& kept = kept_sums_[&d[0][0]];
    if (!kept.empty()) return;
    kept.assign(&d[0][0], &d[0][0] + 4 * kEights);
    std::fill_n(&d[0][0], 4 * kEights, std::nanf(""));
  }
  void warpgroup_commit() const {
    product_groups_.push_back(std::exchange(open_products_, {}));
    meet_warp();
  }
  template <uint32_t kLeft>
  void warpgroup_wait() const {
    while (product_groups_.size() > kLeft) {
      for (const PendingProduct& p : product_groups_.front()) multiply(p);
      product_groups_.erase(product_groups_.begin());
    }
    meet_warp();  // no lane of a warp is ahead: what one releases, all have read
    if (!product_groups_.empty()) return;
    for (const auto& [d, kept] : kept_sums_) std::copy(kept.begin(), kept.end(), d);
    kept_sums_.clear();
  }

  void load_matrices(uint32_t (&out)[4], const void* row) const {
    load(out, row, [](const uint16_t* const* rows, uint32_t g, uint32_t t) {
      return pair(rows[g][2 * t], rows[g][2 * t + 1]);
    });
  }
  void load_transposed(uint32_t (&out)[4], const void* row) const {
    load(out, row, [](const uint16_t* const* rows, uint32_t g, uint32_t t) {
      return pair(rows[2 * t][g], rows[2 * t + 1][g]);
    });
  }

  void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) const {
    const uint32_t set = board().generation % 2;
    uint64_t(&words)[4] = board().words[set][lane()];
    words[0] = a[0] | uint64_t{a[1]} << 32;
    words[1] = a[2] | uint64_t{a[3]} << 32;
    words[2] = b0 | uint64_t{b1} << 32;
    meet_warp();
    const uint32_t g = lane() / 4, t = lane() % 4;
    for (uint32_t i = 0; i < 4; ++i) d[i] += dot(set, g + i / 2 * 8, 2 * t + i % 2);
  }
  uint32_t pack(float low, float high) const { return pair(gpu::narrow(low), gpu::narrow(high)); }
  void widen_fp8(uint32_t word, uint32_t (&pairs)[2]) const {
    pairs[0] = scale_up(gpu::spread_fp8(word << 8));
    pairs[1] = scale_up(gpu::spread_fp8(word));
  }
  void widen_joined_fp8(uint32_t joined, uint32_t (&pairs)[2]) const {
    pairs[0] = scale_up(gpu::spread_first_fp8(joined));
    pairs[1] = scale_up(gpu::spread_second_fp8(joined));
  }
  float exp2(float x) const { return std::exp2(x); }

 private:
  static uint32_t pair(uint16_t low, uint16_t high) { return low | uint32_t{high} << 16; }
  uint32_t scale_up(uint32_t spread) const {
    return pack(half_of(spread, 0) * 0x1p120f, half_of(spread, 1) * 0x1p120f);
  }
  [[noreturn]] static void fail(const char* what) { throw std::runtime_error(what); }
  WarpBoard& board() const { return s_.warps[warp()]; }

  void meet(uint32_t& arrived, uint32_t& generation, uint32_t expected) const {
    ++s_.steps;
    const uint32_t mine = generation;
    if (++arrived == expected) {
      arrived = 0;
      ++generation;
      return;
    }
    while (generation == mine) fiber_.yield();
    ++s_.steps;
  }
  void meet_warp() const { meet(board().arrived, board().generation, gpu::kWarpThreads); }

  /// Shows a value to the warp; returns the set that holds it.
  template <class T>
  uint32_t trade(T value) const {
    static_assert(sizeof(T) <= 8);
    const uint32_t set = board().generation % 2;
    std::memcpy(&board().words[set][lane()][0], &value, sizeof(T));
    meet_warp();
    return set;
  }
  template <class T>
  T read(uint32_t set, uint32_t lane) const {
    T value;
    std::memcpy(&value, &board().words[set][lane][0], sizeof(T));
    return value;
  }
  void check_aligned(const void* row) const {
    const auto* at = static_cast<const unsigned char*>(row);
    if (at < s_.shared || at + 16 > s_.shared + s_.shared_bytes) fail("outside shared memory");
    if ((at - s_.shared) % 16 != 0) fail("unaligned shared memory");
  }
  template <class Pick>
  void load(uint32_t (&out)[4], const void* row, Pick pick) const {
    check_aligned(row);
    const uint32_t set = trade(reinterpret_cast<uintptr_t>(row));
    for (uint32_t m = 0; m < 4; ++m) {
      const uint16_t* rows[8];
      for (uint32_t r = 0; r < 8; ++r) {
        rows[r] = reinterpret_cast<const uint16_t*>(read<uintptr_t>(set, 8 * m + r));
      }
      out[m] = pick(rows, lane() / 4, lane() % 4);
    }
  }
  /// Element `index` of a pair of bf16.
  static float half_of(uint64_t word, uint32_t index) {
    return gpu::widen(static_cast<uint16_t>(word >> (16 * index)));
  }
  /// Row of a times column of b, from the fragments of all lanes.
  float dot(uint32_t set, uint32_t row, uint32_t column) const {
    float sum = 0;
    for (uint32_t k = 0; k < 16; ++k) {
      const uint64_t* a = board().words[set][row % 8 * 4 + k % 8 / 2];
      const uint64_t* b = board().words[set][column * 4 + k % 8 / 2];
      // a's registers: row below 8 and k below 8 in 0, row in 1, k in 2, both in 3.
      sum += half_of(a[k / 8], row / 8 * 2 + k % 2) * half_of(b[2], k / 8 * 2 + k % 2);
    }
    return sum;
  }

  static EmulatedBarrier* at(uint64_t* barrier) {
    return reinterpret_cast<EmulatedBarrier*>(barrier);
  }
  void end_phase(EmulatedBarrier& e) const {
    ++s_.steps;
    if (e.awaited != 0 || e.bytes != 0) return;
    e.awaited = e.arrivals;
    e.parity ^= 1u;
  }
  /// Any one of the copies arrives.
  void deliver() const {
    const uint32_t i = s_.random->in(0, static_cast<uint32_t>(s_.copies.size()) - 1);
    const BulkCopy copy = s_.copies[i];
    s_.copies.erase(s_.copies.begin() + i);
    std::memcpy(copy.to, copy.from, copy.bytes);
    copy.barrier->bytes -= static_cast<int32_t>(copy.bytes);
    end_phase(*copy.barrier);
  }

  using Sixteen = std::array<float, 16>;
  Sixteen operand_row(uint64_t descriptor, bool transposed, uint32_t row) const {
    Sixteen values;
    for (uint32_t k = 0; k < 16; ++k) {
      const uint32_t offset = operand_address(descriptor, transposed, row, k) - kSharedBase;
      if (offset + sizeof(gpu::Half) > s_.shared_bytes) fail("an operand outside shared memory");
      gpu::Half half;
      std::memcpy(&half, s_.shared + offset, sizeof(half));
      values[k] = gpu::widen(half);
    }
    return values;
  }
  /// The thread's two rows of an operand that the warp's registers hold, as mma has it.
  std::array<Sixteen, 2> rows_of_warp(const uint32_t (&a)[4]) const {
    std::array<Sixteen, 2> rows;
    for (uint32_t high = 0; high < 2; ++high) {
      const uint32_t set = trade(a[2 * high] | uint64_t{a[2 * high + 1]} << 32);
      for (uint32_t k = 0; k < 8; ++k) {
        const auto word = read<uint64_t>(set, lane() / 4 * 4 + k / 2);
        for (uint32_t r = 0; r < 2; ++r) rows[r][8 * high + k] = half_of(word, 2 * r + k % 2);
      }
    }
    return rows;
  }
  /// This thread's part: two rows of the warp's sixteen, two columns of each eight.
  void multiply(const PendingProduct& p) const {
    std::vector<float>& kept = kept_sums_[&p.d[0][0]];
    const uint32_t row = warp() % 4 * 16 + lane() / 4;
    std::array<Sixteen, 2> a = p.a;
    for (uint32_t r = 0; r < 2 && !p.in_registers; ++r)
      a[r] = operand_row(p.a_descriptor, false, row + 8 * r);
    for (uint32_t j = 0; j < p.eights; ++j) {
      for (uint32_t c = 0; c < 2; ++c) {
        const Sixteen b = operand_row(p.b, p.transposed, 8 * j + lane() % 4 * 2 + c);
        for (uint32_t r = 0; r < 2; ++r) {
          float sum = 0;
          for (uint32_t k = 0; k < 16; ++k) sum += a[r][k] * b[k];
          float& d = kept[4 * j + 2 * r + c];
          d = (p.add ? d : 0.0f) + sum;
        }
      }
    }
  }

  /// Where shared memory begins in its own address space: not at 0, and where no exchange of pieces
  /// is cut.
  static constexpr uint32_t kSharedBase = 1024;

  BlockState& s_;
  Fiber& fiber_;
  const uint32_t thread_;
  mutable bool awaited_ = false;
  mutable std::vector<PendingCopy> open_;
  mutable std::vector<std::vector<PendingCopy>> groups_;
  mutable std::vector<PendingProduct> open_products_;
  mutable std::vector<std::vector<PendingProduct>> product_groups_;
  mutable std::map<float*, std::vector<float>> kept_sums_;
};

/// Runs kernels block by block.
class Emulator {
 public:
  explicit Emulator(uint64_t seed = 1) : random_(seed) {}

  template <class Kernel>
  void launch(gpu::Grid grid, size_t shared_bytes, const typename Kernel::Args& args) {
    for (uint32_t z = 0; z < grid.z; ++z) {
      for (uint32_t y = 0; y < grid.y; ++y) {
        for (uint32_t x = 0; x < grid.x; ++x) run<Kernel>(grid, {x, y, z}, shared_bytes, args);
      }
    }
  }

 private:
  template <class Kernel>
  void run(gpu::Grid grid, gpu::Grid at, size_t shared_bytes, const typename Kernel::Args& args) {
    constexpr uint32_t kThreads = Kernel::kThreads;
    static_assert(kThreads % gpu::kWarpThreads == 0);
    // Exactly as large as asked for, so that a sanitizer sees what lies outside.
    std::unique_ptr<unsigned char[], void (*)(unsigned char*)> shared(
        static_cast<unsigned char*>(std::aligned_alloc(128, (shared_bytes + 127) / 128 * 128)),
        [](unsigned char* p) { std::free(p); });
    std::memset(shared.get(), 0xff, shared_bytes);
    BlockState state;
    state.grid = grid;
    state.at = at;
    state.num_threads = kThreads;
    state.shared = shared.get();
    state.shared_bytes = shared_bytes;
    state.warps.resize(kThreads / gpu::kWarpThreads);
    state.random = &random_;
    while (fibers_.size() < kThreads) fibers_.push_back(std::make_unique<Fiber>());
    for (uint32_t t = 0; t < kThreads; ++t) {
      Fiber& fiber = *fibers_[t];
      fiber.start([&state, &fiber, &args, t] {
        const EmulatedBlock block(state, fiber, t);
        gpu::run_kernel<Kernel>(block, args);
        block.check_end();
      });
    }
    run_fibers(state);
    if (!state.copies.empty()) throw std::runtime_error("a bulk copy was not waited for");
  }
  void run_fibers(BlockState& state) {
    const uint32_t num_warps = state.num_threads / gpu::kWarpThreads;
    for (uint32_t left = state.num_threads; left > 0;) {
      const uint64_t before = state.steps;
      const uint32_t left_before = left;
      const uint32_t first = random_.in(0, num_warps - 1);
      for (uint32_t i = 0; i < num_warps; ++i) {
        left -= run_warp(state, (first + i) % num_warps, random_.in(1, 64));
      }
      if (state.steps == before && left == left_before) {
        throw std::runtime_error("deadlock: a barrier that not all threads come to");
      }
    }
  }
  /// Runs a warp for some rounds of its lanes; returns how many of them ended.
  uint32_t run_warp(BlockState& state, uint32_t warp, uint32_t rounds) {
    uint32_t ended = 0;
    for (uint32_t r = 0; r < rounds; ++r) {
      const uint64_t before = state.steps;
      for (uint32_t l = 0; l < gpu::kWarpThreads; ++l) {
        Fiber& fiber = *fibers_[warp * gpu::kWarpThreads + l];
        if (fiber.done()) continue;
        fiber.resume();
        ended += fiber.done() ? 1 : 0;
      }
      if (state.steps == before) break;
    }
    return ended;
  }

  Random random_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
};

}  // namespace saccade::test
