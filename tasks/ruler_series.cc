#include "tasks/ruler_series.h"

#include <algorithm>

#include "base/error.h"
#include "engine/text/tokenizer.h"

namespace hayfork::tasks {

using datasets::RulerState;

RulerSeries::RulerSeries(const datasets::RulerTask& task, const RulerData& data, datasets::RulerOptions options,
                         const engine::Tokenizer& tokenizer, bool special) {
  // The text that was counted last is mostly the prompt that fitted: its ids need no second pass.
  options.count = [this, &tokenizer, special](std::string_view text) {
    last_ = tokenizer.encode(text, {.add_special = special, .parse_special = true});
    return static_cast<int64_t>(last_.size());
  };
  options.split = [&data](const std::string& text) { return data.split(text); };
  generator_ = datasets::make_ruler_generator(task, data.sources(), options);
  states_.push_back(generator_->start());
}

RulerSeries::Drawn RulerSeries::get(int64_t index) {
  const std::lock_guard lock(mutex_);
  const auto i = static_cast<size_t>(index);
  if (const auto it = waiting_.find(index); it != waiting_.end()) {
    Drawn drawn = std::move(it->second);
    waiting_.erase(it);
    return drawn;
  }
  if (i + 1 < states_.size()) {
    RulerState again = states_[i];
    return draw(again);
  }
  for (;;) {
    const auto number = static_cast<int64_t>(states_.size()) - 1;
    RulerState state = states_.back();
    Drawn drawn = draw(state);
    states_.push_back(std::move(state));
    if (number == index) return drawn;
    if (waiting_.size() < kMostWaiting) waiting_.emplace(number, std::move(drawn));
  }
}

RulerSeries::Drawn RulerSeries::draw(RulerState& state) {
  Drawn drawn{generator_->draw(state), {}};
  drawn.ids = std::move(last_);
  return drawn;
}

std::optional<int64_t> smallest_ruler_length(const datasets::RulerTask& task, const RulerData& data,
                                             const std::function<datasets::RulerOptions(int64_t)>& options,
                                             const engine::Tokenizer& tokenizer, bool special, int64_t too_small,
                                             int64_t samples) {
  constexpr int64_t kMost = 65536, kTried = 50;
  const auto works = [&](int64_t length) {
    try {
      RulerSeries series(task, data, options(length), tokenizer, special);
      for (int64_t i = 0; i < std::min(samples, kTried); ++i) series.get(i);
      return true;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::usage) throw;
      return false;
    }
  };
  int64_t low = too_small, high = std::max<int64_t>(128, 2 * too_small);
  while (!works(high)) {
    low = high;
    if (high >= kMost) return std::nullopt;
    high *= 2;
  }
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (works(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace hayfork::tasks
