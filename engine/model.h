// A loaded model: owns its weights, keeps nothing between passes. forward() computes a ragged list of rows; the head
// turns wanted rows into what requests ask for. Families live in engine/models, layer mixers in engine/mixers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/events.h"
#include "engine/cache.h"
#include "engine/context.h"
#include "engine/expert_load.h"
#include "engine/kernels/ops.h"
#include "engine/lm.h"
#include "engine/rows.h"

namespace hayfork::engine {

// What to take from one wanted row.
struct HeadQuery {
  int32_t slot;                      // of Pass / Row::want
  std::span<const int32_t> targets;  // ids whose log-probability is wanted; may be empty
  float* logits = nullptr;           // host memory for all V logits, or null
  RowKind kind = RowKind::prefill;   // of the row
};
struct HeadResult {
  std::vector<float> target_logprobs;  // one a target, float32 log-softmax
  int32_t argmax = 0;                  // lowest id among equals
  float argmax_logprob = 0;
  float margin = 0;  // top1 − top2
  bool finite = true;
};

struct ForwardResult {
  Matrix hidden;  // [n_want, C] after the final norm, in the context's arena
  // First layer whose output held a NaN or infinity, per row of the pass; −1: none. Empty when every row is finite.
  std::vector<int32_t> nonfinite_layer;
};

// forward() and head() of all wanted rows on a device with a queue, not waited for: where the results will stand, in
// the context's arena.
struct QueuedPass {
  Matrix marks;       // as mark_nonfinite leaves them, of all rows
  Matrix last_marks;  // of the wanted rows alone, where the last layer computed no others; else without rows
  QueuedHead head;    // of slots 0 … n_want−1
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  // True: wanted rows are output rows beside the base rows (Orthros). False: wanted rows are base rows.
  virtual bool two_streams() const = 0;
  virtual std::vector<StateSpec> state_specs() const = 0;  // one a layer
  // Which rotary tables a request of `n_tokens` planned tokens uses: requests of one class may share K/V.
  // 0 for every model whose tables don't depend on the length.
  virtual int32_t rope_class(int32_t /*n_tokens*/) const { return 0; }
  // Resets the context's arena and begins the pass on the device.
  virtual ForwardResult forward(Context& context, const Pass& pass, Cache& cache) = 0;
  // One result a query, in order. Vocabulary logits exist only slab by slab.
  virtual std::vector<HeadResult> head(Context& context, Matrix hidden, std::span<const HeadQuery> queries) = 0;
  // Whether passes of one shape do the same work but for rows and block tables, so that they may be recorded once.
  virtual bool records() const { return false; }
  // Requires: context.queues(); one query a slot, in order, without logits. The results are the same bits.
  virtual QueuedPass queue(Context& context, const Pass& pass, Cache& cache, std::span<const HeadQuery> queries);
  virtual int64_t weight_bytes() const = 0;  // resident, in the compute type
  // One entry a layer with experts. Waits for the device.
  virtual std::vector<ExpertLoad> expert_load(Context& /*context*/) const { return {}; }
  // Scratch of one pass of `n_rows` rows with `n_want` wanted, for planning.
  virtual int64_t scratch_bytes(int64_t n_rows, int64_t n_want) const = 0;
};

HeadResult head_result(const HeadRowResult& row);
// Marks of the wanted rows in the last layer added to those of all rows (empty: none is bad, as in ForwardResult); a
// row that was bad before keeps its first layer. `wants`: Row::want of each row.
void merge_marks(std::span<const int32_t> wants, std::span<const int32_t> last_marks, int32_t last_layer,
                 std::vector<int32_t>& marks);

struct ModelOptions {
  std::vector<std::string> ignored_config_keys;  // --ignore-config-key
  EventSink events;                              // warnings
};

// Reads config.json, checks every key, maps the weights, packs them for the context's device. A `folder`
// of the form random:SHAPE is a made-up model. Throws: usage (its name), not_found, corrupt, unsupported
// (subject model); resource.
std::unique_ptr<Model> load_model(Context& context, const std::filesystem::path& folder, const ModelOptions& options);

}  // namespace hayfork::engine
