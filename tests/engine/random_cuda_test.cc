// Weights made up on a GPU are those made up on the host.
#include <gtest/gtest.h>

#include "engine/cuda/devices.h"
#include "engine/kernels/ops.h"
#include "engine/weights.h"

namespace hayfork::engine {
namespace {

std::vector<float> rows_of(Context& context, const LinearWeight& weight) {
  std::vector<Row> rows;
  for (int32_t i = 0; i < weight.n; ++i) rows.push_back({i, i, 0, Stream::base, RowKind::prefill, -1});
  const SeqView none{};
  context.arena().reset();
  context.begin_pass({rows, std::span(&none, 1), 0});
  const Matrix out = context.matrix(weight.n, weight.k, DType::f32);
  embed(context, out, rows, weight, 1);
  std::vector<float> values(static_cast<size_t>(weight.n * weight.k));
  context.download(values.data(), out.data, values.size() * sizeof(float));
  return values;
}

TEST(RandomCuda, WeightsAreTheHostsBitForBit) {
  if (const auto found = cuda::list_devices(); found.devices.empty()) GTEST_SKIP() << "needs a GPU: " << found.problem;
  for (const DType type : {DType::f32, DType::bf16}) {
    const auto context = cuda::make_cuda_context(0, type);
    for (const int64_t k : {64, 67}) {
      Weights weights = Weights::random(3);
      const std::vector<int64_t> shape{90, k};
      const TensorView host = weights.floats("a.weight", shape), device = weights.values("a.weight", shape);
      ASSERT_TRUE(device.random);
      ASSERT_EQ(device.data, nullptr);
      std::vector<LinearPart> from_host, on_device;
      for (const int64_t first : {40, 0}) {  // rows of a fused weight need not begin at 0
        from_host.push_back({host.data + first * k * 2, host.dtype, 50, {}});
        on_device.push_back({nullptr, device.dtype, 50, {}});
        on_device.back().random = {device.random->key + static_cast<uint64_t>(first * k), device.random->centre,
                                   device.random->spread};
      }
      const auto a = make_linear(*context, from_host, k), b = make_linear(*context, on_device, k);
      EXPECT_EQ(rows_of(*context, *a), rows_of(*context, *b)) << name(type) << " k " << k;
    }
  }
}

}  // namespace
}  // namespace hayfork::engine
