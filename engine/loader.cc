#include "engine/loader.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace hayfork::engine {
namespace {

// Where the elements may be read as their type: older writers did not pad the header, so that tensors begin anywhere.
// A tensor at an odd address is copied into `copies`.
const std::byte* aligned_elements(const TensorView& view, std::vector<std::vector<std::byte>>& copies) {
  if (reinterpret_cast<uintptr_t>(view.data) % static_cast<uintptr_t>(size_of(view.dtype)) == 0) return view.data;
  return copies.emplace_back(view.data, view.data + view.n_bytes).data();
}

}  // namespace

void Loader::with_parts(const std::vector<Part>& parts, int64_t k,
                        const std::function<void(std::span<const LinearPart>)>& use) {
  std::vector<LinearPart> pieces;
  std::vector<TensorView> views;
  std::vector<std::vector<std::byte>> copies;
  for (const Part& part : parts) {
    std::vector<int64_t> shape = {part.n, k};
    if (part.slices > 0) shape.insert(shape.begin(), part.slices);
    const bool on_device = context_.device() == Device::cuda;
    const TensorView view = on_device ? weights_.values(part.weight, shape) : weights_.floats(part.weight, shape);
    if (!view.random && !counted_.contains(part.weight)) Weights::require_finite(view);
    Vector bias;
    if (!part.bias.empty()) bias = vector(part.bias, {part.n});
    const std::byte* const data = view.random ? nullptr : aligned_elements(view, copies);
    const auto rows = part.rows.empty() ? std::vector<std::pair<int64_t, int64_t>>{{0, part.n}} : part.rows;
    for (const auto& [first, n] : rows) {
      HAY_CHECK(first >= 0 && n >= 1 && first + n <= part.n, part.weight);
      const Vector piece_bias = bias ? Vector{bias.data + first, n} : Vector{};
      const int64_t at = (part.slice * part.n + first) * k;
      LinearPart piece{view.random ? nullptr : data + at * size_of(view.dtype), view.dtype, n, piece_bias};
      if (view.random) {
        piece.random = {view.random->key + static_cast<uint64_t>(at), view.random->centre, view.random->spread};
      }
      pieces.push_back(piece);
    }
    count(part.weight, std::max<int64_t>(part.slices, 1) * part.n * k);
    views.push_back(view);
  }
  use(pieces);
  for (const TensorView& view : views) weights_.drop(view);
}

std::unique_ptr<LinearWeight> Loader::linear(const std::vector<Part>& parts, int64_t k) {
  std::unique_ptr<LinearWeight> weight;
  with_parts(parts, k, [&](std::span<const LinearPart> pieces) { weight = make_linear(context_, pieces, k); });
  bytes_ += weight->bytes;
  return weight;
}

Vector Loader::vector(const std::string& name, const std::vector<int64_t>& shape) {
  return vector(host(name, shape));
}

Vector Loader::vector(const std::vector<float>& values) {
  buffers_.push_back(context_.make_buffer(values.size() * sizeof(float)));
  context_.upload(buffers_.back()->data(), values.data(), values.size() * sizeof(float));
  bytes_ += static_cast<int64_t>(values.size() * sizeof(float));
  return {static_cast<const float*>(buffers_.back()->data()), static_cast<int64_t>(values.size())};
}

std::vector<float> Loader::host(const std::string& name, const std::vector<int64_t>& shape) {
  std::vector<float> values = weights_.vector(name, shape);
  count(name, static_cast<int64_t>(values.size()));
  return values;
}

void Loader::count(const std::string& tensor, int64_t n_params) {
  if (counted_.insert(tensor).second) n_params_ += n_params;
}

}  // namespace hayfork::engine
