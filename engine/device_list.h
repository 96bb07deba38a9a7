// Which accelerators this build can use here: for `doctor`, `list devices` and errors. Builds without CUDA say so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hayfork::engine {

struct Accelerator {
  std::string device;  // "cuda:0"
  std::string name;    // "NVIDIA H200"
  std::string arch;    // "sm_90"
  int64_t free_bytes = 0, total_bytes = 0;
  std::string problem;  // why it cannot be used; empty: it can
  std::string runs;     // which kernels it gets
};

struct AcceleratorList {
  bool compiled = false;  // this build has accelerator code
  std::vector<Accelerator> accelerators;
  std::string driver, runtime;  // versions, empty when unknown
  std::string problem;          // why the list is empty
};

AcceleratorList list_accelerators();

}  // namespace hayfork::engine
