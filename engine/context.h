// Where ops run: the device, the activation type, and the scratch memory of the pass in flight. One Context per engine
// thread. Ops take it first; HAY_DISPATCH is the only place that asks which device it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/rows.h"
#include "engine/tensor.h"

namespace hayfork::engine {

enum class Device : uint8_t { cpu, cuda };

// Scratch memory in one slab: allocations are 64-byte aligned and live until reset(). Grows only between passes.
class Arena {
 public:
  virtual ~Arena() = default;
  virtual void* allocate(size_t bytes) = 0;  // Throws: resource when it does not fit after growing
  virtual void reset() = 0;
  // Room for passes of so many bytes, taken at once where memory is not taken page by page, as far as it is there.
  // Resets.
  virtual void reserve(size_t /*bytes*/) {}
  virtual size_t peak_bytes() const = 0;
};

// Memory of the device that lives as long as its owner (weights, caches). Freed by the destructor.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual void* data() const = 0;
  virtual size_t bytes() const = 0;
};

// A point in a device's stream of work.
class Fence {
 public:
  virtual ~Fence() = default;
  virtual void set() = 0;   // behind all work queued so far
  virtual void wait() = 0;  // until the device has come this far. Throws: device, for what failed on the way
  // Device time from `earlier` to here. Requires: both have been waited for.
  virtual double ms_since(const Fence& earlier) const = 0;
};

// A pass's work, kept as one graph: run() queues it for another pass of the same shape. Throws: resource, device.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void run(const Pass& pass) = 0;
  virtual bool valid() const = 0;  // false once the memory it works in has moved
};

class Context {
 public:
  virtual ~Context() = default;
  Device device() const { return device_; }
  DType activation() const { return activation_; }  // type of Matrix activations; always f32 on the CPU
  DType weights() const { return weights_; }        // compute type of linear weights: f32 or bf16
  Arena& arena() { return *arena_; }

  Matrix matrix(int64_t rows, int64_t cols) { return matrix(rows, cols, activation_); }
  Matrix matrix(int64_t rows, int64_t cols, DType type) {
    return {arena_->allocate(static_cast<size_t>(rows * cols * size_of(type))), type, rows, cols, cols};
  }
  virtual std::unique_ptr<Buffer> make_buffer(size_t bytes) = 0;  // Throws: resource, naming the size
  // The same with `parked` bytes more behind them, which may lie in host memory that kernels reach in place, slowly;
  // parking_bytes() is how much of that there can be, 0 where memory is of one kind.
  virtual std::unique_ptr<Buffer> make_parked_buffer(size_t bytes, size_t parked) {
    return make_buffer(bytes + parked);
  }
  virtual int64_t parking_bytes() const { return 0; }
  virtual void upload(void* to, const void* from_host, size_t bytes) = 0;  // to device memory, ordered before later ops
  virtual void download(void* to_host, const void* from, size_t bytes) = 0;  // waits until the bytes are there
  // Copies within the device's memory, and zeros it; ordered like upload. The defaults suit memory the host can reach
  // and go through the host otherwise.
  virtual void copy(void* to, const void* from, size_t bytes);
  virtual void zero(void* to, size_t bytes);
  virtual size_t free_bytes() const = 0;  // memory a plan may use
  // The most that was ever taken of a device's own memory, weights, caches and scratch together; 0: not counted.
  virtual int64_t peak_bytes() const { return 0; }
  virtual int64_t fixed_bytes() const { return 0; }  // taken by the context itself

  // ---- Devices that work beside the host. Without a queue all is done when a call returns, and none of these is
  // called.
  virtual bool queues() const { return false; }
  virtual std::unique_ptr<Buffer> make_host_buffer(size_t bytes);  // host memory that fetch() writes. Throws: resource
  // Copies to a host buffer without waiting: the bytes are there when a fence set later has been passed.
  virtual void fetch(void* to, const void* from, size_t bytes);
  virtual std::unique_ptr<Fence> make_fence();
  // Keeps what `work` queues as a graph, without running it. `work` begins the one pass it computes; what it stages
  // beside the pass's rows and block tables must be the same for every pass of the shape. Null when scratch was short.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& work);
  // The pass about to run, called by Model::forward after the arena's reset: uploads what kernels need of rows and
  // block tables. The CPU keeps the pointer.
  virtual void begin_pass(const Pass& pass) = 0;

 protected:
  Context(Device device, DType activation, DType weights)
      : device_(device), activation_(activation), weights_(weights) {}
  std::unique_ptr<Arena> arena_;

 private:
  Device device_;
  DType activation_;
  DType weights_;
};

// `weights`: f32 or bf16. Throws: unsupported.
std::unique_ptr<Context> make_cpu_context(DType weights);
// The instruction set the CPU ops run on, chosen at run time: "x86-64-v4+bf16", "x86-64-v4", "x86-64-v3", "generic".
// Part of the numerics id.
std::string_view cpu_isa();
// Whether the processor multiplies bfloat16 itself: there --dtype auto is bf16, else f32.
bool cpu_multiplies_bf16();

}  // namespace hayfork::engine

// An op's one dispatch line: HAY_DISPATCH(ctx, rmsnorm, (ctx, y, x, w, eps)) calls cpu::rmsnorm or cuda::rmsnorm.
#if defined(HAYFORK_WITH_CUDA)
#define HAY_DISPATCH(ctx, op, args) ((ctx).device() == ::hayfork::engine::Device::cuda ? cuda::op args : cpu::op args)
#else
#define HAY_DISPATCH(ctx, op, args) (cpu::op args)
#endif
