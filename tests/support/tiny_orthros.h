// A llama or Qwen3 of a few thousand parameters with Orthros over it, its backbone beside it, and a runner that makes
// passes by hand: which rows stand in which pass is the test's own choice. On any device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/context.h"
#include "engine/model.h"
#include "tests/support/tiny_checkpoint.h"

namespace hayfork::test {

struct OrthrosShape {
  std::string name;
  std::string backbone = "llama";  // or qwen3
  std::string stage;               // "", pre_norm, post_norm
  bool identity = false;           // scale 1, offset 0
  int n_layers = 3, n_heads = 4, n_kv_heads = 2, head_dim = 16;
  int window = 5;
  std::vector<int> layers;  // empty: all

  bool has_orthros(int layer) const;
};

// Hidden size 48, vocabulary 41.
TinyCheckpoint tiny_orthros(const OrthrosShape& shape);
// The same tensors without the Orthros block and its affines.
TinyCheckpoint backbone_of(const TinyCheckpoint& orthros);

using MakeContext = std::function<std::unique_ptr<engine::Context>(engine::DType)>;

class OrthrosRunner {
 public:
  // Writes the checkpoint to a folder of its own and loads it. K/V have the weights' type.
  OrthrosRunner(const TinyCheckpoint& checkpoint, const MakeContext& make_context, engine::DType type);
  // Loads what is there already.
  OrthrosRunner(const std::filesystem::path& folder, const MakeContext& make_context, engine::DType type);

  using Ids = std::vector<int32_t>;
  using Logits = std::vector<std::vector<float>>;  // [position asked for][vocabulary]

  // Passes of `chunk` positions; the row of each asked position stands in the pass of its base row.
  Logits scores(const Ids& ids, const Ids& positions, int32_t chunk);
  // All base rows first, then one pass of output rows alone.
  Logits late_scores(const Ids& ids, const Ids& positions);
  // Prefill of the first n_prompt ids, then the others one by one as if they had been generated: positions n_prompt − 1
  // and later.
  Logits decode_scores(const Ids& ids, int32_t n_prompt);
  // K, then V, of a layer, with output rows at `positions` beside.
  std::vector<float> kv(const Ids& ids, int32_t layer, int32_t chunk, const Ids& positions);

  engine::Model& model() { return *model_; }
  engine::Context& context() { return *context_; }
  engine::DType type() const { return type_; }

 private:
  struct Timeline;
  void pass(Timeline& line, int32_t begin, int32_t end, const Ids& positions, engine::RowKind kind, bool base,
            Logits* logits);

  engine::DType type_;
  std::unique_ptr<engine::Context> context_;
  std::unique_ptr<engine::Model> model_;
};

std::vector<int32_t> all_positions(int32_t n);  // 0 … n − 1

}  // namespace hayfork::test
