// Experts' weights into their packed order, once at load.
#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "engine/kernels/experts_on_device.cuh"
#include "engine/kernels/linear.cuh"
#include "engine/kernels/mxfp4.h"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cuda {
namespace {

constexpr int kThreads = 256;

unsigned blocks_for(int64_t n) {
  return static_cast<unsigned>(std::clamp<int64_t>((n + kThreads - 1) / kThreads, 1, 1 << 20));
}

// The checkpoint's row behind row r of a tile; −1: padding.
__device__ int source_row(int tile, int r, int n, bool paired) {
  if (!paired) return tile * 16 + r < n ? tile * 16 + r : -1;
  const int width = n / 2, at = tile * 8 + r % 8;
  return at < width ? at + r / 8 * width : -1;
}

__global__ void pack_bf16_kernel(uint32_t* to, const __nv_bfloat16* rows, int n, int k, int tiles, int units,
                                 bool paired) {
  const int64_t total = int64_t{tiles} * units * (kUnitBytes / 4);
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < total; i += gridDim.x * int64_t{kThreads}) {
    const int a = i % 4, lane = i / 4 % 32, slice = i / 128 % 4, unit = i / 512 % units;
    const int row = source_row(static_cast<int>(i / 512 / units), lane / 4 + a % 2 * 8, n, paired);
    const int column = unit * 64 + slice * 16 + lane % 4 * 2 + a / 2 * 8;
    uint32_t word = 0;
    for (int j = 0; j < 2; ++j) {
      if (row < 0 || column + j >= k) continue;
      word |= static_cast<uint32_t>(__bfloat16_as_ushort(rows[static_cast<int64_t>(row) * k + column + j])) << (16 * j);
    }
    to[i] = word;
  }
}

// 160 items a unit: the words, then the exponents.
__global__ void pack_fp4_kernel(uint8_t* to, const uint8_t* blocks, const uint8_t* exponents, int n, int k, int tiles,
                                int units, bool paired, int shift) {
  const int per_row = k / 32;
  const int64_t total = int64_t{tiles} * units * 160;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < total; i += gridDim.x * int64_t{kThreads}) {
    const int item = i % 160, unit = i / 160 % units, tile = static_cast<int>(i / 160 / units);
    uint8_t* out = to + i / 160 * kUnitBytesFp4;
    const bool is_word = item < 128;
    const int part = is_word ? item % 4 : (item - 128) % 4, g = is_word ? item / 16 : (item - 128) / 4;
    const int row = source_row(tile, g + part / 2 * 8, n, paired), block = 2 * unit + part % 2;
    const bool there = row >= 0 && block < per_row;
    const int64_t at = static_cast<int64_t>(row) * per_row + block;
    if (!is_word) {
      out[512 + item - 128] =
          there ? static_cast<uint8_t>(min(254, max(0, static_cast<int>(exponents[at]) + 126 - shift))) : 0;
      continue;
    }
    const int t = item / 4 % 4;
    uint8_t codes[8] = {};
    for (int half = 0; half < 2 && there; ++half) {
      for (int j = 0; j < 2; ++j) {
        const uint8_t byte = blocks[at * 16 + half * 8 + t + j * 4];
        codes[half * 4 + j * 2] = byte & 15;
        codes[half * 4 + j * 2 + 1] = byte >> 4;
      }
    }
    reinterpret_cast<uint32_t*>(out)[item] = pack_fp4(codes);
  }
}

// How far an expert's exponents must be lowered so that their factors are bf16 numbers.
int exponent_shift(const uint8_t* exponents, int64_t n) {
  return std::max(0, static_cast<int>(*std::max_element(exponents, exponents + n)) - 128);
}

void require_exact(Mxfp4Rows rows, int64_t n_blocks, int shift) {
  if (shift <= 5) return;
  for (int64_t b = 0; b < n_blocks; ++b) {
    if (static_cast<int>(rows.exponents[b]) - shift >= -5) continue;
    const bool zero =
        std::all_of(rows.blocks + b * 16, rows.blocks + b * 16 + 16, [](uint8_t byte) { return (byte & 0x77) == 0; });
    if (!zero) {
      throw Error(ErrorCode::unsupported, ErrorSubject::model, "MXFP4 exponents of an expert lie too far apart",
                  {.why = "bfloat16 cannot hold the smallest beside the largest", .next = "use --dtype f32"});
    }
  }
}

}  // namespace

ExpertsOnDevice::ExpertsOnDevice(CudaContext& context, const ExpertShape& s) : type_(context.weights()) {
  shape = s;
  if (s.n_experts > kMaxExperts) {
    throw Error(ErrorCode::unsupported, ErrorSubject::model,
                "a layer has " + std::to_string(s.n_experts) + " experts, more than " + std::to_string(kMaxExperts),
                {.next = "use --device cpu"});
  }
  for (const Part part : {Part::gate_up, Part::down}) {
    Stored& stored = parts_[static_cast<size_t>(part)];
    ExpertMatrix& m = stored.matrix;
    m.paired = part == Part::gate_up;
    m.n = static_cast<int>(m.paired ? 2 * s.width : s.hidden);
    m.k = static_cast<int>(m.paired ? s.hidden : s.width);
    m.tiles = static_cast<int>(m.paired ? padded(s.width, 8) / 8 : padded(s.hidden, 16) / 16);
    m.units = static_cast<int>(padded(m.k, kUnitInputs) / kUnitInputs);
    m.fp4 = s.mxfp4 && type_ == DType::bf16;
    const int64_t an_expert = type_ == DType::f32 ? int64_t{4} * m.n * m.k : int64_t{m.tiles} * m.tile_bytes();
    stored.weights = context.make_buffer(static_cast<size_t>(s.n_experts * an_expert));
    m.weights = stored.weights->data();
    bytes += s.n_experts * an_expert;
    if (s.bias) {
      stored.bias = context.make_buffer(static_cast<size_t>(s.n_experts * m.n) * sizeof(float));
      m.bias = static_cast<const float*>(stored.bias->data());
      bytes += s.n_experts * m.n * static_cast<int64_t>(sizeof(float));
    }
    if (m.fp4) {
      stored.scale = context.make_buffer(static_cast<size_t>(s.n_experts) * sizeof(float));
      m.scale = static_cast<const float*>(stored.scale->data());
      bytes += s.n_experts * static_cast<int64_t>(sizeof(float));
    }
  }
  counters_ = context.make_buffer(static_cast<size_t>(s.n_experts) * sizeof(unsigned long long));
  context.zero(counters_->data(), counters_->bytes());
}

void* ExpertsOnDevice::staged(Context& context, size_t n) {
  if (!staging_ || staging_->bytes() < n) staging_ = context.make_buffer(n);
  return staging_->data();
}

void ExpertsOnDevice::set_done() {
  if (++n_set_ == 2 * shape.n_experts) staging_.reset();
}

void ExpertsOnDevice::upload_bias(Context& context, Stored& stored, int64_t e, std::span<const float> bias) {
  HAY_CHECK(static_cast<int64_t>(bias.size()) == (stored.bias ? stored.matrix.n : 0));
  if (bias.empty()) return;
  std::vector<float> values(bias.begin(), bias.end());
  if (type_ == DType::bf16) std::transform(values.begin(), values.end(), values.begin(), round_to_bf16);
  context.upload(static_cast<float*>(stored.bias->data()) + e * stored.matrix.n, values.data(),
                 values.size() * sizeof(float));
}

void ExpertsOnDevice::set(Context& base, Part part, int64_t e, std::span<const LinearPart> rows,
                          std::span<const float> bias) {
  Stored& stored = parts_[static_cast<size_t>(part)];
  const ExpertMatrix& m = stored.matrix;
  upload_bias(base, stored, e, bias);
  const int64_t row_bytes = m.k * size_of(type_);
  char* to = type_ == DType::f32 ? static_cast<char*>(stored.weights->data()) + e * m.n * row_bytes
                                 : static_cast<char*>(staged(base, static_cast<size_t>(m.n * row_bytes)));
  int64_t at = 0;
  std::vector<char> converted;
  for (const LinearPart& p : rows) {
    if (p.random) {
      fill_random(of(base), to + at * row_bytes, type_, m.k, *p.random, p.n, m.k);
      at += p.n;
      continue;
    }
    const void* from = p.data;
    if (p.dtype != type_) {
      converted.resize(static_cast<size_t>(p.n * row_bytes));
      parallel_for(p.n, 16, [&](int64_t begin, int64_t end) {
        convert_rows(converted.data() + begin * row_bytes, type_, m.k, p, begin, end - begin, m.k);
      });
      from = converted.data();
    }
    base.upload(to + at * row_bytes, from, static_cast<size_t>(p.n * row_bytes));
    at += p.n;
  }
  HAY_CHECK(at == m.n);
  if (type_ == DType::bf16) {
    auto* packed = static_cast<char*>(stored.weights->data()) + e * m.tiles * m.tile_bytes();
    pack_bf16_kernel<<<blocks_for(int64_t{m.tiles} * m.units * (kUnitBytes / 4)), kThreads, 0, of(base).stream()>>>(
        reinterpret_cast<uint32_t*>(packed), reinterpret_cast<const __nv_bfloat16*>(to), m.n, m.k, m.tiles, m.units,
        m.paired);
    HAY_LAUNCHED();
  }
  set_done();
}

void ExpertsOnDevice::set_mxfp4(Context& base, Part part, int64_t e, Mxfp4Rows rows, std::span<const float> bias) {
  Stored& stored = parts_[static_cast<size_t>(part)];
  const ExpertMatrix& m = stored.matrix;
  const int64_t n_blocks = int64_t{m.n} * (m.k / 32);
  if (!m.fp4) {
    std::vector<float> values(static_cast<size_t>(n_blocks * 32));
    parallel_for(n_blocks, 512, [&](int64_t begin, int64_t end) {
      decode_mxfp4(rows.blocks + begin * 16, rows.exponents + begin, end - begin, values.data() + begin * 32);
    });
    const LinearPart whole{values.data(), DType::f32, m.n, {}};
    return set(base, part, e, std::span(&whole, 1), bias);
  }
  upload_bias(base, stored, e, bias);
  const int shift = exponent_shift(rows.exponents, n_blocks);
  require_exact(rows, n_blocks, shift);
  const float scale = std::ldexp(1.f, shift);
  base.upload(static_cast<float*>(stored.scale->data()) + e, &scale, sizeof scale);
  auto* staging = static_cast<uint8_t*>(staged(base, static_cast<size_t>(n_blocks * 17)));
  base.upload(staging, rows.blocks, static_cast<size_t>(n_blocks * 16));
  base.upload(staging + n_blocks * 16, rows.exponents, static_cast<size_t>(n_blocks));
  auto* packed = static_cast<uint8_t*>(stored.weights->data()) + e * m.tiles * m.tile_bytes();
  pack_fp4_kernel<<<blocks_for(int64_t{m.tiles} * m.units * 160), kThreads, 0, of(base).stream()>>>(
      packed, staging, staging + n_blocks * 16, m.n, m.k, m.tiles, m.units, m.paired, shift);
  HAY_LAUNCHED();
  set_done();
}

std::vector<int64_t> ExpertsOnDevice::load(Context& context) const {
  std::vector<int64_t> counts(static_cast<size_t>(shape.n_experts));
  context.download(counts.data(), counters_->data(), counts.size() * sizeof(int64_t));
  return counts;
}

ExpertScratch carve_expert_scratch(const ExpertShape& shape, DType type, void* memory, int64_t n_rows, int32_t top_k) {
  const int64_t pairs = n_rows * top_k, experts = shape.n_experts;
  ExpertScratch s;
  const auto take = [&](int64_t bytes) {
    void* at = static_cast<char*>(memory) + s.bytes;
    s.bytes += padded(bytes, 256);
    return at;
  };
  const auto ints = [&](int64_t n) { return static_cast<int32_t*>(take(n * int64_t{4})); };
  s.max_entries = pairs / 8 + std::min(pairs, experts);
  s.sorted.offset = ints(experts);
  s.sorted.counts = ints((n_rows / kChunkRows + 1) * experts);
  s.sorted.entries = reinterpret_cast<ExpertRows*>(ints(3 * s.max_entries));
  s.sorted.n_entries = ints(1);
  s.sorted.row_of = ints(pairs);
  s.sorted.place_of = ints(pairs);
  s.sorted.weight_of = reinterpret_cast<float*>(ints(pairs));
  const int64_t size = size_of(type), hidden = padded(shape.hidden, kUnitInputs),
                width = padded(shape.width, kUnitInputs);
  s.gate = take(pairs * width * size);
  s.out = take(pairs * hidden * size);
  s.x = take(n_rows * hidden * size);
  return s;
}

int64_t ExpertsOnDevice::scratch_bytes(int64_t n_rows, int32_t top_k) const {
  return carve_expert_scratch(shape, type_, nullptr, n_rows, top_k).bytes + 256;
}

std::unique_ptr<Experts> make_experts(Context& context, const ExpertShape& shape) {
  return std::make_unique<ExpertsOnDevice>(of(context), shape);
}

}  // namespace hayfork::engine::cuda
