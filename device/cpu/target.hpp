// Compiling a part of a file for one instruction set: SAC_TARGET("avx2,fma") ... SAC_TARGET_END.
// g++ and clang spell it differently.
#pragma once

#define SAC_PRAGMA(text) _Pragma(#text)

#if defined(__clang__)
#define SAC_TARGET(features) \
  SAC_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define SAC_TARGET_END SAC_PRAGMA(clang attribute pop)
#else
// g++ 12 mistakes its own AVX-512 header's "undefined" operands for uninitialised variables.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#define SAC_TARGET(features) SAC_PRAGMA(GCC push_options) SAC_PRAGMA(GCC target(features))
#define SAC_TARGET_END SAC_PRAGMA(GCC pop_options)
#endif
