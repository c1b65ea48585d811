// The bytes of every token, as the walks through grammars need them. Built once at start by
// token_tables.hpp; constant afterwards. Plain data: the same for every device.
#pragma once
#include "platform/hd.hpp"

namespace saccade {

/// Longest token that can be part of an answer under a grammar, in bytes.
inline constexpr uint32_t kMaxTokenBytes = 128;
/// Not a token.
inline constexpr uint32_t kNoToken = 0xffffff;

/// A node of a tree of bytes, in depth-first order: its first child, if it has one, is next.
struct TokenNode {
  uint32_t skip_byte;    // bits 0-7 its byte; 8-31 nodes of its subtree, itself included
  uint32_t depth_token;  // bits 0-7 its depth, from 1; 8-31 the token that ends here, or kNoToken

  SAC_HD uint32_t byte() const { return skip_byte & 0xff; }
  SAC_HD uint32_t skip() const { return skip_byte >> 8; }
  SAC_HD uint32_t depth() const { return depth_token & 0xff; }
  SAC_HD uint32_t token() const { return depth_token >> 8; }
};

/// Tokens are in two trees: plain ones consist of characters that any text may hold as they are
/// (neither '"' nor '\\' nor a control), complete ones, in SAC_GRAMMAR_PLAIN_BYTES at most; `rest`
/// has all others.
struct TokenVocab {
  uint32_t num_tokens;
  uint32_t num_plain;  // nodes
  uint32_t num_rest;
  const uint32_t* offsets;      // [num_tokens + 1]: token i is bytes[offsets[i] .. offsets[i + 1])
  const uint8_t* bytes;         // a token without bytes is never part of an answer
  const TokenNode* plain;       // [num_plain]
  const TokenNode* rest;        // [num_rest]
  const uint32_t* plain_masks;  // [SAC_GRAMMAR_PLAIN_BYTES + 1, ceil(num_tokens / 32)]

  /// Bit by token: the plain ones of at most `chars` characters; none for 0. What is beyond
  /// SAC_GRAMMAR_PLAIN_BYTES says no more.
  SAC_HD const uint32_t* plain_mask(uint32_t chars) const {
    return plain_masks + size_t{min_u32(chars, SAC_GRAMMAR_PLAIN_BYTES)} * ceil_div(num_tokens, 32);
  }

  /// Bytes of a token; 0: it has none, or more than kMaxTokenBytes.
  SAC_HD uint32_t length(uint32_t token) const {
    if (token >= num_tokens) return 0;
    const uint32_t length = offsets[token + 1] - offsets[token];
    return length <= kMaxTokenBytes ? length : 0;
  }
};

}  // namespace saccade
