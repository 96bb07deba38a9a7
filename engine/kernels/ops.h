// The ops model code is written against. Every op is one contract with a CPU and a CUDA twin; activations are Matrix
// [rows, width] in the context's activation type, sums in float32. Results of a row depend on that row's inputs alone,
// never on the other rows of the call (batch invariance): reductions run in a fixed order given by columns or absolute
// positions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/cache.h"
#include "engine/context.h"
#include "engine/rows.h"
#include "engine/tensor.h"

namespace hayfork::engine {

// ---- linear: y[m,n] = sum_k x[m,k] W[n,k] + b[n] --------------------------------------------------------------------
// A weight prepared (packed) for one device. Made once at load.
class LinearWeight {
 public:
  virtual ~LinearWeight() = default;
  int64_t n = 0, k = 0;
  int64_t bytes = 0;  // resident
};
// Part of a fused weight: the rows of W are stacked in the order given (q, k, v or gate, up).
struct RandomPart {
  uint64_t key = 0;  // of the part's first element
  float centre = 0, spread = 0;
};
struct LinearPart {
  const void* data;  // [n, k] row-major in the checkpoint's type
  DType dtype;       // f32, bf16, f16
  int64_t n;
  Vector bias;  // may be absent
  // Set: values made up on the device (weights.h, RandomValues), no data. CUDA only.
  std::optional<RandomPart> random = std::nullopt;
};
// Copies (and converts to context.weights()) everything; the parts may be unmapped afterwards.
std::unique_ptr<LinearWeight> make_linear(Context& context, std::span<const LinearPart> parts, int64_t k);
enum class Activation : uint8_t { silu, gelu_tanh };
// Requires: x [M,K], y [M,N], y and x do not overlap. `kind` may choose the kernel; M never does.
void linear(Context& context, Matrix y, Matrix x, const LinearWeight& weight, RowKind kind);
// y = act(gate) · up of [gate; up] = x Wᵀ + b: linear, then act_mul, and the same bits as these two. Requires: y [M,F],
// weight.n = 2F; fused [M,2F], whose contents are undefined afterwards; y may be its first F columns.
void linear_act_mul(Context& context, Matrix y, Matrix fused, Matrix x, const LinearWeight& weight, Activation act,
                    RowKind kind);

// ---- embedding: x[t] = table[token] · multiplier --------------------------------------------------------------------
// `table` is the packed output matrix when the embedding is tied: row gathers read the same storage, which is kept
// once.
void embed(Context& context, Matrix x, std::span<const Row> rows, const LinearWeight& table, float multiplier);

// ---- norms ----------------------------------------------------------------------------------------------------------
enum class NormKind : uint8_t {
  llama,        // A: y = w · cast(r)
  one_cast,     // B: y = cast(w · r)
  zero_centred  // C: y = cast(r · (1 + w))
};
// r = x / sqrt(mean(x²) + eps) over each group of `group` columns (group = cols: the whole row; head_dim: per head, w
// is [head_dim]). w absent: no weight. y may be x.
void rmsnorm(Context& context, Matrix y, Matrix x, Vector w, float eps, NormKind kind, int64_t group);
// A finished layer's residual stream checked, see mark_nonfinite(); no marks: nothing is checked.
struct NonfiniteCheck {
  Matrix marks{};
  int32_t layer = 0;
};
// h += scale · y, then x = rmsnorm(h) over whole rows: add, mark_nonfinite, rmsnorm, and the same bits as these.
void add_rmsnorm(Context& context, Matrix x, Matrix h, Matrix y, float scale, Vector w, float eps, NormKind kind,
                 NonfiniteCheck check);

// ---- elementwise ----------------------------------------------------------------------------------------------------
void add(Context& context, Matrix x, Matrix y, float scale);                       // x += scale · y
void act_mul(Context& context, Matrix y, Matrix gate, Matrix up, Activation act);  // y = act(gate) · up; y may be gate
// Orthros (arXiv 2610.13735, section 1): q[row] = scale ⊙ q[row] + offset. Columns as W_Q's outputs.
void affine(Context& context, Matrix q, Vector scale, Vector offset);

// ---- rotary embedding (half-split pairs) ----------------------------------------------------------------------------
struct RopeTable {
  std::vector<float> inv_freq;  // [rotary_dim/2]
  float attention_factor = 1;   // multiplies cos and sin
};
// cos and sin of the rows of a pass, made once per pass and rope kind: [rows, half] float32 each, in the arena.
struct RopeAngles {
  const float* cos = nullptr;
  const float* sin = nullptr;
  int32_t half = 0;  // rotary_dim / 2
};
// Rows of sequence s use tables[table_of_seq[s]]: they differ when a kind's table depends on the request's length.
RopeAngles rope_angles(Context& context, std::span<const Row> rows, std::span<const RopeTable> tables,
                       std::span<const int32_t> table_of_seq);
// Rotates the first 2·half columns of each head of width head_dim. Rows of x are rows [first_row, first_row + x.rows)
// of the pass.
void rope(Context& context, Matrix x, int64_t first_row, RopeAngles angles, int32_t head_dim);

// ---- cache write ----------------------------------------------------------------------------------------------------
// Stores k [M, Hkv·k_dim] and v [M, Hkv·v_dim] of rows [first_row, first_row + M) of the pass; all are base rows.
void kv_write(Context& context, const Pass& pass, int64_t first_row, Matrix k, Matrix v, const KvLayer& layer);
// What happens to the projection's q, k and v before attention: norms of heads, Orthros' affine map of the queries of
// each stream (before or behind the norm), rotation, and the cache write of base rows. In place of affine, rmsnorm,
// rope and kv_write one after the other, and the same bits as these.
struct QkvFinish {
  int32_t head_dim = 0;
  Vector q_norm{}, k_norm{};  // [head_dim] each; absent: no norm
  float q_eps = 0, k_eps = 0;
  NormKind q_kind = NormKind::llama, k_kind = NormKind::llama;
  struct Affine {
    Vector scale{}, offset{};  // [q's columns], or absent
  };
  Affine base{}, output{};  // by stream
  bool affine_first = false;
  RopeAngles angles{};  // half 0: no rotation
};
// q [rows of the pass, Hq·head_dim] in place; k, v [rows, Hkv·head_dim] are undefined afterwards.
void finish_qkv(Context& context, const Pass& pass, Matrix q, Matrix k, Matrix v, const KvLayer& layer,
                const QkvFinish& finish);
// Positions [0, k.rows) of a sequence back: k [T, Hkv·k_dim], v [T, Hkv·v_dim], f32 on the CPU. The order inside a
// block is the backend's own: nothing but these two and attention() knows it.
void kv_read(Context& context, const SeqView& seq, Matrix k, Matrix v, const KvLayer& layer);

// ---- attention ------------------------------------------------------------------------------------------------------
// o[t,h] = sum_j softmax_j( cap(scale · q[t,h]·k[j, h/G]) ) v[j, h/G], j from max(0, t−window+1) to t, over the K/V of
// the row's sequence in the cache; G = Hq/Hkv. cap(s) = softcap·tanh(s/softcap) when softcap > 0. A sink adds
// exp(sink[h]) to the denominator (not scaled, not capped). Softmax in float32; keys in tiles of kBlockTokens by
// absolute position.
struct AttentionParams {
  int32_t n_heads = 0;  // Hq
  float scale = 0;
  int32_t window_base = 0;  // 0: all keys
  int32_t window_output = 0;
  float softcap = 0;                         // 0: none
  Vector sinks;                              // [Hq] or absent
  std::span<const int32_t> kv_head_windows;  // per kv head, replaces both windows (0: all keys); empty: none
};
// Asked when a model is loaded. Throws: unsupported, where the backend has no attention over values of v_dim columns or
// over so many kv heads with windows of their own (0: none).
void require_attention(const Context& context, int32_t v_dim, int32_t n_kv_head_windows);
// q: [rows of the pass, Hq·k_dim]; o: [rows, Hq·v_dim]. All base K/V of the pass are written before.
void attention(Context& context, const Pass& pass, Matrix o, Matrix q, const KvLayer& layer,
               const AttentionParams& params);

// ---- head -----------------------------------------------------------------------------------------------------------
// Logits of hidden · Wᵀ slab by slab of the vocabulary, never a [M,V] matrix: per row the log-sum-exp (slabs added in
// float64), arg max with the lowest id among equals, the two largest logits, and the logits of `targets`.
struct HeadRow {
  std::span<const int32_t> targets;
  float* logits = nullptr;          // host memory for V floats, or null
  RowKind kind = RowKind::prefill;  // may choose the kernel, as for linear()
};
struct HeadRowResult {
  std::vector<float> target_logits;
  float log_sum_exp = 0, top1 = 0, top2 = 0;
  int32_t argmax = 0;
  bool finite = true;
};
// softcap > 0: logits ← softcap·tanh(logits/softcap).
std::vector<HeadRowResult> head(Context& context, Matrix hidden, const LinearWeight& weight, float softcap,
                                std::span<const HeadRow> rows);

// head() on a device with a queue, without waiting: what stands on the device until it is copied back and read. Slots'
// arg max are remembered for rows of the next pass (Row::token). Requires: no row wants logits.
struct HeadState {
  double sum;  // of exp(logit − max)
  float max, top1, top2;
  int32_t argmax;
  int32_t finite;
  int32_t unused;
};
struct QueuedHead {
  HeadState* rows = nullptr;  // one a row
  float* picked = nullptr;    // logits of targets, row after row
  int64_t n_rows = 0, n_targets = 0;
};
QueuedHead head_queue(Context& context, Matrix hidden, const LinearWeight& weight, float softcap,
                      std::span<const HeadRow> rows);
// From copies on the host. `n_targets`: of each row.
std::vector<HeadRowResult> head_read(const HeadState* rows, const float* picked, std::span<const int32_t> n_targets);

// ---- gather and checks ----------------------------------------------------------------------------------------------
// out[row.want] = x[row] for wanted rows.
void gather_wanted(Context& context, Matrix out, Matrix x, std::span<const Row> rows);
// The layer in which a row first held a NaN or an infinity. marks is [rows, 1] i32: the call for layer 0 starts every
// row at −1, a later one keeps what is there. Nothing waits for the device until the marks are read.
void mark_nonfinite(Context& context, Matrix marks, Matrix x, int32_t layer);
// One a row; empty when every row is −1.
std::vector<int32_t> read_marks(Context& context, Matrix marks);

}  // namespace hayfork::engine
