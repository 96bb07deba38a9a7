#include "engine/floor.h"

#include <algorithm>
#include <cmath>

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

// Of one pass of `rows` rows: experts as they are resident, and no more of them than the rows can choose when routers
// favour none.
double weight_bytes(const ModelInfo& info, Mixture experts, double rows) {
  const double width = info.dtype == "f32" ? 4 : 2;
  double bytes = width * (static_cast<double>(info.n_params_no_embedding) +
                          static_cast<double>(info.vocab_size) * static_cast<double>(info.hidden_size));
  for (const ExpertLoad& layer : experts) {
    const auto n = static_cast<double>(layer.rows.size());
    const double chosen = n - n * std::pow(1 - layer.per_token / n, rows);
    bytes += chosen * static_cast<double>(layer.bytes) - n * width * static_cast<double>(layer.params);
  }
  return bytes;
}

// That one row is multiplied with, without the head's.
double active_params(const ModelInfo& info, Mixture experts) {
  auto params = static_cast<double>(info.n_params_no_embedding);
  for (const ExpertLoad& layer : experts)
    params -= (static_cast<double>(layer.rows.size()) - layer.per_token) * static_cast<double>(layer.params);
  return params;
}

FloorWork work_of(const ModelInfo& info, Mixture experts, int64_t from, int64_t to, int64_t batch, bool decode) {
  const bool two = two_streams(info);
  const auto rows = static_cast<double>(to - from), n = static_cast<double>(batch);
  const double wanted = decode ? rows : 1, output_rows = two ? wanted : 0;
  FloorWork work;
  work.flops = n * 2 *
               (active_params(info, experts) * (rows + output_rows) +
                static_cast<double>(info.hidden_size) * info.vocab_size * wanted);
  work.bytes = decode ? weight_bytes(info, experts, n) * rows : weight_bytes(info, experts, n * rows);
  for (const LayerInfo& layer : info.layers) {
    const auto begin = static_cast<double>(from), end = static_cast<double>(to);
    const bool recurrent = layer.state_bytes_fixed > 0;  // its few FLOP a row and state are left out
    double keys = recurrent ? 0 : keys_seen(layer.window, begin, end), read = keys;
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

FloorWork prefill_work(const ModelInfo& info, int64_t from, int64_t to, int64_t batch, Mixture experts) {
  return work_of(info, experts, from, to, batch, false);
}

FloorWork decode_work(const ModelInfo& info, int64_t from, int64_t to, int64_t batch, Mixture experts) {
  return work_of(info, experts, from, to, batch, true);
}

}  // namespace hayfork::engine
