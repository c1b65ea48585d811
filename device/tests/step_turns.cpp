// Steps of two builds of the CPU step, by turns in one process: on a machine whose speed moves from
// second to second, that alone compares them.
//
//   step_turns FIRST.so SECOND.so ROUNDS qwen3-0.6b|llama-8b-layers THREADS
//
// The libraries are those of step_library.cpp. Prints a JSON object a line for each kind of step:
// {"streams", "context" (tokens of each), "prompt_rows", "first_ms", "second_ms" (medians), "ratio"
// (median of second / first of one round), "low", "high" (its quartiles)}.
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

struct Kind {
  uint32_t streams, context, prompt_rows;
};
constexpr Kind kKinds[] = {{1, 128, 0}, {4, 160, 0}, {8, 160, 0},  {16, 160, 0},  {16, 1536, 0},
                           {0, 0, 128}, {0, 0, 512}, {0, 0, 2048}, {16, 160, 32}, {16, 160, 128}};

struct Build {
  double (*step)(void*, uint32_t, uint32_t, uint32_t);
  void* opened;
};

Build load(const char* path, bool is_large, uint32_t threads) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(1);
  }
  const auto open = reinterpret_cast<void* (*)(bool, uint32_t)>(dlsym(library, "turns_open"));
  Build b = {};
  b.step = reinterpret_cast<decltype(b.step)>(dlsym(library, "turns_step"));
  if (open != nullptr) b.opened = open(is_large, threads);
  if (b.step == nullptr || b.opened == nullptr) {
    std::fprintf(stderr, "%s: no step\n", path);
    std::exit(1);
  }
  return b;
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_large = argc == 6 && std::strcmp(argv[4], "llama-8b-layers") == 0;
  const int rounds = argc == 6 ? std::atoi(argv[3]) : 0;
  const int threads = argc == 6 ? std::atoi(argv[5]) : 0;
  if (rounds <= 0 || threads <= 0 || !(is_large || std::strcmp(argv[4], "qwen3-0.6b") == 0)) {
    std::fputs(
        "usage: step_turns FIRST.so SECOND.so ROUNDS qwen3-0.6b|llama-8b-layers THREADS; ROUNDS, "
        "THREADS > 0\n",
        stderr);
    return 2;
  }
  const Build builds[2] = {load(argv[1], is_large, static_cast<uint32_t>(threads)),
                           load(argv[2], is_large, static_cast<uint32_t>(threads))};
  for (const Kind& k : kKinds) {
    std::vector<double> ms[2], ratios;
    for (int round = -1; round < rounds; ++round) {  // the first is not counted
      double s[2];
      for (int turn = 0; turn < 2; ++turn) {
        const int which = (round + 1 + turn) % 2;
        s[which] = builds[which].step(builds[which].opened, k.streams, k.context, k.prompt_rows);
      }
      if (round < 0) continue;
      for (int which = 0; which < 2; ++which) ms[which].push_back(s[which] * 1e3);
      ratios.push_back(s[1] / s[0]);
    }
    std::printf(
        "{\"streams\": %u, \"context\": %u, \"prompt_rows\": %u, \"first_ms\": %.1f, "
        "\"second_ms\": %.1f, "
        "\"ratio\": %.3f, \"low\": %.3f, \"high\": %.3f}\n",
        k.streams, k.context, k.prompt_rows, quantile(ms[0], 0.5), quantile(ms[1], 0.5),
        quantile(ratios, 0.5), quantile(ratios, 0.25), quantile(ratios, 0.75));
    std::fflush(stdout);
  }
  return 0;
}
