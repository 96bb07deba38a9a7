#include "engine/text/bpe_scratch.h"

#include <algorithm>
#include <cstring>

namespace hayfork::engine {

WordCache::WordCache() : slots_(kSlots) {}

std::span<const int32_t> WordCache::find(std::string_view word, size_t hash) const {
  const Slot& slot = slots_[hash & (kSlots - 1)];
  if (slot.key_size != word.size() || std::memcmp(slot.key.data(), word.data(), word.size()) != 0) return {};
  return {slot.ids.data(), slot.n_ids};
}

void WordCache::store(std::string_view word, size_t hash, std::span<const int32_t> ids) {
  if (word.empty() || word.size() > kMaxKey || ids.empty() || ids.size() > kMaxIds) return;
  Slot& slot = slots_[hash & (kSlots - 1)];
  slot.key_size = static_cast<uint8_t>(word.size());
  slot.n_ids = static_cast<uint8_t>(ids.size());
  std::copy(word.begin(), word.end(), slot.key.begin());
  std::copy(ids.begin(), ids.end(), slot.ids.begin());
}

}  // namespace hayfork::engine
