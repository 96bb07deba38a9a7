// The report's own script: sorting, filters, tooltips, the word diff, keys. Every page can be read without it. It makes
// no request, and puts text into the page as text alone.
(function () {
  "use strict";
  var root = document.documentElement;
  root.classList.add("js");
  function all(selector, from) { return Array.prototype.slice.call((from || document).querySelectorAll(selector)); }
  function make(tag, text, cls) {
    var e = document.createElement(tag);
    if (text) e.textContent = text;
    if (cls) e.className = cls;
    return e;
  }

  function chosen(tool, act) {  // some browsers send one of these, some the other
    tool.addEventListener("input", act);
    tool.addEventListener("change", act);
  }

  // ---- One file: a page at a time ----
  function paging() {
    var pages = all("section.page");
    if (!pages.length) return;
    function show() {
      var id = decodeURIComponent(location.hash.slice(1)), target = id && document.getElementById(id);
      var page = target ? target.closest("section.page") : pages[0];
      if (!page) page = pages.find(function (p) { return !p.hidden; }) || pages[0];
      pages.forEach(function (p) { p.hidden = p !== page; });
      all(".top nav a").forEach(function (a) {
        if (a.getAttribute("href") === "#" + page.id) a.setAttribute("aria-current", "page");
        else a.removeAttribute("aria-current");
      });
      document.title = page.dataset.title + " – Hayfork";
      if (target && target !== page) target.scrollIntoView();
      else if (id !== "main") window.scrollTo(0, 0);
    }
    window.addEventListener("hashchange", show);
    show();
  }

  // ---- Tables ----
  function key(row, column) {
    var cell = row.cells[column], v = cell.dataset.v;
    if (v !== undefined && v !== "") return Number(v);
    var text = cell.textContent.trim();
    return text === "–" || text === "" ? null : text;
  }
  function sorting(table) {
    all("thead th", table).forEach(function (th, column) {
      var button = make("button", th.textContent);
      button.type = "button";
      th.textContent = "";
      th.appendChild(button);
      button.addEventListener("click", function () {
        var numbers = th.classList.contains("num"), now = th.getAttribute("aria-sort");
        var down = now ? now === "ascending" : numbers;
        all("th", table).forEach(function (h) { h.removeAttribute("aria-sort"); });
        th.setAttribute("aria-sort", down ? "descending" : "ascending");
        var body = table.tBodies[0], rows = all("tr", body);
        rows.sort(function (a, b) {
          var x = key(a, column), y = key(b, column);
          if (x === null || y === null) return (x === null) - (y === null);  // what is unknown comes last
          var order = typeof x === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
          return down ? -order : order;
        });
        rows.forEach(function (r) { body.appendChild(r); });
      });
    });
  }
  function finding() {
    var tables = {};
    all("[data-find],[data-pick]").forEach(function (tool) {
      var id = tool.dataset.find || tool.dataset.pick;
      (tables[id] = tables[id] || []).push(tool);
      chosen(tool, function () {
        all("tbody tr", document.getElementById(id)).forEach(function (row) {
          row.hidden = !tables[id].every(function (t) {
            if (t.dataset.pick) return !t.value || row.dataset.arch === t.value;
            return row.textContent.toLowerCase().indexOf(t.value.toLowerCase()) >= 0;
          });
        });
      });
    });
  }

  // ---- Tooltips, by pointer and by keyboard ----
  function tips() {
    var tip = make("div");
    tip.id = "tip";
    tip.hidden = true;
    tip.setAttribute("role", "status");
    document.body.appendChild(tip);
    function text(e) {
      var title = e.querySelector(":scope > title");
      if (title) {
        e.dataset.tip = title.textContent;
        if (!e.hasAttribute("aria-label")) e.setAttribute("aria-label", title.textContent);
        title.remove();
      }
      return e.dataset.tip;
    }
    function show(event) {
      var e = event.target.closest && event.target.closest(".pt,.cell");
      if (!e || !text(e)) { tip.hidden = true; return; }
      tip.textContent = e.dataset.tip;
      tip.hidden = false;
      var box = e.getBoundingClientRect(), size = tip.getBoundingClientRect();
      var x = Math.min(Math.max(4, box.left + box.width / 2 - size.width / 2), window.innerWidth - size.width - 4);
      var y = box.top - size.height - 6;
      tip.style.left = x + "px";
      tip.style.top = (y < 4 ? box.bottom + 6 : y) + "px";
    }
    document.addEventListener("pointerover", show);
    document.addEventListener("focusin", show);
    document.addEventListener("focusout", function () { tip.hidden = true; });
    document.addEventListener("keydown", function (e) { if (e.key === "Escape") tip.hidden = true; });
  }
  // Cells of a heatmap: one stop of the tab key, arrows inside.
  function grids() {
    all("svg").forEach(function (svg) {
      var cells = all("g.cell", svg);
      if (!cells.length) return;
      svg.setAttribute("role", "group");
      cells[0].setAttribute("tabindex", "0");
      svg.addEventListener("keydown", function (e) {
        var step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[e.key];
        var here = document.activeElement;
        if (!step || !here || !here.classList.contains("cell")) return;
        var to = svg.querySelector('g.cell[data-r="' + (Number(here.dataset.r) + step[0]) + '"][data-c="' +
          (Number(here.dataset.c) + step[1]) + '"]');
        e.preventDefault();
        if (!to) return;
        here.removeAttribute("tabindex");
        to.setAttribute("tabindex", "0");
        to.focus();
      });
    });
  }

  // ---- Copying ----
  function copy(text) {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    var area = make("textarea", text);
    document.body.appendChild(area);
    area.select();
    var done = document.execCommand("copy");
    area.remove();
    return done ? Promise.resolve() : Promise.reject();
  }
  function copying() {
    all("[data-copy]").forEach(function (e) {
      var text = e.textContent, button = make("button", "copy", "copy");
      button.type = "button";
      button.addEventListener("click", function () {
        copy(text).then(function () { button.textContent = "copied"; }, function () { button.textContent = "select it by hand"; });
        setTimeout(function () { button.textContent = "copy"; }, 1500);
      });
      e.appendChild(button);
    });
  }

  // ---- Samples ----
  function words(text) { return text.match(/\s+|[^\s]+/g) || []; }
  // What a has alone and what b has alone, by the longest common subsequence of words.
  function diff(a, b) {
    var n = a.length, m = b.length, table = [], i, j;
    for (i = n; i >= 0; --i) {
      table[i] = new Uint16Array(m + 1);
      for (j = m - 1; j >= 0 && i < n; --j)
        table[i][j] = a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
    var left = [], right = [];
    for (i = 0, j = 0; i < n || j < m;) {
      if (i < n && j < m && a[i] === b[j]) { left.push([a[i++], 0]); right.push([b[j++], 0]); }
      else if (i < n && (j >= m || table[i + 1][j] >= table[i][j + 1])) left.push([a[i++], 1]);
      else right.push([b[j++], 1]);
    }
    return [left, right];
  }
  function write(box, parts, tag) {
    box.textContent = "";
    parts.forEach(function (p) { box.appendChild(p[1] ? make(tag, p[0]) : document.createTextNode(p[0])); });
  }
  function mark(article, on) {
    var a = article.querySelector(".base .quote"), b = article.querySelector(".cand .quote");
    if (!a || !b) return;
    if (!on) {
      [a, b].forEach(function (q) { if (q.querySelector("ins,del")) q.textContent = q.textContent; });
      return;
    }
    if (a.children.length || b.children.length) return;  // folded: the middle is not here
    var x = words(a.textContent), y = words(b.textContent);
    if (x.length > 600 || y.length > 600) return;
    var parts = diff(x, y);
    write(a, parts[0], "del");
    write(b, parts[1], "ins");
  }
  function samples(list) {
    var articles = all(".sample", list), tools = list.querySelector(".tools"), count = tools.querySelector("output");
    function visible() { return articles.filter(function (a) { return !a.hidden; }); }
    function filter() {
      articles.forEach(function (a) {
        a.hidden = !all("select[data-by]", tools).every(function (s) {
          return !s.value || (" " + a.dataset[s.dataset.by] + " ").indexOf(" " + s.value + " ") >= 0;
        });
      });
      count.textContent = visible().length + " of " + articles.length;
    }
    all("select[data-by]", tools).forEach(function (s) { chosen(s, filter); });
    var box = tools.querySelector("[data-diff]");
    function marks() { articles.forEach(function (a) { mark(a, box.checked); }); }
    if (box) { box.addEventListener("input", marks); marks(); }
    filter();
    return { visible: visible, articles: articles };
  }
  function walking(lists) {
    document.addEventListener("keydown", function (e) {
      if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return;
      if (e.key !== "j" && e.key !== "k") return;
      var list = lists.find(function (l) { return l.visible().some(function (a) { return a.offsetParent; }); });
      if (!list) return;
      var shown = list.visible(), at = shown.findIndex(function (a) { return a.classList.contains("now"); });
      var to = shown[e.key === "j" ? Math.min(at + 1, shown.length - 1) : Math.max(at - 1, 0)];
      list.articles.forEach(function (a) { a.classList.remove("now"); });
      to.classList.add("now");
      history.replaceState(null, "", "#" + to.id);
      to.scrollIntoView({ block: "start" });
      to.focus({ preventScroll: true });
    });
  }

  document.addEventListener("DOMContentLoaded", function () {
    all("table.sortable").forEach(sorting);
    finding();
    tips();
    grids();
    copying();
    walking(all(".samples").map(samples));
    paging();
    var nav = document.querySelector(".top nav"), now = nav.querySelector("[aria-current]");
    if (now) nav.scrollLeft = now.offsetLeft - nav.offsetLeft - 40;  // on a narrow screen it lies outside
  });
})();
