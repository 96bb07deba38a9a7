#include "engine/resolve.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/parallel.h"
#include "engine/cuda/devices.h"

namespace hayfork::engine {
namespace {

// Raised whenever any result could change by a bit.
constexpr int kNumericsVersion = 4;

// Index of the CUDA device, or nothing for the CPU.
std::optional<int32_t> find_device(const std::string& text) {
  if (text == "cpu") return std::nullopt;
  if (text == "auto") {
    for (const cuda::DeviceInfo& device : cuda::list_devices().devices) {
      if (device.usable) return device.index;
    }
    return std::nullopt;
  }
  if (text == "cuda") return 0;
  const std::string_view prefix = "cuda:";
  int32_t index = -1;
  if (text.starts_with(prefix)) {
    const char* end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data() + prefix.size(), end, index);
    if (error != std::errc() || stopped != end) index = -1;
  }
  if (index < 0) {
    throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("--device {} is not a device", text),
                {.where = {}, .why = "known: auto, cpu, cuda, cuda:N", .next = {}});
  }
  return index;
}

DType find_dtype(const std::string& text, DType automatic, const char* option) {
  if (text == "auto") return automatic;
  if (text == "f32" || text == "float32") return DType::f32;
  if (text == "bf16" || text == "bfloat16") return DType::bf16;
  throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("{} {} is not a type to compute in", option, text),
              {.where = {}, .why = "known: auto, f32, bf16", .next = {}});
}

}  // namespace

Resolved resolve(const EngineOptions& options) {
  if (options.threads < 0) throw Error(ErrorCode::usage, ErrorSubject::general, "--threads must be 0 or more");
  set_threads(options.threads > 0 ? options.threads : hardware_threads());
  const std::optional<int32_t> cuda_device = find_device(options.device);
  const DType automatic = cuda_device || cpu_multiplies_bf16() ? DType::bf16 : DType::f32;
  const DType dtype = find_dtype(options.dtype, automatic, "--dtype");
  Resolved result;
  result.kv_dtype = find_dtype(options.kv_dtype, dtype, "--kv-dtype");
  if (cuda_device) {
    result.device = fmt::format("cuda:{}", *cuda_device);
    result.context = cuda::make_cuda_context(*cuda_device, dtype);
    std::string name = "unknown device";
    for (const cuda::DeviceInfo& device : cuda::list_devices().devices) {
      if (device.index == *cuda_device) name = device.name;
    }
    result.numerics_id = fmt::format("hayfork/{} cuda {}, {}", kNumericsVersion, name, cuda::cuda_numerics());
  } else {
    result.device = "cpu";
    result.context = make_cpu_context(dtype);
    result.numerics_id = fmt::format("hayfork/{} cpu {}", kNumericsVersion, cpu_isa());
  }
  return result;
}

}  // namespace hayfork::engine
