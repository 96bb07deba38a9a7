// The safetensors file format: a length, a JSON header, tensor bytes. Reads whole files through a read-only map and
// refuses everything the format's reference refuses (holes, overlaps, wrong sizes, trailing bytes, duplicate names), so
// that a view handed out is always inside the file and as long as its shape says. Knows no model and no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/file_map.h"
#include "engine/tensor.h"

namespace hayfork::engine {

struct TensorInfo {
  std::string name;
  DType dtype = DType::other;  // other: a type we do not compute with (its bytes can still be read)
  std::string dtype_name;      // as the file spells it: "BF16"
  std::vector<int64_t> shape;  // empty: one element
  int64_t begin = 0, end = 0;  // bytes, from the start of the file
  int64_t n_elements() const;
};

// Checks a whole file held in memory and lists its tensors in file order. `name` is for messages.
// Throws: corrupt (subject model).
std::vector<TensorInfo> parse_safetensors(std::span<const std::byte> file, const std::string& name);

class SafetensorsFile {
 public:
  // Throws: not_found, corrupt, resource.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return map_.path(); }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;  // null: not here
  std::span<const std::byte> bytes(const TensorInfo& tensor) const;
  // Lets the kernel take back the pages that hold only this tensor.
  void drop(const TensorInfo& tensor) const;

 private:
  FileMap map_;
  std::vector<TensorInfo> tensors_;
  std::vector<size_t> by_name_;  // indices into tensors_, sorted by name
};

// A tensor to write. `data` holds the elements, row-major, and is read during the call only.
struct TensorOut {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  const void* data;
};
// Writes beside `path` and renames: the file is whole or absent. Tensors in descending size of type, then by name.
// Requires: names are unique, dtypes are not `other`. Throws: resource (disk).
void write_safetensors(const std::filesystem::path& path, std::span<const TensorOut> tensors);

}  // namespace hayfork::engine
