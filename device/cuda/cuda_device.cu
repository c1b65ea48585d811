#include <cstdlib>
#include <cstring>

#include "cuda/cuda_device.hpp"
#include "cuda/cuda_memory.hpp"
#include "cuda/gpu_vocab.hpp"
#include "cuda/launch/patches.hpp"
#include "cuda/residence.hpp"

namespace saccade {
namespace {

size_t life_bytes(const Limits& limits) {
  LifeState image = {};
  image.scheduler.limits = limits;
  Layout measure(nullptr);
  lay_out(image, measure);
  return measure.bytes();
}

size_t copy_bytes(const Limits& limits) {
  Layout measure(nullptr);
  lay_out(limits, measure);
  return measure.bytes();
}

template <class T>
T* shifted(T* pointer, ptrdiff_t offset) {
  using Bytes = std::conditional_t<std::is_const_v<T>, const unsigned char, unsigned char>;
  return reinterpret_cast<T*>(reinterpret_cast<Bytes*>(pointer) + offset);
}

}  // namespace

std::string cuda_device_json() {
  int device = 0;
  int driver = 0;
  cudaDeviceProp p;
  require(cudaGetDevice(&device), "cudaGetDevice");
  require(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  require(cudaGetDeviceProperties(&p, device), "cudaGetDeviceProperties");
  return std::string("{\"name\": \"") + p.name + "\", \"compute_capability\": \"" +
         std::to_string(p.major) + "." + std::to_string(p.minor) +
         "\", \"driver\": " + std::to_string(driver) + "}";
}

RingView moved(const RingView& ring, ptrdiff_t offset) {
  RingView to = ring;
  to.device = shifted(ring.device, offset);
  to.roof = shifted(ring.roof, offset);
  to.stats = shifted(ring.stats, offset);
  to.acks = shifted(ring.acks, offset);
  to.wake = shifted(ring.wake, offset);
  to.frontends = shifted(ring.frontends, offset);
  to.doorbells = shifted(ring.doorbells, offset);
  to.cursors = shifted(ring.cursors, offset);
  to.status = shifted(ring.status, offset);
  to.descriptors = shifted(ring.descriptors, offset);
  to.out_rings = shifted(ring.out_rings, offset);
  to.arena = shifted(ring.arena, offset);
  return to;
}

struct CudaDevice::Impl {
  const CudaDeviceSpec spec;
  const bool host_ticks;
  const PinnedMemory control;
  // One of the two: the state is where the tick runs.
  const DeviceMemory device_state;
  const PinnedMemory host_state;
  const DeviceMemory table_copy;  // way (c): what the device knows of the tables
  TokenTables tokens;             // for grammars, where there are any
  GpuVocab gpu_vocab;             // the same for kernels
  std::vector<uint64_t> adapter_keys, adapter_names;  // [limits.num_adapters]
  std::unique_ptr<PinnedMemory> upload;
  std::unique_ptr<PinnedMemory> host_blocks;
  std::unique_ptr<ShapeGrid> grid;
  std::unique_ptr<DeviceMemory> shape_words;  // the grid's, where the tick runs on the device
  std::unique_ptr<StepKernels> kernels;
  std::unique_ptr<Rotation> rotation;
  std::unique_ptr<Launcher> launcher;
  LifeState image = {};  // with the addresses of its arrays, as it is in memory at first
  Life life = {};
  bool running = false;

  explicit Impl(const CudaDeviceSpec& s)
      : spec(s),
        host_ticks(s.way == LaunchWay::kHost),
        control(sizeof(Control)),
        device_state(host_ticks ? 0 : life_bytes(s.limits)),
        host_state(host_ticks ? life_bytes(s.limits) : 0),
        table_copy(host_ticks ? copy_bytes(s.limits) : 0),
        adapter_keys(s.limits.num_adapters),
        adapter_names(s.limits.num_adapters) {
    if (spec.eos_ids.size() != spec.limits.num_eos_ids)
      throw std::runtime_error("limits.num_eos_ids differs from the ids that are given");
    image.scheduler.limits = spec.limits;
    image.scheduler.seats.vocab = host_ticks ? &tokens.view() : gpu_vocab.view();
    Layout hand_out(host_ticks ? host_state.data() : device_state.data());
    life.state = lay_out(image, hand_out);
    life.control = control.as<Control>();
    life.leave_ns = spec.leave_ns;
    for (size_t i = 0; i < spec.eos_ids.size(); ++i) life.eos_ids[i] = spec.eos_ids[i];
  }

  TableCopy copy_of_tables() const {
    Layout at(table_copy.data());
    return lay_out(spec.limits, at);
  }
  SeatTables seats() const {
    if (host_ticks) return copy_of_tables().seats(spec.limits, gpu_vocab.view());
    return tables_of(image);
  }
  const StepBatch* batch() const {
    return host_ticks ? copy_of_tables().batch : &image.mail->batch;
  }
  std::unique_ptr<Launcher> make_launcher() {
    if (!host_ticks) {
      const SignalTarget signal = {&image.mail->line, batch()};
      const auto own = static_cast<uint32_t>(own_bytes(spec.limits));
      return spec.way == LaunchWay::kLoop ? make_loop_launcher(signal, own)
                                          : make_window_launcher(signal, own);
    }
    const size_t words = PatchWriter(spec.limits, copy_of_tables()).max_words();
    upload = std::make_unique<PinnedMemory>(words * sizeof(uint32_t));
    return make_host_launcher({spec.limits, table_copy.as<uint32_t>(), upload->as<uint32_t>()});
  }
  void make_rotation(const DeviceBlocks& kv) {
    const Limits& l = spec.limits;
    if (l.num_host_blocks == 0) return;
    host_blocks = std::make_unique<PinnedMemory>(size_t{l.num_host_blocks} * kv.block_bytes);
    Copies queues = image.scheduler.kv.store.copies;
    queues.down.capacity = l.num_host_blocks;
    queues.up.capacity = l.num_blocks;
    rotation = std::make_unique<Rotation>(
        RotationSpec{queues, kv.base, host_blocks->as<unsigned char>(), kv.block_bytes,
                     spec.rotation_workers, spec.rotation_way, host_ticks});
    life.rotation = rotation->engine();
  }
  void make_shapes(const ShapeGrid& grid) {
    const std::vector<uint16_t>& words = grid.words();
    const size_t bytes = words.size() * sizeof(words[0]);
    if (host_ticks) {
      life.shapes = grid.table(words.data());
      return;
    }
    shape_words = std::make_unique<DeviceMemory>(bytes);
    require(cudaMemcpy(shape_words->data(), words.data(), bytes, cudaMemcpyHostToDevice),
            "cudaMemcpy");
    life.shapes = grid.table(shape_words->as<const uint16_t>());
  }
};

CudaDevice::CudaDevice(std::unique_ptr<Impl> impl)
    : Machine(impl->life.control), impl_(std::move(impl)) {}
CudaDevice::CudaDevice(const CudaDeviceSpec& spec) : CudaDevice(std::make_unique<Impl>(spec)) {}

CudaDevice::~CudaDevice() {
  if (!impl_->running) return;
  try {
    stop();
  } catch (const std::exception& e) {
    // Freeing what a kernel uses would wait for it forever.
    std::fprintf(stderr, "the scheduler's kernel cannot be stopped: %s\n", e.what());
    std::_Exit(kExitHung);
  }
}

StepTables CudaDevice::step_tables() const {
  return {impl_->seats(), impl_->batch(), impl_->image.scheduler.launch.outputs};
}

CaptureReport CudaDevice::prepare(std::unique_ptr<StepKernels> kernels, const DeviceBlocks& kv,
                                  const CaptureProgress& progress) {
  Impl& d = *impl_;
  const Limits& l = d.spec.limits;
  d.grid = std::make_unique<ShapeGrid>(
      ShapeGrid::standard(l.max_num_batched_tokens, l.num_seats, l.num_adapters != 0));
  d.kernels = std::move(kernels);
  d.make_shapes(*d.grid);
  d.make_rotation(kv);
  d.launcher = d.make_launcher();
  CaptureReport report;
  d.launcher->capture(*d.kernels, d.grid->shapes(), progress, report);
  return report;
}

void CudaDevice::set_tokens(TokenTables tokens) {
  impl_->tokens = std::move(tokens);
  impl_->gpu_vocab.set(impl_->tokens.view());
}
const TokenTables& CudaDevice::tokens() const { return impl_->tokens; }
uint32_t CudaDevice::grammar_words() const {
  return impl_->tokens.hash() == 0 ? 0 : impl_->spec.limits.grammar_words;
}

AdapterKeys CudaDevice::adapter_keys() {
  return {impl_->adapter_keys.data(), impl_->adapter_names.data(), impl_->spec.limits.num_adapters};
}

uint32_t CudaDevice::embedding_size(const RingView& ring) const {
  const uint32_t size = impl_->spec.limits.embedding_size;
  return sac_embedding_words(size) > ring.out_ring_words ? 0 : size;
}

void CudaDevice::attach(const RingView& ring) {
  Limits& limits = impl_->image.scheduler.limits;
  limits.grammar_words = grammar_words();
  limits.embedding_size = embedding_size(ring);
  if (ring.num_slots > impl_->spec.limits.num_slots)
    throw std::runtime_error("the ring has more slots than limits.num_slots");
  limits.num_slots = ring.num_slots;
  limits.num_frontends = ring.num_frontends;
  impl_->life.ring = ring;
}

void CudaDevice::launch(bool overlapped) {
  Impl& d = *impl_;
  if (d.launcher == nullptr || d.life.ring.device == nullptr)
    throw std::runtime_error("prepare and attach come before start");
  const auto bring = [](void* to, const void* from, size_t bytes) {
    require(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "cudaMemcpy");
  };
  const Inbox& inbox = d.image.scheduler.inbox;
  const size_t key_bytes = d.adapter_keys.size() * sizeof(uint64_t);
  bring(d.life.state, &d.image, sizeof(d.image));
  bring(d.image.mail->eos_ids, d.life.eos_ids, sizeof(d.life.eos_ids));
  bring(inbox.adapter_keys, d.adapter_keys.data(), key_bytes);
  bring(inbox.adapter_names, d.adapter_names.data(), key_bytes);
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  d.running = true;
  start_life(*d.launcher, d.rotation.get(), d.life, overlapped);
}

void CudaDevice::reap() {
  impl_->launcher->finish();
  if (impl_->rotation != nullptr) impl_->rotation->finish();
  impl_->running = false;
}

LifeOutcome CudaDevice::collect() {
  const LifeState state = copy_back(impl_->life.state, 1)[0];
  const DecisionLog& log = state.scheduler.report.log;
  return {copy_back(log.words, log.used), log.dropped, copy_back(state.times, state.num_times),
          state.scheduler.report.stats, state.relaunches};
}

}  // namespace saccade
