// What is said of devices and libraries that are not there; needs no GPU.
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/cuda/devices.h"

namespace hayfork::engine {
namespace {

TEST(CublasLt, AMissingLibraryIsNamed) {
  const std::string problem = cuda::cublas_problem("libhayfork-none.so.1");
  EXPECT_NE(problem.find("libhayfork-none.so.1 cannot be loaded"), std::string::npos) << problem;
}

TEST(CublasLt, ALibraryOfSomethingElseIsRefusedByTheFunctionItLacks) {
  const std::string problem = cuda::cublas_problem("libm.so.6");
  EXPECT_NE(problem.find("cublasLtCreate"), std::string::npos) << problem;
}

TEST(CublasLt, IsFoundWhereItIsInstalled) {
  EXPECT_EQ(cuda::cublas_problem(), "");
}

TEST(Devices, AnEmptyListSaysWhyAndAContextIsRefusedForIt) {
  const cuda::Devices found = cuda::list_devices();
  EXPECT_NE(found.devices.empty(), found.problem.empty());
  const auto none = static_cast<int32_t>(found.devices.size());
  EXPECT_THROW(cuda::make_cuda_context(none, DType::bf16), Error);
}

}  // namespace
}  // namespace hayfork::engine
