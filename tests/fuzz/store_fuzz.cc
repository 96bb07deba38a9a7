// The store on a file of any bytes: an Error or an answer, never a crash. All readers and the check run on it, then a
// merge.
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/file_map.h"
#include "runs/store.h"

namespace {

using namespace hayfork::runs;  // NOLINT: a program of one file

std::filesystem::path scratch() {
  static const std::filesystem::path folder = [] {
    std::string name = (std::filesystem::temp_directory_path() / "hayfork-fuzz-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) abort();
    return name;
  }();
  return folder;
}

void read_all(Store& store) {
  store.check();
  store.list_models();
  store.list_tasks();
  store.list_devices();
  store.list_baselines();
  for (const RunListRow& run : store.list_runs()) {
    store.digest(run.run);
    store.pairs(run.run, run.run);
    for (const RunTaskView& task : store.show_run(run.run).tasks) {
      store.grid(task.row.id, "acc");
      store.lengths(task.row.id, true);
      store.for_each_sample(task.row.id, {.texts = true}, [](const SampleRow&) {});
    }
  }
}

template <typename Body>
void guarded(Body&& body) {
  try {
    body();
  } catch (const hayfork::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 300'000) return 0;
  const std::filesystem::path file = scratch() / "fuzz.db";
  hayfork::write_file_atomically(file, {reinterpret_cast<const char*>(data), size});
  StoreOptions options;
  options.busy_timeout_ms = 10;
  guarded([&] {
    Store store = Store::open(file, OpenMode::read_only, {}, options);
    guarded([&] { read_all(store); });
    static Store ours = Store::open(scratch() / "ours.db", OpenMode::create_or_open, {}, options);
    guarded([&] { ours.merge(file); });
  });
  std::filesystem::remove_all(scratch() / "fuzz.db");
  return 0;
}
