// The model's vocabulary: token texts by id and ids by text, in one block of memory and one open-addressing table each
// way. Made for fast loading: a quarter of a million tokens in some tens of milliseconds.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hayfork::engine {

// Texts to small integers; the texts belong to somebody else and must stay where they are.
class TextTable {
 public:
  // Room for n entries.
  void reserve(size_t n);
  // False when the text is there already.
  bool insert(std::string_view text, int32_t value);
  int32_t find(std::string_view text) const;  // -1 when absent

 private:
  struct Slot {
    std::string_view text;
    int32_t value = -1;
  };
  size_t slot_of(std::string_view text) const;
  std::vector<Slot> slots_;
  size_t used_ = 0;
};

class Vocabulary {
 public:
  // Reading: add every entry, then close(). `text` is copied. Throws: corrupt for an id below 0.
  void add(std::string_view text, int64_t id);
  // Throws: corrupt for equal texts, equal ids, or ids far beyond the number of entries.
  void close();

  size_t size() const { return entries_.size(); }
  int32_t id_limit() const { return static_cast<int32_t>(by_id_.size()); }  // one more than the largest id
  int32_t find(std::string_view text) const { return table_.find(text); }   // -1 when absent
  bool has(int32_t id) const { return id >= 0 && id < id_limit() && by_id_[static_cast<size_t>(id)] >= 0; }
  // Requires: has(id).
  std::string_view text(int32_t id) const;
  size_t longest() const { return longest_; }  // bytes of the longest token
  void for_each(const std::function<void(std::string_view text, int32_t id)>& f) const;

 private:
  struct Entry {
    size_t offset;
    uint32_t length;
    int32_t id;
  };
  std::string_view text_of(const Entry& e) const { return {texts_.data() + e.offset, e.length}; }

  std::vector<char> texts_;  // not a string: moving must leave the texts where they are
  std::vector<Entry> entries_;
  std::vector<int32_t> by_id_;  // index into entries_, -1 for a gap
  TextTable table_;
  size_t longest_ = 0;
};

}  // namespace hayfork::engine
