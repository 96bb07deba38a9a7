// One RULER task at one length: its samples one after another. Sample i is drawn from the state that sample i−1 left;
// states are kept, so that any sample can be made again, and what was drawn on the way to a later one waits for whoever
// asks for it. The result does not depend on the order in which samples are asked for, or by which threads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "datasets/ruler/ruler.h"
#include "tasks/ruler_data.h"
#include "tasks/text_ids.h"

namespace hayfork::tasks {

class RulerSeries {
 public:
  struct Drawn {
    datasets::RulerSample sample;
    Ids ids;  // of the text that was counted last: input and prefix, without BOS, unless the protocol counts less
  };

  // `options` without its counter and splitter; `special`: counts hold the tokenizer's own special tokens, as lm-eval's
  // do. All but the options are borrowed.
  RulerSeries(const datasets::RulerTask& task, const RulerData& data, datasets::RulerOptions options,
              const engine::Tokenizer& tokenizer, bool special);

  Drawn get(int64_t index);

 private:
  static constexpr size_t kMostWaiting = 128;

  Drawn draw(datasets::RulerState& state);

  std::mutex mutex_;
  Ids last_;
  std::unique_ptr<datasets::RulerGenerator> generator_;
  std::vector<datasets::RulerState> states_;  // states_[i]: with which sample i is drawn
  std::map<int64_t, Drawn> waiting_;
};

// The smallest length at which the first `samples` samples can be made, or nothing up to 64K. `options` gives a
// generator's for a length. Requires: `too_small` is not enough.
std::optional<int64_t> smallest_ruler_length(const datasets::RulerTask& task, const RulerData& data,
                                             const std::function<datasets::RulerOptions(int64_t)>& options,
                                             const engine::Tokenizer& tokenizer, bool special, int64_t too_small,
                                             int64_t samples);

}  // namespace hayfork::tasks
