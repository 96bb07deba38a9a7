#include "engine/mixers/mlp.h"

#include "engine/loader.h"

namespace hayfork::engine {
namespace {

class Mlp : public Block {
 public:
  Mlp(Loader& loader, const MlpSpec& spec, int64_t hidden) : width_(spec.width), act_(spec.act) {
    const auto part = [&](const std::string& name, int64_t n) {
      return Loader::Part{name + ".weight", n, spec.bias ? name + ".bias" : "", {}};
    };
    gate_up_ = loader.linear({part(spec.gate, width_), part(spec.up, width_)}, hidden);
    down_ = loader.linear({part(spec.down, hidden)}, width_);
  }

  void forward(LayerPass& pass, Matrix y, Matrix x) const override {
    Matrix fused = pass.scratch.matrix(x.rows, 2 * width_, pass.context.activation());
    Matrix inner = fused.columns(0, width_);
    linear_act_mul_rows(pass, inner, fused, x, *gate_up_, act_);
    linear_rows(pass, y, inner, *down_);
  }

  int64_t scratch_bytes(int64_t n_rows, DType activation) const override {
    return Scratch::bytes(n_rows, 2 * width_, activation);
  }

 private:
  int64_t width_;
  Activation act_;
  std::unique_ptr<LinearWeight> gate_up_, down_;
};

}  // namespace

std::unique_ptr<Block> make_mlp(Loader& loader, const MlpSpec& spec, int64_t hidden) {
  return std::make_unique<Mlp>(loader, spec, hidden);
}

}  // namespace hayfork::engine
