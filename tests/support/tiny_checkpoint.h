// A llama of a few hundred parameters that a test can damage before it is written: config.json as JSON, tensors as
// floats by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/tensor.h"

namespace hayfork::test {

struct TinyCheckpoint {
  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<float> values;
    engine::DType dtype = engine::DType::f32;  // f32, bf16 or i64
  };
  nlohmann::json config;
  std::map<std::string, Tensor> tensors;

  // 2 layers, hidden 8, 2 heads, 1 K/V head, vocabulary 16; weights from a fixed sequence.
  static TinyCheckpoint llama();
  void set(const std::string& name, std::vector<int64_t> shape);  // filled from the sequence
  // Writes config.json and model.safetensors, or `n_shards` shards with their index.
  void write(const std::filesystem::path& folder, int n_shards = 1) const;

 private:
  uint32_t state_ = 1;
};

}  // namespace hayfork::test
