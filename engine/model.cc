#include "engine/model.h"

#include "base/error.h"

namespace hayfork::engine {

QueuedPass Model::queue(Context&, const Pass&, Cache&, std::span<const HeadQuery>) {
  HAY_CHECK(false, "this model queues nothing");
}

// Differences in float64, each rounded once: log p = logit − ln Σ exp.
HeadResult head_result(const HeadRowResult& row) {
  HeadResult result;
  const auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - row.log_sum_exp); };
  for (const float logit : row.target_logits) result.target_logprobs.push_back(logprob(logit));
  result.argmax = row.argmax;
  result.argmax_logprob = logprob(row.top1);
  result.margin = row.top1 - row.top2;
  result.finite = row.finite;
  return result;
}

void merge_marks(std::span<const int32_t> wants, std::span<const int32_t> last_marks, int32_t last_layer,
                 std::vector<int32_t>& marks) {
  for (size_t i = 0; i < wants.size() && !last_marks.empty(); ++i) {
    if (wants[i] < 0 || last_marks[static_cast<size_t>(wants[i])] < 0) continue;
    if (marks.empty()) marks.assign(wants.size(), -1);
    if (marks[i] < 0) marks[i] = last_layer;
  }
}

}  // namespace hayfork::engine
