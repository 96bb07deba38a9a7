// What stands between the projections on CUDA (norms, rotation, cache write, attention) against CPU twins and unfused
// steps on ragged shapes, with poison around what is written, twice the same bits, and rows alone equal to rows
// together.
#include "base/error.h"
#include "engine/kernels/fused.h"
#include "tests/engine/ops_cuda_fixture.h"

namespace hayfork::engine {
namespace {

class AttentionCuda : public OpsCuda {};

TEST_P(AttentionCuda, FinishQkvIsItsSteps) {
  struct Case {
    int n_heads, n_kv, dim, half;
    bool norms, affine, affine_first;
  };
  const Case cases[] = {{6, 2, 128, 64, true, false, false}, {6, 2, 64, 32, false, true, false},
                        {4, 4, 256, 32, true, true, true},   {5, 1, 80, 40, true, true, false},
                        {3, 1, 46, 23, true, true, true},    {4, 2, 128, 0, true, false, false},
                        {4, 2, 96, 16, false, false, false}, {2, 1, 512, 64, true, false, false}};
  for (const Case& c : cases) {
    // Sequence 0 goes on from position 10, 1 begins, 2 decodes an Orthros pair at the start of a page.
    constexpr int32_t kBlocks = 8;
    const std::vector<int32_t> tables[3] = {{5, 0}, {3, 1}, {7, 2, 4}};
    const int32_t* blocks[3];
    std::vector<SeqView> seqs;
    for (int32_t s = 0; s < 3; ++s) {
      blocks[s] = tables[s].data();
      seqs.push_back({&blocks[s], -1, 130, s, 1, static_cast<int32_t>(tables[s].size())});
    }
    std::vector<Row> rows;
    for (int32_t p = 10; p < 75; ++p) rows.push_back({0, p, 0, Stream::base, RowKind::prefill, -1});
    for (int32_t p = 0; p < 70; ++p) rows.push_back({0, p, 1, Stream::base, RowKind::prefill, -1});
    rows.push_back({0, 69, 1, Stream::output, RowKind::prefill, -1});
    rows.push_back({0, 128, 2, Stream::base, RowKind::decode, -1});
    rows.push_back({0, 128, 2, Stream::output, RowKind::decode, -1});
    const Pass pass{rows, seqs, 0};
    const auto n = static_cast<int64_t>(rows.size());
    const int64_t q_width = int64_t{c.n_heads} * c.dim, kv_width = int64_t{c.n_kv} * c.dim;
    const int64_t width = q_width + 2 * kv_width;
    const std::vector<float> qkv = noise(n * width), q_weight = noise(c.dim), k_weight = noise(c.dim),
                             scale = noise(q_width), offset = noise(q_width);
    RopeTable table;
    for (int i = 0; i < c.half; ++i) table.inv_freq.push_back(std::pow(10000.f, -static_cast<float>(i) / 32.f));
    const std::vector<int32_t> table_of_seq(3, 0);
    const auto run = [&](auto finish_op, std::vector<float>& q_out, std::vector<char>& k_out,
                         std::vector<char>& v_out) {
      gpu_->arena().reset();
      gpu_->begin_pass(pass);
      const size_t bytes = static_cast<size_t>(kBlocks * c.n_kv * kBlockTokens * c.dim * size_of(GetParam()));
      const auto k_buffer = gpu_->make_buffer(bytes), v_buffer = gpu_->make_buffer(bytes);
      const std::vector<char> poison(bytes, static_cast<char>(0xFF));
      gpu_->upload(k_buffer->data(), poison.data(), bytes);
      gpu_->upload(v_buffer->data(), poison.data(), bytes);
      const KvLayer layer{k_buffer->data(), v_buffer->data(), GetParam(), c.n_kv, c.dim, c.dim, 0};
      const Matrix fused = on_gpu(qkv, n, width);
      const Matrix q = fused.columns(0, q_width), k = fused.columns(q_width, kv_width),
                   v = fused.columns(q_width + kv_width, kv_width);
      QkvFinish finish{.head_dim = c.dim, .q_eps = 1e-6f, .k_eps = 1e-5f, .affine_first = c.affine_first};
      if (c.norms) {
        finish.q_norm = vector_on(*gpu_, q_weight);
        finish.k_norm = vector_on(*gpu_, k_weight);
        finish.k_kind = NormKind::one_cast;
      }
      if (c.affine) {
        finish.base = {vector_on(*gpu_, scale), vector_on(*gpu_, offset)};
        finish.output = {vector_on(*gpu_, offset), vector_on(*gpu_, scale)};
      }
      finish.angles = rope_angles(*gpu_, rows, std::span(&table, 1), table_of_seq);
      finish_op(*gpu_, pass, q, k, v, layer, finish);
      q_out = from_gpu(Matrix{q.data, q.dtype, n, q_width, width});
      k_out.resize(bytes);
      v_out.resize(bytes);
      gpu_->download(k_out.data(), k_buffer->data(), bytes);
      gpu_->download(v_out.data(), v_buffer->data(), bytes);
    };
    std::vector<float> q1, q2;
    std::vector<char> k1, k2, v1, v2;
    run(finish_qkv, q1, k1, v1);
    run(finish_qkv_in_steps, q2, k2, v2);
    EXPECT_EQ(q1, q2) << "q, d " << c.dim;
    EXPECT_EQ(k1, k2) << "k, d " << c.dim;
    EXPECT_EQ(v1, v2) << "v, d " << c.dim;
  }
}

struct AttentionCase {
  int n_heads, n_kv, dim, window, window_output;
  float softcap;
  bool sinks;
};

TEST_P(AttentionCuda, RopeWriteAndAttentionMatch) {
  const AttentionCase cases[] = {
      {4, 2, 64, 0, 0, 0, false},     {6, 2, 128, 0, 0, 0, true},  {10, 1, 64, 100, 100, 0, false},
      {4, 4, 256, 64, 64, 30, false}, {3, 1, 46, 7, 7, 0, true},   {8, 2, 128, 16, 0, 0, false},
      {40, 2, 64, 0, 0, 0, false},    {2, 1, 512, 0, 0, 0, false}, {4, 2, 80, 33, 0, 50, true}};
  for (const AttentionCase& c : cases) {
    // Three sequences; sequence 0 and 1 prefill a chunk, sequence 2 decodes an Orthros pair and an output row of
    // prefill kind.
    const int32_t lengths[] = {200, 71, 333};
    constexpr int32_t kBlocks = 12;
    std::vector<int32_t> tables[3];
    int32_t next = 0;
    for (int s = 0; s < 3; ++s) {
      for (int i = 0; i * kBlockTokens < lengths[s]; ++i) tables[s].push_back(kBlocks - 1 - next++);
    }
    const int32_t* blocks[3];
    std::vector<SeqView> seqs;
    for (int s = 0; s < 3; ++s) {
      blocks[s] = tables[s].data();
      seqs.push_back({&blocks[s], -1, lengths[s], s, 1, static_cast<int32_t>(tables[s].size())});
    }
    std::vector<Row> fill, rows;
    for (int s = 0; s < 3; ++s) {
      for (int32_t p = 0; p < lengths[s]; ++p) fill.push_back({0, p, s, Stream::base, RowKind::prefill, -1});
    }
    for (int32_t p = 10; p < 200; ++p) rows.push_back({0, p, 0, Stream::base, RowKind::prefill, -1});
    for (int32_t p = 64; p < 71; ++p) rows.push_back({0, p, 1, Stream::base, RowKind::prefill, -1});
    rows.push_back({0, 70, 1, Stream::output, RowKind::prefill, -1});
    rows.push_back({0, 300, 2, Stream::output, RowKind::prefill, -1});
    rows.push_back({0, 332, 2, Stream::base, RowKind::decode, -1});
    rows.push_back({0, 332, 2, Stream::output, RowKind::decode, -1});
    const Pass fill_pass{fill, seqs, 0}, pass{rows, seqs, 0};
    const auto kv_values = noise(static_cast<int64_t>(fill.size()) * c.n_kv * c.dim),
               v_values = noise(static_cast<int64_t>(fill.size()) * c.n_kv * c.dim);
    const auto q_values = noise(static_cast<int64_t>(rows.size()) * c.n_heads * c.dim);
    const std::vector<float> sink = noise(c.n_heads);
    RopeTable table;
    for (int i = 0; i < c.dim / 2; ++i)
      table.inv_freq.push_back(std::pow(10000.f, -2.f * static_cast<float>(i) / static_cast<float>(c.dim)));
    const std::vector<int32_t> table_of_seq(3, 0);

    const auto run = [&](Context& context, bool gpu, const Pass& wanted, const std::vector<float>& queries) {
      context.arena().reset();
      const DType kv_type = GetParam();
      const size_t bytes =
          static_cast<size_t>(kBlocks) * c.n_kv * kBlockTokens * c.dim * static_cast<size_t>(size_of(kv_type));
      const auto k_buffer = context.make_buffer(bytes), v_buffer = context.make_buffer(bytes);
      const std::vector<char> poison(bytes,
                                     static_cast<char>(0xFF));  // NaN: unwritten keys must never be read into a result
      context.upload(k_buffer->data(), poison.data(), bytes);
      context.upload(v_buffer->data(), poison.data(), bytes);
      const KvLayer layer{k_buffer->data(), v_buffer->data(), kv_type, c.n_kv, c.dim, c.dim, 0};
      const auto matrix = [&](const std::vector<float>& v, int64_t r, int64_t w) {
        return gpu ? on_gpu(v, r, w) : on_cpu(v, r, w);
      };
      context.begin_pass(fill_pass);
      const Matrix k = matrix(kv_values, static_cast<int64_t>(fill.size()), c.n_kv * c.dim);
      const Matrix v = matrix(v_values, static_cast<int64_t>(fill.size()), c.n_kv * c.dim);
      rope(context, k, 0, rope_angles(context, fill, std::span(&table, 1), table_of_seq), c.dim);
      kv_write(context, fill_pass, 0, k, v, layer);
      context.begin_pass(wanted);
      const Matrix q = matrix(queries, static_cast<int64_t>(wanted.rows.size()), c.n_heads * c.dim);
      rope(context, q, 0, rope_angles(context, wanted.rows, std::span(&table, 1), table_of_seq), c.dim);
      Matrix o = context.matrix(q.rows, q.cols);
      AttentionParams params;
      params.n_heads = c.n_heads;
      params.scale = 1.f / std::sqrt(static_cast<float>(c.dim));
      params.window_base = c.window;
      params.window_output = c.window_output;
      params.softcap = c.softcap;
      if (c.sinks) params.sinks = vector_on(context, sink);
      attention(context, wanted, o, q, layer, params);
      return gpu ? from_gpu(o) : values(o);
    };
    const std::string what =
        "attention d " + std::to_string(c.dim) + " heads " + std::to_string(c.n_heads) + "/" + std::to_string(c.n_kv);
    const std::vector<float> got = run(*gpu_, true, pass, q_values);
    expect_close(got, run(*cpu_, false, pass, q_values), what, 2);
    EXPECT_EQ(got, run(*gpu_, true, pass, q_values)) << what << ": twice";
    // Each row alone gives the same bits as all together.
    const int64_t width = c.n_heads * c.dim;
    for (const size_t i : {size_t{0}, size_t{77}, size_t{189}, size_t{196}, size_t{197}, size_t{198}, rows.size() - 2,
                           rows.size() - 1}) {
      const Pass one{std::span(rows).subspan(i, 1), seqs, 0};
      const std::vector<float> query(q_values.begin() + static_cast<int64_t>(i) * width,
                                     q_values.begin() + static_cast<int64_t>(i + 1) * width);
      const std::vector<float> alone = run(*gpu_, true, one, query);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), got.begin() + static_cast<int64_t>(i) * width))
          << what << ": row " << i << " alone";
    }
  }
}

// A row's bits do not depend on where the query tile that holds it begins, nor on rows of the same pass elsewhere.
TEST_P(AttentionCuda, WhatHasNoKernelIsRefused) {
  require_attention(*gpu_, 512, 64);
  EXPECT_THROW(require_attention(*gpu_, 520, 0), Error);
  EXPECT_THROW(require_attention(*gpu_, 64, 65), Error);
}

TEST_P(AttentionCuda, AttentionTilesMayBeginAnywhere) {
  constexpr int32_t kLength = 4500, kKv = 1, kHeads = 2;
  std::vector<int32_t> table;
  for (int32_t i = 0; i * kBlockTokens < kLength; ++i) table.push_back(i ^ 1);
  table.back() = static_cast<int32_t>(table.size()) - 1;
  const int32_t* blocks = table.data();
  const std::vector<SeqView> seqs = {{&blocks, -1, kLength, 0, 1, static_cast<int32_t>(table.size())}};
  const size_t n_blocks = table.size() + 1;
  for (const int32_t dim : {64, 128, 256}) {
    const std::vector<float> k = noise(int64_t{kLength} * dim), v = noise(int64_t{kLength} * dim),
                             q = noise(int64_t{kLength} * kHeads * dim);
    const size_t bytes = n_blocks * kBlockTokens * static_cast<size_t>(dim) * static_cast<size_t>(size_of(GetParam()));
    const auto k_buffer = gpu_->make_buffer(bytes), v_buffer = gpu_->make_buffer(bytes);
    const KvLayer layer{k_buffer->data(), v_buffer->data(), GetParam(), kKv, dim, dim, 0};
    std::vector<Row> fill;
    for (int32_t p = 0; p < kLength; ++p) fill.push_back({0, p, 0, Stream::base, RowKind::prefill, -1});
    gpu_->arena().reset();
    const Pass fill_pass{fill, seqs, 0};
    gpu_->begin_pass(fill_pass);
    kv_write(*gpu_, fill_pass, 0, on_gpu(k, kLength, dim), on_gpu(v, kLength, dim), layer);
    for (const int32_t window : {0, 128, 1000}) {
      std::vector<float> reference;  // rows 4,096 … 4,499
      // Rows [first, last), and those from 4,330 on, where there is a gap between.
      for (const auto& [first, last] : {std::pair{4096, 4500}, {4112, 4500}, {4201, 4500}, {300, 700}, {4329, 4330}}) {
        std::vector<Row> rows(fill.begin() + first, fill.begin() + last);
        if (last < 4500) rows.insert(rows.end(), fill.begin() + 4330, fill.end());
        std::vector<float> queries;
        for (const Row& row : rows) {
          queries.insert(queries.end(), q.begin() + int64_t{row.pos} * kHeads * dim,
                         q.begin() + int64_t{row.pos + 1} * kHeads * dim);
        }
        gpu_->arena().reset();
        const Pass pass{rows, seqs, 0};
        gpu_->begin_pass(pass);
        const auto n = static_cast<int64_t>(rows.size());
        const Matrix o = gpu_->matrix(n, kHeads * dim);
        AttentionParams params;
        params.n_heads = kHeads;
        params.scale = 1.f / std::sqrt(static_cast<float>(dim));
        params.window_base = window;
        attention(*gpu_, pass, o, on_gpu(queries, n, kHeads * dim), layer, params);
        const std::vector<float> got = from_gpu(o);
        if (reference.empty()) reference = got;
        for (size_t i = 0; i < rows.size(); ++i) {
          if (rows[i].pos < 4096) continue;
          const auto at = got.begin() + static_cast<int64_t>(i) * kHeads * dim;
          const auto want = reference.begin() + int64_t{rows[i].pos - 4096} * kHeads * dim;
          ASSERT_TRUE(std::equal(at, at + kHeads * dim, want))
              << "d " << dim << " window " << window << " position " << rows[i].pos << " with rows from " << first;
        }
      }
    }
  }
}

// Kernels start early; an output row waits for the keys that the same pass writes, wherever they are.
TEST_P(AttentionCuda, OutputRowSeesTheKeysOfItsPass) {
  constexpr int32_t kLength = 20000, kKv = 8, kHeads = 32, kDim = 128;
  std::vector<int32_t> table;
  for (int32_t i = 0; i * kBlockTokens < kLength; ++i) table.push_back(i);
  const int32_t* blocks = table.data();
  const std::vector<SeqView> seqs = {{&blocks, -1, kLength, 0, 1, static_cast<int32_t>(table.size())}};
  std::vector<Row> rows;
  for (int32_t p = 5000; p < 5600; ++p) rows.push_back({0, p, 0, Stream::base, RowKind::prefill, -1});
  for (int32_t p = kLength - 20; p < kLength; ++p) rows.push_back({0, p, 0, Stream::base, RowKind::prefill, -1});
  rows.push_back({0, kLength - 1, 0, Stream::output, RowKind::prefill, -1});
  const Pass pass{rows, seqs, 0};
  const auto n = static_cast<int64_t>(rows.size());
  const int64_t width = int64_t{kHeads + 2 * kKv} * kDim;
  const size_t bytes = table.size() * kKv * kBlockTokens * kDim * static_cast<size_t>(size_of(GetParam()));
  const std::vector<float> qkv = noise(n * width);
  AttentionParams params;
  params.n_heads = kHeads;
  params.scale = 1.f / std::sqrt(static_cast<float>(kDim));
  params.window_base = 128;
  std::vector<float> first;
  for (const bool waits : {true, false, false, false}) {
    gpu_->arena().reset();
    gpu_->begin_pass(pass);
    const auto k = gpu_->make_buffer(bytes), v = gpu_->make_buffer(bytes);
    gpu_->zero(k->data(), bytes);
    gpu_->zero(v->data(), bytes);
    const KvLayer layer{k->data(), v->data(), GetParam(), kKv, kDim, kDim, 0};
    const Matrix fused = on_gpu(qkv, n, width), o = gpu_->matrix(n, kHeads * kDim);
    finish_qkv(*gpu_, pass, fused.columns(0, kHeads * kDim), fused.columns(kHeads * kDim, kKv * kDim),
               fused.columns((kHeads + kKv) * kDim, kKv * kDim), layer, {.head_dim = kDim});
    if (waits) from_gpu(o);
    attention(*gpu_, pass, o, fused.columns(0, kHeads * kDim), layer, params);
    const std::vector<float> got = from_gpu(o);
    if (first.empty()) first = got;
    EXPECT_EQ(got, first);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, AttentionCuda, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& type) { return std::string(name(type.param)); });

}  // namespace
}  // namespace hayfork::engine
