// cuBLASLt, loaded when the first linear or context asks for it: linked, it would hold 200 MB from the start of every
// program, also of those that never see a GPU. Types come from NVIDIA's header, functions through cublas_lt().
#pragma once

#include <cublasLt.h>

namespace hayfork::engine::cuda {

// Every function used, named without its prefix cublasLt.
#define HAY_CUBLASLT_FUNCTIONS(X) \
  X(Create)                       \
  X(Destroy)                      \
  X(GetStatusString)              \
  X(GetVersion)                   \
  X(MatrixLayoutCreate)           \
  X(MatrixLayoutDestroy)          \
  X(MatmulDescCreate)             \
  X(MatmulDescSetAttribute)       \
  X(MatmulPreferenceCreate)       \
  X(MatmulPreferenceSetAttribute) \
  X(MatmulPreferenceDestroy)      \
  X(MatmulAlgoGetHeuristic)       \
  X(MatmulAlgoConfigGetAttribute) \
  X(MatmulAlgoCheck)              \
  X(Matmul)

struct CublasLt {
#define HAY_CUBLASLT_MEMBER(name) decltype(&::cublasLt##name) name = nullptr;
  HAY_CUBLASLT_FUNCTIONS(HAY_CUBLASLT_MEMBER)
#undef HAY_CUBLASLT_MEMBER
};

// The library, for the life of the process. Throws: device, naming the file and what to install, when it is not there.
const CublasLt& cublas_lt();

}  // namespace hayfork::engine::cuda
