#include "tasks/document_task.h"

#include <charconv>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/parallel.h"

namespace hayfork::tasks {

DocumentTask::DocumentTask(const TaskOptions& options, const TextContext& text) : text_(text), options_(options) {}

void DocumentTask::adopt_rows(const Identify& identify) {
  int64_t n = split_.size();
  if (options_.limit) n = std::min(n, *options_.limit);
  if (n < 1) throw Error(ErrorCode::usage, ErrorSubject::general, "no documents", {info_.name, "limit is 0", ""});
  hashes_.resize(static_cast<size_t>(n));
  clusters_.resize(static_cast<size_t>(n));
  parallel_for(n, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Identity identity;
      try {
        identity = identify(i);
      } catch (const Error& error) {  // the sample will fail with this; other rows go on
        const datasets::Record& record = split_.row(i);
        identity.hash = record.value ? doc_hash(*record.value) : sha256_hex(fmt::format("{}:{}", i, record.fault));
      }
      hashes_[static_cast<size_t>(i)] = std::move(identity.hash);
      clusters_[static_cast<size_t>(i)] = std::move(identity.cluster);
    }
  });
  std::set<std::string> seen;
  int64_t n_double = 0, first = -1;
  for (int64_t i = 0; i < n; ++i)
    if (!seen.insert(hashes_[static_cast<size_t>(i)]).second && n_double++ == 0) first = i;
  if (n_double > 0 && options_.events)
    options_.events({Event::Level::warn, "HAY-W040",
                     fmt::format("{} documents stand more than once in the data set, the first at {}", n_double,
                                 split_.where(first)),
                     info_.name});
  info_.dataset = DatasetInfo{split_.set, split_.split, split_.records->sha256, split_.size(), split_.license};
}

SampleKey DocumentTask::key(int64_t index) const {
  HAY_CHECK(index >= 0 && index < n_samples());
  const auto i = static_cast<size_t>(index);
  SampleKey key;
  key.doc_id = std::to_string(index);
  key.doc_sha256 = hashes_[i];
  if (!clusters_[i].empty()) key.cluster = clusters_[i];
  return key;
}

int64_t DocumentTask::index_of(const SampleKey& key) const {
  int64_t index = -1;
  const auto [end, error] = std::from_chars(key.doc_id.data(), key.doc_id.data() + key.doc_id.size(), index);
  if (error != std::errc() || end != key.doc_id.data() + key.doc_id.size() || index < 0 || index >= n_samples())
    throw Error(ErrorCode::not_found, ErrorSubject::data, fmt::format("{} has no document {}", info_.name, key.doc_id));
  return index;
}

// Rows are not tokenized for a plan: four bytes a token is near enough for what is "at most" only in name.
std::vector<PlanRow> DocumentTask::plan() const {
  PlanRow row;
  row.n_samples = n_samples();
  row.new_tokens = new_tokens_ * n_samples();
  for (int64_t i = 0; i < n_samples(); ++i)
    if (const datasets::Record& record = split_.row(i); record.value)
      row.prompt_tokens += static_cast<int64_t>(
          record.value->dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).size() / 4);
  return {row};
}

Sample described_sample(const SampleKey& key, const std::string& context) {
  Sample sample;
  static_cast<SampleKey&>(sample) = key;
  sample.prompt_sha256 = sha256_hex(context);
  if (context.size() <= 16384) sample.prompt_text = context;
  return sample;
}

}  // namespace hayfork::tasks
