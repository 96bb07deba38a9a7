#include "engine/weights.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/error.h"
#include "base/file_map.h"
#include "base/files.h"
#include "base/json.h"
#include "base/parallel.h"

namespace hayfork::engine {
namespace {

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

// Files by tensor name. Throws: corrupt, not_found.
std::map<std::string, std::string> read_index(const std::filesystem::path& path) {
  const nlohmann::json index =
      parse_json(read_file(path, ErrorSubject::model, size_t{256} << 20), path.string(), ErrorSubject::model);
  const auto fail = [&](const std::string& why) {
    return Error(ErrorCode::corrupt, ErrorSubject::model, "the index of the weight shards is not usable",
                 {.where = path.string(), .why = why});
  };
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    throw fail("it has no object \"weight_map\"");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    if (!file.is_string()) throw fail(fmt::format("tensor {}: its file is not a string", tensor));
    const std::string name = file.get<std::string>();
    if (name.empty() || name == "." || name == ".." || name.find_first_of("/\\") != std::string::npos ||
        name.find('\0') != std::string::npos) {
      throw fail(fmt::format("tensor {}: \"{}\" is not a plain file name", tensor, name));
    }
    files[tensor] = name;
  }
  return files;
}

template <typename T>
void widen(const std::byte* from, size_t n, float* to) {
  for (size_t i = 0; i < n; ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    to[i] = to_float(value);
  }
}

// NaN and infinities have all exponent bits set.
template <typename Bits>
int64_t first_nonfinite(const std::byte* data, int64_t begin, int64_t end, Bits mask) {
  for (int64_t i = begin; i < end; ++i) {
    Bits bits;
    std::memcpy(&bits, data + static_cast<size_t>(i) * sizeof(Bits), sizeof(Bits));
    if ((bits & mask) == mask) return i;
  }
  return -1;
}

}  // namespace

Weights::Weights(const std::filesystem::path& folder) : folder_(folder) {
  const auto single = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  std::map<std::string, std::string> listed;
  if (file_exists(single, ErrorSubject::model)) {
    paths_ = {single};
  } else if (file_exists(index, ErrorSubject::model)) {
    listed = read_index(index);
    std::set<std::string> names;
    for (const auto& [tensor, file] : listed) names.insert(file);
    for (const std::string& name : names) paths_.push_back(folder / name);
  } else {
    throw Error(ErrorCode::not_found, ErrorSubject::model, "the model folder holds no weights",
                {.where = folder.string(),
                 .why = "neither model.safetensors nor model.safetensors.index.json is there",
                 .next = "give a folder in the Hugging Face layout, with safetensors weights"});
  }
  for (const auto& path : paths_) {
    if (!listed.empty() && !file_exists(path, ErrorSubject::model)) {
      throw Error(ErrorCode::not_found, ErrorSubject::model,
                  fmt::format("weight shard {} is missing", path.filename().string()),
                  {.where = index.string(), .why = "the index lists it", .next = "download the missing shard"});
    }
    files_.push_back(std::make_unique<SafetensorsFile>(path));
    for (const TensorInfo& tensor : files_.back()->tensors()) {
      const auto it = listed.find(tensor.name);
      const bool wanted = listed.empty() || (it != listed.end() && it->second == path.filename().string());
      if (wanted) entries_.push_back({files_.back().get(), &tensor});  // what the index does not list is not loaded
    }
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.tensor->name < b.tensor->name; });
  for (const auto& [tensor, file] : listed) {
    if (!has(tensor)) {
      throw Error(ErrorCode::not_found, ErrorSubject::model, fmt::format("tensor {} is not in its shard", tensor),
                  {.where = (folder / file).string(), .why = "the index says it is there"});
    }
  }
}

const Weights::Entry* Weights::find(const std::string& name) const {
  const auto it = std::lower_bound(entries_.begin(), entries_.end(), name,
                                   [](const Entry& entry, const std::string& key) { return entry.tensor->name < key; });
  return it != entries_.end() && it->tensor->name == name ? &*it : nullptr;
}

bool Weights::has(const std::string& name) const {
  return find(name) != nullptr;
}

TensorView Weights::take(const std::string& name, std::span<const int64_t> shape, bool floating) {
  if (seed_) return make_up(name, shape, floating);
  const Entry* entry = find(name);
  if (entry == nullptr) {
    throw Error(ErrorCode::not_found, ErrorSubject::model, fmt::format("tensor {} is missing", name),
                {.where = folder_.string(),
                 .why = fmt::format("want {} {}", floating ? "f32, bf16 or f16" : "u8", shape_text(shape)),
                 .next = "check that config.json belongs to these weights"});
  }
  const TensorInfo& t = *entry->tensor;
  const bool type_ok =
      floating ? t.dtype == DType::f32 || t.dtype == DType::bf16 || t.dtype == DType::f16 : t.dtype == DType::u8;
  if (!type_ok || !std::equal(shape.begin(), shape.end(), t.shape.begin(), t.shape.end())) {
    throw Error(ErrorCode::corrupt, ErrorSubject::model, fmt::format("tensor {} does not fit the config", name),
                {.where = entry->file->path().string(),
                 .why = fmt::format("want {} {}, found {} {}", floating ? "F32, BF16 or F16" : "U8", shape_text(shape),
                                    t.dtype_name, shape_text(t.shape)),
                 .next = "check that config.json belongs to these weights"});
  }
  used_.insert(name);
  const auto data = entry->file->bytes(t);
  return {name, t.dtype, t.shape, data.data(), data.size(), {}};
}

TensorView Weights::floats(const std::string& name, std::span<const int64_t> shape) {
  return take(name, shape, true);
}

TensorView Weights::bytes(const std::string& name, std::span<const int64_t> shape) {
  return take(name, shape, false);
}

std::vector<float> Weights::vector(const std::string& name, std::span<const int64_t> shape) {
  const TensorView view = floats(name, shape);
  require_finite(view);
  std::vector<float> values(view.n_bytes / static_cast<size_t>(size_of(view.dtype)));
  if (view.dtype == DType::f32) {
    widen<float>(view.data, values.size(), values.data());
  } else if (view.dtype == DType::bf16) {
    widen<bf16>(view.data, values.size(), values.data());
  } else {
    widen<f16>(view.data, values.size(), values.data());
  }
  return values;
}

void Weights::require_finite(const TensorView& t) {
  const auto n = static_cast<int64_t>(t.n_bytes) / size_of(t.dtype);
  std::atomic<int64_t> bad = INT64_MAX;
  parallel_for(n, 1 << 16, [&](int64_t begin, int64_t end) {
    int64_t at = -1;
    if (t.dtype == DType::f32) at = first_nonfinite<uint32_t>(t.data, begin, end, 0x7F800000U);
    if (t.dtype == DType::bf16) at = first_nonfinite<uint16_t>(t.data, begin, end, 0x7F80U);
    if (t.dtype == DType::f16) at = first_nonfinite<uint16_t>(t.data, begin, end, 0x7C00U);
    int64_t seen = bad.load();
    while (at >= 0 && at < seen && !bad.compare_exchange_weak(seen, at)) {
    }
  });
  if (bad.load() == INT64_MAX) return;
  std::vector<int64_t> index(t.shape.size());
  int64_t rest = bad.load();
  for (size_t i = t.shape.size(); i-- > 0; rest /= t.shape[i]) index[i] = rest % t.shape[i];
  throw Error(ErrorCode::corrupt, ErrorSubject::model, fmt::format("tensor {} holds a NaN or an infinity", t.name),
              {.where = fmt::format("element {}", shape_text(index)),
               .why = "every logit would be NaN",
               .next = "the checkpoint is damaged or its training diverged"});
}

void Weights::drop(const TensorView& tensor) {
  made_up_.erase(tensor.name);
  if (const Entry* entry = find(tensor.name)) entry->file->drop(*entry->tensor);
}

void Weights::ignore_prefix(const std::string& prefix) {
  for (const Entry& entry : entries_) {
    if (entry.tensor->name.starts_with(prefix)) used_.insert(entry.tensor->name);
  }
}

void Weights::ignore_suffix(const std::string& suffix) {
  for (const Entry& entry : entries_) {
    if (entry.tensor->name.ends_with(suffix)) used_.insert(entry.tensor->name);
  }
}

void Weights::refuse_unused() const {
  std::vector<std::string> left;
  for (const Entry& entry : entries_) {
    if (!used_.contains(entry.tensor->name)) left.push_back(entry.tensor->name);
  }
  if (left.empty()) return;
  throw Error(
      ErrorCode::corrupt, ErrorSubject::model, fmt::format("unexpected tensor {}", left[0]),
      {.where = folder_.string(),
       .why = fmt::format("the config gives it no place{}",
                          left.size() > 1 ? fmt::format(", nor {} others ({} …)", left.size() - 1, left[1]) : ""),
       .next = "check that config.json belongs to these weights"});
}

namespace {

// One line a file: what must be equal for its bytes to be taken as unchanged.
std::string identity(std::span<const std::filesystem::path> files) {
  std::string text;
  for (const auto& path : files) {
    struct stat s {};
    if (::stat(path.c_str(), &s) != 0) return "";
    text += fmt::format("{}\t{}\t{}.{:09}\t{}.{}\n", std::filesystem::absolute(path).string(), s.st_size,
                        s.st_mtim.tv_sec, s.st_mtim.tv_nsec, s.st_dev, s.st_ino);
  }
  return sha256_hex(text);
}

std::string compute_digest(const Weights& weights) {
  const auto& entries = weights.entries();
  std::vector<std::string> lines(entries.size());
  parallel_for(static_cast<int64_t>(entries.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const TensorInfo& t = *entries[i].tensor;
      lines[i] = fmt::format("{} {} {} {}\n", t.name, t.dtype_name, shape_text(t.shape),
                             hex(sha256(entries[i].file->bytes(t))));
      entries[i].file->drop(t);
    }
  });
  std::string text;
  for (const std::string& line : lines) text += line;
  return sha256_hex(text);
}

}  // namespace

std::string weights_digest(const std::filesystem::path& folder, const std::filesystem::path& cache) {
  const Weights weights(folder);
  const std::string key = identity(weights.files());
  std::string known;
  try {
    if (!cache.empty() && file_exists(cache, ErrorSubject::disk))
      known = read_file(cache, ErrorSubject::disk, size_t{16} << 20);
  } catch (const Error&) {  // a cache that cannot be read is written anew
  }
  // Lines "<identity> <digest>": anything else in the file is passed over.
  const size_t at = key.empty() ? std::string::npos : known.find(key + " ");
  if (at != std::string::npos && (at == 0 || known[at - 1] == '\n') && known.size() >= at + 130 &&
      known[at + 129] == '\n') {
    const std::string digest = known.substr(at + 65, 64);
    if (digest.find_first_not_of("0123456789abcdef") == std::string::npos) return digest;
  }
  const std::string digest = compute_digest(weights);
  if (!cache.empty() && !key.empty()) {
    if (!known.empty() && known.back() != '\n') known += '\n';
    try {
      write_file_atomically(cache, known + key + " " + digest + "\n");
    } catch (const Error&) {  // a full or read-only cache costs time, not the run
    }
  }
  return digest;
}

}  // namespace hayfork::engine
