#include "engine/engine.h"

#include <fmt/format.h>

#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "engine/measure.h"
#include "engine/model.h"
#include "engine/resolve.h"
#include "engine/scheduler.h"
#include "engine/text/tokenizer.h"
#include "engine/weights.h"

namespace hayfork::engine {
namespace {

class EmbeddedEngine : public Engine {
 public:
  EmbeddedEngine(const std::filesystem::path& folder, const EngineOptions& options)
      : resolved_(resolve(options)),
        tokenizer_(load_tokenizer(folder, options)),
        chunk_(options.chunk),
        graphs_(options.graphs) {
    model_ = load_model(*resolved_.context, folder, {options.ignored_config_keys, options.events});
    info_ = model_->info();
    info_.device = resolved_.device;
    info_.dtype = name(resolved_.context->weights());
    info_.kv_dtype = name(resolved_.kv_dtype);
    info_.numerics_id = resolved_.numerics_id;
    if (options.weights_digest && info_.weights_sha256.empty()) {
      info_.weights_sha256 = weights_digest(folder, options.digest_cache);
    }
    if (tokenizer_) {
      info_.tokenizer_sha256 = tokenizer_->digest();
      if (const auto source = tokenizer_->chat_template()) info_.template_sha256 = sha256_hex(*source);
    }
    fill_state_bytes();
    scheduler_ = std::make_unique<Scheduler>(*model_, *resolved_.context, tokenizer_.get(), scheduler_options(options));
  }

  const ModelInfo& info() const override { return info_; }
  const Tokenizer* tokenizer() const override { return tokenizer_.get(); }
  void answer(std::span<const Request> requests, const AnswerSink& sink, const StopFlag& stop) override {
    scheduler_->answer(requests, sink, stop);
  }
  WorkPlan plan(std::span<const Request> requests) const override { return scheduler_->plan(requests); }
  EngineStats stats() const override { return scheduler_->stats(); }
  Measurement measure(const MeasureCase& what) override {
    if (!measurer_) {
      measurer_ = std::make_unique<Measurer>(*model_, *resolved_.context, resolved_.kv_dtype, chunk_, graphs_);
    }
    return measurer_->run(what);
  }
  std::vector<ExpertLoad> expert_load() const override { return model_->expert_load(*resolved_.context); }
  void logits(std::span<const int32_t> ids, bool all_rows,
              const std::function<void(int32_t, const float*)>& sink) override {
    const std::vector<std::vector<int32_t>> one{{ids.begin(), ids.end()}};
    scheduler_->logits(one, all_rows, [&](size_t, int32_t position, const float* row) { sink(position, row); });
  }
  void logits_of(std::span<const std::vector<int32_t>> sequences, bool all_rows,
                 const std::function<void(size_t, int32_t, const float*)>& sink) override {
    scheduler_->logits(sequences, all_rows, sink);
  }
  void kv(std::span<const int32_t> ids, int32_t layer, std::vector<float>& k, std::vector<float>& v) override {
    scheduler_->kv(ids, layer, k, v);
  }

 private:
  // A folder without a tokenizer answers requests made of ids; one that was named must be there.
  static std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder, const EngineOptions& options) {
    std::unique_ptr<Tokenizer> tokenizer;
    if (!options.tokenizer.empty()) {
      tokenizer = Tokenizer::load(options.tokenizer);
    } else if (Tokenizer::present(folder)) {
      tokenizer = Tokenizer::load(folder);
    } else {
      return nullptr;
    }
    for (const std::string& warning : tokenizer->warnings()) {
      if (options.events) options.events({Event::Level::warn, "HAY-W011", warning, {}});
    }
    return tokenizer;
  }

  SchedulerOptions scheduler_options(const EngineOptions& options) const {
    if (options.batch_size < 0 || options.chunk < 0 || options.memory_limit_bytes < 0) {
      throw Error(ErrorCode::usage, ErrorSubject::general, "batch size, chunk and memory limit must be 0 or more");
    }
    return {.memory = {.chunk = options.chunk,
                       .batch_size = options.batch_size,
                       .bytes = options.memory_limit_bytes,
                       .kv_dtype = resolved_.kv_dtype},
            .prefix_reuse = options.prefix_reuse,
            .order = options.order,
            .order_seed = options.order_seed,
            .allow_beyond_window = options.allow_beyond_window,
            .graphs = options.graphs};
  }

  // The model counts K/V in the type of its weights; what is stored may be another.
  void fill_state_bytes() {
    const std::vector<StateSpec> specs = model_->state_specs();
    for (size_t i = 0; i < specs.size() && i < info_.layers.size(); ++i) {
      const StateSpec& spec = specs[i];
      info_.layers[i].state_bytes_per_token =
          int64_t{spec.n_kv_heads} * (spec.k_dim + spec.v_dim) * size_of(resolved_.kv_dtype);
    }
  }

  Resolved resolved_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Model> model_;
  ModelInfo info_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Measurer> measurer_;  // made when first asked
  int32_t chunk_;
  bool graphs_;
};

}  // namespace

std::unique_ptr<Engine> Engine::open(const std::filesystem::path& model, const EngineOptions& options) {
  return std::make_unique<EmbeddedEngine>(model, options);
}

}  // namespace hayfork::engine
