// The tensors of a checkpoint folder: one safetensors file or the shards of an index, mapped read-only. Hands out
// tensors by name with shape and type checked, remembers which were asked for, and refuses what is left over. The pages
// of a tensor are given back once it is packed, so that loading needs no more memory than the packed weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/safetensors.h"
#include "engine/tensor.h"

namespace hayfork::engine {

// Values made up from nothing: element i is the bf16 of centre + spread · u(key + i), u uniform in [−1, 1).
struct RandomValues {
  uint64_t key = 0;
  float centre = 0, spread = 0;
};

// A tensor of the checkpoint, in its own type. Valid while the Weights live.
struct TensorView {
  std::string name;
  DType dtype = DType::other;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  size_t n_bytes = 0;
  std::optional<RandomValues> random;  // then there is no data
};

class Weights {
 public:
  // Opens <folder>/model.safetensors, else the shards that model.safetensors.index.json lists.
  // Throws: not_found (no weights, a shard or a listed tensor missing), corrupt.
  explicit Weights(const std::filesystem::path& folder);

  // Tensors made up as they are asked for, the same for the same seed and name: bf16, of a size that keeps activations
  // ordinary. For speed and memory studies of shapes nobody has weights of. has() is false for every name.
  static Weights random(uint64_t seed);

  bool has(const std::string& name) const;
  // A floating-point tensor (f32, bf16, f16) of exactly this shape, marked as used.
  // Throws: not_found, corrupt ("want … found …").
  TensorView floats(const std::string& name, std::span<const int64_t> shape);
  // The same, but of a random model without its data: whoever wants the values makes them where they are needed.
  TensorView values(const std::string& name, std::span<const int64_t> shape);
  // A tensor of bytes (u8), likewise.
  TensorView bytes(const std::string& name, std::span<const int64_t> shape);
  // As floats(), widened to float32 and checked to be finite. For norms, biases and other small parameters.
  std::vector<float> vector(const std::string& name, std::span<const int64_t> shape);
  // Throws corrupt, naming the tensor and the first element that is NaN or infinite. Reads all of it.
  static void require_finite(const TensorView& tensor);
  // Lets the kernel take back the tensor's pages; the view must not be read afterwards.
  void drop(const TensorView& tensor);
  // Marks as used every tensor whose name begins with `prefix` or (`suffix` set) ends with it.
  void ignore_prefix(const std::string& prefix);
  void ignore_suffix(const std::string& suffix);
  // Throws: corrupt, naming tensors nobody asked for.
  void refuse_unused() const;

  // All tensors, by name.
  struct Entry {
    const SafetensorsFile* file;
    const TensorInfo* tensor;
  };
  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<std::filesystem::path>& files() const { return paths_; }

 private:
  Weights() = default;
  TensorView make_up(const std::string& name, std::span<const int64_t> shape, bool floating);
  const Entry* find(const std::string& name) const;
  TensorView take(const std::string& name, std::span<const int64_t> shape, bool floating);

  std::filesystem::path folder_;
  std::vector<std::filesystem::path> paths_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<Entry> entries_;  // sorted by name
  std::set<std::string> used_;
  std::optional<uint64_t> seed_;  // of random()
  std::map<std::string, std::vector<std::byte>> made_up_;
};

// Rulings A11: SHA-256 over the lines "name dtype shape sha256(bytes)\n" sorted by name (shape as [a,b,…], dtype as the
// file spells it). The same for any sharding. `cache` (may be empty) is a small text file: what was computed before for
// files of the same path, size, modification time and inode is taken from it, and added to it. Throws: as Weights.
std::string weights_digest(const std::filesystem::path& folder, const std::filesystem::path& cache);

}  // namespace hayfork::engine
