// The cache's own bookkeeping: free ids, and the blocks of one window group with their reference counts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/error.h"
#include "engine/cache.h"

namespace hayfork::engine {

// Ids handed out lowest first, so that memory which was never needed is never touched.
class FreeIds {
 public:
  explicit FreeIds(int32_t n) : ids_(static_cast<size_t>(n)) {
    for (int32_t i = 0; i < n; ++i) ids_[static_cast<size_t>(i)] = i;  // ascending: a heap already
  }
  int32_t size() const { return static_cast<int32_t>(ids_.size()); }
  int32_t lowest() const { return ids_.front(); }  // Requires: size() > 0
  int32_t take() {
    std::pop_heap(ids_.begin(), ids_.end(), std::greater<>());
    const int32_t id = ids_.back();
    ids_.pop_back();
    n_touched_ = std::max(n_touched_, id + 1);
    return id;
  }
  int32_t n_touched() const { return n_touched_; }  // ids below it were taken at some time, the others never
  void put(int32_t id) {
    ids_.push_back(id);
    std::push_heap(ids_.begin(), ids_.end(), std::greater<>());
  }

 private:
  std::vector<int32_t> ids_;
  int32_t n_touched_ = 0;
};

struct BlockGroup {
  BlockGroup(int32_t window_, int32_t n) : window(window_), n_near(n), free(n), refs(static_cast<size_t>(n)) {}
  int32_t window;
  int32_t n_near;           // blocks from this one on are parking room
  int32_t base_window = 0;  // the widest of its layers
  FreeIds free;
  std::vector<int32_t> refs;
  std::vector<int32_t> layers;

  int32_t take() {
    const int32_t id = free.take();
    refs[static_cast<size_t>(id)] = 1;
    return id;
  }
  void hold(int32_t id) { ++refs[static_cast<size_t>(id)]; }
  void drop(int32_t id) {
    int32_t& count = refs[static_cast<size_t>(id)];
    HAY_CHECK(count > 0);
    if (--count == 0) free.put(id);
  }
  // Nothing but parking room is left.
  bool near_is_full() const { return free.size() > 0 && free.lowest() >= n_near; }
  // The first block that a row at `position` or later may still read.
  int32_t first_visible_block(int32_t position) const {
    return window == 0 ? 0 : std::max(0, position - window + 1) / kBlockTokens;
  }
};

}  // namespace hayfork::engine
