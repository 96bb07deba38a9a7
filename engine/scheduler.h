// Answers lists of requests with a model: makes an agenda of them, plans memory, and runs it; when memory runs short,
// it goes on with smaller passes and equal results. The only maker of rows. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/stop.h"
#include "engine/agenda.h"
#include "engine/cache.h"
#include "engine/context.h"
#include "engine/engine.h"
#include "engine/lm.h"
#include "engine/memory_plan.h"
#include "engine/model.h"
#include "engine/pass_runner.h"

namespace hayfork::engine {

class Answers;

struct SchedulerOptions {
  MemoryLimits memory;
  bool prefix_reuse = true;
  Order order = Order::planned;
  uint64_t order_seed = 0;
  bool allow_beyond_window = false;
  bool graphs = true;  // decode steps as recorded graphs, where the device has them
};

class Scheduler {
 public:
  // Everything is borrowed; `tokenizer` may be null.
  Scheduler(Model& model, Context& context, const Tokenizer* tokenizer, SchedulerOptions options);
  ~Scheduler();

  // As Lm::answer and Lm::plan.
  void answer(std::span<const Request> requests, const AnswerSink& sink, const StopFlag& stop);
  WorkPlan plan(std::span<const Request> requests) const;

  // Rows of logits of each sequence: all, or the last. `sink` gets (sequence, position, V floats). Throws: usage when a
  // sequence can't be asked, corrupt when a value is not finite, resource.
  using LogitsSink = std::function<void(size_t, int32_t, const float*)>;
  void logits(std::span<const std::vector<int32_t>> sequences, bool all_rows, const LogitsSink& sink);
  // K and V of one layer after a prefill: [T, Hkv, d] float32. Throws: usage, resource.
  void kv(std::span<const int32_t> ids, int32_t layer, std::vector<float>& k, std::vector<float>& v);

  const EngineStats& stats() const { return stats_; }
  // The cache of the last call, or null. Nothing is held in it between calls.
  const Cache* cache() const { return cache_.get(); }

 private:
  struct Round;
  void run(std::span<const Work> works, const AnswerSink& sink, const StopFlag& stop);
  bool run_round(Round& round, const StopFlag& stop);
  AgendaLimits agenda_limits(bool prefix_reuse) const;
  int64_t reach_tokens(const Agenda& agenda, bool prefix_reuse) const;
  bool make_cache(const MemoryPlan& plan);
  static void give_up(Answers& answers, std::span<const int32_t> jobs);

  Model& model_;
  Context& context_;
  const Tokenizer* tokenizer_;
  SchedulerOptions options_;
  std::vector<StateSpec> specs_;
  std::vector<int64_t> kind_bytes_;
  std::unique_ptr<Cache> cache_;        // kept from call to call as long as it is large enough
  std::vector<int32_t> cache_has_;      // amounts by kind
  std::unique_ptr<PassRunner> runner_;  // null where passes are not queued
  EngineStats stats_;
  double wall_ms_ = 0;  // spent in answer()
};

}  // namespace hayfork::engine
