// What sac_device_set_adapter is told of each adapter, and what is wrong with that.
#pragma once
#include <cstdint>
#include <string>

namespace saccade {

/// Two arrays of [count], zero at first.
struct AdapterKeys {
  uint64_t* keys;
  uint64_t* names;
  uint32_t count;
};

/// Empty, or what is wrong.
inline std::string set_adapter_key(const AdapterKeys& a, uint32_t adapter, uint64_t key,
                                   uint64_t name) {
  if (adapter == 0 || adapter > a.count)
    return "adapter is " + std::to_string(adapter) + ", outside 1 .. " + std::to_string(a.count);
  if (key == 0) return "the key of adapter " + std::to_string(adapter) + " is 0";
  if (name == 0) return "the name of adapter " + std::to_string(adapter) + " is 0";
  a.keys[adapter - 1] = key;
  a.names[adapter - 1] = name;
  return "";
}

/// Empty, or the first adapter without a key.
inline std::string missing_adapter_key(const AdapterKeys& a) {
  for (uint32_t i = 0; i < a.count; ++i)
    if (a.keys[i] == 0) return "adapter " + std::to_string(i + 1) + " has no key";
  return "";
}

}  // namespace saccade
