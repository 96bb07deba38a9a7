// What tests of CUDA ops beside their CPU twins share: a context of each kind, random values, matrices on either, and
// how near results must be. Tolerances: float32 differs by the order of sums only (2e-5 of the largest value); bf16
// results carry one rounding of 2⁻⁹ relative, the inputs' rounding is shared.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/cuda/devices.h"
#include "engine/kernels/ops.h"

namespace hayfork::engine {

inline bool have_gpu() {
  for (const auto& device : cuda::list_devices().devices) {
    if (device.usable) return true;
  }
  return false;
}
class OpsCuda : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (!have_gpu()) GTEST_SKIP() << "needs a GPU: " << cuda::list_devices().problem;
    gpu_ = cuda::make_cuda_context(0, GetParam());
    cpu_ = make_cpu_context(GetParam());
  }

  std::vector<float> noise(int64_t n, float scale = 1) {
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> v(static_cast<size_t>(n));
    for (float& x : v) x = GetParam() == DType::bf16 ? round_to_bf16(normal(engine_)) : normal(engine_);
    return v;
  }
  Matrix on_gpu(const std::vector<float>& values, int64_t rows, int64_t cols) {
    Matrix m = gpu_->matrix(rows, cols);
    if (m.dtype == DType::bf16) {
      std::vector<bf16> narrow(values.size());
      std::transform(values.begin(), values.end(), narrow.begin(), to_bf16);
      gpu_->upload(m.data, narrow.data(), narrow.size() * sizeof(bf16));
    } else {
      gpu_->upload(m.data, values.data(), values.size() * sizeof(float));
    }
    return m;
  }
  Matrix on_cpu(const std::vector<float>& values, int64_t rows, int64_t cols) {
    Matrix m = cpu_->matrix(rows, cols);
    std::copy(values.begin(), values.end(), m.f32(0));
    return m;
  }
  std::vector<float> from_gpu(Matrix m) {
    std::vector<float> out;
    std::vector<char> bytes(static_cast<size_t>(m.rows * m.stride * size_of(m.dtype)));
    gpu_->download(bytes.data(), m.data, bytes.size());
    for (int64_t r = 0; r < m.rows; ++r) {
      for (int64_t c = 0; c < m.cols; ++c) {
        const int64_t e = r * m.stride + c;
        out.push_back(m.dtype == DType::bf16 ? to_float(reinterpret_cast<const bf16*>(bytes.data())[e])
                                             : reinterpret_cast<const float*>(bytes.data())[e]);
      }
    }
    return out;
  }
  static std::vector<float> values(Matrix m) {
    std::vector<float> out;
    for (int64_t r = 0; r < m.rows; ++r) out.insert(out.end(), m.f32(r), m.f32(r) + m.cols);
    return out;
  }
  void expect_close(const std::vector<float>& got, const std::vector<float>& want, const std::string& what,
                    double loosen = 1) {
    ASSERT_EQ(got.size(), want.size()) << what;
    float largest = 1e-6f;
    for (const float w : want) largest = std::max(largest, std::fabs(w));
    const double bound = loosen * largest * (GetParam() == DType::bf16 ? 0x1p-7 : 2e-5);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_LE(std::fabs(got[i] - want[i]), bound) << what << " at " << i << ": " << got[i] << " and " << want[i];
    }
  }
  Vector vector_on(Context& context, const std::vector<float>& v) {
    buffers_.push_back(context.make_buffer(v.size() * sizeof(float)));
    context.upload(buffers_.back()->data(), v.data(), v.size() * sizeof(float));
    return {static_cast<const float*>(buffers_.back()->data()), static_cast<int64_t>(v.size())};
  }

  std::unique_ptr<Context> gpu_, cpu_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::mt19937 engine_{7};
};

}  // namespace hayfork::engine
