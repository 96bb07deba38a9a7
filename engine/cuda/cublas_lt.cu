#include "engine/cuda/cublas_lt.cuh"

#include <dlfcn.h>

#include <string>

#include "base/error.h"
#include "engine/cuda/devices.h"

namespace hayfork::engine::cuda {
namespace {

// The major version is that of the header: another's functions may take other arguments.
const std::string kFile = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);

CublasLt load(const std::string& file) {
  const auto fail = [&](const char* why) {
    throw Error(ErrorCode::device, ErrorSubject::general, file + " cannot be loaded, and CUDA needs it",
                {.why = why != nullptr ? why : "",
                 .next = "install NVIDIA's cuBLAS " + std::to_string(CUBLAS_VER_MAJOR) +
                         " (it comes with the CUDA toolkit) where the loader looks, or set LD_LIBRARY_PATH; --device "
                         "cpu runs everything without it"});
  };
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(dlerror());
  CublasLt functions;
#define HAY_CUBLASLT_FIND(name)                                                                  \
  functions.name = reinterpret_cast<decltype(functions.name)>(dlsym(library, "cublasLt" #name)); \
  if (functions.name == nullptr) fail(dlerror());
  HAY_CUBLASLT_FUNCTIONS(HAY_CUBLASLT_FIND)
#undef HAY_CUBLASLT_FIND
  return functions;
}

}  // namespace

const CublasLt& cublas_lt() {
  static const CublasLt functions = load(kFile);
  return functions;
}

std::string cublas_problem(const std::string& file) {
  try {
    if (file.empty())
      cublas_lt();
    else
      load(file);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace hayfork::engine::cuda
