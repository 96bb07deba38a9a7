// What `hayfork bench` has computed: the rows that were asked for, at their places, with passes waited for and queued.
#include "engine/measure.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/hash_model.h"
#include "tests/support/queue_context.h"

namespace hayfork::engine {
namespace {

using test::HashModel;
using Layer = HashModel::Layer;

std::unique_ptr<Context> make_context(bool queued) {
  if (queued) return std::make_unique<test::QueueContext>();
  return make_cpu_context(DType::f32);
}

TEST(Measure, ComputesTheRowsAskedFor) {
  const HashModel::Options models[] = {
      {.layers = {Layer::full, Layer::full}},
      {.layers = {Layer::window, Layer::full}, .window = 9},
      {.layers = {Layer::window, Layer::window}, .window = 70},
      {.layers = {Layer::recurrent, Layer::full}},
      {.layers = {Layer::window, Layer::window}, .window = 5, .two_streams = true},
  };
  for (const HashModel::Options& options : models) {
    for (const bool queued : {false, true}) {
      const auto context = make_context(queued);
      HashModel model(options);
      Measurer measurer(model, *context, DType::f32, 32, true);
      for (const MeasureCase& what : {MeasureCase{70, 50, 5, 3}, MeasureCase{0, 200, 0, 1}, MeasureCase{1, 0, 9, 2}}) {
        model.n_base_rows = model.n_output_rows = 0;
        const Measurement m = measurer.run(what);  // the model throws when a row is not where it should be
        const int64_t steps = what.n_gen + (queued && what.n_gen > 0 ? 2 : 0);
        EXPECT_EQ(model.n_base_rows, what.batch * (what.depth + what.n_prompt + steps));
        const int64_t prompts = (what.depth > 0 ? 1 : 0) + (what.n_prompt > 0 ? 1 : 0);
        EXPECT_EQ(model.n_output_rows, options.two_streams ? what.batch * (prompts + steps) : 0);
        EXPECT_EQ(m.prefill_ms > 0, what.n_prompt > 0);
        EXPECT_EQ(m.decode_ms > 0, what.n_gen > 0);
        EXPECT_GT(m.planned_bytes, 0);
      }
    }
  }
}

TEST(Measure, SaysHowMuchFits) {
  const auto context = make_cpu_context(DType::f32);
  HashModel model({});
  Measurer measurer(model, *context, DType::f32, 0, true);
  try {
    measurer.run({.n_prompt = 1 << 24, .batch = 1 << 20});
    FAIL() << "it was measured";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::resource);
    EXPECT_EQ(exit_code(error), 8);
    EXPECT_NE(error.detail().next.find("tokens fit"), std::string::npos);
  }
  EXPECT_THROW(measurer.run({}), Error);
  EXPECT_GT(measurer.run({.n_prompt = 3}).prefill_ms, 0);
}

}  // namespace
}  // namespace hayfork::engine
