#include "base/parallel.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <vector>

namespace hayfork {
namespace {

// cgroup v2 quota in whole cores, or a large number when there is none.
int cgroup_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 1 << 20;
  return std::max(1, static_cast<int>(std::stod(quota) / period + 0.5));
}

}  // namespace

int hardware_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int affine = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : omp_get_num_procs();
  return std::max(1, std::min(affine, cgroup_cores()));
}

void set_threads(int n) {
  omp_set_num_threads(std::max(1, n));
}

int current_threads() {
  return omp_get_max_threads();
}

void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (n <= 0) return;
  const int64_t ranges = std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, current_threads());
  if (ranges == 1) return body(0, n);
  std::vector<std::exception_ptr> failures(static_cast<size_t>(ranges));
#pragma omp parallel for schedule(static, 1) num_threads(static_cast <int>(ranges))
  for (int64_t r = 0; r < ranges; ++r) {
    try {
      body(n * r / ranges, n * (r + 1) / ranges);
    } catch (const std::exception&) {
      failures[static_cast<size_t>(r)] = std::current_exception();
    }
  }
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace hayfork
