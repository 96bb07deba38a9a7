// (uint32, uint32) → (uint32, int32) in one flat open-addressing table: the merges of a tokenizer. Built once, then
// read.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hayfork::engine {

class PairTable {
 public:
  struct Value {
    uint32_t rank;
    int32_t result;  // -1: absent
  };

  // Room for n entries. Requires: empty.
  void reserve(size_t n) {
    const size_t size = std::bit_ceil(n < 8 ? size_t{16} : n * 2);
    slots_.assign(size, {kEmpty, {0, -1}});
    shift_ = 64 - std::countr_zero(size);
  }
  // A later entry for the same pair replaces the earlier one. Requires: no more than reserved.
  void set(uint32_t left, uint32_t right, Value value) {
    slots_[slot_of(key(left, right))] = {key(left, right), value};
  }
  Value find(uint32_t left, uint32_t right) const {
    if (slots_.empty()) return {0, -1};
    const Slot& slot = slots_[slot_of(key(left, right))];
    return slot.value;
  }
  bool contains(uint32_t left, uint32_t right) const { return find(left, right).result >= 0; }

 private:
  struct Slot {
    uint64_t key;
    Value value;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  static uint64_t key(uint32_t left, uint32_t right) { return static_cast<uint64_t>(left) << 32 | right; }
  size_t slot_of(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    uint64_t mixed = key * 0x9E3779B97F4A7C15u;  // Fibonacci hashing, with the high half folded in first
    mixed ^= mixed >> 32;
    mixed *= 0xD6E8FEB86659FD93u;
    size_t i = mixed >> shift_;
    while (slots_[i].key != key && slots_[i].key != kEmpty) i = (i + 1) & mask;
    return i;
  }

  std::vector<Slot> slots_;
  int shift_ = 0;
};

}  // namespace hayfork::engine
