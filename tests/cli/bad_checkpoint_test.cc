// Weights that are cut, crossed, missing or of another model: what is wrong is named, nothing is run.
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "tests/support/cli_test.h"
#include "tests/support/tiny_checkpoint.h"

namespace hayfork::cli {
namespace {

using test::TinyCheckpoint;

class BadCheckpointTest : public test::BadInputTest {
 protected:
  TinyCheckpoint& good() { return checkpoint_; }
  // The checkpoint as it stands now, under `name`.
  void save(const std::string& name, int n_shards = 1) {
    fs::create_directories(folder_.path() / name);
    checkpoint_.write(folder_.path() / name, n_shards);
  }
  // A whole model whose weights file is header + data as given.
  void raw(const std::string& name, const std::string& header, const std::string& data) {
    raw_file(name, header.size(), header + data);
  }
  void raw_file(const std::string& name, uint64_t length, const std::string& rest) {
    save(name);
    std::string file(8, '\0');
    std::memcpy(file.data(), &length, 8);
    write(name + "/model.safetensors", file + rest);
  }
  // Header and data of the good file, to be changed.
  std::pair<json, std::string> parts() {
    save("whole");
    const std::string file = read("whole/model.safetensors");
    uint64_t length = 0;
    std::memcpy(&length, file.data(), 8);
    return {json::parse(file.substr(8, length)), file.substr(8 + length)};
  }
  TinyCheckpoint checkpoint_ = TinyCheckpoint::llama();
};

TEST_F(BadCheckpointTest, TheUndamagedOneRuns) {
  save("m");
  EXPECT_EQ(nll("m").status, 0) << nll("m").err;
  save("s", 3);
  EXPECT_EQ(nll("s").status, 0) << nll("s").err;
}

TEST_F(BadCheckpointTest, CutAnywhere) {
  save("m");
  const std::string whole = read("m/model.safetensors");
  for (const size_t n : {size_t{0}, size_t{7}, size_t{8}, size_t{9}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    SCOPED_TRACE(n);
    write("m/model.safetensors", std::string_view(whole).substr(0, n));
    expect_error(nll("m"), 7, {"model.safetensors"});
  }
  write("m/model.safetensors", whole + "x");
  expect_error(nll("m"), 7, {"model.safetensors", "end of file"});
}

TEST_F(BadCheckpointTest, HeadersOfNoUse) {
  const auto [header, data] = parts();
  struct Case {
    const char* name;
    uint64_t length;
    std::string rest;
  };
  const std::string text = header.dump();
  std::string latin = text;
  latin[latin.find("lm_head")] = '\xE9';
  std::string twice = text;
  twice.insert(1, R"("lm_head.weight":{"dtype":"F32","shape":[16,8],"data_offsets":[0,512]},)");
  std::string deep = std::string(100000, '[');
  for (const Case& c : std::vector<Case>{
           {"huge", std::numeric_limits<uint64_t>::max(), text + data},
           {"long", uint64_t{1} << 40, text + data},
           {"past", text.size() + data.size() + 1, text + data},
           {"short", text.size() - 5, text + data},
           {"zero", 0, text + data},
           {"latin", latin.size(), latin + data},
           {"notjson", 16, "these are words!" + data},
           {"list", 2, "[]" + data},
           {"deep", deep.size() + 1, "{" + deep + data},
           {"deeper", deep.size() + 5, "{\"a\":" + deep + data},
           {"twice", twice.size(), twice + data},
           {"nul", 4, std::string("{\"\0\"", 4) + data},
       }) {
    SCOPED_TRACE(c.name);
    raw_file(c.name, c.length, c.rest);
    expect_error(nll(c.name), 7, {"model.safetensors"});
  }
}

TEST_F(BadCheckpointTest, EntriesOfNoUse) {
  const auto [header, data] = parts();
  const std::string norm = "model.norm.weight";
  const auto with = [&, header = header](const json& entry) {
    json changed = header;
    changed[norm] = entry;
    return changed.dump();
  };
  const json entry = header[norm];
  const auto changed = [&](const char* key, const json& value) {
    json copy = entry;
    copy[key] = value;
    return with(copy);
  };
  const auto first = entry["data_offsets"][0].get<int64_t>(), last = entry["data_offsets"][1].get<int64_t>();
  int n = 0;
  for (const std::string& text : {
           changed("data_offsets", {0, last - first}),          // over another tensor
           changed("data_offsets", {first + 4, last + 4}),      // a hole, then an overlap
           changed("data_offsets", {1 << 20, (1 << 20) + 32}),  // behind the file
           changed("data_offsets", {last, first}),              // backwards
           changed("data_offsets", {-32, 0}),
           changed("data_offsets", {1e30, 2e30}),
           changed("data_offsets", {first}),
           changed("data_offsets", "0-32"),
           changed("shape", {9}),
           changed("shape", {-8}),
           changed("shape", json::array({int64_t{1} << 40, int64_t{1} << 40})),
           changed("shape", {8.5}),
           changed("shape", 8),
           changed("dtype", "F33"),
           changed("dtype", 7),
           changed("extra", 1),
           with(json::array()),
           with(nullptr),
       }) {
    SCOPED_TRACE(text.substr(text.find(norm)).substr(0, 120));
    const std::string name = fmt::format("e{}", n++);
    raw(name, text, data);
    expect_error(nll(name), 7, {"model.safetensors", "tensor "});
  }
}

TEST_F(BadCheckpointTest, TensorsThatDoNotFitTheConfig) {
  const std::string query = "model.layers.1.self_attn.q_proj.weight";
  const auto fails = [&](const char* name, const std::vector<std::string>& words) {
    SCOPED_TRACE(name);
    save(name);
    expect_error(nll(name), 7, words);
    checkpoint_ = TinyCheckpoint::llama();
  };
  good().tensors[query].dtype = engine::DType::i64;
  fails("integers", {query, "I64", "F32, BF16 or F16"});
  good().set(query, {8, 9});
  fails("wide", {query, "[8,8]", "[8,9]"});
  good().set(query, {64});
  fails("flat", {query, "[8,8]", "[64]"});
  good().set(query, {0, 8});
  fails("empty", {query, "[0,8]"});
  good().tensors.erase(query);
  fails("missing", {query, "missing"});
  good().tensors.clear();
  fails("none", {"missing"});
  good().set("model.layers.1.self_attn.q_proj.lora_A", {8, 8});
  fails("extra", {"model.layers.1.self_attn.q_proj.lora_A"});
  good().set("model.layers.2.self_attn.q_proj.weight", {8, 8});
  fails("layer", {"model.layers.2.self_attn.q_proj.weight"});
}

TEST_F(BadCheckpointTest, ValuesThatAreNoNumbers) {
  const std::string norm = "model.norm.weight", down = "model.layers.1.mlp.down_proj.weight";
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const std::string& name : {norm, down}) {
      checkpoint_ = TinyCheckpoint::llama();
      good().tensors[name].values.back() = bad;
      save("m");
      expect_error(nll("m"), 7, {name, "element ["});
    }
  }
}

TEST_F(BadCheckpointTest, ShardsAndTheirIndex) {
  save("s", 3);
  const std::string index = "s/model.safetensors.index.json", second = "s/model-00002-of-00003.safetensors";
  const std::string good_index = read(index), good_shard = read(second);
  const auto fails = [&](const std::string& content, const std::vector<std::string>& words) {
    SCOPED_TRACE(content.substr(0, 100));
    write(index, content);
    expect_error(nll("s"), 7, words);
    write(index, good_index);
  };
  json map = json::parse(good_index);
  const auto pointed_to = [&](const json& file) {
    json changed = map;
    changed["weight_map"]["lm_head.weight"] = file;
    return changed.dump();
  };
  for (const char* outside : {"../m/model.safetensors", "/etc/passwd", "a/b", "..", ".", "", "a\\b"}) {
    fails(pointed_to(outside), {"lm_head.weight", "plain file name"});
  }
  fails(pointed_to(std::string("model\0", 6)), {"lm_head.weight"});
  fails(pointed_to(1), {"lm_head.weight"});
  fails(pointed_to("model-00004-of-00003.safetensors"), {"model-00004-of-00003.safetensors", "missing"});
  fails(pointed_to(second.substr(2)), {"lm_head.weight"});
  fails("", {"model.safetensors.index.json"});
  fails("{}", {"model.safetensors.index.json", "weight_map"});
  fails("[1]", {"model.safetensors.index.json"});
  fails(R"({"weight_map":{}})", {"missing"});
  fails(good_index.substr(0, good_index.size() / 2), {"model.safetensors.index.json"});
  fs::remove(path(second));
  expect_error(nll("s"), 7, {"model-00002-of-00003.safetensors", "missing"});
  fs::create_directory(path(second));
  expect_error(nll("s"), 7, {"model-00002-of-00003.safetensors"});
  fs::remove(path(second));
  write(second, good_shard.substr(0, good_shard.size() - 4));
  expect_error(nll("s"), 7, {"model-00002-of-00003.safetensors"});
  fs::remove(path(index));
  expect_error(nll("s"), 7, {"weights"});
}

TEST_F(BadCheckpointTest, ActivationsThatOverflowFailTheirSamplesAlone) {
  TinyCheckpoint& model = good();
  for (float& x : model.tensors["model.layers.1.mlp.down_proj.weight"].values) x *= 1e38F;
  for (float& x : model.tensors["model.layers.1.mlp.up_proj.weight"].values) x *= 1e30F;
  save("m");
  const ProcessResult result = nll("m");
  EXPECT_EQ(result.status, 4) << result.err;
  EXPECT_THAT(result.out, HasSubstr("layer 1"));
}

TEST_F(BadCheckpointTest, ARunOverOverflowingLayersIsPartial) {
  const std::string model = copy_of_demo("demo");
  // Every weight of one norm at 3e38: finite in the file, infinite in the layer.
  std::string file = read("demo/model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  const json header = json::parse(file.substr(8, length));
  for (const char* name : {"model.layers.2.input_layernorm.weight", "model.layers.2.self_attn.v_proj.weight"}) {
    const json& entry = header.at(name);
    const bool half = entry["dtype"] == "BF16";
    for (auto at = entry["data_offsets"][0].get<size_t>(); at < entry["data_offsets"][1].get<size_t>();
         at += half ? 2 : 4) {
      const float big = 3e38F;
      std::memcpy(file.data() + 8 + length + at, reinterpret_cast<const char*>(&big) + (half ? 2 : 0), half ? 2 : 4);
    }
  }
  write("demo/model.safetensors", file);
  const ProcessResult result = run_niah(model);
  EXPECT_EQ(result.status, 4) << result.err;
  EXPECT_THAT(result.err, HasSubstr("layer 2"));
  expect_intact();
  const ProcessResult shown = run({"show", "sample", "1", "--db", path("runs.db")});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("layer 2"));
}

TEST_F(BadCheckpointTest, FoldersThatAreNone) {
  fs::create_directory(path("empty"));
  expect_error(nll("empty"), 7, {path("empty")});
  expect_error(nll("nowhere"), 7, {path("nowhere")});
  write("file", "x");
  expect_error(nll("file"), 7, {path("file")});
  save("m");
  fs::remove(path("m/model.safetensors"));
  expect_error(nll("m"), 7, {path("m")});
  fs::create_directory(path("m/model.safetensors"));
  expect_error(nll("m"), 7, {"model.safetensors"});
  fs::remove(path("m/model.safetensors"));
  fs::create_symlink("model.safetensors", path("m/model.safetensors"));
  expect_error(nll("m"), 7, {path("m")});
  expect_error(run({"probe", "nll", "--model", "", "--requests", "-"}, R"({"tokens":[3,4]})"), 7, {"model folder"});
  expect_error(run({"probe", "nll", "--model", "random:qwen9-9b:0", "--requests", "-"}, R"({"tokens":[3,4]})"), 2,
               {"qwen3-0.6b"});
  expect_error(run({"probe", "nll", "--model", "https://example.org/model", "--requests", "-"}, R"({"tokens":[3,4]})"),
               7, {"https"});
}

}  // namespace
}  // namespace hayfork::cli
