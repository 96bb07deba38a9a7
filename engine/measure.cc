#include "engine/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/rng.h"
#include "base/units.h"
#include "engine/memory_plan.h"

namespace hayfork::engine {
namespace {

using Clock = std::chrono::steady_clock;

// Steps of decode before the timed ones where steps are recorded: one that shows what a shape needs, one that is
// recorded.
constexpr int32_t kStepsBefore = 2;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Blocks by window group, one a sequence more than it can need.
std::vector<int32_t> blocks(const Model& model, int32_t batch, int32_t longest, int32_t step) {
  const auto up = [](int32_t positions) { return (positions + kBlockTokens - 1) / kBlockTokens; };
  std::vector<int32_t> counts;
  for (const int32_t window : Cache::windows(model.state_specs())) {
    const int32_t all = up(longest);
    counts.push_back(batch * ((window > 0 ? std::min(all, up(window - 1 + step) + 1) : all) + 1));
  }
  return counts;
}

}  // namespace

// Sequences of one length in a cache of their own.
struct Measurer::Sequences {
  Sequences(Model& model, Context& context, DType kv_dtype, int32_t batch, int32_t longest, int32_t step)
      : cache(context, model.state_specs(), kv_dtype, blocks(model, batch, longest, step), batch), total(longest) {
    for (int32_t b = 0; b < batch; ++b) ids.push_back(cache.create());
  }
  ~Sequences() {
    for (const SeqId id : ids) cache.release(id);
  }
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;

  Cache cache;
  int32_t total, length = 0;
  std::vector<SeqId> ids;
  std::vector<int32_t> last;  // the newest token of each; ~slot while only the device knows it
  Rng rng{1};
};

Measurer::Measurer(Model& model, Context& context, DType kv_dtype, int32_t chunk, bool graphs)
    : model_(model), context_(context), kv_dtype_(kv_dtype), chunk_(chunk) {
  if (context.queues()) runner_ = std::make_unique<PassRunner>(model, context, graphs);
}

Measurer::~Measurer() = default;

// One pass over the next n positions of every sequence.
void Measurer::pass(Sequences& s, int32_t n, RowKind kind, bool want) {
  std::vector<Row> rows;
  const bool two = model_.two_streams();
  const auto vocab = static_cast<uint64_t>(model_.info().vocab_size);
  for (size_t b = 0; b < s.ids.size(); ++b) {
    const auto seq = static_cast<int32_t>(b);
    HAY_CHECK(s.cache.extend(s.ids[b], s.length + n), "the cache was made large enough");
    for (int32_t i = 0; i < n; ++i) {
      const int32_t token = kind == RowKind::decode ? s.last[b] : static_cast<int32_t>(s.rng.below(vocab));
      const bool wanted = want && !two && i + 1 == n;
      rows.push_back({token, s.length + i, seq, Stream::base, kind, wanted ? seq : -1});
    }
  }
  for (size_t b = 0; want && two && b < s.ids.size(); ++b) {
    Row row = rows[(b + 1) * static_cast<size_t>(n) - 1];
    row.stream = Stream::output;
    row.want = row.seq;
    rows.push_back(row);
  }
  s.length += n;
  std::vector<SeqView> views;
  for (const SeqId id : s.ids) views.push_back(s.cache.view(id, s.total));
  std::vector<HeadQuery> queries;
  for (size_t b = 0; want && b < s.ids.size(); ++b) queries.push_back({static_cast<int32_t>(b), {}, nullptr});
  const Pass pass{rows, views, static_cast<int32_t>(queries.size())};
  if (!runner_) {
    const auto begin = Clock::now();
    const ForwardResult result = model_.forward(context_, pass, s.cache);
    if (want) take(s, model_.head(context_, result.hidden, queries));
    device_ms_ += ms_since(begin);
    return;
  }
  runner_->submit(pass, s.cache, queries);
  for (size_t b = 0; want && b < s.ids.size(); ++b) s.last[b] = ~static_cast<int32_t>(b);
  while (runner_->pending() >= PassRunner::kInFlight) device_ms_ += runner_->collect().ms;
}

void Measurer::take(Sequences& s, const std::vector<HeadResult>& heads) {
  for (size_t b = 0; b < heads.size(); ++b) s.last[b] = heads[b].argmax;
}

void Measurer::settle(Sequences& s) {
  while (runner_ && runner_->pending() > 0) {
    const PassResults results = runner_->collect();
    device_ms_ += results.ms;
    take(s, results.heads);
  }
}

void Measurer::check_fits(const MeasureCase& what, const MemoryPlan& plan, int32_t step) const {
  const std::vector<StateSpec> specs = model_.state_specs();
  const int64_t longest = int64_t{what.depth} + what.n_prompt + what.n_gen;
  // Sequences have one block more than they need.
  const int64_t needed = sequences_bytes(specs, kv_dtype_, longest + kBlockTokens, what.batch, step);
  if (needed <= plan.cache_budget_bytes && longest < (1 << 30)) return;
  const int64_t most = longest_that_fits(specs, kv_dtype_, plan.cache_budget_bytes, what.batch, step) - kBlockTokens;
  throw Error(ErrorCode::resource, ErrorSubject::memory,
              fmt::format("{} sequences of {} tokens do not fit", what.batch, longest),
              {.where = {},
               .why = fmt::format("their keys and values take {}, and there is room for {}",
                                  format_bytes(static_cast<double>(needed)),
                                  format_bytes(static_cast<double>(plan.cache_budget_bytes))),
               .next = fmt::format("at most {} tokens fit; use a smaller batch, or --kv-dtype bf16",
                                   std::max<int64_t>(most, 0))});
}

Measurement Measurer::run(const MeasureCase& what) {
  if (what.batch < 1 || what.depth < 0 || what.n_prompt < 0 || what.n_gen < 0 || what.depth + what.n_prompt < 1) {
    throw Error(ErrorCode::usage, ErrorSubject::general, "nothing to measure: no sequence, or no token in it");
  }
  if (runner_) runner_->drop();  // what a run that ended early has left
  const int32_t longest = what.depth + what.n_prompt + what.n_gen + (runner_ ? kStepsBefore : 0);
  const MemoryPlan plan =
      plan_passes(model_, context_, {.chunk = chunk_, .batch_size = what.batch, .kv_dtype = kv_dtype_});
  const int32_t step = std::max(plan.chunk / what.batch, 1);
  check_fits(what, plan, step);
  Sequences s(model_, context_, kv_dtype_, what.batch, longest, step);
  s.last.assign(static_cast<size_t>(what.batch), 0);
  Measurement result;
  const int64_t most = std::clamp(std::max(what.depth, what.n_prompt), 1, step) * int64_t{what.batch};
  const int64_t scratch = model_.scratch_bytes(most, what.batch);
  context_.arena().reserve(static_cast<size_t>(scratch));
  result.planned_bytes = model_.weight_bytes() + s.cache.bytes() + scratch + context_.fixed_bytes();
  const auto prefill = [&](int32_t n) {
    for (int32_t at = 0; at < n; at += step) {
      const int32_t some = std::min(step, n - at);
      pass(s, some, RowKind::prefill, at + some == n);
    }
    settle(s);
  };
  prefill(what.depth);
  device_ms_ = 0;
  auto begin = Clock::now();
  prefill(what.n_prompt);
  result.prefill_ms = what.n_prompt > 0 ? ms_since(begin) : 0;
  if (runner_ && what.n_gen > 0) {
    const double so_far = device_ms_;
    for (int32_t i = 0; i < kStepsBefore; ++i) pass(s, 1, RowKind::decode, true);
    settle(s);
    device_ms_ = so_far;
  }
  begin = Clock::now();
  for (int32_t i = 0; i < what.n_gen; ++i) pass(s, 1, RowKind::decode, true);
  settle(s);
  result.decode_ms = what.n_gen > 0 ? ms_since(begin) : 0;
  if (const double wall = result.prefill_ms + result.decode_ms; wall > 0)
    result.busy = std::min(1.0, device_ms_ / wall);
  result.peak_bytes = context_.peak_bytes();
  if (result.peak_bytes == 0) {
    result.peak_bytes = model_.weight_bytes() + s.cache.bytes() + static_cast<int64_t>(context_.arena().peak_bytes());
  }
  return result;
}

}  // namespace hayfork::engine
