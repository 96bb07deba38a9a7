// Threads over independent items, OpenMP's pool. Results must not depend on the number of threads: every item is
// computed alone.
#pragma once

#include <cstdint>
#include <functional>

namespace hayfork {

int hardware_threads();   // cores this process may run on (affinity and cgroup quota respected)
void set_threads(int n);  // for the calling thread's parallel regions
int current_threads();

// Calls body(begin, end) on disjoint ranges that cover [0, n); at least `grain` items a range. Exceptions of a body are
// rethrown after all ranges ended (the first by range order).
void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& body);

}  // namespace hayfork
