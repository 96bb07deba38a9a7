// Collects the rows of one forward pass in the order that Pass wants: by kind, stream, sequence, position.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/rows.h"

namespace hayfork::engine {

class PassBuilder {
 public:
  void clear() {
    for (auto& bucket : buckets_) bucket.clear();
    rows_.clear();
    seqs_.clear();
    n_want_ = 0;
  }
  // Sequences get numbers in the order they are added; rows of a sequence are added in ascending position.
  int32_t add_sequence(const SeqView& view) {
    seqs_.push_back(view);
    return static_cast<int32_t>(seqs_.size()) - 1;
  }
  void set_view(int32_t seq, const SeqView& view) { seqs_[static_cast<size_t>(seq)] = view; }
  void add(const Row& row) { buckets_[bucket(row.kind, row.stream)].push_back(row); }
  int32_t next_want() { return n_want_++; }
  int64_t n_rows(RowKind kind, Stream stream) const {
    return static_cast<int64_t>(buckets_[bucket(kind, stream)].size());
  }
  int64_t n_rows() const {
    int64_t n = 0;
    for (const auto& b : buckets_) n += static_cast<int64_t>(b.size());
    return n;
  }
  // Valid until the next clear() or add.
  Pass pass() {
    rows_.clear();
    for (const auto& b : buckets_) rows_.insert(rows_.end(), b.begin(), b.end());
    return {rows_, seqs_, n_want_};
  }

 private:
  static size_t bucket(RowKind kind, Stream stream) {
    return static_cast<size_t>(kind) * 2 + static_cast<size_t>(stream);
  }
  std::array<std::vector<Row>, 4> buckets_;
  std::vector<Row> rows_;
  std::vector<SeqView> seqs_;
  int32_t n_want_ = 0;
};

}  // namespace hayfork::engine
