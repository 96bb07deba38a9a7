#include <sys/statfs.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "base/error.h"
#include "base/parallel.h"
#include "base/units.h"
#include "base/version.h"
#include "cli/output.h"
#include "cli/run_config.h"
#include "cli/settings.h"
#include "cli/verbs.h"
#include "engine/device_list.h"
#include "runs/library.h"
#include "runs/provenance.h"

namespace hayfork::cli {
namespace {

namespace fs = std::filesystem;
using runs::Cell;
using runs::Section;

struct DoctorOptions {
  DbOptions db;
  OutputOptions output;
  std::string device = "auto", data;
};

struct Findings {
  Section section{.name = "doctor",
                  .table = {{{.name = "what"}, {.name = "state"}, {.name = "found"}, {.name = "next"}}, {}}};
  void add(const std::string& what, const std::string& state, const std::string& found, const std::string& next = "") {
    section.table.rows.push_back({what, state, found, next});
  }
};

// Instruction sets that decide how fast float32 and bf16 products are, widest first.
std::string isa() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line) && !line.starts_with("flags")) {
  }
  std::istringstream words(line);
  std::string word, found;
  for (const char* wanted : {"amx_bf16", "avx512_bf16", "avx512f", "avx2", "fma"}) {
    std::istringstream again(line);
    while (again >> word) {
      if (word == wanted) {
        found += (found.empty() ? "" : " ") + word;
        break;
      }
    }
  }
  return found.empty() ? "baseline" : found;
}

int64_t memory_bytes() {
  return static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
}

void look_at_cpu(Findings& findings) {
  const runs::HostRow host = runs::this_host();
  const std::string sets = isa();
  findings.add("cpu", "ok", fmt::format("{}  {} threads  {}", host.cpu.value_or("?"), hardware_threads(), sets));
  findings.add("memory", "ok", format_bytes(static_cast<double>(memory_bytes())));
  const bool bf16 = sets.find("bf16") != std::string::npos;
  findings.add("dtype auto", "ok", bf16 ? "bf16 (in hardware)" : "f32 (no bf16 in hardware)");
}

// False when a device that was asked for cannot be used.
bool look_at_devices(const std::string& asked, Findings& findings) {
  const engine::AcceleratorList list = engine::list_accelerators();
  bool found = asked == "auto" || asked == "cpu";
  if (list.accelerators.empty()) findings.add("accelerator", "none", list.problem);
  for (const engine::Accelerator& device : list.accelerators) {
    findings.add(device.device, device.problem.empty() ? "ok" : "unusable",
                 fmt::format("{}  {} ({})  {} of {} free  driver {}", device.name, device.arch, device.runs,
                             format_bytes(static_cast<double>(device.free_bytes)),
                             format_bytes(static_cast<double>(device.total_bytes)), list.driver),
                 device.problem);
    found = found || (device.device == asked && device.problem.empty());
  }
  if (!found) findings.add(asked, "missing", "this device cannot be used", "hayfork run --device cpu");
  return found;
}

void look_at_database(const DoctorOptions& options, Findings& findings) {
  std::error_code ignored;
  if (!fs::exists(options.db.db, ignored)) {
    const fs::path folder = fs::absolute(options.db.db).parent_path();
    const bool writable = ::access(folder.c_str(), W_OK) == 0;
    findings.add(
        "database", writable ? "ok" : "problem",
        fmt::format("{} is not there yet{}", options.db.db, writable ? "" : ", and its folder is not writable"),
        writable ? "" : "give --db FILE in another folder");
    return;
  }
  try {
    std::string warning;
    runs::Store store = runs::Store::open(options.db.db, runs::OpenMode::read_only, [&warning](const Event& event) {
      warning = event.code + " " + event.message;
    });
    const runs::CheckReport report = store.check();
    findings.add("database", report.faults.empty() ? "ok" : "damaged",
                 fmt::format("{}  schema {}  {}  {} runs, {} samples, {}", options.db.db, runs::schema_version(),
                             store.journal_mode(), report.n_runs, report.n_samples,
                             format_bytes(static_cast<double>(report.n_bytes))),
                 report.faults.empty() ? warning : report.faults.front());
  } catch (const Error& error) {
    findings.add("database", "problem", error.what(), error.detail().next);
  }
}

void look_at_data(const DoctorOptions& options, Findings& findings) {
  std::error_code ignored;
  if (options.data.empty()) {
    findings.add("data", "none", "no data folder is set", "HAYFORK_DATA or --data; niah needs none");
  } else if (!fs::is_directory(options.data, ignored)) {
    findings.add("data", "missing", options.data, "hayfork data add");
  } else {
    int64_t n = 0;
    for (const auto& entry : fs::directory_iterator(options.data, ignored)) n += entry.is_directory() ? 1 : 0;
    findings.add("data", "ok", fmt::format("{}: {} data sets", options.data, n));
  }
  bool haystack = false;
  for (const fs::path& dir : share_dirs()) haystack = haystack || fs::exists(dir / "haystack" / "english.txt", ignored);
  findings.add("haystack", haystack ? "ok" : "missing",
               haystack ? "shipped text found" : "the shipped text is not here",
               haystack ? "" : "set HAYFORK_SHARE, or give --niah-haystack");
  try {
    findings.add("demo", "ok", demo_dir().string());
  } catch (const Error& error) {
    findings.add("demo", "missing", error.summary(), error.detail().next);
  }
}

int run(const DoctorOptions& options, Console& console) {
  Findings findings;
  findings.add("hayfork", "ok",
               fmt::format("{} (git {}, {})  sqlite {}  schema {}", version(), commit().substr(0, 7),
                           commit_dirty() ? "changed" : "clean", runs::sqlite_version(), runs::schema_version()));
  look_at_cpu(findings);
  const bool device = look_at_devices(options.device, findings);
  look_at_database(options, findings);
  look_at_data(options, findings);
  const fs::path cache = cache_folder();
  findings.add("cache", cache.empty() ? "none" : "ok", cache.empty() ? "no home folder" : cache.string());
  findings.add("network", "ok", "none is used");
  const Settings settings = Settings::load();
  for (const std::string& file : settings.files()) findings.add("settings", "ok", file);
  print(console, {"doctor", {std::move(findings.section)}}, options.output);
  return device ? 0 : 10;
}

}  // namespace

Action declare_doctor(Flags& flags) {
  auto options = std::make_shared<DoctorOptions>();
  flags.group("What to look at");
  flags.text("device", options->device, "NAME", "A device that must be usable: cuda:0.");
  flags.text("data", options->data, "DIR", "Folder of data sets.").kind = "dir";
  declare_db(flags, options->db);
  declare_output(flags, options->output);
  return [options](Console& console) { return run(*options, console); };
}

}  // namespace hayfork::cli
