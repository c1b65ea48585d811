// Builds what vocab.hpp describes, once, from the bytes of all tokens. Host only; it allocates.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/vocab.hpp"

namespace saccade {

class TokenTables {
 public:
  TokenTables() = default;
  // The view names memory of its own: what is moved takes it along, a copy would not.
  TokenTables(TokenTables&&) = default;
  TokenTables& operator=(TokenTables&&) = default;
  /// Where the tables are; empty until they are built.
  const TokenVocab& view() const { return view_; }
  /// Of every token's length and bytes, never 0 once there are any; as
  /// saccade_grammar::Vocabulary::hash.
  uint64_t hash() const { return hash_; }

  /// offsets: [num_tokens + 1], ascending. Empty, or what is wrong with them.
  std::string build(const uint32_t* offsets, const uint8_t* bytes, uint32_t num_tokens) {
    if (num_tokens == 0 || num_tokens >= kNoToken) return "num_tokens is outside 1 .. 2^24 - 2";
    if (offsets[0] != 0) return "offsets[0] is not 0";
    for (uint32_t i = 0; i < num_tokens; ++i)
      if (offsets[i] > offsets[i + 1]) return "offsets are not ascending";
    offsets_.assign(offsets, offsets + num_tokens + 1);
    bytes_.assign(bytes, bytes + offsets[num_tokens]);
    plain_masks_.assign(size_t{SAC_GRAMMAR_PLAIN_BYTES + 1} * ceil_div(num_tokens, 32), 0);
    plain_.clear();
    rest_.clear();
    add_trees(num_tokens);
    hash_ = hash_of(num_tokens);
    view_ = {num_tokens,
             static_cast<uint32_t>(plain_.size()),
             static_cast<uint32_t>(rest_.size()),
             offsets_.data(),
             bytes_.data(),
             plain_.data(),
             rest_.data(),
             plain_masks_.data()};
    return "";
  }

  /// Whether a text consists of whole characters, none of them '"', '\\' or a control.
  static bool is_plain(std::string_view text) {
    size_t i = 0;
    while (i < text.size()) {
      const auto lead = static_cast<unsigned char>(text[i]);
      if (lead < 0x80) {
        if (lead < 0x20 || lead == 0x7f || lead == '"' || lead == '\\') return false;
        ++i;
        continue;
      }
      const size_t length = sequence_length(lead);
      if (length == 0 || length > text.size() - i || !is_sequence(text.substr(i, length)))
        return false;
      i += length;
    }
    return true;
  }

 private:
  struct Entry {
    std::string_view bytes;
    uint32_t token;
  };

  std::string_view token(uint32_t id) const {
    const auto* begin = reinterpret_cast<const char*>(bytes_.data()) + offsets_[id];
    return {begin, offsets_[id + 1] - offsets_[id]};
  }

  void add_trees(uint32_t num_tokens) {
    std::vector<Entry> plain, rest;
    for (uint32_t id = 0; id < num_tokens; ++id) {
      const std::string_view bytes = token(id);
      if (bytes.empty() || bytes.size() > kMaxTokenBytes) continue;
      if (bytes.size() <= SAC_GRAMMAR_PLAIN_BYTES && is_plain(bytes)) {
        const size_t words = ceil_div(num_tokens, 32);
        for (size_t chars = num_chars(bytes); chars <= SAC_GRAMMAR_PLAIN_BYTES; ++chars)
          plain_masks_[chars * words + id / 32] |= 1u << id % 32;
        plain.push_back({bytes, id});
      } else {
        rest.push_back({bytes, id});
      }
    }
    for (auto [entries, nodes] : {std::pair(&plain, &plain_), std::pair(&rest, &rest_)}) {
      std::sort(entries->begin(), entries->end(), [](const Entry& a, const Entry& b) {
        return a.bytes != b.bytes ? a.bytes < b.bytes : a.token < b.token;
      });
      add_tree(*entries, *nodes);
    }
  }

  /// Characters of a text of whole ones.
  static size_t num_chars(std::string_view text) {
    return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    }));
  }

  /// Sorted entries become nodes in depth-first order. Two tokens of the same bytes are two leaves.
  static void add_tree(const std::vector<Entry>& entries, std::vector<TokenNode>& nodes) {
    std::vector<uint32_t> path;  // nodes from the root to the last one
    std::string_view last;
    const auto close = [&](size_t depth) {
      for (; path.size() > depth; path.pop_back()) {
        const auto size = static_cast<uint32_t>(nodes.size()) - path.back();
        nodes[path.back()].skip_byte |= size << 8;
      }
    };
    for (const Entry& entry : entries) {
      size_t common = 0;
      while (common < last.size() && common < entry.bytes.size() &&
             last[common] == entry.bytes[common])
        ++common;
      // The same bytes again: another leaf beside the node that has them.
      if (common == entry.bytes.size()) --common;
      close(common);
      for (size_t i = common; i < entry.bytes.size(); ++i) {
        const uint32_t token = i + 1 == entry.bytes.size() ? entry.token : kNoToken;
        path.push_back(static_cast<uint32_t>(nodes.size()));
        nodes.push_back({static_cast<unsigned char>(entry.bytes[i]),
                         static_cast<uint32_t>(i + 1) | token << 8});
      }
      last = entry.bytes;
    }
    close(0);
  }

  static size_t sequence_length(unsigned char lead) {
    if (lead >= 0xc2 && lead <= 0xdf) return 2;
    if (lead >= 0xe0 && lead <= 0xef) return 3;
    return lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
  }
  /// As UTF-8 has them: nothing overlong, no surrogates, nothing beyond U+10FFFF.
  static bool is_sequence(std::string_view s) {
    const auto at = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
    for (size_t i = 1; i < s.size(); ++i)
      if ((at(i) & 0xc0) != 0x80) return false;
    if (at(0) == 0xe0) return at(1) >= 0xa0;
    if (at(0) == 0xed) return at(1) <= 0x9f;
    if (at(0) == 0xf0) return at(1) >= 0x90;
    return at(0) != 0xf4 || at(1) <= 0x8f;
  }

  uint64_t hash_of(uint32_t num_tokens) const {
    uint64_t hash = 0xcbf29ce484222325u;
    const auto add = [&](uint32_t byte) { hash = (hash ^ byte) * 0x100000001b3u; };
    for (uint32_t id = 0; id < num_tokens; ++id) {
      const auto length = static_cast<uint32_t>(token(id).size());
      for (uint32_t shift = 0; shift < 32; shift += 8) add(length >> shift & 0xff);
      for (const char c : token(id)) add(static_cast<unsigned char>(c));
    }
    return hash == 0 ? 1 : hash;
  }

  std::vector<uint32_t> offsets_;
  std::vector<uint8_t> bytes_;
  std::vector<TokenNode> plain_, rest_;
  std::vector<uint32_t> plain_masks_;
  TokenVocab view_ = {};
  uint64_t hash_ = 0;
};

}  // namespace saccade
