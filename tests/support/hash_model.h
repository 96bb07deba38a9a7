// A model made of hashes for tests of whatever feeds models: every row's value mixes all it should have read through
// the cache, in order, so that a wrong block table, a missing position, a stale copy-on-write or a lost row changes the
// answer. expected() computes the same from plain arrays. Float32 K/V only.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/model.h"

namespace hayfork::test {

class HashModel : public engine::Model {
 public:
  enum class Layer { full, window, recurrent };
  struct Options {
    std::vector<Layer> layers{Layer::full, Layer::full};
    int32_t window = 0;        // of window layers
    bool two_streams = false;  // window layers: base rows see the window, output rows everything
    int32_t vocab_size = 13;
    int32_t max_length = 0;
    int32_t bad_token = -1;       // its base rows are not finite from layer 1 on
    int32_t bad_head_token = -1;  // rows that read it have logits that are not finite
    int32_t rope_limit = 0;       // > 0: requests longer than this have other tables
    std::vector<int32_t> eos;
  };

  explicit HashModel(Options options);

  const engine::ModelInfo& info() const override { return info_; }
  bool two_streams() const override { return options_.two_streams; }
  std::vector<engine::StateSpec> state_specs() const override;
  int32_t rope_class(int32_t n_tokens) const override {
    return options_.rope_limit > 0 && n_tokens > options_.rope_limit ? 1 : 0;
  }
  engine::ForwardResult forward(engine::Context& context, const engine::Pass& pass, engine::Cache& cache) override;
  std::vector<engine::HeadResult> head(engine::Context& context, engine::Matrix hidden,
                                       std::span<const engine::HeadQuery> queries) override;
  // Rows of position −1 do nothing; a token ~s is the arg max of slot s of the pass before.
  bool records() const override { return true; }
  engine::QueuedPass queue(engine::Context& context, const engine::Pass& pass, engine::Cache& cache,
                           std::span<const engine::HeadQuery> queries) override;
  int64_t weight_bytes() const override { return 1000; }
  int64_t scratch_bytes(int64_t n_rows, int64_t n_want) const override { return 100 * (n_rows + n_want); }

  // Logits of the row at the end of `tokens`, of which the last n_decode were fed by a generation; `planned` is the
  // request's total length.
  std::vector<float> expected(std::span<const int32_t> tokens, int32_t n_decode, int32_t planned) const;
  // log softmax as head() gives it.
  static float logprob(std::span<const float> logits, int32_t id);
  static int32_t argmax(std::span<const float> logits);

  // Called before each forward; may throw.
  std::function<void(const engine::Pass&)> before_forward;
  int64_t n_base_rows = 0, n_output_rows = 0;

 private:
  std::vector<float> logits(uint64_t hidden) const;

  std::vector<int32_t> last_ids_;  // arg max by slot
  Options options_;
  engine::ModelInfo info_;
};

}  // namespace hayfork::test
