// What a layer is made of: blocks that turn normalised rows into what is added to the residual stream. A Mixer moves
// information between positions and so keeps something in the cache; a feed-forward block is a Block alone. One file a
// kind; engine/models puts them together. Blocks own their weights and keep nothing between passes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/cache.h"
#include "engine/context.h"
#include "engine/expert_load.h"
#include "engine/kernels/ops.h"
#include "engine/lm.h"
#include "engine/rows.h"

namespace hayfork::engine {

class Loader;

// Memory of one layer's temporaries, used again by the next layer. Planned beforehand: it never grows.
class Scratch {
 public:
  Scratch(void* data, int64_t bytes) : data_(static_cast<char*>(data)), bytes_(bytes) {}
  Matrix matrix(int64_t rows, int64_t cols, DType type);
  void rewind(int64_t mark) { used_ = mark; }
  int64_t mark() const { return used_; }
  // Bytes that matrix() takes.
  static int64_t bytes(int64_t rows, int64_t cols, DType type);

 private:
  char* data_;
  int64_t bytes_, used_ = 0;
};

// One pass as a layer sees it.
struct LayerPass {
  Context& context;
  const Pass& pass;
  RowGroups groups;
  Cache& cache;
  int32_t layer;
  std::span<const RopeAngles> angles;  // by rope index of the model
  Scratch& scratch;
  Matrix residual;               // the stream before this layer's norm; routers of some families read it
  const Pass* wanted = nullptr;  // the wanted rows alone, in slot order: see Mixer::forward
};

class Block {
 public:
  virtual ~Block() = default;
  // y = block(x), all rows of the pass. Requires: x, y [rows, hidden], no overlap.
  virtual void forward(LayerPass& pass, Matrix y, Matrix x) const = 0;
  virtual int64_t scratch_bytes(int64_t n_rows, DType activation) const = 0;
  // Of a block with experts; `layer` is left to the model. Waits for the device.
  virtual std::optional<ExpertLoad> expert_load(Context& /*context*/) const { return std::nullopt; }
};

class Mixer : public Block {
 public:
  // With pass.wanted set (the model's last layer, when few rows are wanted), y has the rows of pass.wanted only; state
  // and K/V are written for all. Requires: wanted is set only if gives_wanted_rows().
  void forward(LayerPass& pass, Matrix y, Matrix x) const override = 0;
  virtual bool gives_wanted_rows() const { return false; }
  virtual StateSpec state() const = 0;
  virtual LayerInfo info() const = 0;  // bytes a token are filled in by the model, which knows the K/V type
};

// y = x Wᵀ + b, one call per row kind.
void linear_rows(LayerPass& pass, Matrix y, Matrix x, const LinearWeight& weight);
// The same of linear_act_mul.
void linear_act_mul_rows(LayerPass& pass, Matrix y, Matrix fused, Matrix x, const LinearWeight& weight, Activation act);

// A norm of the residual stream or of heads.
struct NormSpec {
  std::string weight;  // tensor; empty: no weight
  NormKind kind = NormKind::llama;
  float eps = 1e-6F;
};
struct Norm {
  Vector weight;
  NormKind kind = NormKind::llama;
  float eps = 1e-6F;
  int64_t group = 0;

  // y = norm(x), y may be x.
  void operator()(Context& context, Matrix y, Matrix x) const { rmsnorm(context, y, x, weight, eps, kind, group); }
};
Norm make_norm(Loader& loader, const NormSpec& spec, int64_t group);

}  // namespace hayfork::engine
