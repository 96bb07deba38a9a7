#include "cli/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace hayfork::cli {
namespace {

// What the signal handler touches: the flag of the guard that lives.
std::atomic<StopFlag*> stop_flag{nullptr};
std::atomic<int> caught{0};
struct sigaction old_int, old_term;

void on_signal(int signal) {
  const int first = caught.exchange(signal);
  if (first == 0) {
    if (StopFlag* flag = stop_flag.load()) flag->request_soft();
    constexpr char kLine[] = "\nstopping: finishing what is in flight (once more to stop now)\n";
    (void)!::write(STDERR_FILENO, kLine, sizeof kLine - 1);
  } else {
    ::_exit(128 + signal);
  }
}

}  // namespace

SignalGuard::SignalGuard() {
  caught = 0;
  stop_flag = &flag_;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, &old_int);
  ::sigaction(SIGTERM, &action, &old_term);
}

SignalGuard::~SignalGuard() {
  ::sigaction(SIGINT, &old_int, nullptr);
  ::sigaction(SIGTERM, &old_term, nullptr);
  stop_flag = nullptr;
}

int SignalGuard::exit_status() const {
  const int signal = caught.load();
  return signal == 0 ? 0 : 128 + signal;
}

}  // namespace hayfork::cli
