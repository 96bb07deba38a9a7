#include "engine/models/spec.h"

namespace hayfork::engine {
namespace {

// One overload a kind of block: a new kind is one line here and one in its variant.
std::unique_ptr<Mixer> make(Loader& loader, const SoftmaxSpec& spec, int64_t hidden) {
  return make_softmax(loader, spec, hidden);
}
std::unique_ptr<Mixer> make(Loader& loader, const GdnSpec& spec, int64_t hidden) {
  return make_gdn(loader, spec, hidden);
}
std::unique_ptr<Mixer> make(Loader& loader, const LightningSpec& spec, int64_t hidden) {
  return make_lightning(loader, spec, hidden);
}
std::unique_ptr<Mixer> make(Loader& loader, const GlaSpec& spec, int64_t hidden) {
  return make_gla(loader, spec, hidden);
}
std::unique_ptr<Mixer> make(Loader& loader, const Mamba2Spec& spec, int64_t hidden) {
  return make_mamba2(loader, spec, hidden);
}

std::unique_ptr<Block> make(Loader&, const std::monostate&, int64_t) {
  return nullptr;
}
std::unique_ptr<Block> make(Loader& loader, const MlpSpec& spec, int64_t hidden) {
  return make_mlp(loader, spec, hidden);
}
std::unique_ptr<Block> make(Loader& loader, const MoeSpec& spec, int64_t hidden) {
  return make_moe(loader, spec, hidden);
}
std::unique_ptr<Block> make(Loader& loader, const MoeBesideMlpSpec& spec, int64_t hidden) {
  return make_moe_beside_mlp(loader, spec, hidden);
}

}  // namespace

std::unique_ptr<Mixer> make_mixer(Loader& loader, const MixerSpec& spec, int64_t hidden) {
  return std::visit([&](const auto& kind) { return make(loader, kind, hidden); }, spec);
}

std::unique_ptr<Block> make_feed_forward(Loader& loader, const FeedForwardSpec& spec, int64_t hidden) {
  return std::visit([&](const auto& kind) { return make(loader, kind, hidden); }, spec);
}

}  // namespace hayfork::engine
