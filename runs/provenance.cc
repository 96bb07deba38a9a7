#include "runs/provenance.h"

#include <signal.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

namespace hayfork::runs {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The value of the first "key : value" or key=value line.
OptText value_of(const std::string& path, const std::string& key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find(separator);
    if (at == std::string::npos || line.compare(0, key.size(), key) != 0) continue;
    const size_t begin = line.find_first_not_of(" \t\"", at + 1);
    const size_t end = line.find_last_not_of(" \t\"");
    if (begin != std::string::npos && end != std::string::npos && begin <= end)
      return line.substr(begin, end - begin + 1);
  }
  return {};
}

OptText processor() {
  for (const char* key : {"model name", "Processor", "cpu model", "CPU part"}) {
    if (OptText name = value_of("/proc/cpuinfo", key, ':')) return name;
  }
  utsname system{};
  return uname(&system) == 0 ? OptText(system.machine) : OptText{};
}

// Kernel boot and pid namespace: the same text means pids may be compared.
std::string pid_realm() {
  char space[64] = "";
  const ssize_t n = readlink("/proc/self/ns/pid", space, sizeof space - 1);
  return first_line("/proc/sys/kernel/random/boot_id") + "/" + std::string(space, n > 0 ? static_cast<size_t>(n) : 0);
}

// Field 22 of /proc/<pid>/stat; the second field, in parentheses, may hold blanks. Empty when there is no such process.
std::string start_time(int64_t pid) {
  const std::string line = first_line(fmt::format("/proc/{}/stat", pid));
  const size_t close = line.rfind(')');
  if (close == std::string::npos) return "";
  std::istringstream fields(line.substr(close + 1));
  std::string field;
  for (int i = 3; i <= 22 && fields >> field; ++i) {
    if (i == 3 && (field == "Z" || field == "X")) return "";  // ended, not yet waited for
  }
  return field;
}

}  // namespace

HostRow this_host() {
  HostRow host;
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) == 0) host.hostname = name;
  host.cpu = processor();
  utsname system{};
  const OptText pretty = value_of("/etc/os-release", "PRETTY_NAME", '=');
  if (uname(&system) == 0)
    host.os = fmt::format("{} ({} {})", pretty.value_or(system.sysname), system.sysname, system.release);
  return host;
}

ProcessIdentity this_process() {
  const int64_t pid = getpid();
  return {pid, pid_realm() + "/" + start_time(pid)};
}

Liveness liveness(int64_t pid, const std::string& boot_id) {
  const size_t slash = boot_id.rfind('/');
  if (slash == std::string::npos || boot_id.substr(0, slash) != pid_realm()) return Liveness::elsewhere;
  return pid > 0 && start_time(pid) == boot_id.substr(slash + 1) ? Liveness::alive : Liveness::dead;
}

}  // namespace hayfork::runs
