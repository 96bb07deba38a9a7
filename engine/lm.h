// What a task may ask a model: three requests (score, nll, generate), tokens in and tokens out. An Lm may be the
// embedded engine, a remote server, or a fake of the tests. Tasks know nothing below this header. The token boundary is
// explicit: whoever makes a request has already decided about BOS, chat template and truncation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/stop.h"

namespace hayfork::engine {

class Tokenizer;

// log p of each continuation given the context. The context is computed once for all its continuations.
struct ScoreRequest {
  std::vector<int32_t> context;  // may be empty only if the model has no need of a first token: then every continuation
                                 // needs ≥ 2 ids and its first is not scored
  std::vector<std::vector<int32_t>> continuations;  // each of ≥ 1 ids
  bool context_nll = false;                         // also the NLL of context ids 1…n−1
};

// −ln p(tokens[i] | tokens[0…i−1]) at the asked positions i ≥ 1; nothing means all of 1…T−1.
struct NllRequest {
  std::vector<int32_t> tokens;
  std::optional<std::vector<int32_t>> positions;  // ascending, unique, within 1…T−1
};

struct Sampling {
  float temperature = 0;  // 0: greedy, the lowest id among equals
  float top_p = 1;
  int32_t top_k = 0;  // 0: no limit
  uint64_t seed = 0;  // with temperature > 0; draws depend on the seed and the position only
};

struct GenerateRequest {
  std::vector<int32_t> prompt;  // ≥ 1 id
  int32_t max_new_tokens = 0;
  std::vector<std::string>
      stops;  // matched on text, across token borders; the answer's text ends before the earliest hit
  bool ignore_eos = false;
  Sampling sampling;
};

using Request = std::variant<ScoreRequest, NllRequest, GenerateRequest>;

struct ContinuationScore {
  double logprob = 0;  // sum in float64 of the float32 values below, in order
  std::vector<float> token_logprobs;
  bool is_greedy = false;  // every id was the arg max at its position
};
struct ScoreAnswer {
  std::vector<ContinuationScore> continuations;
  double context_nll = 0;  // when asked
  int32_t context_nll_tokens = 0;
};
struct NllAnswer {
  std::vector<float> nll;  // one a position asked for
};
enum class Finish { eos, stop, length };
struct GenerateAnswer {
  std::vector<int32_t> ids;  // all generated ids, the end-of-text id included when it ended the answer
  std::string text;          // decoded without special tokens, cut before the stop string
  Finish finish = Finish::length;
  std::string stop;             // the stop string that was hit
  std::vector<float> logprobs;  // of each generated id
};

// What it took; stored with the sample, never part of its identity.
struct Effort {
  int64_t rows_base = 0;    // rows computed for this request in the base stream (shared ones count for the first user)
  int64_t rows_output = 0;  // and in the output stream
  int64_t rows_reused = 0;  // positions taken over from an earlier request's cache
  double prefill_ms = 0;
  double decode_ms = 0;
  int32_t batch_size = 0;  // sequences in flight, the largest seen
};

// A request that could not be answered: too long, not finite, out of memory. It is a sample's error, never a score.
struct Failure {
  ErrorCode code;
  std::string message;
};

struct Answer {
  size_t index = 0;  // of the request in the list handed over
  std::variant<Failure, ScoreAnswer, NllAnswer, GenerateAnswer> result;
  Effort effort;
};
using AnswerSink = std::function<void(Answer)>;

// What is known about a model without running it (store columns, plan lines, `show model`).
struct LayerInfo {
  std::string kind;      // "full", "swa", "orthros", "gdn", "mamba2", "lightning", …
  int32_t window = 0;    // 0: none
  std::string position;  // "rope", "nope"
  int32_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  int64_t state_bytes_per_token = 0;  // in the K/V dtype in use
  int64_t state_bytes_fixed = 0;      // per sequence
};
struct ModelInfo {
  std::string name;        // folder name or random:<shape>
  std::string family;      // model_type
  std::string arch;        // "full", "swa", "gdn", "mamba2", "orthros", "hybrid"
  std::string arch_label;  // for people: "SWA-64 ×3 + full"
  std::string path;
  int64_t n_params = 0, n_params_no_embedding = 0;
  int32_t vocab_size = 0;  // rows of the output matrix
  int32_t hidden_size = 0;
  int32_t max_length = 0;  // max_position_embeddings
  // How many tokens up to a position, itself included, its K/V in every layer and its hidden state behind the last one
  // depend on (base stream); 0: all.
  int64_t kv_reach_tokens = 0, hidden_reach_tokens = 0;
  std::vector<LayerInfo> layers;
  std::vector<int32_t> eos_ids;  // union of config.json and generation_config.json
  std::string weights_sha256, config_sha256, tokenizer_sha256, template_sha256;
  std::string weights_provenance;  // "", "converted-untrained", "random"
  int64_t train_tokens = 0;        // as hayfork.json says; 0: it does not
  std::string dtype, kv_dtype, device;
  std::string numerics_id;  // equal ids, equal bits
};

// An estimate made from the requests alone: nothing is run.
struct WorkPlan {
  int64_t n_requests = 0, prompt_tokens = 0, rows_planned = 0, rows_reused = 0, new_tokens = 0;
  int32_t batch_size = 0;
  int64_t peak_bytes = 0;
};

class Lm {
 public:
  virtual ~Lm() = default;
  virtual const ModelInfo& info() const = 0;
  virtual const Tokenizer* tokenizer() const = 0;  // null: only id requests can be made

  // Answers every request exactly once, in any order, through `sink` (called from the calling thread only). Returns
  // early, with unanswered requests left out, when `stop` is raised. Throws: resource or device when the whole run must
  // end.
  virtual void answer(std::span<const Request> requests, const AnswerSink& sink, const StopFlag& stop) = 0;
  virtual WorkPlan plan(std::span<const Request> requests) const = 0;
};

}  // namespace hayfork::engine
