#!/usr/bin/env python3
"""The report in a real browser: every page at 1280 and 400 pixels, its script, its keys, and everything it asks for.

    pages_test.py HAYFORK MAKE_SITE [--shots DIR]

Needs chromium, chromium-driver and python3-selenium; without them it says so and ends with 77 (skipped).
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
except ImportError:
    print("skipped: python3-selenium is not installed")
    sys.exit(77)

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FIXED = ["index", "niah", "lengths", "architectures", "scaling", "timeline", "search"]
WIDTHS = [1280, 400]


def start_browser(folder):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                 "--disable-background-networking", "--no-first-run", f"--user-data-dir={folder}/profile"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(service=Service(DRIVER), options=options)


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="hayfork-browser-")
        cls.db = os.path.join(cls.folder, "runs.db")
        cls.made = json.loads(subprocess.run([MAKE_SITE, cls.db], check=True, capture_output=True, text=True).stdout)
        cls.site = os.path.join(cls.folder, "site")
        cls.one = os.path.join(cls.folder, "one.html")
        flags = ["--db", cls.db, "--newest", "0", "--include-samples", "all", "--samples-a-run", "0"]
        for out in [cls.site, cls.one]:
            subprocess.run([HAYFORK, "report", "-o", out, *flags], check=True, stdout=subprocess.DEVNULL)
        cls.server = subprocess.Popen([HAYFORK, "serve", "--port", "0", *flags], stderr=subprocess.PIPE, text=True)
        cls.url = re.search(r"http://\S+/", cls.server.stderr.readline()).group(0)
        cls.browser = start_browser(cls.folder)
        cls.requests = set()
        cls.browser.get("about:blank")
        cls.browser.get_log("performance")  # the browser's own first page

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.server.terminate()
        cls.server.wait()
        cls.server.stderr.close()
        print("requests of all tests:", len(cls.requests), "different; schemes and hosts:",
              sorted({re.match(r"[a-z]+:(//[^/]*)?", r).group(0) for r in cls.requests}))
        shutil.rmtree(cls.folder, ignore_errors=True)

    def setUp(self):
        self.media()

    def media(self, scheme="light"):  # scrolling ends at once
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}]})

    def tearDown(self):
        self.browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        self.check_logs()

    # ---- helpers ----

    def width(self, width, height=900):
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                     {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def get(self, address, anchor):
        if anchor:
            self.browser.get("about:blank")  # an address that differs in its anchor alone would load nothing
        self.browser.get(address + anchor)

    def open(self, name, anchor="", base=None):
        self.get((base or f"file://{self.site}/") + name + ".html", anchor)

    def open_one(self, anchor=""):
        self.get(f"file://{self.one}", anchor)

    def find(self, css):
        return self.browser.find_element(By.CSS_SELECTOR, css)

    def all(self, css):
        return self.browser.find_elements(By.CSS_SELECTOR, css)

    def shown(self, css):  # in one question: is_displayed() is one an element
        return self.js("return [...document.querySelectorAll(arguments[0])].filter(e => "
                       "e.checkVisibility({checkOpacity: true, checkVisibilityCSS: true}) && "
                       "[...e.getClientRects()].some(r => r.width > 0 && r.height > 0))", css)

    def values(self, elements, attribute):
        return self.js("return arguments[0].map(e => e.getAttribute(arguments[1]))", elements, attribute)

    def js(self, script, *arguments):
        return self.browser.execute_script(script, *arguments)

    def key(self, key):
        webdriver.ActionChains(self.browser).send_keys(key).perform()

    def shot(self, name, width, dark=False):
        if SHOTS:
            os.makedirs(SHOTS, exist_ok=True)
            height = min(3200, self.js("return document.documentElement.scrollHeight"))
            self.width(width, height)
            self.browser.save_screenshot(os.path.join(SHOTS, f"{name}-{width}{'-dark' if dark else ''}.png"))
            self.width(width)

    def check_logs(self):
        faults = [entry["message"] for entry in self.browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
        self.assertEqual(faults, [])
        for entry in self.browser.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] != "Network.requestWillBeSent":
                continue
            url = message["params"]["request"]["url"]
            if url.startswith("data:"):
                continue
            self.requests.add(url)
            self.assertTrue(url.startswith(("file://" + self.folder, self.url, "about:")), url)

    def pages(self):
        return sorted(name[:-5] for name in os.listdir(self.site))

    # ---- every page ----

    def test_every_page_at_both_widths(self):
        names = self.pages()
        self.assertEqual(len(names), 7 + 2 * 24)
        for name in names:
            self.open(name)
            self.assertNotIn("owned", self.browser.title)
            for width in WIDTHS:
                with self.subTest(page=name, width=width):
                    self.width(width)
                    self.assertTrue(self.find("h1").text)
                    wide = self.js("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
                    self.assertLessEqual(wide, 0, "the page is wider than the window")
                    small = self.js("return [...document.querySelectorAll('svg text')].filter(t => "
                                    "parseFloat(getComputedStyle(t).fontSize) < 12).length")
                    self.assertEqual(small, 0, "text below 12 pixels")
                    if name in FIXED or name.endswith(self.made["models"][1]):
                        self.shot(name.replace(self.made["models"][1], "swa"), width)
            self.check_logs()

    def test_dark(self):
        self.media("dark")
        self.width(1280)
        for name in FIXED:
            self.open(name)
            self.assertEqual(self.js("return getComputedStyle(document.documentElement).backgroundColor"), "rgb(21, 24, 29)")
            self.shot(name, 1280, dark=True)

    def test_served_pages_are_the_written_ones(self):
        self.width(1280)
        for name in ["index", "niah", "lengths", "architectures", "scaling", "timeline", "search",
                     "samples-" + self.made["models"][1], "run-" + self.made["hostile"][0]]:
            self.open(name, base=self.url)
            served = self.js("return document.querySelector('main').innerHTML")
            self.open(name)
            self.assertEqual(served, self.js("return document.querySelector('main').innerHTML"), name)
        with urllib.request.urlopen(self.url) as answer:
            self.assertIn("default-src 'none'", answer.headers["Content-Security-Policy"])

    # ---- hostile texts ----

    def test_hostile_texts_are_texts(self):
        self.width(1280)
        run = self.made["hostile"][0]
        for name in ["run-" + run, "samples-" + run, "index"]:
            self.open(name)
            self.assertNotIn("owned", self.browser.title)
            self.assertEqual(self.all("main script, main img, main svg script"), [])
        self.open("samples-" + run)
        quote = self.find(".quote").text
        self.assertIn("<script>document.title='owned'</script>", quote)
        self.assertIn("U+202E", quote)
        self.assertEqual(len(self.all(".bytes summary")) > 0, True)
        self.assertTrue(any("more bytes" in e.text for e in self.all(".fold")))
        self.assertIn("=cmd|' /C calc'!A0", self.find("main").text)

    def test_an_injected_script_would_not_run(self):
        self.open("index")
        self.js("const s = document.createElement('script'); s.textContent = \"document.title = 'owned'\";"
                "document.body.appendChild(s)")
        self.assertNotIn("owned", self.browser.title)
        refused = [e for e in self.browser.get_log("browser") if "Content Security Policy" in e["message"]]
        self.assertEqual(len(refused), 1)

    # ---- tables ----

    def test_tables_sort_and_filter(self):
        self.width(1280)
        self.open("index")
        def column(n):
            return [e.text for e in self.all(f"#models tbody tr td:nth-child({n}) .value")]
        niah = [e.text.split()[0] for e in self.all("#models thead th")].index("niah") + 1
        header = self.find(f"#models thead th:nth-child({niah})")
        header.find_element(By.TAG_NAME, "button").click()
        values = [float(v.rstrip("*†")) for v in column(niah)]
        self.assertEqual(values, sorted(values, reverse=True))
        self.assertEqual(header.get_attribute("aria-sort"), "descending")
        header.find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
        values = [float(v.rstrip("*†")) for v in column(niah)]
        self.assertEqual(values, sorted(values))
        rows = len(self.shown("#run-list tbody tr"))
        self.find("input[data-find=run-list]").send_keys("nightly")
        self.assertEqual(len(self.shown("#run-list tbody tr")), 6)
        self.find("input[data-find=run-list]").send_keys(Keys.BACKSPACE * 7)
        self.assertEqual(len(self.shown("#run-list tbody tr")), rows)
        self.find("select[data-pick=run-list] option[value='SWA 128']").click()
        self.assertEqual(len(self.shown("#run-list tbody tr")), 1)

    # ---- charts ----

    def test_points_are_reached_by_keyboard_and_say_what_they_are(self):
        self.width(1280)
        self.open("lengths")
        self.js("document.querySelector('.pt').focus()")
        tip = self.find("#tip")
        self.assertTrue(tip.is_displayed())
        self.assertIn("prompt tokens", tip.text)
        first = tip.text
        self.key(Keys.TAB)
        self.assertNotEqual(tip.text, first)
        self.key(Keys.ESCAPE)
        self.assertFalse(tip.is_displayed())

    def test_cells_of_a_heatmap_are_walked_with_arrows(self):
        self.width(1280)
        self.open("niah")
        self.js("document.querySelector('g.cell').focus()")
        text = self.find("#tip").text
        self.assertIn("length 512, depth 0 %", text)
        self.key(Keys.ARROW_RIGHT)
        self.assertIn("length 1024, depth 0 %", self.find("#tip").text)
        self.key(Keys.ARROW_DOWN)
        self.assertIn("length 1024, depth 25 %", self.find("#tip").text)

    def test_losses_of_tokens_are_walked_with_arrows(self):
        self.width(1280)
        self.open("samples-" + self.made["scaling"][0])
        strip = self.find(".strips svg.chart")
        self.js("arguments[0].querySelector('g.cell').focus()", strip)
        self.assertIn("tokens 0–2", self.find("#tip").text)
        self.key(Keys.ARROW_RIGHT)
        self.assertIn("tokens 3–5: 2.500 nats, 2 key", self.find("#tip").text)
        self.find(".strips details summary").click()
        key = self.find(".strips u")
        self.assertTrue(key.is_displayed())
        self.assertIn("underline", key.value_of_css_property("text-decoration-line"))

    def test_every_chart_has_a_name_a_finding_and_its_numbers(self):
        for name in ["niah", "lengths", "scaling", "timeline", "search"]:
            self.open(name)
            charts = self.all("figure > svg, figure .scroll > svg, figure svg.chart")
            self.assertGreater(len(charts), 0, name)
            for chart in charts:
                self.assertTrue(chart.find_element(By.CSS_SELECTOR, "title").get_attribute("textContent"))
            for figure in self.all("figure:has(> .scroll > svg.chart)"):
                self.assertTrue(figure.find_element(By.CSS_SELECTOR, "desc").get_attribute("textContent"))
                self.assertTrue(figure.find_elements(By.CSS_SELECTOR, "details table"))

    # ---- samples ----

    def test_samples_filter_differ_and_walk(self):
        self.width(1280)
        self.open("samples-" + self.made["models"][1])
        everything = len(self.shown(".sample"))
        self.assertEqual(everything, 320)
        self.find("select[data-by=kind] option[value=worse]").click()
        worse = self.shown(".sample")
        self.assertTrue(0 < len(worse) < everything)
        self.assertEqual(self.find(".tools output").text, f"{len(worse)} of 320")
        self.assertEqual(set(self.values(worse, "data-kind")), {"worse"})
        self.find("select[data-by=length] option[value='4096']").click()
        long = self.shown(".sample")
        self.assertEqual(set(self.values(long, "data-length")), {"4096"})
        first = long[self.values(long, "data-task").index("niah")]
        self.assertEqual([e.text for e in first.find_elements(By.CSS_SELECTOR, "ins")], ["Perth,"])
        self.assertEqual(len(first.find_elements(By.CSS_SELECTOR, "del")), 1)
        self.find("[data-diff]").click()
        self.assertEqual(first.find_elements(By.CSS_SELECTOR, "ins, del"), [])
        self.find("h1").click()
        self.key("j")
        self.key("j")
        self.key("k")
        now = self.find(".sample.now")
        self.assertEqual(now, self.shown(".sample")[0])
        self.assertTrue(self.browser.current_url.endswith("#" + now.get_attribute("id")))

    def test_permalinks(self):
        self.width(1280)
        self.open("samples-" + self.made["models"][1])
        anchor = self.all(".sample")[40].get_attribute("id")
        self.open("samples-" + self.made["models"][1], "#" + anchor)
        top = self.js("return document.querySelector(':target').getBoundingClientRect().top")
        self.assertTrue(-10 < top < 400, top)
        self.open_one("#" + anchor)
        self.assertTrue(self.find(f"[id='{anchor}']").is_displayed())
        self.assertEqual(len(self.shown("section.page")), 1)

    def test_one_file_shows_a_page_at_a_time(self):
        for width in WIDTHS:
            self.width(width)
            self.open_one()
            self.assertEqual([e.get_attribute("id") for e in self.shown("section.page")], ["index"])
            self.find(".top a[href='#timeline']").click()
            self.assertEqual([e.get_attribute("id") for e in self.shown("section.page")], ["timeline"])
            self.assertEqual(self.find("[aria-current=page]").text, "Timeline")
            self.browser.back()
            self.assertEqual([e.get_attribute("id") for e in self.shown("section.page")], ["index"])

    def test_copying(self):
        self.open("run-" + self.made["models"][1])
        self.assertGreater(len(self.all("button.copy")), 4)

    def test_skip_link_comes_first(self):
        self.open("index")
        self.key(Keys.TAB)
        self.assertEqual(self.js("return document.activeElement.textContent"), "Skip to the content")

    # ---- without JavaScript ----

    def test_without_javascript(self):
        self.browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        self.width(1280)
        for name in FIXED + ["run-" + self.made["models"][1], "samples-" + self.made["models"][1]]:
            self.open(name)
            self.assertTrue(self.find("h1").is_displayed())
            self.assertEqual(self.shown(".tools"), [], "tools that do nothing")
            self.assertTrue(self.shown("main table, main svg, main .quote"), name)
        self.assertGreater(len(self.shown(".sample .quote")), 100)
        self.open_one()
        self.assertEqual(len(self.shown("section.page")), 7 + 2 * 24)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    SHOTS = ""
    if "--shots" in arguments:
        at = arguments.index("--shots")
        SHOTS = arguments[at + 1]
        del arguments[at:at + 2]
    HAYFORK, MAKE_SITE = arguments[:2]
    if not CHROMIUM or not DRIVER:
        print("skipped: chromium and chromium-driver are not installed")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *arguments[2:]], verbosity=2)
