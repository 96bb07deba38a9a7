// The random sequences of CPython's `random` and of NumPy's legacy `RandomState`, bit for bit: RULER's prompts are
// drawn with them. MT19937: Matsumoto and Nishimura 1998; how words become numbers follows CPython's Lib/random.py.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hayfork::datasets {

class Mt19937 {
 public:
  static Mt19937 from_scalar(uint32_t seed);                  // init_genrand: NumPy's seed(n)
  static Mt19937 from_key(const std::vector<uint32_t>& key);  // init_by_array: Python's seed(n)
  uint32_t next();

 private:
  std::array<uint32_t, 624> state_;
  size_t at_ = 624;
};

// random.Random(seed). Copyable: a copy goes on as the original would.
class PythonRandom {
 public:
  explicit PythonRandom(uint64_t seed);
  uint64_t bits(int k);                        // getrandbits, 1 ≤ k ≤ 64
  double random();                             // [0, 1)
  uint64_t below(uint64_t n);                  // draws even for n = 1. Requires: n ≥ 1
  int64_t randint(int64_t low, int64_t high);  // both included
  std::string choices(std::string_view alphabet, int k);
  std::vector<size_t> sample(size_t n, size_t k);  // sample(range(n), k). Requires: k ≤ n
  std::string uuid4();                             // of 128 random bits

  template <typename T>
  void shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i-- > 1;) std::swap(values[i], values[below(i + 1)]);
  }

 private:
  Mt19937 words_;
};

// numpy.random.seed(seed); randint(low, high) with the upper bound excluded, by masked rejection.
class NumpyRandom {
 public:
  explicit NumpyRandom(uint32_t seed) : words_(Mt19937::from_scalar(seed)) {}
  int64_t randint(int64_t low, int64_t high);  // Requires: low < high, high − low ≤ 2^32

 private:
  Mt19937 words_;
};

}  // namespace hayfork::datasets
