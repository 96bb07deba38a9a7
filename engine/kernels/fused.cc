#include "engine/kernels/fused.h"

#include "engine/kernels/twins.h"

namespace hayfork::engine {

void linear_then_act_mul(Context& context, Matrix y, Matrix fused, Matrix x, const LinearWeight& weight, Activation act,
                         RowKind kind) {
  linear(context, fused, x, weight, kind);
  act_mul(context, y, fused.columns(0, y.cols), fused.columns(y.cols, y.cols), act);
}

void add_then_rmsnorm(Context& context, Matrix x, Matrix h, Matrix y, float scale, Vector w, float eps, NormKind kind,
                      NonfiniteCheck check) {
  add(context, h, y, scale);
  if (check.marks.data != nullptr) mark_nonfinite(context, check.marks, h, check.layer);
  rmsnorm(context, x, h, w, eps, kind, h.cols);
}

void finish_qkv_in_steps(Context& context, const Pass& pass, Matrix q, Matrix k, Matrix v, const KvLayer& layer,
                         const QkvFinish& finish) {
  const RowGroups groups = row_groups(pass.rows);
  const auto affine_queries = [&] {
    for (const RowGroup& group : groups) {
      const QkvFinish::Affine& map = group.stream == Stream::base ? finish.base : finish.output;
      if (map.scale) affine(context, q.row_range(group.begin, group.end), map.scale, map.offset);
    }
  };
  if (finish.affine_first) affine_queries();
  if (finish.q_norm) rmsnorm(context, q, q, finish.q_norm, finish.q_eps, finish.q_kind, finish.head_dim);
  if (!finish.affine_first) affine_queries();
  rope(context, q, 0, finish.angles, finish.head_dim);
  if (finish.k_norm) rmsnorm(context, k, k, finish.k_norm, finish.k_eps, finish.k_kind, finish.head_dim);
  rope(context, k, 0, finish.angles, finish.head_dim);
  for (const RowGroup& group : groups) {
    if (group.stream != Stream::base) continue;
    kv_write(context, pass, group.begin, k.row_range(group.begin, group.end), v.row_range(group.begin, group.end),
             layer);
  }
}

namespace cpu {

void linear_act_mul(Context& context, Matrix y, Matrix fused, Matrix x, const LinearWeight& weight, Activation act,
                    RowKind kind) {
  linear_then_act_mul(context, y, fused, x, weight, act, kind);
}
void add_rmsnorm(Context& context, Matrix x, Matrix h, Matrix y, float scale, Vector w, float eps, NormKind kind,
                 NonfiniteCheck check) {
  add_then_rmsnorm(context, x, h, y, scale, w, eps, kind, check);
}
void finish_qkv(Context& context, const Pass& pass, Matrix q, Matrix k, Matrix v, const KvLayer& layer,
                const QkvFinish& finish) {
  finish_qkv_in_steps(context, pass, q, k, v, layer, finish);
}

}  // namespace cpu
}  // namespace hayfork::engine
