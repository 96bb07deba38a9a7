// Runs a checkpoint straight through Model::forward and head, one sequence at a time, and compares with the golden
// values kept beside it (tests/golden/README.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/context.h"
#include "engine/model.h"
#include "engine/safetensors.h"

namespace hayfork::test {

class GoldenModel {
 public:
  // On the CPU; `weights`: f32 or bf16.
  GoldenModel(const std::filesystem::path& folder, engine::DType weights);
  // On any device.
  GoldenModel(const std::filesystem::path& folder, std::unique_ptr<engine::Context> context);

  // Logits of every position, [T · V], computed in passes of `chunk` positions (0: all at once), as rows of `kind`.
  std::vector<float> logits(const std::vector<int32_t>& ids, int32_t chunk,
                            engine::RowKind kind = engine::RowKind::prefill);
  // Logits of the last position alone: no other row is wanted.
  std::vector<float> last_logits(const std::vector<int32_t>& ids, int32_t chunk);
  engine::Model& model() { return *model_; }
  engine::Context& context() { return *context_; }

  struct Sequence {
    std::vector<int32_t> ids;
    std::vector<float> logits64;     // [T · V]
    std::vector<float> logits_bf16;  // empty when the case has none
    std::vector<float> k_last, v_last;
    std::vector<int64_t> greedy;
  };
  std::vector<Sequence> sequences() const;
  // K and V of a layer after a prefill of `ids` in passes of `chunk`, [T · Hkv · d] each.
  void kv(const std::vector<int32_t>& ids, int32_t chunk, int32_t layer, std::vector<float>& k, std::vector<float>& v);

 private:
  void run(const std::vector<int32_t>& ids, int32_t chunk, engine::RowKind kind, bool last_only,
           std::vector<float>* logits, int32_t layer, std::vector<float>* k, std::vector<float>* v);

  std::filesystem::path folder_;
  std::unique_ptr<engine::Context> context_;
  std::unique_ptr<engine::Model> model_;
};

// max |a − b| / max |b|, and ‖a − b‖₂ / ‖b‖₂.
double relative_max(const std::vector<float>& a, const std::vector<float>& b);
double relative_l2(const std::vector<float>& a, const std::vector<float>& b);
double rms(const std::vector<float>& a, const std::vector<float>& b);  // of a − b

// Folders under `root` that hold a config.json, sorted.
std::vector<std::filesystem::path> golden_cases(const std::filesystem::path& root);

}  // namespace hayfork::test
