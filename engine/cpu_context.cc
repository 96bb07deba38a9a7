// The CPU's Context: host memory all the way, so upload and download are copies.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/context.h"
#include "engine/kernels/scratch.h"
#include "engine/kernels/simd/simd.h"

namespace hayfork::engine {
namespace {

constexpr size_t kAlignment = 64;  // a cache line, and a 512-bit register

struct Slab {
  std::unique_ptr<std::byte, void (*)(void*)> memory{nullptr, std::free};
  size_t bytes = 0;

  explicit Slab(size_t n) : bytes((n + kAlignment - 1) / kAlignment * kAlignment) {
    if (bytes < n) refuse(n);
    if (bytes == 0) return;
    memory.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes)));
    if (!memory) refuse(n);
  }

  [[noreturn]] static void refuse(size_t n) {
    throw Error(ErrorCode::resource, ErrorSubject::memory, "not enough memory",
                {.where = {},
                 .why = "could not allocate " + std::to_string(n) + " bytes",
                 .next = "lower --batch-size or --chunk, or use a smaller model"});
  }
};

// A pass that needs more than the first slab holds takes further ones; the reset after it replaces them all by one.
class CpuArena : public Arena {
 public:
  void* allocate(size_t bytes) override {
    const size_t size = std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
    if (size < bytes) Slab::refuse(bytes);
    if (slabs_.empty() || slabs_.back().bytes - used_ < size) {
      slabs_.emplace_back(std::max(size, kSmallestSlab));
      used_ = 0;
    }
    std::byte* p = slabs_.back().memory.get() + used_;
    used_ += size;
    total_ += size;
    peak_ = std::max(peak_, total_);
    return p;
  }

  void reset() override {
    if (slabs_.size() > 1) {
      slabs_.clear();
      slabs_.emplace_back(peak_);
    }
    used_ = total_ = 0;
  }

  size_t peak_bytes() const override { return peak_; }

 private:
  static constexpr size_t kSmallestSlab = size_t{1} << 20;  // so that a first small allocation is not alone in its slab
  std::vector<Slab> slabs_;
  size_t used_ = 0;   // of the last slab
  size_t total_ = 0;  // since the last reset
  size_t peak_ = 0;
};

// Fresh pages from the kernel: zero, and resident only once touched, so that a planned cache costs nothing before use.
class CpuBuffer : public Buffer {
 public:
  explicit CpuBuffer(size_t n) : bytes_(n) {
    if (n == 0) return;
    data_ = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) Slab::refuse(n);
  }
  ~CpuBuffer() override {
    if (bytes_ > 0) munmap(data_, bytes_);
  }
  CpuBuffer(const CpuBuffer&) = delete;
  CpuBuffer& operator=(const CpuBuffer&) = delete;
  void* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

// Part of a slab that several weights share.
class SlabPart : public Buffer {
 public:
  SlabPart(std::shared_ptr<CpuBuffer> slab, std::byte* data, size_t bytes)
      : slab_(std::move(slab)), data_(data), bytes_(bytes) {}
  void* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  std::shared_ptr<CpuBuffer> slab_;
  std::byte* data_;
  size_t bytes_;
};

// Hands out a slab of huge pages piece by piece and never takes a piece back.
class StreamedMemory {
 public:
  std::unique_ptr<Buffer> make(size_t bytes) {
    const size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (size < bytes) Slab::refuse(bytes);
    if (!slab_ || end_ - next_ < static_cast<ptrdiff_t>(size)) start_slab(size);
    std::byte* const data = next_;
    next_ += size;
    return std::make_unique<SlabPart>(slab_, data, bytes);
  }

 private:
  static constexpr size_t kHugePage = size_t{2} << 20;
  static constexpr size_t kSlab = size_t{32} << 20;

  void start_slab(size_t bytes) {
    const size_t size = (std::max(bytes, kSlab) + kHugePage - 1) / kHugePage * kHugePage;
    slab_ = std::make_shared<CpuBuffer>(size + kHugePage);  // one more, to begin at a border
    const size_t skip = kHugePage - reinterpret_cast<uintptr_t>(slab_->data()) % kHugePage;
    next_ = static_cast<std::byte*>(slab_->data()) + skip % kHugePage;
    end_ = next_ + size;
    madvise(next_, size, MADV_HUGEPAGE);  // only advice: a refusal changes nothing
  }

  std::shared_ptr<CpuBuffer> slab_;
  std::byte* next_ = nullptr;
  std::byte* end_ = nullptr;
};

size_t available_memory() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  size_t kb = 0;
  size_t available = static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (std::string rest; meminfo >> key >> kb && std::getline(meminfo, rest);) {
    if (key == "MemAvailable:") available = kb * 1024;
  }
  size_t limit = 0, used = 0;  // "max" leaves limit 0
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit && std::ifstream("/sys/fs/cgroup/memory.current") >> used) {
    available = std::min(available, limit > used ? limit - used : 0);
  }
  return available;
}

class CpuContext : public Context {
 public:
  explicit CpuContext(DType weights) : Context(Device::cpu, DType::f32, weights) {
    arena_ = std::make_unique<CpuArena>();
  }
  std::unique_ptr<Buffer> make_buffer(size_t bytes) override { return std::make_unique<CpuBuffer>(bytes); }
  void upload(void* to, const void* from_host, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from_host, bytes);
  }
  void download(void* to_host, const void* from, size_t bytes) override {
    if (bytes > 0) std::memcpy(to_host, from, bytes);
  }
  size_t free_bytes() const override { return available_memory(); }
  void begin_pass(const Pass&) override {}  // ops read the pass they are given

  void* scratch(size_t bytes) {
    if (scratch_.bytes < bytes) {
      scratch_ = Slab(0);  // free first: both would be held at once otherwise
      scratch_ = Slab(bytes + bytes / 2);
    }
    return scratch_.memory.get();
  }
  std::unique_ptr<Buffer> make_streamed_buffer(size_t bytes) { return streamed_.make(bytes); }

 private:
  Slab scratch_{0};
  StreamedMemory streamed_;
};

}  // namespace

std::string_view cpu_isa() {
  return cpu::simd().name;
}

bool cpu_multiplies_bf16() {
  return cpu::simd().multiplies_bf16;
}

void* cpu::scratch(Context& context, size_t bytes) {
  return static_cast<CpuContext&>(context).scratch(bytes);
}

std::unique_ptr<Buffer> cpu::make_streamed_buffer(Context& context, size_t bytes) {
  return static_cast<CpuContext&>(context).make_streamed_buffer(bytes);
}

std::unique_ptr<Context> make_cpu_context(DType weights) {
  if (weights != DType::f32 && weights != DType::bf16) {
    throw Error(ErrorCode::unsupported, ErrorSubject::general, "the CPU computes in f32 or bf16",
                {.where = {}, .why = "asked for " + std::string(name(weights)), .next = "use --dtype f32 or bf16"});
  }
  return std::make_unique<CpuContext>(weights);
}

}  // namespace hayfork::engine
