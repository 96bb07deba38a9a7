#include "engine/text/vocabulary.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"

namespace hayfork::engine {
namespace {

constexpr int64_t kMaxId = (int64_t{1} << 31) - 2;

[[noreturn]] void bad_vocabulary(const std::string& why) {
  throw Error(ErrorCode::corrupt, ErrorSubject::model, "the tokenizer's vocabulary is malformed",
              {.where = "tokenizer.json, model.vocab", .why = why, .next = {}});
}

}  // namespace

void TextTable::reserve(size_t n) {
  const size_t wanted = std::bit_ceil(std::max<size_t>(16, n * 2));
  if (wanted <= slots_.size()) return;
  std::vector<Slot> old(wanted);
  old.swap(slots_);
  for (const Slot& slot : old)
    if (slot.value >= 0) slots_[slot_of(slot.text)] = slot;
}

size_t TextTable::slot_of(std::string_view text) const {
  const size_t mask = slots_.size() - 1;
  size_t i = std::hash<std::string_view>{}(text)&mask;
  while (slots_[i].value >= 0 && slots_[i].text != text) i = (i + 1) & mask;
  return i;
}

bool TextTable::insert(std::string_view text, int32_t value) {
  if ((used_ + 1) * 2 > slots_.size()) reserve(std::max<size_t>(8, used_ * 2));
  Slot& slot = slots_[slot_of(text)];
  if (slot.value >= 0) return false;
  slot = {text, value};
  ++used_;
  return true;
}

int32_t TextTable::find(std::string_view text) const {
  return slots_.empty() ? -1 : slots_[slot_of(text)].value;
}

void Vocabulary::add(std::string_view text, int64_t id) {
  if (id < 0 || id > kMaxId) bad_vocabulary(fmt::format("token \"{}\" has the id {}", printable(text), id));
  entries_.push_back({texts_.size(), static_cast<uint32_t>(text.size()), static_cast<int32_t>(id)});
  texts_.insert(texts_.end(), text.begin(), text.end());
  longest_ = std::max(longest_, text.size());
}

void Vocabulary::close() {
  int64_t limit = 0;
  for (const Entry& e : entries_) limit = std::max<int64_t>(limit, int64_t{e.id} + 1);
  // A sparse vocabulary would need memory out of all proportion to the file.
  if (limit > static_cast<int64_t>(entries_.size()) * 4 + 65536)
    bad_vocabulary(fmt::format("largest id {} with only {} tokens", limit - 1, entries_.size()));
  by_id_.assign(static_cast<size_t>(limit), -1);
  table_.reserve(entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& e = entries_[i];
    int32_t& index = by_id_[static_cast<size_t>(e.id)];
    if (index >= 0) {
      bad_vocabulary(fmt::format("tokens \"{}\" and \"{}\" have the same id {}",
                                 printable(text_of(entries_[static_cast<size_t>(index)])), printable(text_of(e)),
                                 e.id));
    }
    index = static_cast<int32_t>(i);
    if (!table_.insert(text_of(e), e.id))
      bad_vocabulary(fmt::format("token \"{}\" stands twice", printable(text_of(e))));
  }
}

std::string_view Vocabulary::text(int32_t id) const {
  return text_of(entries_[static_cast<size_t>(by_id_[static_cast<size_t>(id)])]);
}

void Vocabulary::for_each(const std::function<void(std::string_view text, int32_t id)>& f) const {
  for (const Entry& e : entries_) f(text_of(e), e.id);
}

}  // namespace hayfork::engine
