// Random sequences and word lists against values made with CPython and NumPy.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/file_map.h"
#include "datasets/ruler/python_random.h"
#include "datasets/ruler/sources.h"
#include "tests/support/paths.h"

namespace hayfork::datasets {
namespace {

using nlohmann::json;

TEST(RulerRandomData, SequencesEqualPythonsAndNumpys) {
  HAY_NEED_DATA(file, "ruler/golden/rng_and_wordlists.json");
  const json golden = json::parse(read_file(file, ErrorSubject::data));
  const json& py = golden["python_random"];
  for (const auto& [name, seed] : {std::pair{"getrandbits32_seed42_first8", 42},
                                   {"getrandbits32_seed43_first4", 43},
                                   {"getrandbits32_seed0_first4", 0}}) {
    PythonRandom r(seed);
    for (const json& v : py[name]) EXPECT_EQ(r.bits(32), v.get<uint64_t>());
  }
  PythonRandom r(42);
  for (const json& v : py["random_seed42_first4_repr"]) EXPECT_EQ(r.random(), std::stod(v.get<std::string>()));
  r = PythonRandom(42);
  for (const json& v : py["randint_1000000_9999999_seed42_first8"])
    EXPECT_EQ(r.randint(1000000, 9999999), v.get<int64_t>());
  r = PythonRandom(42);
  for (const json& v : py["choice_index_of_6171620_seed42_first8"]) EXPECT_EQ(r.below(6171620), v.get<uint64_t>());
  r = PythonRandom(42);
  for (const json& v : py["uuid4_seed42_first3"]) EXPECT_EQ(r.uuid4(), v.get<std::string>());
  r = PythonRandom(42);
  for (const json& v : py["choices_lower_k6_seed42_first4"])
    EXPECT_EQ(r.choices("abcdefghijklmnopqrstuvwxyz", 6), v.get<std::string>());
  for (const auto& [name, n] : {std::pair{"sample_range20_k1_seed42", 20},
                                {"sample_range21_k4_seed42_pool_branch", 21},
                                {"sample_range22_k4_seed42_set_branch", 22},
                                {"sample_range40_k4_seed42", 40},
                                {"sample_range1000_k5_seed42", 1000},
                                {"sample_range85_k10_seed42_pool_branch", 85},
                                {"sample_range86_k10_seed42_set_branch", 86}}) {
    const auto want = py[name].get<std::vector<size_t>>();
    EXPECT_EQ(PythonRandom(42).sample(static_cast<size_t>(n), want.size()), want) << name;
  }
  for (const auto& [n, want] : py["shuffle_n_seed42"].items()) {
    std::vector<int> values(std::stoul(n));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int>(i);
    PythonRandom(42).shuffle(values);
    EXPECT_EQ(values, want.get<std::vector<int>>()) << n;
  }
  NumpyRandom numpy(42);
  for (const json& v : golden["numpy_legacy_random"]["randint_10000_99999_first10"])
    EXPECT_EQ(numpy.randint(10000, 99999), v.get<int64_t>());
}

TEST(RulerRandomData, WordListsAreSortedAsUpstreamSortsThem) {
  HAY_NEED_DATA(folder, "ruler");
  const json golden =
      json::parse(read_file(folder / "golden/rng_and_wordlists.json", ErrorSubject::data))["wonderwords"];
  test::TempDir older;
  for (const char* name :
       {"wonderwords-2.2.0_nounlist.txt", "wonderwords_adjectivelist.txt", "wonderwords_verblist.txt"})
    std::filesystem::copy_file(folder / name, older.path() / name);
  for (const auto& [release, path] : {std::pair{"3.0.0", folder}, {"2.2.0", older.path()}}) {
    const WordLists lists = load_word_lists(path);
    EXPECT_EQ(lists.release, release);
    const auto joined = [](const std::vector<std::string>& words) {
      std::string out;
      for (size_t i = 0; i < words.size(); ++i) out += (i > 0 ? "\n" : "") + words[i];
      return sha256_hex(out);
    };
    const WordPairs pairs(lists);
    EXPECT_EQ(pairs.size(), golden[release]["adj_noun_unique_sorted"].get<size_t>());
    std::vector<std::string> every;
    for (size_t i = 0; i < pairs.size(); ++i) every.push_back(pairs.at(i));
    EXPECT_EQ(joined(every), golden[release]["adj_noun_sha256_newline_joined"].get<std::string>());
    auto words = lists.all();
    EXPECT_EQ(words.size(), golden[release]["cwe_words_unique"].get<size_t>());
    PythonRandom(42).shuffle(words);
    EXPECT_EQ(joined(words), golden[release]["cwe_words_after_shuffle_sha256_newline_joined"].get<std::string>());
    PythonRandom r(42);
    for (const json& v : golden[release]["first_3_words_seed42"])
      EXPECT_EQ(pairs.at(r.below(pairs.size())), v.get<std::string>());
  }
}

}  // namespace
}  // namespace hayfork::datasets
