#include "engine/mixers/mixer.h"

#include "base/error.h"
#include "engine/loader.h"

namespace hayfork::engine {

int64_t Scratch::bytes(int64_t rows, int64_t cols, DType type) {
  return (rows * cols * size_of(type) + 63) / 64 * 64;
}

Matrix Scratch::matrix(int64_t rows, int64_t cols, DType type) {
  const int64_t n = bytes(rows, cols, type);
  HAY_CHECK(used_ + n <= bytes_, "a layer needs more scratch than it planned");
  Matrix m{data_ + used_, type, rows, cols, cols};
  used_ += n;
  return m;
}

// f(kind, first row, end) for the rows of each kind.
template <typename F>
void for_kinds(const LayerPass& pass, int64_t n_rows, F f) {
  int64_t prefill_end = 0;  // rows are sorted by kind
  for (const RowGroup& group : pass.groups) {
    if (group.kind == RowKind::prefill) prefill_end = group.end;
  }
  if (prefill_end > 0) f(RowKind::prefill, 0, prefill_end);
  if (prefill_end < n_rows) f(RowKind::decode, prefill_end, n_rows);
}

void linear_rows(LayerPass& pass, Matrix y, Matrix x, const LinearWeight& weight) {
  for_kinds(pass, x.rows, [&](RowKind kind, int64_t begin, int64_t end) {
    linear(pass.context, y.row_range(begin, end), x.row_range(begin, end), weight, kind);
  });
}

void linear_act_mul_rows(LayerPass& pass, Matrix y, Matrix fused, Matrix x, const LinearWeight& weight,
                         Activation act) {
  for_kinds(pass, x.rows, [&](RowKind kind, int64_t begin, int64_t end) {
    linear_act_mul(pass.context, y.row_range(begin, end), fused.row_range(begin, end), x.row_range(begin, end), weight,
                   act, kind);
  });
}

Norm make_norm(Loader& loader, const NormSpec& spec, int64_t group) {
  Norm norm{.kind = spec.kind, .eps = spec.eps, .group = group};
  if (!spec.weight.empty()) norm.weight = loader.vector(spec.weight, {group});
  return norm;
}

}  // namespace hayfork::engine
