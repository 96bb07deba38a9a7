#include "tests/support/queue_context.h"

#include <cstring>

namespace hayfork::test {
namespace {

class PieceArena : public engine::Arena {
 public:
  void* allocate(size_t bytes) override {
    pieces_.push_back(std::make_unique<std::max_align_t[]>(bytes / sizeof(std::max_align_t) + 1));
    return pieces_.back().get();
  }
  void reset() override { pieces_.clear(); }
  size_t peak_bytes() const override { return 0; }

 private:
  std::vector<std::unique_ptr<std::max_align_t[]>> pieces_;
};

}  // namespace

class QueueFence : public engine::Fence {
 public:
  explicit QueueFence(QueueContext& context) : context_(context) {}
  void set() override { at_ = context_.n_copied_ + context_.copies_.size(); }
  void wait() override {
    for (; context_.n_copied_ < at_; ++context_.n_copied_, context_.copies_.pop_front()) {
      const QueueContext::Copy& copy = context_.copies_.front();
      std::memcpy(copy.to, copy.bytes.data(), copy.bytes.size());
    }
  }
  double ms_since(const engine::Fence&) const override { return 0; }

 private:
  QueueContext& context_;
  size_t at_ = 0;
};

QueueContext::QueueContext()
    : Context(engine::Device::cpu, engine::DType::f32, engine::DType::f32),
      inner_(engine::make_cpu_context(engine::DType::f32)) {
  arena_ = std::make_unique<PieceArena>();
}

void QueueContext::fetch(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const auto* begin = static_cast<const char*>(from);
  copies_.push_back({to, {begin, begin + bytes}});
  std::memset(to, 0x7F, bytes);
}

std::unique_ptr<engine::Fence> QueueContext::make_fence() {
  return std::make_unique<QueueFence>(*this);
}

}  // namespace hayfork::test
