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

void linear_rows(LayerPass& pass, Matrix y, Matrix x, const LinearWeight& weight) {
  int64_t prefill_end = 0;  // rows are sorted by kind
  for (const RowGroup& group : pass.groups) {
    if (group.kind == RowKind::prefill) prefill_end = group.end;
  }
  if (prefill_end > 0) {
    linear(pass.context, y.row_range(0, prefill_end), x.row_range(0, prefill_end), weight, RowKind::prefill);
  }
  if (prefill_end < x.rows) {
    linear(pass.context, y.row_range(prefill_end, x.rows), x.row_range(prefill_end, x.rows), weight, RowKind::decode);
  }
}

Norm make_norm(Loader& loader, const NormSpec& spec, int64_t group) {
  Norm norm{.kind = spec.kind, .eps = spec.eps, .group = group};
  if (!spec.weight.empty()) norm.weight = loader.vector(spec.weight, {group});
  return norm;
}

}  // namespace hayfork::engine
