// The one place that asks which device an op runs on.
#include "engine/kernels/ops.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/kernels/twins.h"

namespace hayfork::engine {

std::unique_ptr<LinearWeight> make_linear(Context& context, std::span<const LinearPart> parts, int64_t k) {
  return HAY_DISPATCH(context, make_linear, (context, parts, k));
}
void linear(Context& context, Matrix y, Matrix x, const LinearWeight& weight, RowKind kind) {
  HAY_DISPATCH(context, linear, (context, y, x, weight, kind));
}
void linear_act_mul(Context& context, Matrix y, Matrix fused, Matrix x, const LinearWeight& weight, Activation act,
                    RowKind kind) {
  HAY_DISPATCH(context, linear_act_mul, (context, y, fused, x, weight, act, kind));
}
void embed(Context& context, Matrix x, std::span<const Row> rows, const LinearWeight& table, float multiplier) {
  HAY_DISPATCH(context, embed, (context, x, rows, table, multiplier));
}
void rmsnorm(Context& context, Matrix y, Matrix x, Vector w, float eps, NormKind kind, int64_t group) {
  HAY_DISPATCH(context, rmsnorm, (context, y, x, w, eps, kind, group));
}
void add_rmsnorm(Context& context, Matrix x, Matrix h, Matrix y, float scale, Vector w, float eps, NormKind kind,
                 NonfiniteCheck check) {
  HAY_DISPATCH(context, add_rmsnorm, (context, x, h, y, scale, w, eps, kind, check));
}
void add(Context& context, Matrix x, Matrix y, float scale) {
  HAY_DISPATCH(context, add, (context, x, y, scale));
}
void act_mul(Context& context, Matrix y, Matrix gate, Matrix up, Activation act) {
  HAY_DISPATCH(context, act_mul, (context, y, gate, up, act));
}
void affine(Context& context, Matrix q, Vector scale, Vector offset) {
  HAY_DISPATCH(context, affine, (context, q, scale, offset));
}
RopeAngles rope_angles(Context& context, std::span<const Row> rows, std::span<const RopeTable> tables,
                       std::span<const int32_t> table_of_seq) {
  return HAY_DISPATCH(context, rope_angles, (context, rows, tables, table_of_seq));
}
void rope(Context& context, Matrix x, int64_t first_row, RopeAngles angles, int32_t head_dim) {
  HAY_DISPATCH(context, rope, (context, x, first_row, angles, head_dim));
}
void kv_write(Context& context, const Pass& pass, int64_t first_row, Matrix k, Matrix v, const KvLayer& layer) {
  HAY_DISPATCH(context, kv_write, (context, pass, first_row, k, v, layer));
}
void finish_qkv(Context& context, const Pass& pass, Matrix q, Matrix k, Matrix v, const KvLayer& layer,
                const QkvFinish& finish) {
  HAY_DISPATCH(context, finish_qkv, (context, pass, q, k, v, layer, finish));
}
void kv_read(Context& context, const SeqView& seq, Matrix k, Matrix v, const KvLayer& layer) {
  HAY_DISPATCH(context, kv_read, (context, seq, k, v, layer));
}
void require_attention(const Context& context, int32_t v_dim, int32_t n_kv_head_windows) {
  HAY_DISPATCH(context, require_attention, (context, v_dim, n_kv_head_windows));
}
void attention(Context& context, const Pass& pass, Matrix o, Matrix q, const KvLayer& layer,
               const AttentionParams& params) {
  HAY_DISPATCH(context, attention, (context, pass, o, q, layer, params));
}
std::vector<HeadRowResult> head(Context& context, Matrix hidden, const LinearWeight& weight, float softcap,
                                std::span<const HeadRow> rows) {
  return HAY_DISPATCH(context, head, (context, hidden, weight, softcap, rows));
}
QueuedHead head_queue([[maybe_unused]] Context& context, [[maybe_unused]] Matrix hidden,
                      [[maybe_unused]] const LinearWeight& weight, [[maybe_unused]] float softcap,
                      [[maybe_unused]] std::span<const HeadRow> rows) {
#if defined(HAYFORK_WITH_CUDA)
  return cuda::head_queue(context, hidden, weight, softcap, rows);
#else
  HAY_CHECK(false, "the CPU has no queue");
#endif
}
std::vector<HeadRowResult> head_read(const HeadState* rows, const float* picked, std::span<const int32_t> n_targets) {
  std::vector<HeadRowResult> results(n_targets.size());
  for (size_t r = 0; r < results.size(); ++r) {
    const HeadState& s = rows[r];
    HeadRowResult& result = results[r];
    result.target_logits.assign(picked, picked + n_targets[r]);
    picked += n_targets[r];
    result.log_sum_exp = static_cast<float>(static_cast<double>(s.max) + std::log(s.sum));
    result.top1 = s.top1;
    result.top2 = s.top2;
    result.argmax = s.argmax;
    result.finite = s.finite != 0;
  }
  return results;
}
void gather_wanted(Context& context, Matrix out, Matrix x, std::span<const Row> rows) {
  HAY_DISPATCH(context, gather_wanted, (context, out, x, rows));
}
void mark_nonfinite(Context& context, Matrix marks, Matrix x, int32_t layer) {
  HAY_DISPATCH(context, mark_nonfinite, (context, marks, x, layer));
}
std::unique_ptr<Experts> make_experts(Context& context, const ExpertShape& shape) {
  return HAY_DISPATCH(context, make_experts, (context, shape));
}
void route(Context& context, Routing out, Matrix logits, const RouterParams& params, Vector scale) {
  HAY_DISPATCH(context, route, (context, out, logits, params, scale));
}
void run_experts(Context& context, Matrix y, Matrix x, const Routing& routing, const Experts& experts,
                 const ExpertActivation& act, const RowGroups& groups, void* scratch) {
  HAY_DISPATCH(context, run_experts, (context, y, x, routing, experts, act, groups, scratch));
}
std::vector<int32_t> read_marks(Context& context, Matrix marks) {
  std::vector<int32_t> layers(static_cast<size_t>(marks.rows));
  context.download(layers.data(), marks.data, layers.size() * sizeof(int32_t));
  if (std::all_of(layers.begin(), layers.end(), [](int32_t layer) { return layer < 0; })) layers.clear();
  return layers;
}

}  // namespace hayfork::engine
