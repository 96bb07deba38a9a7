// Linear layers on CUDA. Prefill rows: cuBLASLt with one algorithm per (N, K, types), split-K 1, for every
// M. Decode rows: one mma.sync kernel that streams the weights. float32 weights: a plain tiled kernel, for correctness.
// In each of the three the order of a row's sums depends on K alone.
#include "engine/kernels/linear.cuh"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "engine/cuda/devices.h"
#include "engine/kernels/fused.h"
#include "engine/kernels/mma.cuh"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cuda {
namespace {

// ---- cuBLASLt: fixed algorithms -------------------------------------------------------------------------------------

struct Plan {
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};
using PlanKey =
    std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int, bool>;  // n, k, lda, ldb, ldc, out type, bias

constexpr int64_t kReferenceRows = 2048;  // the heuristic is asked once, for this many rows

struct Layouts {
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  Layouts(int64_t n, int64_t m, int64_t k, int64_t lda, int64_t ldb, int64_t ldc, cudaDataType_t out) {
    HAY_CUBLAS(cublas_lt().MatrixLayoutCreate(&a, CUDA_R_16BF, k, n, lda));  // W [n,k] row-major is W^T column-major
    HAY_CUBLAS(cublas_lt().MatrixLayoutCreate(&b, CUDA_R_16BF, k, m, ldb));
    HAY_CUBLAS(cublas_lt().MatrixLayoutCreate(&c, out, n, m, ldc));
  }
  ~Layouts() {
    cublas_lt().MatrixLayoutDestroy(a);
    cublas_lt().MatrixLayoutDestroy(b);
    cublas_lt().MatrixLayoutDestroy(c);
  }
};

// cuBLASLt reads the bias in the type of the output.
const void* bias_for(const LinearOnDevice& weight, DType out) {
  return out == DType::bf16 ? weight.bias_bf16->data() : weight.bias->data();
}

Plan make_plan(CudaContext& context, const PlanKey& key, const LinearOnDevice& weight, DType out) {
  const auto& [n, k, lda, ldb, ldc, out_type, has_bias] = key;
  Plan plan;
  HAY_CUBLAS(cublas_lt().MatmulDescCreate(&plan.description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t transpose = CUBLAS_OP_T;
  HAY_CUBLAS(
      cublas_lt().MatmulDescSetAttribute(plan.description, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose));
  if (has_bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    HAY_CUBLAS(cublas_lt().MatmulDescSetAttribute(plan.description, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                                  sizeof epilogue));
  }
  cublasLtMatmulPreference_t preference = nullptr;
  HAY_CUBLAS(cublas_lt().MatmulPreferenceCreate(&preference));
  const size_t workspace = context.workspace_bytes();
  const uint32_t no_reduction = CUBLASLT_REDUCTION_SCHEME_NONE;  // split-K 1
  HAY_CUBLAS(cublas_lt().MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                      sizeof workspace));
  HAY_CUBLAS(cublas_lt().MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                      &no_reduction, sizeof no_reduction));
  const cudaDataType_t type = out == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
  const Layouts reference(n, kReferenceRows, k, lda, ldb, ldc, type);
  // Alignment is a fact of the strides, so that the choice stays a function of the key.
  const auto alignment = [](int64_t ld, int64_t size) {
    const uint32_t bytes = static_cast<uint32_t>(ld * size);
    return std::min<uint32_t>(256, bytes & (~bytes + 1));
  };
  const std::pair<cublasLtMatmulPreferenceAttributes_t, uint32_t> alignments[] = {
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(lda, 2)},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(ldb, 2)},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(ldc, size_of(out))},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(ldc, size_of(out))}};
  for (const auto& [attribute, bytes] : alignments) {
    HAY_CUBLAS(cublas_lt().MatmulPreferenceSetAttribute(preference, attribute, &bytes, sizeof bytes));
  }
  if (has_bias) {
    const void* bias = bias_for(weight, out);
    HAY_CUBLAS(
        cublas_lt().MatmulDescSetAttribute(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
  }
  cublasLtMatmulHeuristicResult_t found[16];
  int n_found = 0;
  const cublasStatus_t status =
      cublas_lt().MatmulAlgoGetHeuristic(context.cublas(), plan.description, reference.a, reference.b, reference.c,
                                         reference.c, preference, 16, found, &n_found);
  cublas_lt().MatmulPreferenceDestroy(preference);
  HAY_CUBLAS(status);
  for (int i = 0; i < n_found; ++i) {
    uint32_t split_k = 0;
    size_t written = 0;
    if (found[i].state != CUBLAS_STATUS_SUCCESS ||
        cublas_lt().MatmulAlgoConfigGetAttribute(&found[i].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split_k,
                                                 sizeof split_k, &written) != CUBLAS_STATUS_SUCCESS ||
        split_k > 1) {
      continue;
    }
    bool any_m = true;
    for (const int64_t m : {1, 7, 64, 300, 8192}) {
      const Layouts layouts(n, m, k, lda, ldb, ldc, type);
      cublasLtMatmulHeuristicResult_t checked;
      any_m = any_m && cublas_lt().MatmulAlgoCheck(context.cublas(), plan.description, layouts.a, layouts.b, layouts.c,
                                                   layouts.c, &found[i].algo, &checked) == CUBLAS_STATUS_SUCCESS;
    }
    if (!any_m) continue;
    plan.algorithm = found[i].algo;
    return plan;
  }
  throw Error(ErrorCode::device, ErrorSubject::general,
              "cuBLASLt offers no algorithm that is independent of the row count",
              {.where = "linear [" + std::to_string(n) + ", " + std::to_string(k) + "]"});
}

// Outputs [first, first + n) of the weight.
struct Slab {
  int64_t first, n;
  bool bias;
};

void linear_cublas(CudaContext& context, Matrix y, Matrix x, const LinearOnDevice& weight, Slab slab) {
  static std::map<PlanKey, Plan> plans;  // process-wide: the algorithm table is part of the numerics id
  static std::mutex mutex;
  const bool has_bias = slab.bias && weight.bias != nullptr;
  const PlanKey key{slab.n, weight.k, weight.k_stride, x.stride, y.stride, static_cast<int>(y.dtype), has_bias};
  const auto* w = static_cast<const __nv_bfloat16*>(weight.data()) + slab.first * weight.k_stride;
  const std::lock_guard lock(mutex);
  auto found = plans.find(key);
  if (found == plans.end()) found = plans.emplace(key, make_plan(context, key, weight, y.dtype)).first;
  const Plan& plan = found->second;
  if (has_bias) {
    const void* bias = bias_for(weight, y.dtype);
    HAY_CUBLAS(
        cublas_lt().MatmulDescSetAttribute(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
  }
  const Layouts layouts(slab.n, x.rows, weight.k, weight.k_stride, x.stride, y.stride,
                        y.dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F);
  const float one = 1, zero = 0;
  HAY_CUBLAS(cublas_lt().Matmul(context.cublas(), plan.description, &one, w, layouts.a, x.data, layouts.b, &zero,
                                y.data, layouts.c, y.data, layouts.c, &plan.algorithm, context.workspace(),
                                context.workspace_bytes(), context.stream()));
}

// ---- decode rows: weights are the m16 operand, rows the n8 columns --------------------------------------------------

constexpr int kSkinnyWarps = 8;
constexpr int64_t kSkinnyRows = 64;  // a launch

// A block computes 16 outputs for up to 8·NT rows. Its 8 warps take contiguous slices of K and are added in order.
// Within a slice the k index is permuted the same way for both operands, so that every lane loads 16 contiguous bytes.
template <int NT, typename Out>
__global__ void __launch_bounds__(kSkinnyWarps * 32)
    skinny_kernel(Out* __restrict__ y, int64_t y_stride, const __nv_bfloat16* __restrict__ x, int64_t x_stride, int m,
                  const __nv_bfloat16* __restrict__ w, int64_t w_stride, int n, int k, const float* __restrict__ bias) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int g = lane / 4, t = lane % 4;
  const int n0 = blockIdx.x * 16;
  const int slice = (k + kSkinnyWarps * 32 - 1) / (kSkinnyWarps * 32) * 32;
  const int begin = warp * slice, end = min(k, begin + slice);
  const bool row0 = n0 + g < n, row1 = n0 + g + 8 < n;
  const __nv_bfloat16* w0 = w + static_cast<int64_t>(row0 ? n0 + g : 0) * w_stride;
  const __nv_bfloat16* w1 = w + static_cast<int64_t>(row1 ? n0 + g + 8 : 0) * w_stride;
  float acc[NT][4] = {};
  constexpr int kUnroll = 4;
  for (int k0 = begin; k0 < end; k0 += 32 * kUnroll) {
    uint4 a0[kUnroll], a1[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int at = k0 + 32 * u + 8 * t;
      const bool in = at < end;
      a0[u] = in && row0 ? __ldcs(reinterpret_cast<const uint4*>(w0 + at)) : uint4{};
      a1[u] = in && row1 ? __ldcs(reinterpret_cast<const uint4*>(w1 + at)) : uint4{};
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int at = k0 + 32 * u + 8 * t;
#pragma unroll
      for (int j = 0; j < NT; ++j) {
        const int row = j * 8 + g;
        const uint4 b = at < end && row < m ? *reinterpret_cast<const uint4*>(x + row * x_stride + at) : uint4{};
        mma_bf16(acc[j], a0[u].x, a1[u].x, a0[u].y, a1[u].y, b.x, b.y);
        mma_bf16(acc[j], a0[u].z, a1[u].z, a0[u].w, a1[u].w, b.z, b.w);
      }
    }
  }
  __shared__ float partial[kSkinnyWarps][NT * 128];
#pragma unroll
  for (int j = 0; j < NT; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) partial[warp][j * 128 + i * 32 + lane] = acc[j][i];
  }
  __syncthreads();
  for (int e = threadIdx.x; e < NT * 128; e += blockDim.x) {
    float sum = 0;
#pragma unroll
    for (int s = 0; s < kSkinnyWarps; ++s) sum += partial[s][e];
    const int j = e / 128, i = e / 32 % 4, from = e % 32;
    const int out = n0 + from / 4 + (i / 2) * 8;   // accumulator rows are weight rows
    const int row = j * 8 + from % 4 * 2 + i % 2;  // and its columns rows of x
    if (out < n && row < m) store(y + row * y_stride + out, sum + (bias != nullptr ? bias[out] : 0.f));
  }
}

template <typename Out>
void launch_skinny(CudaContext& context, Matrix y, Matrix x, const LinearOnDevice& weight) {
  const unsigned blocks = static_cast<unsigned>((weight.n + 15) / 16);
  const float* bias = weight.bias ? static_cast<const float*>(weight.bias->data()) : nullptr;
  for (int64_t r = 0; r < x.rows; r += kSkinnyRows) {
    const int m = static_cast<int>(std::min(kSkinnyRows, x.rows - r));
    const Matrix ys = y.row_range(r, r + m), xs = x.row_range(r, r + m);
    if (context.properties().major == 9) {
      linear_decode_sm90(context, ys, xs, weight);
      continue;
    }
    const auto launch = [&](auto nt) {
      skinny_kernel<decltype(nt)::value, Out><<<blocks, kSkinnyWarps * 32, 0, context.stream()>>>(
          static_cast<Out*>(ys.data), ys.stride, static_cast<const __nv_bfloat16*>(xs.data), xs.stride, m,
          static_cast<const __nv_bfloat16*>(weight.data()), weight.k_stride, static_cast<int>(weight.n),
          static_cast<int>(weight.k_stride), bias);
      HAY_LAUNCHED();
    };
    if (m <= 8) {
      launch(std::integral_constant<int, 1>{});
    } else if (m <= 16) {
      launch(std::integral_constant<int, 2>{});
    } else if (m <= 32) {
      launch(std::integral_constant<int, 4>{});
    } else {
      launch(std::integral_constant<int, 8>{});
    }
  }
}

// ---- float32, no tensor cores ---------------------------------------------------------------------------------------

constexpr int kTile = 64, kDepth = 16;

__global__ void __launch_bounds__(256)
    plain_kernel(float* __restrict__ y, int64_t y_stride, const float* __restrict__ x, int64_t x_stride, int m,
                 const float* __restrict__ w, int64_t w_stride, int n, int k, const float* __restrict__ bias) {
  __shared__ float xs[kDepth][kTile + 1], ws[kDepth][kTile + 1];
  const int m0 = blockIdx.y * kTile, n0 = blockIdx.x * kTile;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float acc[4][4] = {};
  for (int k0 = 0; k0 < k; k0 += kDepth) {
    for (int e = threadIdx.x; e < kTile * kDepth; e += 256) {
      const int row = e / kDepth, depth = e % kDepth;
      xs[depth][row] = m0 + row < m && k0 + depth < k ? x[(m0 + row) * x_stride + k0 + depth] : 0.f;
      ws[depth][row] = n0 + row < n && k0 + depth < k ? w[(n0 + row) * w_stride + k0 + depth] : 0.f;
    }
    __syncthreads();
    for (int d = 0; d < kDepth; ++d) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) acc[i][j] = fmaf(xs[d][ty * 4 + i], ws[d][tx * 4 + j], acc[i][j]);
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const int row = m0 + ty * 4 + i, out = n0 + tx * 4 + j;
      if (row < m && out < n) y[row * y_stride + out] = acc[i][j] + (bias != nullptr ? bias[out] : 0.f);
    }
  }
}

void linear_plain(CudaContext& context, Matrix y, Matrix x, const LinearOnDevice& weight, Slab slab) {
  const dim3 grid(static_cast<unsigned>((slab.n + kTile - 1) / kTile),
                  static_cast<unsigned>((x.rows + kTile - 1) / kTile));
  plain_kernel<<<grid, 256, 0, context.stream()>>>(
      static_cast<float*>(y.data), y.stride, static_cast<const float*>(x.data), x.stride, static_cast<int>(x.rows),
      static_cast<const float*>(weight.data()) + slab.first * weight.k_stride, weight.k_stride,
      static_cast<int>(slab.n), static_cast<int>(weight.k),
      slab.bias && weight.bias ? static_cast<const float*>(weight.bias->data()) : nullptr);
  HAY_LAUNCHED();
}

// Rows whose K or stride cannot be read 16 bytes at a time are copied into a padded matrix (zeros behind k).
__global__ void pad_columns_kernel(__nv_bfloat16* to, int64_t to_stride, const __nv_bfloat16* from, int64_t from_stride,
                                   int64_t rows, int k) {
  for (int64_t e = blockIdx.x * int64_t{256} + threadIdx.x; e < rows * to_stride; e += gridDim.x * int64_t{256}) {
    const int64_t row = e / to_stride, column = e % to_stride;
    to[e] = column < k ? from[row * from_stride + column] : __float2bfloat16_rn(0.f);
  }
}

Matrix aligned_input(CudaContext& context, Matrix x, int64_t k_stride) {
  if (x.stride % 8 == 0 && x.cols == k_stride && reinterpret_cast<uintptr_t>(x.data) % 16 == 0) return x;
  Matrix padded = context.matrix(x.rows, k_stride, DType::bf16);
  const int64_t blocks = std::min<int64_t>((padded.rows * k_stride + 255) / 256, 65535);
  pad_columns_kernel<<<static_cast<unsigned>(std::max<int64_t>(blocks, 1)), 256, 0, context.stream()>>>(
      static_cast<__nv_bfloat16*>(padded.data), k_stride, static_cast<const __nv_bfloat16*>(x.data), x.stride, x.rows,
      static_cast<int>(x.cols));
  HAY_LAUNCHED();
  return padded;
}

}  // namespace

const LinearOnDevice& on_device(const LinearWeight& weight) {
  return static_cast<const LinearOnDevice&>(weight);
}

std::unique_ptr<LinearWeight> make_linear(Context& context, std::span<const LinearPart> parts, int64_t k) {
  auto weight = std::make_unique<LinearOnDevice>();
  weight->k = k;
  weight->dtype = context.weights();
  // bf16 rows are padded with zeros to 16 bytes, so that every load is one vector.
  weight->k_stride = weight->dtype == DType::bf16 ? (k + 7) / 8 * 8 : k;
  bool has_bias = false;
  for (const LinearPart& part : parts) {
    weight->n += part.n;
    has_bias = has_bias || part.bias;
  }
  const int64_t row_bytes = weight->k_stride * size_of(weight->dtype);
  weight->bytes = weight->n * row_bytes;
  weight->storage = context.make_buffer(static_cast<size_t>(weight->bytes));
  std::vector<float> bias(has_bias ? static_cast<size_t>(weight->n) : 0);
  int64_t at = 0;
  for (const LinearPart& part : parts) {
    char* to = static_cast<char*>(weight->storage->data()) + at * row_bytes;
    if (part.random) {
      fill_random(of(context), to, weight->dtype, weight->k_stride, *part.random, part.n, k);
    } else if (part.dtype == weight->dtype && k == weight->k_stride) {
      context.upload(to, part.data, static_cast<size_t>(part.n * row_bytes));
    } else {
      constexpr int64_t kChunkBytes = int64_t{16} << 20;
      const int64_t step = std::max<int64_t>(1, kChunkBytes / std::max<int64_t>(row_bytes, 1));
      std::vector<char> rows;
      for (int64_t r = 0; r < part.n; r += step) {
        const int64_t n = std::min(step, part.n - r);
        rows.assign(static_cast<size_t>(n * row_bytes), 0);
        convert_rows(rows.data(), weight->dtype, weight->k_stride, part, r, n, k);
        context.upload(to + r * row_bytes, rows.data(), rows.size());
      }
    }
    if (part.bias)
      HAY_CUDA(
          cudaMemcpy(bias.data() + at, part.bias.data, static_cast<size_t>(part.n) * sizeof(float), cudaMemcpyDefault));
    at += part.n;
  }
  if (has_bias) {
    if (weight->dtype == DType::bf16) {
      std::vector<bf16> narrow(bias.size());
      for (size_t i = 0; i < bias.size(); ++i) {
        narrow[i] = to_bf16(bias[i]);
        bias[i] = to_float(narrow[i]);  // both kernels add the same numbers
      }
      weight->bias_bf16 = context.make_buffer(narrow.size() * sizeof(bf16));
      context.upload(weight->bias_bf16->data(), narrow.data(), narrow.size() * sizeof(bf16));
      weight->bytes += static_cast<int64_t>(narrow.size() * sizeof(bf16));
    }
    weight->bias = context.make_buffer(bias.size() * sizeof(float));
    context.upload(weight->bias->data(), bias.data(), bias.size() * sizeof(float));
    weight->bytes += static_cast<int64_t>(bias.size() * sizeof(float));
  }
  return weight;
}

void convert_rows(void* to, DType to_type, int64_t to_stride, const LinearPart& part, int64_t first, int64_t n,
                  int64_t k) {
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t c = 0; c < k; ++c) {
      const int64_t e = (first + r) * k + c;
      const float v = part.dtype == DType::f32    ? static_cast<const float*>(part.data)[e]
                      : part.dtype == DType::bf16 ? to_float(static_cast<const bf16*>(part.data)[e])
                                                  : to_float(static_cast<const f16*>(part.data)[e]);
      if (to_type == DType::bf16)
        static_cast<bf16*>(to)[r * to_stride + c] = to_bf16(v);
      else
        static_cast<float*>(to)[r * to_stride + c] = v;
    }
  }
}

void linear_slab(CudaContext& context, Matrix y, Matrix x, const LinearOnDevice& weight, int64_t first, int64_t n) {
  HAY_CHECK(x.cols == weight.k && y.cols == n && y.dtype == DType::f32 && x.dtype == weight.dtype);
  if (weight.dtype == DType::f32) return linear_plain(context, y, x, weight, {first, n, false});
  linear_cublas(context, y, aligned_input(context, x, weight.k_stride), weight, {first, n, false});
}

void linear(Context& base, Matrix y, Matrix x, const LinearWeight& w, RowKind kind) {
  if (x.rows == 0) return;
  CudaContext& context = of(base);
  const LinearOnDevice& weight = on_device(w);
  HAY_CHECK(x.cols == weight.k && y.cols == weight.n && x.rows == y.rows && x.dtype == weight.dtype);
  if (weight.dtype == DType::f32) return linear_plain(context, y, x, weight, {0, weight.n, true});
  const Matrix input = aligned_input(context, x, weight.k_stride);
  if (kind == RowKind::prefill) {
    linear_cublas(context, y, input, weight, {0, weight.n, true});
  } else if (y.dtype == DType::bf16) {
    launch_skinny<__nv_bfloat16>(context, y, input, weight);
  } else {
    launch_skinny<float>(context, y, input, weight);
  }
}

void linear_act_mul(Context& base, Matrix y, Matrix fused, Matrix x, const LinearWeight& w, Activation act,
                    RowKind kind) {
  if (x.rows == 0) return;
  CudaContext& context = of(base);
  const LinearOnDevice& weight = on_device(w);
  HAY_CHECK(x.cols == weight.k && 2 * y.cols == weight.n && x.rows == y.rows && x.dtype == weight.dtype);
  const bool streams = kind == RowKind::decode && weight.dtype == DType::bf16 && context.properties().major == 9;
  if (!streams) return linear_then_act_mul(base, y, fused, x, w, act, kind);
  const Matrix input = aligned_input(context, x, weight.k_stride);
  for (int64_t r = 0; r < x.rows; r += kSkinnyRows) {
    const int64_t end = std::min(x.rows, r + kSkinnyRows);
    linear_act_mul_decode_sm90(context, y.row_range(r, end), input.row_range(r, end), weight, act);
  }
}

std::string cuda_numerics() {
  return "cublasLt " + std::to_string(cublas_lt().GetVersion()) + ", first split-K 1 algorithm of the heuristic at " +
         std::to_string(kReferenceRows) + " rows";
}

}  // namespace hayfork::engine::cuda
