// Working memory of byte-pair encoding and a cache of short words, reusable from word to word by one thread at a time.
// A cache never changes a result: it holds what encoding the word would give again.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace hayfork::engine {

// Direct-mapped: a new word takes the slot of the old one.
class WordCache {
 public:
  static constexpr size_t kMaxKey = 40, kMaxIds = 7;
  WordCache();
  // The ids, or an empty span when the word is not there (no word in it has zero ids).
  std::span<const int32_t> find(std::string_view word, size_t hash) const;
  void store(std::string_view word, size_t hash, std::span<const int32_t> ids);

 private:
  static constexpr size_t kSlots = 1 << 14;
  struct Slot {
    uint8_t key_size = 0, n_ids = 0;
    std::array<char, kMaxKey> key{};
    std::array<int32_t, kMaxIds> ids{};
  };
  std::vector<Slot> slots_;
};

struct BpeScratch {
  struct Symbol {
    int32_t id;  // -1: merged into the one before
    uint32_t length;
    int32_t previous, next;  // indices, -1 at the ends
  };
  struct Candidate {
    uint32_t rank;
    int32_t position;
    int32_t result;
  };
  std::vector<Symbol> symbols;
  std::vector<uint32_t> ranks;
  std::vector<int32_t> results;
  std::vector<Candidate> heap;
  bool unknown_open = false;
  uint32_t unknown_length = 0;
  WordCache cache;
};

}  // namespace hayfork::engine
