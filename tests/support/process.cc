#include "tests/support/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>

#include "tests/support/paths.h"
#include "tests/support/sanitizer.h"

namespace hayfork::test {
namespace {

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    close_read();
    close_write();
  }
  void close_read() {
    if (read_end >= 0) ::close(read_end);
    read_end = -1;
  }
  void close_write() {
    if (write_end >= 0) ::close(write_end);
    write_end = -1;
  }
};

void limit(int resource, uint64_t most) {
  const rlimit both = {most, most};
  if (most > 0) ::setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

[[noreturn]] void become(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                         const ProcessOptions& options, const std::string& home, Pipe& in, Pipe& out, Pipe& err) {
  ::dup2(in.read_end, STDIN_FILENO);
  ::dup2(out.write_end, STDOUT_FILENO);
  ::dup2(err.write_end, STDERR_FILENO);
  if (!options.cwd.empty() && ::chdir(options.cwd.c_str()) != 0) ::_exit(126);
  if (options.user != 0 && (::setgid(options.user) != 0 || ::setuid(options.user) != 0)) ::_exit(126);
  if (!kSanitized) limit(RLIMIT_AS, options.limit_bytes);
  limit(RLIMIT_CPU, options.limit_s);
  std::vector<std::string> environment = {"PATH=/usr/bin:/bin", "HOME=" + home, "LC_ALL=C.UTF-8"};
  if (const char* sanitizer = std::getenv("LSAN_OPTIONS"); sanitizer != nullptr) {
    environment.push_back(std::string("LSAN_OPTIONS=") + sanitizer);
  }
  for (const auto& [name, value] : options.environment) environment.push_back(name + "=" + value);
  std::vector<char*> argv = {const_cast<char*>(program.c_str())}, envp;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  for (const std::string& variable : environment) envp.push_back(const_cast<char*>(variable.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  ::execve(program.c_str(), argv.data(), envp.data());
  ::_exit(127);
}

// Reads both outputs until they end, sending signals on the way.
void collect(pid_t child, Pipe& out, Pipe& err, const ProcessOptions& options, ProcessResult& result) {
  using Clock = std::chrono::steady_clock;
  auto start = Clock::now();
  bool said = options.once_it_says.empty();
  int signals_left = options.signal_after_s < 0 ? 0 : options.twice ? 2 : 1;
  double next_signal = options.signal_after_s;
  pollfd fds[2] = {{out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}};
  std::string* texts[2] = {&result.out, &result.err};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    ::poll(fds, 2, 10);
    if (!said && result.err.find(options.once_it_says) != std::string::npos) {
      said = true;
      start = Clock::now();
    }
    if (said && signals_left > 0 && std::chrono::duration<double>(Clock::now() - start).count() >= next_signal) {
      ::kill(child, options.signal);
      --signals_left;
      next_signal += 0.1;
    }
    for (int i = 0; i < 2; ++i) {
      if (fds[i].fd < 0 || (fds[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
      char buffer[1 << 16];
      const ssize_t n = ::read(fds[i].fd, buffer, sizeof buffer);
      if (n <= 0) {
        fds[i].fd = -1;
      } else {
        texts[i]->append(buffer, static_cast<size_t>(n));
      }
    }
  }
}

}  // namespace

ProcessResult run_process(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                          const ProcessOptions& options) {
  const TempDir home;
  if (options.user != 0) std::filesystem::permissions(home.path(), std::filesystem::perms::all);
  Pipe in, out, err;
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("cannot fork");
  if (child == 0) become(program, arguments, options, home.path(), in, out, err);
  in.close_read();
  out.close_write();
  err.close_write();
  std::signal(SIGPIPE, SIG_IGN);
  for (size_t at = 0; at < options.input.size();) {
    const ssize_t n = ::write(in.write_end, options.input.data() + at, options.input.size() - at);
    if (n <= 0) break;
    at += static_cast<size_t>(n);
  }
  in.close_write();
  ProcessResult result;
  collect(child, out, err, options, result);
  int status = 0;
  rusage usage{};
  ::wait4(child, &status, 0, &usage);
  result.peak_bytes = int64_t{usage.ru_maxrss} * 1024;
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (result.status == 127 && result.err.empty()) throw std::runtime_error("cannot start " + program.string());
  return result;
}

ProcessResult hayfork(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  if (!kSanitized) return run_process(binary(), arguments, options);
  ProcessOptions once = options;  // with its threads' waiting chosen, the program need not start itself again
  once.environment.emplace("OMP_WAIT_POLICY", "passive");
  return run_process(binary(), arguments, once);
}

}  // namespace hayfork::test
