#include "engine/floor.h"

#include <algorithm>

namespace hayfork::engine {
namespace {

// Keys that rows [from, to) of one sequence see in a layer with this window (0: none), summed.
double keys_seen(double window, double from, double to) {
  const auto all = [](double n) { return n * (n + 1) / 2; };  // keys of rows [0, n)
  if (window <= 0) return all(to) - all(from);
  const double edge = std::clamp(window, from, to);  // rows from here on see a whole window
  return all(edge) - all(from) + (to - edge) * window;
}

bool two_streams(const ModelInfo& info) {
  return std::any_of(info.layers.begin(), info.layers.end(),
                     [](const LayerInfo& layer) { return layer.kind == "orthros"; });
}

double weight_bytes(const ModelInfo& info) {
  const double width = info.dtype == "f32" ? 4 : 2;
  return width * (static_cast<double>(info.n_params_no_embedding) +
                  static_cast<double>(info.vocab_size) * static_cast<double>(info.hidden_size));
}

FloorWork work_of(const ModelInfo& info, int64_t from, int64_t to, int64_t batch, bool decode) {
  const bool two = two_streams(info);
  const auto rows = static_cast<double>(to - from), n = static_cast<double>(batch);
  const double wanted = decode ? rows : 1, output_rows = two ? wanted : 0;
  FloorWork work;
  work.flops = n * 2 *
               (static_cast<double>(info.n_params_no_embedding) * (rows + output_rows) +
                static_cast<double>(info.hidden_size) * info.vocab_size * wanted);
  work.bytes = weight_bytes(info) * (decode ? rows : 1);
  for (const LayerInfo& layer : info.layers) {
    const auto begin = static_cast<double>(from), end = static_cast<double>(to);
    double keys = keys_seen(layer.window, begin, end), read = keys;
    if (layer.kind == "orthros") {
      read = keys_seen(0, decode ? begin : end - 1, end);
      keys += read;
    }
    work.flops += n * keys * 4.0 * layer.n_heads * layer.head_dim;
    if (decode)
      work.bytes += n * (read * static_cast<double>(layer.state_bytes_per_token) +
                         rows * static_cast<double>(layer.state_bytes_fixed));
  }
  return work;
}

}  // namespace

std::optional<FloorRates> known_rates(const std::string& device_name) {
  if (device_name == "NVIDIA H200") return FloorRates{775e12, 4.2e12};
  return std::nullopt;
}

double FloorWork::seconds(const FloorRates& rates) const {
  return std::max(flops / rates.flops, bytes / rates.bytes);
}

FloorWork prefill_work(const ModelInfo& info, int64_t from, int64_t to, int64_t batch) {
  return work_of(info, from, to, batch, false);
}

FloorWork decode_work(const ModelInfo& info, int64_t from, int64_t to, int64_t batch) {
  return work_of(info, from, to, batch, true);
}

}  // namespace hayfork::engine
