// A device with a queue, on the CPU: work is done at once, but copies to the host are seen only when a fence behind
// them has been waited for. Until then host buffers hold garbage, so that reading too early shows.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "engine/context.h"

namespace hayfork::test {

class QueueContext : public engine::Context {
 public:
  QueueContext();
  std::unique_ptr<engine::Buffer> make_buffer(size_t bytes) override { return inner_->make_buffer(bytes); }
  void upload(void* to, const void* from_host, size_t bytes) override { inner_->upload(to, from_host, bytes); }
  void download(void* to_host, const void* from, size_t bytes) override { inner_->download(to_host, from, bytes); }
  size_t free_bytes() const override { return inner_->free_bytes(); }
  void begin_pass(const engine::Pass&) override {}
  bool queues() const override { return true; }
  std::unique_ptr<engine::Buffer> make_host_buffer(size_t bytes) override { return inner_->make_buffer(bytes); }
  void fetch(void* to, const void* from, size_t bytes) override;
  std::unique_ptr<engine::Fence> make_fence() override;
  // No graphs: passes of one shape are computed anew each time.
  std::unique_ptr<engine::Recording> record(const std::function<void()>&) override { return nullptr; }

 private:
  friend class QueueFence;
  struct Copy {
    void* to;
    std::vector<char> bytes;
  };
  std::unique_ptr<engine::Context> inner_;
  std::deque<Copy> copies_;
  size_t n_copied_ = 0;  // that have been seen
};

}  // namespace hayfork::test
