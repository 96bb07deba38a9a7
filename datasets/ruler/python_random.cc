#include "datasets/ruler/python_random.h"

#include <bit>
#include <cmath>
#include <unordered_set>

#include "base/error.h"

namespace hayfork::datasets {

Mt19937 Mt19937::from_scalar(uint32_t seed) {
  Mt19937 mt;
  mt.state_[0] = seed;
  for (uint32_t i = 1; i < 624; ++i) mt.state_[i] = 1812433253u * (mt.state_[i - 1] ^ (mt.state_[i - 1] >> 30)) + i;
  return mt;
}

Mt19937 Mt19937::from_key(const std::vector<uint32_t>& key) {
  HAY_CHECK(!key.empty());
  Mt19937 mt = from_scalar(19650218u);
  auto& s = mt.state_;
  size_t i = 1, j = 0;
  const auto advance = [&] {
    if (++i < 624) return;
    s[0] = s[623];
    i = 1;
  };
  for (size_t k = std::max<size_t>(624, key.size()); k > 0; --k) {
    s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30)) * 1664525u)) + key[j] + static_cast<uint32_t>(j);
    advance();
    if (++j == key.size()) j = 0;
  }
  for (int k = 623; k > 0; --k) {
    s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30)) * 1566083941u)) - static_cast<uint32_t>(i);
    advance();
  }
  s[0] = 0x80000000u;
  return mt;
}

uint32_t Mt19937::next() {
  if (at_ == 624) {
    for (size_t i = 0; i < 624; ++i) {
      const uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % 624] & 0x7fffffffu);
      state_[i] = state_[(i + 397) % 624] ^ (y >> 1) ^ ((y & 1) != 0 ? 0x9908b0dfu : 0);
    }
    at_ = 0;
  }
  uint32_t y = state_[at_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

PythonRandom::PythonRandom(uint64_t seed)
    : words_(Mt19937::from_key(
          seed >> 32 == 0 ? std::vector<uint32_t>{static_cast<uint32_t>(seed)}
                          : std::vector<uint32_t>{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)})) {}

uint64_t PythonRandom::bits(int k) {
  HAY_CHECK(k >= 1 && k <= 64);
  if (k <= 32) return words_.next() >> (32 - k);
  const uint64_t low = words_.next();  // the least significant word is drawn first
  return low | static_cast<uint64_t>(words_.next() >> (64 - k)) << 32;
}

double PythonRandom::random() {
  const uint32_t a = words_.next() >> 5, b = words_.next() >> 6;
  return (a * 67108864.0 + b) / 9007199254740992.0;
}

uint64_t PythonRandom::below(uint64_t n) {
  HAY_CHECK(n >= 1);
  const int k = std::bit_width(n);
  for (;;)
    if (const uint64_t r = bits(k); r < n) return r;
}

int64_t PythonRandom::randint(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low) + 1));
}

std::string PythonRandom::choices(std::string_view alphabet, int k) {
  std::string out;
  for (int i = 0; i < k; ++i)
    out += alphabet[static_cast<size_t>(std::floor(random() * static_cast<double>(alphabet.size())))];
  return out;
}

std::vector<size_t> PythonRandom::sample(size_t n, size_t k) {
  HAY_CHECK(k <= n);
  size_t limit = 21;  // a copied list of n is smaller than a set of k up to here
  if (k > 5) limit += static_cast<size_t>(std::pow(4, std::ceil(std::log(static_cast<double>(k) * 3) / std::log(4.0))));
  std::vector<size_t> out(k);
  if (n <= limit) {
    std::vector<size_t> pool(n);
    for (size_t i = 0; i < n; ++i) pool[i] = i;
    for (size_t i = 0; i < k; ++i) {
      const size_t j = below(n - i);
      out[i] = pool[j];
      pool[j] = pool[n - i - 1];
    }
    return out;
  }
  std::unordered_set<size_t> chosen;
  for (size_t& value : out) {
    do value = below(n);
    while (!chosen.insert(value).second);
  }
  return out;
}

std::string PythonRandom::uuid4() {
  std::array<uint32_t, 4> w;  // from the least significant
  for (uint32_t& word : w) word = words_.next();
  w[1] = (w[1] & 0x3fffffffu) | 0x80000000u;  // variant: RFC 4122
  w[2] = (w[2] & 0xffff0fffu) | 0x00004000u;  // version 4
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (int nibble = 31; nibble >= 0; --nibble) {
    out += kDigits[w[static_cast<size_t>(nibble / 8)] >> (nibble % 8 * 4) & 15];
    if (nibble == 24 || nibble == 20 || nibble == 16 || nibble == 12) out += '-';
  }
  return out;
}

int64_t NumpyRandom::randint(int64_t low, int64_t high) {
  HAY_CHECK(low < high);
  const auto range = static_cast<uint64_t>(high - low - 1);
  HAY_CHECK(range <= 0xffffffffu);
  const uint32_t mask = range == 0 ? 0 : 0xffffffffu >> std::countl_zero(static_cast<uint32_t>(range));
  for (;;)
    if (const uint32_t r = words_.next() & mask; r <= range) return low + r;
}

}  // namespace hayfork::datasets
