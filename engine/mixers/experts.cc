#include "engine/mixers/experts.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "base/parallel.h"

namespace hayfork::engine {
namespace {

using Part = Experts::Part;

// A tensor an expert, or all gate and up rows in one tensor and all down rows in another.
void load_named(Loader& loader, const MoeSpec& spec, int64_t hidden, Experts& experts) {
  const std::string fused_gate_up = spec.experts + ".gate_up_proj", fused_down = spec.experts + ".down_proj";
  const bool fused = loader.weights().has(fused_gate_up);
  const auto set = [&](Part part, int64_t e, const std::vector<Loader::Part>& parts, int64_t k) {
    loader.with_parts(parts, k,
                      [&](std::span<const LinearPart> rows) { experts.set(loader.context(), part, e, rows, {}); });
  };
  for (int64_t e = 0; e < spec.n_experts; ++e) {
    if (fused) {
      set(Part::gate_up, e, {{fused_gate_up, 2 * spec.width, "", {}, spec.n_experts, e}}, hidden);
      set(Part::down, e, {{fused_down, hidden, "", {}, spec.n_experts, e}}, spec.width);
      continue;
    }
    const std::string name = fmt::format("{}.{}.", spec.experts, e);
    set(Part::gate_up, e,
        {{name + spec.gate + ".weight", spec.width, "", {}}, {name + spec.up + ".weight", spec.width, "", {}}}, hidden);
    set(Part::down, e, {{name + spec.down + ".weight", hidden, "", {}}}, spec.width);
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

int64_t same_row(int64_t row) {
  return row;
}

// Biases of all experts, gate rows before up rows.
struct Biases {
  Biases(Loader& loader, const MoeSpec& spec, int64_t hidden)
      : down(loader.host(spec.experts + ".down_proj_bias", {spec.n_experts, hidden})) {
    const auto mixed = loader.host(spec.experts + ".gate_up_proj_bias", {spec.n_experts, 2 * spec.width});
    for (int64_t e = 0; e < spec.n_experts; ++e)
      gate_up.push_back(separate(mixed.data() + e * 2 * spec.width, spec.width));
  }
  std::vector<std::vector<float>> gate_up;
  std::vector<float> down;
};

void load_gpt_oss(Loader& loader, const MoeSpec& spec, int64_t hidden, Experts& experts) {
  const int64_t n = spec.n_experts, width = spec.width;
  const Biases biases(loader, spec, hidden);
  const auto gate_up = loader.host(spec.experts + ".gate_up_proj", {n, hidden, 2 * width});
  const auto down = loader.host(spec.experts + ".down_proj", {n, width, hidden});
  for (int64_t e = 0; e < n; ++e) {
    const std::vector<float> gu = transpose(gate_up.data() + e * hidden * 2 * width, hidden, 2 * width,
                                            [&](int64_t j) { return separated(j, width); });
    const std::vector<float> d = transpose(down.data() + e * width * hidden, width, hidden, same_row);
    const LinearPart gu_rows{gu.data(), DType::f32, 2 * width, {}}, d_rows{d.data(), DType::f32, hidden, {}};
    experts.set(loader.context(), Part::gate_up, e, std::span(&gu_rows, 1), biases.gate_up[static_cast<size_t>(e)]);
    experts.set(loader.context(), Part::down, e, std::span(&d_rows, 1),
                std::span(biases.down).subspan(static_cast<size_t>(e * hidden), static_cast<size_t>(hidden)));
  }
}

// A whole MXFP4 tensor [E, rows, k/32, 16] with exponents [E, rows, k/32].
class Mxfp4Tensor {
 public:
  Mxfp4Tensor(Loader& loader, const std::string& name, int64_t n_experts, int64_t rows, int64_t k)
      : loader_(loader), name_(name), rows_(rows), blocks_per_row_(k / 32) {
    if (k % 32 != 0) {
      throw Error(ErrorCode::corrupt, ErrorSubject::model, fmt::format("tensor {}_blocks cannot be MXFP4", name),
                  {.where = name + "_blocks",
                   .why = fmt::format("{} input channels do not divide into blocks of 32", k),
                   .next = "check hidden_size and intermediate_size in config.json"});
    }
    blocks_ = loader.weights().bytes(name + "_blocks", std::vector<int64_t>{n_experts, rows, blocks_per_row_, 16});
    scales_ = loader.weights().bytes(name + "_scales", std::vector<int64_t>{n_experts, rows, blocks_per_row_});
    loader.count(name, n_experts * rows * k);
  }
  ~Mxfp4Tensor() {
    loader_.weights().drop(blocks_);
    loader_.weights().drop(scales_);
  }

  // Rows of expert e, row r at `place(r)`; valid until the next call.
  template <typename Place>
  Mxfp4Rows expert(int64_t e, const Place& place) {
    const int64_t n = blocks_per_row_;
    block_rows_.resize(static_cast<size_t>(rows_ * n * 16));
    scale_rows_.resize(static_cast<size_t>(rows_ * n));
    parallel_for(rows_, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t from = (e * rows_ + row) * n, to = place(row) * n;
        const auto* scales = reinterpret_cast<const uint8_t*>(scales_.data) + from;
        std::memcpy(block_rows_.data() + to * 16, blocks_.data + from * 16, static_cast<size_t>(n * 16));
        std::memcpy(scale_rows_.data() + to, scales, static_cast<size_t>(n));
        if (std::find(scales, scales + n, 255) == scales + n) continue;
        throw Error(ErrorCode::corrupt, ErrorSubject::model, fmt::format("tensor {}_scales holds a NaN", name_),
                    {.where = fmt::format("expert {}, row {}", e, row), .why = "an exponent byte is 255"});
      }
    });
    return {block_rows_.data(), scale_rows_.data()};
  }

 private:
  Loader& loader_;
  std::string name_;
  int64_t rows_, blocks_per_row_;
  TensorView blocks_, scales_;
  std::vector<uint8_t> block_rows_, scale_rows_;
};

void load_mxfp4(Loader& loader, const MoeSpec& spec, int64_t hidden, Experts& experts) {
  const int64_t n = spec.n_experts, width = spec.width;
  const Biases biases(loader, spec, hidden);
  Mxfp4Tensor gate_up(loader, spec.experts + ".gate_up_proj", n, 2 * width, hidden);
  Mxfp4Tensor down(loader, spec.experts + ".down_proj", n, hidden, width);
  for (int64_t e = 0; e < n; ++e) {
    experts.set_mxfp4(loader.context(), Part::gate_up, e,
                      gate_up.expert(e, [&](int64_t row) { return separated(row, width); }),
                      biases.gate_up[static_cast<size_t>(e)]);
    experts.set_mxfp4(loader.context(), Part::down, e, down.expert(e, same_row),
                      std::span(biases.down).subspan(static_cast<size_t>(e * hidden), static_cast<size_t>(hidden)));
  }
}

}  // namespace

std::unique_ptr<Experts> load_experts(Loader& loader, const MoeSpec& spec, int64_t hidden) {
  using Layout = MoeSpec::Layout;
  auto experts = make_experts(loader.context(), {.n_experts = spec.n_experts,
                                                 .hidden = hidden,
                                                 .width = spec.width,
                                                 .mxfp4 = spec.layout == Layout::mxfp4,
                                                 .bias = spec.layout != Layout::named});
  if (spec.layout == Layout::named) load_named(loader, spec, hidden, *experts);
  if (spec.layout == Layout::gpt_oss) load_gpt_oss(loader, spec, hidden, *experts);
  if (spec.layout == Layout::mxfp4) load_mxfp4(loader, spec, hidden, *experts);
  loader.add_bytes(experts->bytes);
  return experts;
}

}  // namespace hayfork::engine
