#include <unistd.h>

#include <cstdlib>

#include "cli/program.h"

namespace {

// OpenMP's threads wait for each other by spinning, about 10 ms by default: fine on an idle machine, ruinous on one
// that is shared (2 threads beside 20 busy processes: 32 s instead of 2.5 s). A short spin keeps the hand-over between
// two parallel regions cheap and gives the core away soon after. libgomp reads the variable when it is loaded, so it
// must be set before the program starts: once, by starting again. Whoever sets it, or OMP_WAIT_POLICY, has it their
// way.
void spin_briefly(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  ::setenv("GOMP_SPINCOUNT", "1000", 1);
  ::execv("/proc/self/exe", argv);  // comes back only when it could not: then it runs as it is
}

}  // namespace

int main(int argc, char** argv) {
  spin_briefly(argv);
  return hayfork::cli::run_program(argc, argv);
}
