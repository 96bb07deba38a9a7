// The report's pages as text: what stands in them, that nothing a row holds can act, and that the same rows give the
// same bytes. How they behave in a browser: tests/browser.
#include "runs/report/site/site.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <regex>
#include <set>

#include "base/utf8.h"
#include "runs/report/site/chart.h"
#include "runs/report/site/html.h"
#include "tests/support/made_site.h"
#include "tests/support/paths.h"

namespace hayfork::runs {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

SiteOptions everything(Store& store) {
  SiteOptions options;
  for (const RunListRow& row : store.list_runs()) options.runs.push_back(row.run);
  options.n_runs_all = static_cast<int64_t>(options.runs.size());
  options.samples = ShownSamples::all;
  options.samples_a_run = 20;  // every test of all pages reads each run's page of samples
  return options;
}

// One database for all tests of the suite: they only read it.
class SiteTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new test::TempDir();
    made_ = new test::MadeSite(test::make_site(file()));
  }
  static void TearDownTestSuite() {
    delete made_;
    delete folder_;
  }
  static std::filesystem::path file() { return folder_->path() / "runs.db"; }
  static Store open() { return Store::open(file(), OpenMode::read_only); }
  static std::string page(const std::string& name) {
    Store store = open();
    return Site(store, everything(store)).page(name).value();
  }
  static test::TempDir* folder_;
  static test::MadeSite* made_;
};
test::TempDir* SiteTest::folder_ = nullptr;
test::MadeSite* SiteTest::made_ = nullptr;

std::vector<std::string> matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> out;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) out.push_back((*it)[1]);
  return out;
}

TEST(Html, EscapesTextAndAttributes) {
  Html html;
  html.open("p", {{"title", "a\"><script>"}});
  html.text("<b> & 'c' \xE2\x80\xAE \xff");
  html.close();
  EXPECT_EQ(html.take(),
            "<p title=\"a&quot;&gt;&lt;script&gt;\">&lt;b&gt; &amp; &#39;c&#39; \u27E8U+202E\u27E9 \uFFFD</p>\n");
}

TEST(Html, FoldsLongQuotesBetweenCharactersAndShowsBytes) {
  Html html;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "é";
  html.quote(text, 101);
  html.quote(std::string("a\0b", 3));
  const std::string out = html.take();
  EXPECT_THAT(out, HasSubstr("more bytes"));
  EXPECT_EQ(find_invalid_utf8(out), std::nullopt);
  EXPECT_THAT(out, Not(HasSubstr("\uFFFDé")));
  EXPECT_THAT(out, HasSubstr("<code>610062</code>"));
  EXPECT_LT(out.size(), 1000u);
}

TEST(Html, AnOpenElementIsAFault) {
  Html html;
  html.open("p");
  EXPECT_ANY_THROW(html.take());
}

TEST(PageStem, GivesNamesThatAreFilesAndDiffer) {
  EXPECT_EQ(page_stem("r7f3k"), "r7f3k");
  EXPECT_EQ(page_stem("../a/B"), "_2e_2e_2fa_2f_42");
  EXPECT_NE(page_stem("a_"), page_stem("a_5f"));
}

TEST(ChartAxes, CoverTheirValues) {
  const Axis axis = linear_axis("y", -0.37, 1.92);
  EXPECT_LE(axis.low, -0.37);
  EXPECT_GE(axis.high, 1.92);
  EXPECT_GE(axis.ticks.size(), 4u);
  EXPECT_LT(linear_axis("y", 2, 2).low, 2);
  EXPECT_EQ(length_axis("x", std::vector<int64_t>{1024, 2048}).ticks[1].label, "2K");
  EXPECT_GE(log_axis("x", 15e6, 65e9).ticks.size(), 3u);
}

TEST_F(SiteTest, HasNinePagesAndNoLinkThatLeadsNowhere) {
  Store store = open();
  Site site(store, everything(store));
  const std::vector<std::string> names = site.pages();
  const std::set<std::string> known(names.begin(), names.end());
  EXPECT_EQ(known.size(), names.size());
  for (const char* name : {"index", "niah", "lengths", "architectures", "scaling", "timeline", "search"})
    EXPECT_TRUE(known.contains(name)) << name;
  for (const std::string& name : names) {
    const std::string text = site.page(name).value();
    for (const std::string& to : matches(text, "href=\"([a-z0-9_-]+)\\.html"))
      EXPECT_TRUE(known.contains(to)) << name << " links to " << to;
  }
  EXPECT_EQ(site.page("run-nobody"), std::nullopt);
  EXPECT_EQ(site.page("../index"), std::nullopt);
}

TEST_F(SiteTest, TheSameRowsGiveTheSameBytes) {
  Store store = open();
  Site one(store, everything(store)), two(store, everything(store));
  for (const std::string& name : one.pages()) EXPECT_EQ(one.page(name), two.page(name)) << name;
  EXPECT_EQ(one.single_file(), two.single_file());
}

TEST_F(SiteTest, AsksForNothingFromOutside) {
  Store store = open();
  const std::string text = Site(store, everything(store)).single_file();
  for (const char* pattern : {"<[a-z]+[^>]* src=\"(?!data:)([^\"]*)", "<link[^>]* href=\"(?!data:)([^\"]*)",
                              "@import ([^;]*)", "url\\((?!#)([^)]*)"})
    EXPECT_THAT(matches(text, pattern), ::testing::IsEmpty()) << pattern;
  EXPECT_THAT(matches(text, "<a href=\"(?!#)([^\"]*)"), ::testing::IsEmpty());
}

TEST_F(SiteTest, IdsAreUniqueInOneFileAndAnchorsExist) {
  Store store = open();
  const std::string text = Site(store, everything(store)).single_file();
  const std::vector<std::string> ids = matches(text, " id=\"([^\"]*)\"");
  const std::set<std::string> unique(ids.begin(), ids.end());
  EXPECT_EQ(unique.size(), ids.size());
  for (const std::string& to : matches(text, "href=\"#([^\"]*)\"")) EXPECT_TRUE(unique.contains(to)) << to;
}

TEST_F(SiteTest, HostileTextIsTextOnEveryPage) {
  Store store = open();
  Site site(store, everything(store));
  for (const std::string& name : site.pages()) {
    const std::string text = site.page(name).value();
    SCOPED_TRACE(name);
    EXPECT_EQ(matches(text, "<(script)").size(), 1u);  // its own
    EXPECT_EQ(matches(text, "<(img|s|i|b)[ >]").size(), 0u);
    EXPECT_EQ(text.find('\0'), std::string::npos);
    EXPECT_EQ(find_invalid_utf8(text), std::nullopt);
    for (const char* bad : {"\u2028", "\u202E", "\u2066", "\x1b"}) EXPECT_EQ(text.find(bad), std::string::npos);
  }
  const std::string samples = site.page("samples-" + page_stem(made_->hostile)).value();
  EXPECT_THAT(samples, HasSubstr("&lt;script&gt;document.title=&#39;owned&#39;&lt;/script&gt;"));
  EXPECT_THAT(samples, HasSubstr("\u27E8U+202E\u27E9"));
  EXPECT_THAT(samples, HasSubstr("more bytes"));  // the answer of a megabyte
  EXPECT_LT(samples.size(), 120'000u);
}

TEST_F(SiteTest, IndexMarksWhatIsSignificantAndWhatIsMissing) {
  const std::string text = page("index");
  EXPECT_THAT(text, HasSubstr("class=\"num best\""));
  EXPECT_THAT(text, HasSubstr("title=\"not run\""));
  EXPECT_THAT(text, HasSubstr("HAY-W014"));
  EXPECT_THAT(text, HasSubstr("badge bad\">fail<"));
}

TEST_F(SiteTest, NeedlePageDrawsEveryModelAndFramesSignificantDifferences) {
  const std::string text = page("niah");
  for (const char* model : {"full-3m", "swa-3m", "gdn-3m", "mamba2-3m", "orthros-3m"})
    EXPECT_THAT(text, HasSubstr(std::string(">") + model + "<"));
  EXPECT_THAT(text, HasSubstr("swa-3m \u2212 full-3m"));
  EXPECT_THAT(text, HasSubstr("stroke-width=\"2\""));
  EXPECT_THAT(text, Not(HasSubstr("<style>.page")));
}

TEST_F(SiteTest, LengthPageHasBandsAndEffectiveLengths) {
  const std::string text = page("lengths");
  EXPECT_THAT(text, HasSubstr("class=\"band k0\""));
  EXPECT_THAT(text, HasSubstr("85.6 %"));
  EXPECT_THAT(text, HasSubstr("Effective length"));
  EXPECT_THAT(text,
              HasSubstr("<td class=\"txt\">ruler_vt</td><td class=\"txt\">full-3m</td><td class=\"num\">4K</td>"));
  EXPECT_THAT(text,
              HasSubstr("<td class=\"txt\">ruler_vt</td><td class=\"txt\">swa-3m</td><td class=\"num\">none</td>"));
}

TEST_F(SiteTest, ForestPartsLongFromShort) {
  const std::string text = page("architectures");
  EXPECT_LT(text.find("Long context"), text.find("Short context"));
  EXPECT_THAT(text, HasSubstr("badge bad\">worse<"));
  EXPECT_THAT(text, HasSubstr("the baseline main"));
}

TEST_F(SiteTest, ScalingFitsHoldsOutAndRefuses) {
  const std::string text = page("scaling");
  EXPECT_THAT(text, HasSubstr("α = 0.300"));
  EXPECT_THAT(text, HasSubstr("β = 0.250"));
  EXPECT_THAT(text, HasSubstr("held out (RMSE 0.0000)"));
  EXPECT_THAT(text, HasSubstr("Fit refused: 3 points of 1 size"));
  EXPECT_THAT(text, HasSubstr("5 documents; 2 of them have fewer than 10"));
  // A corpus's loss beside it, by a law of its own.
  EXPECT_THAT(text, HasSubstr("Loss a token over training tokens, full, corpus_loss"));
  EXPECT_THAT(text, HasSubstr("α = 0.200"));
  EXPECT_THAT(text, HasSubstr("β = 0.300"));
}

TEST_F(SiteTest, TimelineShowsVerdictsAndBaselines) {
  const std::string text = page("timeline");
  EXPECT_THAT(text, HasSubstr("training step"));
  EXPECT_THAT(text, HasSubstr("worse against " + made_->series[0]));
  EXPECT_EQ(matches(text, "(>nightly</text>)").size(), 2u);  // the baseline moved once
  EXPECT_THAT(text, HasSubstr("Largest step"));
}

TEST_F(SiteTest, SearchNamesItsPicks) {
  const std::string text = page("search");
  for (const char* pick : {">accuracy<", ">balanced<", ">speed<"}) EXPECT_THAT(text, HasSubstr(pick));
  EXPECT_THAT(text, HasSubstr("window 64, budget"));
}

TEST_F(SiteTest, RunPageHasProvenanceAndTheCommand) {
  const std::string text = page("run-" + made_->models[0]);
  EXPECT_THAT(text,
              HasSubstr("hayfork run --model demo/full --tasks niah,ruler_vt --note &#39;it&#39;\\&#39;&#39;s&#39;"));
  EXPECT_THAT(text, HasSubstr("Prefill and decode by length"));
  EXPECT_THAT(text, HasSubstr("workbench"));
}

TEST_F(SiteTest, SamplesStandBesideTheBaselines) {
  Store store = open();
  SiteOptions options = everything(store);
  options.samples_a_run = 0;
  const std::string text = Site(store, options).page("samples-" + made_->models[1]).value();
  EXPECT_THAT(text, HasSubstr("data-kind=\"worse\""));
  EXPECT_THAT(text, HasSubstr("<mark>"));
  EXPECT_THAT(text, HasSubstr("✓ right"));
  EXPECT_EQ(matches(text, "(<article)").size(), 320u);
}

// Tokens of loss_sample: the words "w100", " w101", …; those at 4 and 5 are key.
TEST_F(SiteTest, SamplesShowWhatEachTokenCost) {
  Store store = open();
  SiteOptions options = everything(store);
  options.baseline = store.find_run(made_->scaling[0]).id;
  const std::string name = "samples-" + made_->scaling[1];
  const std::string text = Site(store, options).page(name).value();
  EXPECT_EQ(matches(text, "(<figcaption>Loss by token, )").size(), 4u);  // two documents, two runs
  // 39 scored tokens of 0, 0.5, …, 3 by turns, from the second on, and 0.25 more each.
  EXPECT_THAT(text, HasSubstr("1.724 nats a token over 39 (perplexity 5.609); 2 key tokens 2.500 (12.18)"));
  EXPECT_THAT(text, HasSubstr("<title>token 0: not scored</title>"));
  EXPECT_THAT(text, HasSubstr("<title>token 4: 2.250 nats, key</title>"));
  EXPECT_THAT(text, HasSubstr("<title>tokens 3–5: 2.250 nats, 2 key</title>"));  // 400 tokens in 120 bars
  EXPECT_THAT(text, HasSubstr("<u class=\"n3\"> w104</u><u class=\"n3\"> w105</u><span class=\"n3\"> w106</span>"));
  EXPECT_THAT(text, HasSubstr(" … 100 more tokens … </span><span class=\"n3\"> w440</span>"));
  EXPECT_EQ(matches(text, "(class=\"cell\")").size(), 2u * (120 + 40));
  EXPECT_EQ(Site(store, options).page(name), text);
  options.redact = true;
  const std::string hidden = Site(store, options).page(name).value();
  EXPECT_THAT(hidden, HasSubstr("<title>token 4: 2.250 nats, key</title>"));
  EXPECT_THAT(hidden, Not(HasSubstr("w104")));
}

TEST_F(SiteTest, SamplesAreLimitedWithEveryKindAmongThem) {
  Store store = open();
  SiteOptions options = everything(store);
  options.samples = ShownSamples::flips;
  options.samples_a_run = 30;
  const std::string text = Site(store, options).page("samples-" + made_->models[3]).value();
  EXPECT_EQ(matches(text, "(<article)").size(), 30u);
  EXPECT_THAT(text, HasSubstr("data-kind=\"worse\""));
  EXPECT_THAT(text, HasSubstr("data-kind=\"failed\""));
  EXPECT_THAT(text, HasSubstr("30 of "));
  EXPECT_THAT(text, Not(HasSubstr("data-kind=\"same\"")));
}

TEST_F(SiteTest, RedactedPagesHoldNoTextOfSamplesAndHosts) {
  Store store = open();
  SiteOptions options = everything(store);
  options.redact = true;
  const std::string text = Site(store, options).single_file();
  for (const char* secret : {"Lisbon", "the city of", "workbench", "--tasks", "demo/full", "secret of the day"})
    EXPECT_THAT(text, Not(HasSubstr(secret)));
  EXPECT_THAT(text, HasSubstr("(redacted)"));
}

TEST_F(SiteTest, FooterHasTheDigestsOfTheRuns) {
  Store store = open();
  SiteOptions options = everything(store);
  const std::string digest = store.digest(store.find_run(made_->models[0]).id).sha256;
  EXPECT_THAT(Site(store, options).page("index").value(), HasSubstr(digest));
  options.digests = false;
  Site site(store, options);
  EXPECT_THAT(site.page("index").value(), Not(HasSubstr(digest)));
  EXPECT_THAT(site.page("run-" + made_->models[0]).value(), HasSubstr(digest));
}

TEST(EmptySite, SaysWhatIsMissing) {
  const test::TempDir folder;
  Store store = Store::open(folder.path() / "runs.db", OpenMode::create_or_open);
  Site site(store, {});
  for (const std::string& name : site.pages())
    EXPECT_THAT(site.page(name).value(), HasSubstr("class=\"empty\"")) << name;
}

}  // namespace
}  // namespace hayfork::runs
