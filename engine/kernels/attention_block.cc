#include "engine/kernels/attention_block.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "engine/kernels/kv_layout.h"
#include "engine/kernels/simd/simd.h"

namespace hayfork::engine::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kKeys = kBlockTokens;
constexpr int64_t kFewQueries = 24;  // up to here a tile is used less long than it takes to come from memory

size_t aligned(int64_t bytes) {
  return static_cast<size_t>((bytes + 63) / 64 * 64);
}

// Queries start at odd multiples of a cache line, so that several do not meet in one cache set.
int64_t query_stride(const KvLayer& layer) {
  const int64_t a_line = 64 / size_of(layer.dtype);
  return ((layer.k_dim + a_line - 1) / a_line | 1) * a_line;
}

}  // namespace

int64_t AttentionCall::rows_a_block() const {
  const int64_t queries = std::max(layer.k_dim, layer.v_dim) <= 128 ? 96 : 48;
  return std::max<int64_t>(queries / heads(), 1);
}

size_t AttentionCall::partial_bytes() const {
  const int64_t queries = rows_a_block() * heads();
  return aligned(queries * 4) + aligned(queries * kGroup * 4) + aligned(queries * v_width() * 4);
}

PartialOutput AttentionCall::partial_at(void* memory) const {
  const int64_t queries = rows_a_block() * heads();
  auto* max = static_cast<char*>(memory);
  auto* sums = max + aligned(queries * 4);
  auto* output = sums + aligned(queries * kGroup * 4);
  return {reinterpret_cast<float*>(max), reinterpret_cast<float*>(sums), reinterpret_cast<float*>(output)};
}

size_t AttentionCall::worker_bytes() const {
  const int64_t queries = rows_a_block() * heads();
  const int64_t element = size_of(layer.dtype);
  return aligned(queries * query_stride(layer) * element) + aligned(queries * kKeys * 4) +
         aligned(queries * kKeys * 2) + aligned(kKeys * v_width() * element) + 2 * aligned(queries * 4);
}

BlockWorker::BlockWorker(const AttentionCall& call, void* memory)
    : call_(call), bf16_(call.layer.dtype == DType::bf16), q_stride_(query_stride(call.layer)) {
  const int64_t queries = call.rows_a_block() * call.heads();
  const int64_t element = size_of(call.layer.dtype);
  auto* p = static_cast<char*>(memory);
  const auto take = [&](int64_t bytes) {
    char* start = p;
    p += aligned(bytes);
    return static_cast<void*>(start);
  };
  q_ = take(queries * q_stride_ * element);
  s_ = static_cast<float*>(take(queries * kKeys * 4));
  p_ = static_cast<bf16*>(take(queries * kKeys * 2));
  values_ = take(kKeys * call.v_width() * element);
  begin_ = static_cast<int32_t*>(take(queries * 4));
  end_ = static_cast<int32_t*>(take(queries * 4));
}

void BlockWorker::start(const QueryBlock& block) {
  block_ = block;
  const int64_t heads = call_.heads(), k_dim = call_.layer.k_dim;
  for (int64_t m = 0; m < (block.end - block.begin) * heads; ++m) {
    const float* from = call_.q.f32(block.begin + m / heads) + (block.kv_head * heads + m % heads) * k_dim;
    if (bf16_) {
      bf16* to = static_cast<bf16*>(q_) + m * q_stride_;
      simd().to_bf16(from, to, k_dim);
      if (k_dim % 2 != 0) to[k_dim] = bf16{0};
    } else {
      std::copy_n(from, k_dim, static_cast<float*>(q_) + m * q_stride_);
    }
  }
}

void BlockWorker::attend(int64_t segment, PartialOutput out) {
  const int64_t queries = (block_.end - block_.begin) * call_.heads();
  std::fill_n(out.max, queries, -kInfinity);
  std::fill_n(out.sums, queries * kGroup, 0.0F);
  std::fill_n(out.o, queries * call_.v_width(), 0.0F);
  const int64_t begin = std::max(block_.first, segment * kSegment) / kKeys;
  const int64_t end = std::min(block_.last, segment * kSegment + kSegment - 1) / kKeys;
  for (int64_t tile = begin; tile <= end; ++tile) attend_tile(tile, out);
}

BlockWorker::Span BlockWorker::span_of(int64_t row, int64_t tile) const {
  const int64_t pos = call_.pass.rows[static_cast<size_t>(row)].pos, start = tile * kKeys;
  const int64_t first = block_.window > 0 ? std::max<int64_t>(pos - block_.window + 1, 0) : 0;
  return {std::max<int64_t>(first - start, 0), std::min(pos + 1 - start, kKeys)};
}

void BlockWorker::attend_tile(int64_t tile, PartialOutput out) {
  // Positions ascend, so the rows that see anything of the tile are neighbours.
  int64_t row = block_.begin, end_row = block_.end;
  const auto sees = [&](int64_t r) {
    const Span s = span_of(r, tile);
    return s.begin < s.end;
  };
  while (row < end_row && !sees(row)) ++row;
  while (end_row > row && !sees(end_row - 1)) --end_row;
  if (row == end_row) return;
  const Span keys{span_of(row, tile).begin, span_of(end_row - 1, tile).end};
  const bool whole = span_of(end_row - 1, tile).begin == 0 && span_of(row, tile).end == kKeys;

  const Row& any = call_.pass.rows[static_cast<size_t>(row)];
  const int64_t at = call_.pass.seqs[static_cast<size_t>(any.seq)].blocks[call_.layer.group][tile];
  HAY_CHECK(at >= 0, "attention reads a freed block");
  const int64_t heads = call_.heads(), first = (row - block_.begin) * heads, m = (end_row - row) * heads;
  if (m <= kFewQueries && end_row == block_.end) fetch(tile + 1);
  score(at, first, m, keys.end);
  soften(tile, row, end_row - row, !whole, out);
  if (whole || copy_values(at, keys)) return weigh(at, first, m, keys, whole, out);
  // A NaN or infinity among the values: rows that do not see it must not meet it, not even times zero.
  for (int64_t r = row; r < end_row; ++r) {
    const Span own = span_of(r, tile);
    copy_values(at, own);
    multiply_values((r - block_.begin) * heads, (r - row) * heads, heads, values_, call_.v_width(), kKeys, out);
  }
}

// Starts reading a tile from memory while the one before it is worked on.
void BlockWorker::fetch(int64_t tile) const {
  if (tile * kKeys > block_.last) return;
  const KvLayer& layer = call_.layer;
  const auto seq = static_cast<size_t>(call_.pass.rows[static_cast<size_t>(block_.begin)].seq);
  const int64_t at = call_.pass.seqs[seq].blocks[layer.group][tile];
  const auto lines = [&](const void* data, int64_t dim) {
    const int64_t element = size_of(layer.dtype);
    const char* p = static_cast<const char*>(data) + kv_head_offset(layer, at, block_.kv_head, dim) * element;
    for (int64_t i = 0; i < kKeys * dim * element; i += 64) __builtin_prefetch(p + i);
  };
  lines(layer.k, layer.k_dim);
  lines(layer.v, layer.v_dim);
}

// s[m][j] = q[m] · k[j], j < end
void BlockWorker::score(int64_t at, int64_t first_query, int64_t m, int64_t end) {
  const KvLayer& layer = call_.layer;
  const int64_t groups = (end + kGroup - 1) / kGroup, offset = kv_head_offset(layer, at, block_.kv_head, layer.k_dim);
  if (!bf16_) {
    simd().gemm_f32(m, groups, layer.k_dim, static_cast<const float*>(q_) + first_query * q_stride_, q_stride_,
                    static_cast<const float*>(layer.k) + offset, kKeys, s_, kKeys, false, 0);
    return;
  }
  const bf16* q = static_cast<const bf16*>(q_) + first_query * q_stride_;
  const bf16* k = static_cast<const bf16*>(layer.k) + offset;
  const int64_t pairs = layer.k_dim / 2;
  simd().gemm_bf16(m, groups, pairs, q, q_stride_, k, kKeys, s_, kKeys, false, 0);
  if (layer.k_dim % 2 != 0) {  // the last dimension alone, paired with zeros
    bf16 last[2 * kKeys] = {};
    for (int64_t j = 0; j < kKeys; ++j) last[2 * j] = k[2 * pairs * kKeys + j];
    simd().gemm_bf16(m, groups, 1, q + 2 * pairs, q_stride_, last, kKeys, s_, kKeys, true, 0);
  }
}

void BlockWorker::soften(int64_t tile, int64_t row, int64_t rows, bool masked, PartialOutput out) {
  const int64_t heads = call_.heads(), first = (row - block_.begin) * heads;
  for (int64_t i = 0; masked && i < rows; ++i) {
    const Span s = span_of(row + i, tile);
    std::fill_n(begin_ + i * heads, heads, static_cast<int32_t>(s.begin));
    std::fill_n(end_ + i * heads, heads, static_cast<int32_t>(s.end));
  }
  simd().softmax({.m = rows * heads,
                  .s = s_,
                  .begin = masked ? begin_ : nullptr,
                  .end = masked ? end_ : nullptr,
                  .scale = call_.params.scale,
                  .cap = call_.params.softcap,
                  .max = out.max + first,
                  .sums = out.sums + first * kGroup,
                  .o = out.o + first * call_.v_width(),
                  .o_stride = call_.v_width(),
                  .o_width = call_.v_width(),
                  .p = bf16_ ? p_ : nullptr});
}

void BlockWorker::weigh(int64_t at, int64_t first_query, int64_t m, Span keys, bool whole, PartialOutput out) {
  const KvLayer& layer = call_.layer;
  if (!whole) return multiply_values(first_query, 0, m, values_, call_.v_width(), keys.end, out);
  if (layer.v_dim != call_.v_width()) {
    copy_values(at, {0, kKeys});
    return multiply_values(first_query, 0, m, values_, call_.v_width(), kKeys, out);
  }
  const int64_t offset = kv_head_offset(layer, at, block_.kv_head, layer.v_dim) * size_of(layer.dtype);
  multiply_values(first_query, 0, m, static_cast<const char*>(layer.v) + offset, layer.v_dim, kKeys, out);
}

// The tile's values, zero for keys outside `keys` and columns past v_dim. False when one of them is not finite.
bool BlockWorker::copy_values(int64_t at, Span keys) {
  const KvLayer& layer = call_.layer;
  const int64_t width = call_.v_width(), offset = kv_head_offset(layer, at, block_.kv_head, layer.v_dim);
  bool finite = true;
  if (!bf16_) {
    const float* v = static_cast<const float*>(layer.v) + offset;
    auto* to = static_cast<float*>(values_);
    std::fill_n(to, kKeys * width, 0.0F);
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      std::copy_n(v + j * layer.v_dim, layer.v_dim, to + j * width);
      finite = finite && simd().all_finite(to + j * width, layer.v_dim);
    }
    return finite;
  }
  const bf16* v = static_cast<const bf16*>(layer.v) + offset;
  auto* to = static_cast<bf16*>(values_);
  std::fill_n(to, kKeys * width, bf16{0});
  uint32_t exponent = 0;
  for (int64_t pair = keys.begin / 2; pair <= (keys.end - 1) / 2; ++pair) {
    const bf16* from = v + pair * layer.v_dim * 2;
    bf16* row = to + pair * width * 2;
    const uint16_t low = 2 * pair >= keys.begin ? 0xFFFF : 0, high = 2 * pair + 1 < keys.end ? 0xFFFF : 0;
    for (int64_t c = 0; c < layer.v_dim; ++c) {
      const auto a = static_cast<uint16_t>(from[2 * c].bits & low);
      const auto b = static_cast<uint16_t>(from[2 * c + 1].bits & high);
      row[2 * c].bits = a;
      row[2 * c + 1].bits = b;
      exponent |= static_cast<uint32_t>((a & 0x7F80) == 0x7F80) | static_cast<uint32_t>((b & 0x7F80) == 0x7F80);
    }
  }
  return exponent == 0;
}

// o[query] += Σ_j p[j] v[j], j < end
void BlockWorker::multiply_values(int64_t first_query, int64_t first_p, int64_t m, const void* values, int64_t stride,
                                  int64_t end, PartialOutput out) {
  const int64_t width = call_.v_width(), groups = width / kGroup;
  float* o = out.o + first_query * width;
  if (bf16_) {
    simd().gemm_bf16(m, groups, (end + 1) / 2, p_ + first_p * kKeys, kKeys, static_cast<const bf16*>(values), stride, o,
                     width, true, 0);
  } else {
    simd().gemm_f32(m, groups, end, s_ + first_p * kKeys, kKeys, static_cast<const float*>(values), stride, o, width,
                    true, 0);
  }
}

void merge(const AttentionCall& call, const QueryBlock& block, PartialOutput total, PartialOutput next) {
  const int64_t width = call.v_width();
  for (int64_t m = 0; m < (block.end - block.begin) * call.heads(); ++m) {
    const float max = std::max(total.max[m], next.max[m]);
    const float base = max == -kInfinity ? 0.0F : max;
    const float a = simd().exp(total.max[m] - base), b = simd().exp(next.max[m] - base);
    simd().scale_add(total.sums + m * kGroup, a, next.sums + m * kGroup, b, kGroup);
    simd().scale_add(total.o + m * width, a, next.o + m * width, b, width);
    total.max[m] = max;
  }
}

void finish(const AttentionCall& call, const QueryBlock& block, PartialOutput total) {
  const int64_t heads = call.heads(), width = call.v_width(), v_dim = call.layer.v_dim;
  for (int64_t m = 0; m < (block.end - block.begin) * heads; ++m) {
    const int64_t head = block.kv_head * heads + m % heads;
    float* o = total.o + m * width;
    float sum = 0;
    for (int64_t i = 0; i < kGroup; ++i) sum += total.sums[m * kGroup + i];
    if (call.params.sinks) {
      const float sink = call.params.sinks.data[head], max = std::max(total.max[m], sink);
      const float rescale = simd().exp(total.max[m] - max);
      sum = sum * rescale + simd().exp(sink - max);
      simd().scale(o, rescale, v_dim);
    }
    float* to = call.o.f32(block.begin + m / heads) + head * v_dim;
    // No −0: whether a tile that weighs nothing was skipped or added cannot show.
    simd().scale_to(o, 1.0F / sum, to, v_dim);
  }
}

}  // namespace hayfork::engine::cpu
