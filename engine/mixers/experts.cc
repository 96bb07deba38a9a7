#include "engine/mixers/experts.h"

#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "base/parallel.h"

namespace hayfork::engine {
namespace {

// A tensor an expert, or all gate and up rows in one tensor and all down rows in another.
void load_named(Loader& loader, const MoeSpec& spec, int64_t hidden, ExpertWeights& weights) {
  const std::string fused_gate_up = spec.experts + ".gate_up_proj", fused_down = spec.experts + ".down_proj";
  const bool fused = loader.weights().has(fused_gate_up);
  for (int64_t e = 0; e < spec.n_experts; ++e) {
    if (fused) {
      weights.gate_up.push_back(loader.linear({{fused_gate_up, 2 * spec.width, "", {}, spec.n_experts, e}}, hidden));
      weights.down.push_back(loader.linear({{fused_down, hidden, "", {}, spec.n_experts, e}}, spec.width));
      continue;
    }
    const std::string name = fmt::format("{}.{}.", spec.experts, e);
    weights.gate_up.push_back(loader.linear(
        {{name + spec.gate + ".weight", spec.width, "", {}}, {name + spec.up + ".weight", spec.width, "", {}}},
        hidden));
    weights.down.push_back(loader.linear({{name + spec.down + ".weight", hidden, "", {}}}, spec.width));
  }
}

// Rows 2i (gate) and 2i + 1 (up) of [2·width] become gate rows, then up rows.
int64_t separated(int64_t row, int64_t width) {
  return row % 2 == 0 ? row / 2 : width + row / 2;
}

std::vector<float> separate(const float* values, int64_t width) {
  std::vector<float> out(static_cast<size_t>(2 * width));
  for (int64_t i = 0; i < 2 * width; ++i) out[static_cast<size_t>(separated(i, width))] = values[i];
  return out;
}

// [k, n] (x · W) to [n, k], rows placed by `place`.
template <typename Place>
std::vector<float> transpose(const float* values, int64_t k, int64_t n, const Place& place) {
  std::vector<float> out(static_cast<size_t>(k * n));
  parallel_for(n, 16, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      float* to = out.data() + place(j) * k;
      for (int64_t i = 0; i < k; ++i) to[i] = values[i * n + j];
    }
  });
  return out;
}

void load_gpt_oss(Loader& loader, const MoeSpec& spec, int64_t hidden, ExpertWeights& weights) {
  const int64_t n = spec.n_experts, width = spec.width;
  const auto gate_up_bias = loader.host(spec.experts + ".gate_up_proj_bias", {n, 2 * width});
  const auto down_bias = loader.host(spec.experts + ".down_proj_bias", {n, hidden});
  const auto gate_up = loader.host(spec.experts + ".gate_up_proj", {n, hidden, 2 * width});
  const auto down = loader.host(spec.experts + ".down_proj", {n, width, hidden});
  for (int64_t e = 0; e < n; ++e) {
    const float* gu = gate_up.data() + e * hidden * 2 * width;
    weights.gate_up.push_back(
        loader.linear(transpose(gu, hidden, 2 * width, [&](int64_t j) { return separated(j, width); }),
                      separate(gate_up_bias.data() + e * 2 * width, width), 2 * width, hidden));
    const float* d = down.data() + e * width * hidden;
    const float* bias = down_bias.data() + e * hidden;
    weights.down.push_back(loader.linear(transpose(d, width, hidden, [](int64_t j) { return j; }),
                                         std::vector<float>(bias, bias + hidden), hidden, width));
  }
}

// A whole MXFP4 tensor [E, rows, k/32, 16] with exponents [E, rows, k/32].
class Mxfp4 {
 public:
  Mxfp4(Loader& loader, const std::string& name, int64_t n_experts, int64_t rows, int64_t k)
      : loader_(loader), name_(name), rows_(rows), blocks_per_row_(k / 32) {
    if (k % 32 != 0) {
      throw Error(ErrorCode::corrupt, ErrorSubject::model, fmt::format("tensor {} cannot be MXFP4", name),
                  {.where = name, .why = fmt::format("{} input channels do not divide into blocks of 32", k)});
    }
    blocks_ = loader.weights().bytes(name + "_blocks", std::vector<int64_t>{n_experts, rows, blocks_per_row_, 16});
    scales_ = loader.weights().bytes(name + "_scales", std::vector<int64_t>{n_experts, rows, blocks_per_row_});
    loader.count(name, n_experts * rows * k);
  }
  ~Mxfp4() {
    loader_.weights().drop(blocks_);
    loader_.weights().drop(scales_);
  }

  template <typename Place>
  std::vector<float> expert(int64_t e, const Place& place) const {
    const int64_t k = blocks_per_row_ * 32;
    std::vector<float> out(static_cast<size_t>(rows_ * k));
    parallel_for(rows_, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = (e * rows_ + row) * blocks_per_row_;
        const auto* blocks = reinterpret_cast<const uint8_t*>(blocks_.data) + at * 16;
        const auto* scales = reinterpret_cast<const uint8_t*>(scales_.data) + at;
        if (decode_mxfp4(blocks, scales, blocks_per_row_, out.data() + place(row) * k)) continue;
        throw Error(ErrorCode::corrupt, ErrorSubject::model, fmt::format("tensor {} holds a NaN", name_ + "_scales"),
                    {.where = fmt::format("expert {}, row {}", e, row), .why = "an exponent byte is 255"});
      }
    });
    return out;
  }

 private:
  Loader& loader_;
  std::string name_;
  int64_t rows_, blocks_per_row_;
  TensorView blocks_, scales_;
};

// Expanded to the compute type expert by expert: exact in bfloat16 and float32.
void load_mxfp4(Loader& loader, const MoeSpec& spec, int64_t hidden, ExpertWeights& weights) {
  const int64_t n = spec.n_experts, width = spec.width;
  const auto gate_up_bias = loader.host(spec.experts + ".gate_up_proj_bias", {n, 2 * width});
  const auto down_bias = loader.host(spec.experts + ".down_proj_bias", {n, hidden});
  const Mxfp4 gate_up(loader, spec.experts + ".gate_up_proj", n, 2 * width, hidden);
  const Mxfp4 down(loader, spec.experts + ".down_proj", n, hidden, width);
  for (int64_t e = 0; e < n; ++e) {
    weights.gate_up.push_back(loader.linear(gate_up.expert(e, [&](int64_t row) { return separated(row, width); }),
                                            separate(gate_up_bias.data() + e * 2 * width, width), 2 * width, hidden));
    const float* bias = down_bias.data() + e * hidden;
    weights.down.push_back(loader.linear(down.expert(e, [](int64_t row) { return row; }),
                                         std::vector<float>(bias, bias + hidden), hidden, width));
  }
}

}  // namespace

bool decode_mxfp4(const uint8_t* blocks, const uint8_t* exponents, int64_t n_blocks, float* out) {
  static constexpr float kValues[16] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};  // e2m1
  for (int64_t b = 0; b < n_blocks; ++b) {
    if (exponents[b] == 255) return false;
    const float scale = std::ldexp(1.0F, static_cast<int>(exponents[b]) - 127);
    for (int64_t j = 0; j < 16; ++j) {
      const uint8_t byte = blocks[b * 16 + j];
      out[b * 32 + 2 * j] = kValues[byte & 15] * scale;
      out[b * 32 + 2 * j + 1] = kValues[byte >> 4] * scale;
    }
  }
  return true;
}

ExpertWeights load_experts(Loader& loader, const MoeSpec& spec, int64_t hidden) {
  ExpertWeights weights{.hidden = hidden, .width = spec.width, .gate_up = {}, .down = {}};
  if (spec.layout == MoeSpec::Layout::named) load_named(loader, spec, hidden, weights);
  if (spec.layout == MoeSpec::Layout::gpt_oss) load_gpt_oss(loader, spec, hidden, weights);
  if (spec.layout == MoeSpec::Layout::mxfp4) load_mxfp4(loader, spec, hidden, weights);
  return weights;
}

}  // namespace hayfork::engine
