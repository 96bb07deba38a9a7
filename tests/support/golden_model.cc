#include "tests/support/golden_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/file_map.h"
#include "engine/cache.h"
#include "engine/kernels/ops.h"

namespace hayfork::test {
namespace {

using engine::DType;
using engine::Row;

template <typename T>
std::vector<T> read(const engine::SafetensorsFile& file, const std::string& name) {
  std::vector<T> values;
  const engine::TensorInfo* tensor = file.find(name);
  if (tensor == nullptr) return values;
  const auto bytes = file.bytes(*tensor);
  values.resize(static_cast<size_t>(tensor->n_elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto take = [&]<typename From>(From value) {
      std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
      values[i] = static_cast<T>(value);
    };
    if (tensor->dtype == DType::f32) take(float{});
    if (tensor->dtype == DType::f64) take(double{});
    if (tensor->dtype == DType::i64) take(int64_t{});
  }
  return values;
}

}  // namespace

GoldenModel::GoldenModel(const std::filesystem::path& folder, DType weights)
    : GoldenModel(folder, engine::make_cpu_context(weights)) {}

GoldenModel::GoldenModel(const std::filesystem::path& folder, std::unique_ptr<engine::Context> context)
    : folder_(folder), context_(std::move(context)), model_(engine::load_model(*context_, folder, {})) {}

void GoldenModel::run(const std::vector<int32_t>& ids, int32_t chunk, engine::RowKind kind, bool last_only,
                      std::vector<float>* logits, int32_t layer, std::vector<float>* k, std::vector<float>* v) {
  const auto n = static_cast<int32_t>(ids.size());
  if (chunk <= 0) chunk = n;
  engine::Cache cache(*context_, model_->state_specs(), DType::f32, n / engine::kBlockTokens + 2, 1);
  const engine::SeqId seq = cache.create();
  const auto vocab = static_cast<size_t>(model_->info().vocab_size);
  for (int32_t begin = 0; begin < n; begin += chunk) {
    const int32_t end = std::min(n, begin + chunk);
    if (!cache.extend(seq, end)) throw std::runtime_error("the test's cache is too small");
    std::vector<Row> rows;
    for (const auto stream : {engine::Stream::base, engine::Stream::output}) {
      if (stream == engine::Stream::output && !model_->two_streams()) continue;
      const bool wanted = (stream == engine::Stream::output) == model_->two_streams();
      for (int32_t t = begin; t < end; ++t) {
        if (last_only && stream == engine::Stream::output && t + 1 < n) continue;
        const int32_t slot = last_only ? 0 : t - begin;
        rows.push_back(
            {ids[static_cast<size_t>(t)], t, 0, stream, kind, wanted && (!last_only || t + 1 == n) ? slot : -1});
      }
    }
    const engine::SeqView view = cache.view(seq, n);
    const int32_t n_want = !last_only ? end - begin : end == n ? 1 : 0;
    const engine::Pass pass{rows, std::span(&view, 1), n_want};
    const engine::ForwardResult result = model_->forward(*context_, pass, cache);
    if (!result.nonfinite_layer.empty()) throw std::runtime_error("the model gave a value that is not finite");
    if (logits == nullptr || n_want == 0) continue;
    std::vector<engine::HeadQuery> queries;
    for (int32_t slot = 0; slot < n_want; ++slot) {
      queries.push_back({slot, {}, logits->data() + static_cast<size_t>(last_only ? 0 : begin + slot) * vocab});
    }
    model_->head(*context_, result.hidden, queries);
  }
  if (k == nullptr) return;
  const engine::KvLayer kv = cache.kv(layer);
  const int64_t k_cols = int64_t{kv.n_kv_heads} * kv.k_dim, v_cols = int64_t{kv.n_kv_heads} * kv.v_dim;
  k->resize(static_cast<size_t>(n * k_cols));
  v->resize(static_cast<size_t>(n * v_cols));
  engine::kv_read(*context_, cache.view(seq, n), {k->data(), DType::f32, n, k_cols, k_cols},
                  {v->data(), DType::f32, n, v_cols, v_cols}, kv);
}

std::vector<float> GoldenModel::logits(const std::vector<int32_t>& ids, int32_t chunk, engine::RowKind kind) {
  std::vector<float> all(ids.size() * static_cast<size_t>(model_->info().vocab_size));
  run(ids, chunk, kind, false, &all, 0, nullptr, nullptr);
  return all;
}

std::vector<float> GoldenModel::last_logits(const std::vector<int32_t>& ids, int32_t chunk) {
  std::vector<float> last(static_cast<size_t>(model_->info().vocab_size));
  run(ids, chunk, engine::RowKind::prefill, true, &last, 0, nullptr, nullptr);
  return last;
}

void GoldenModel::kv(const std::vector<int32_t>& ids, int32_t chunk, int32_t layer, std::vector<float>& k,
                     std::vector<float>& v) {
  run(ids, chunk, engine::RowKind::prefill, false, nullptr, layer, &k, &v);
}

std::vector<GoldenModel::Sequence> GoldenModel::sequences() const {
  const engine::SafetensorsFile file(folder_ / "golden.safetensors");
  const nlohmann::json meta = nlohmann::json::parse(read_file(folder_ / "meta.json", ErrorSubject::data));
  std::vector<Sequence> all;
  const bool hf = meta.contains("input_ids");
  const nlohmann::json& list = hf ? meta["input_ids"] : meta["sequences"];
  for (size_t i = 0; i < list.size(); ++i) {
    Sequence sequence;
    sequence.ids = (hf ? list[i] : list[i]["ids"]).get<std::vector<int32_t>>();
    sequence.logits64 = read<float>(file, fmt::format("logits64.{}", i));
    sequence.logits_bf16 = read<float>(file, fmt::format("logits_bf16.{}", i));
    sequence.k_last = read<float>(file, fmt::format("k_last.{}", i));
    sequence.v_last = read<float>(file, fmt::format("v_last.{}", i));
    sequence.greedy = read<int64_t>(file, fmt::format("greedy.{}", i));
    all.push_back(std::move(sequence));
  }
  return all;
}

double relative_max(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, largest = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference = std::max(difference, std::abs(static_cast<double>(a.at(i)) - b[i]));
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  return difference / largest;
}

double relative_l2(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(static_cast<double>(a.at(i)) - b[i], 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

double rms(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  for (size_t i = 0; i < b.size(); ++i) difference += std::pow(static_cast<double>(a.at(i)) - b[i], 2);
  return std::sqrt(difference / static_cast<double>(b.size()));
}

std::vector<std::filesystem::path> golden_cases(const std::filesystem::path& root) {
  std::vector<std::filesystem::path> cases;
  if (!std::filesystem::exists(root)) return cases;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (std::filesystem::exists(entry.path() / "config.json")) cases.push_back(entry.path());
  }
  std::sort(cases.begin(), cases.end());
  return cases;
}

}  // namespace hayfork::test
