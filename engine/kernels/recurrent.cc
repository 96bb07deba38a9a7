#include "engine/kernels/recurrent.h"

#include <algorithm>

#include "base/error.h"

namespace hayfork::engine {

std::vector<SequenceRows> rows_by_sequence(const Pass& pass) {
  std::vector<SequenceRows> all(pass.seqs.size());
  for (size_t i = 0; i < pass.rows.size(); ++i) {
    const Row& row = pass.rows[i];
    SequenceRows& sequence = all[static_cast<size_t>(row.seq)];
    (row.stream == Stream::base ? sequence.base : sequence.output).push_back(static_cast<int32_t>(i));
  }
  const auto position = [&](int32_t row) { return pass.rows[static_cast<size_t>(row)].pos; };
  std::vector<SequenceRows> used;
  for (size_t s = 0; s < all.size(); ++s) {
    SequenceRows& sequence = all[s];
    if (sequence.base.empty() && sequence.output.empty()) continue;
    sequence.seq = static_cast<int32_t>(s);
    for (auto* rows : {&sequence.base, &sequence.output}) {  // prefill rows stand before decode rows in a pass
      std::stable_sort(rows->begin(), rows->end(), [&](int32_t a, int32_t b) { return position(a) < position(b); });
    }
    for (size_t i = 1; i < sequence.base.size(); ++i) {
      HAY_CHECK(position(sequence.base[i]) == position(sequence.base[i - 1]) + 1, "base rows leave a gap");
    }
    used.push_back(std::move(sequence));
  }
  return used;
}

}  // namespace hayfork::engine
