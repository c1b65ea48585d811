// wgmma's descriptions of operands in shared memory (PTX ISA, "matrix descriptor"): rows of 128
// bytes whose 16-byte pieces are exchanged by the row, eight rows of which are 1,024 bytes from the
// next eight. In units of 16 bytes: where the operand begins, two distances. 1 at bit 62: the
// exchange over 128 bytes.
#pragma once
#include "cuda/model/view.hpp"

namespace saccade::gpu {

inline constexpr uint64_t kEightRowsBytes = 8 * kStep * sizeof(Half);

/// k runs along rows. It may begin some k further on in the first row; the first distance is not
/// used.
SAC_HD constexpr uint64_t matrix_descriptor(uint32_t shared_address) {
  return uint64_t{(shared_address & 0x3ffff) >> 4} | uint64_t{1} << 16 |
         kEightRowsBytes >> 4 << 32 | uint64_t{1} << 62;
}

/// k runs down rows, and rows hold kStep columns; further columns are panel_bytes away.
SAC_HD constexpr uint64_t transposed_descriptor(uint32_t shared_address, uint64_t panel_bytes) {
  return uint64_t{(shared_address & 0x3ffff) >> 4} | panel_bytes >> 4 << 16 |
         kEightRowsBytes >> 4 << 32 | uint64_t{1} << 62;
}

}  // namespace saccade::gpu
