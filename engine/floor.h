// The least that known work can take: useful FLOP at a device's rate of matrix products, bytes at its memory's rate,
// the larger of the two. Convention: a linear layer is 2 FLOP a weight and row; attention 4 FLOP a query
// head, its width and key seen (a causal row counts the keys it sees, a windowed one its window); bytes are the
// weights, read once a step (the table of embeddings is not, nor experts that no row chose), and in decode the keys and
// values seen.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/expert_load.h"
#include "engine/lm.h"

namespace hayfork::engine {

struct FloorRates {
  double flops = 0, bytes = 0;  // a second
};
// Measured rates of devices that are known by name ("NVIDIA H200": 775 TFLOP/s in bf16, 4.2 TB/s); none for others.
std::optional<FloorRates> known_rates(const std::string& device_name);

struct FloorWork {
  double flops = 0, bytes = 0;
  double seconds(const FloorRates& rates) const;
};
// The experts of a mixture (Model::expert_load, Engine::expert_load); empty for a model without.
using Mixture = std::span<const ExpertLoad>;
// `batch` sequences get positions [from, to) in prefill, logits of the last one.
FloorWork prefill_work(const ModelInfo& info, int64_t from, int64_t to, int64_t batch, Mixture experts = {});
// Steps of decode from positions `from` to `to` − 1.
FloorWork decode_work(const ModelInfo& info, int64_t from, int64_t to, int64_t batch, Mixture experts = {});

}  // namespace hayfork::engine
