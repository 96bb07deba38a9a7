// Turns tensors of a checkpoint into what ops take: packed linear weights and float32 vectors in the memory of the
// context's device. Every tensor is checked to be finite on the way, and its mapped pages are given back once packed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/context.h"
#include "engine/kernels/ops.h"
#include "engine/weights.h"

namespace hayfork::engine {

class Loader {
 public:
  // Both must outlive the Loader; the weights may go once loading is over.
  Loader(Context& context, Weights& weights) : context_(context), weights_(weights) {}

  // A tensor [n, k], or some of its rows in a given order, as part of a fused linear weight.
  struct Part {
    std::string weight;                             // tensor name
    int64_t n = 0;                                  // rows of the tensor
    std::string bias;                               // tensor name [n]; empty: none
    std::vector<std::pair<int64_t, int64_t>> rows;  // (first, count) pieces; empty: all
    int64_t slices = 0, slice = 0;                  // > 0: the tensor is [slices, n, k] and this is one of them
  };
  // Throws: as Weights.
  std::unique_ptr<LinearWeight> linear(const std::vector<Part>& parts, int64_t k);
  // The same parts as ops take them, for weights of other kinds; valid until `use` returns. Throws: as Weights.
  void with_parts(const std::vector<Part>& parts, int64_t k,
                  const std::function<void(std::span<const LinearPart>)>& use);
  // A float32 parameter in device memory; lives as long as the buffers (take_buffers).
  Vector vector(const std::string& name, const std::vector<int64_t>& shape);
  Vector vector(const std::vector<float>& values);  // made here, not read
  // Values of a small tensor, in host memory.
  std::vector<float> host(const std::string& name, const std::vector<int64_t>& shape);

  Context& context() { return context_; }
  Weights& weights() { return weights_; }
  // Resident bytes of what was loaded; parameters read from the file, each tensor once.
  int64_t bytes() const { return bytes_; }
  int64_t n_params() const { return n_params_; }
  void add_bytes(int64_t bytes) { bytes_ += bytes; }  // of weights made from with_parts() or from bytes
  void count(const std::string& tensor, int64_t n_params);
  std::vector<std::unique_ptr<Buffer>> take_buffers() { return std::move(buffers_); }

 private:
  Context& context_;
  Weights& weights_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::set<std::string> counted_;  // a tensor may be part of a fused weight in several pieces
  int64_t bytes_ = 0, n_params_ = 0;
};

}  // namespace hayfork::engine
