"use strict";
(() => {
  const P = JSON.parse(document.getElementById("payload").textContent);
  const byName = new Map(P.systems.map((one) => [one.name, one]));
  const $ = (id) => document.getElementById(id);
  const slider = $("coverage"), systemBox = $("system"), oodBox = $("ood");
  const state = { shown: new Set(P.shown), position: P.coverages.length - 1 };
  const edges = Array.from({ length: P.bins + 1 }, (_, m) => m / P.bins);
  const views = new Map();
  const tables = {};

  const percent = (value, digits = 1) => (value == null ? "–" : (100 * value).toFixed(digits) + " %");
  const measures = new Map(P.measures.map((one) => [one.name, one]));
  const isPlain = (name) => measures.get(name)?.unit === "number";
  const plain = (value, name) => (value == null ? "–" : isPlain(name) ? value.toPrecision(4) : (100 * value).toFixed(1));
  const text = (measure, value) => (measure.unit === "number" ? plain(value, measure.name) : percent(value));
  const range = (m) => `${plain(edges[m])} to ${plain(edges[m + 1])} %`;
  const element = (tag, properties = {}, ...children) => {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  };
  const ood = () => (oodBox ? oodBox.value : null);
  const outside = (one) => (ood() ? one.ood[ood()] : undefined);
  const at = (values) => (values ? values[state.position] : null);
  const visible = () => P.systems.filter((one) => state.shown.has(one.name));

  // What each chart shows at the present position of the slider, as rows.
  const binRows = (one) => {
    const count = at(one.count), sum = at(one.confidence), right = at(one.correct), rows = [];
    for (let m = 0; m < P.bins; m++) {
      if (!count[m]) continue;
      const accuracy = right[m] / count[m], confidence = sum[m] / count[m];
      const gap = accuracy < confidence ? "over" : "under";
      rows.push({ system: one.name, left: edges[m], right: edges[m + 1], zero: 0, range: range(m), count: count[m], accuracy, confidence, gap });
    }
    return rows;
  };
  const shareRows = (one) => {
    const far = outside(one), rows = [];
    const kinds = [["ID", "ID", at(one.count), one.id_inputs * one.seeds.length]];
    if (far) kinds.push(["OOD", ood(), at(far.count), far.inputs * one.seeds.length]);
    for (const [kind, set, count, total] of kinds)
      for (let m = 0; m < P.bins; m++)
        rows.push({ system: one.name, kind, set, left: edges[m], right: edges[m + 1], zero: 0, range: range(m), share: count[m] / total });
    return rows;
  };
  const topShare = (one) => {
    const last = P.coverages.length - 1, far = outside(one), size = one.seeds.length;
    const shares = one.count[last].map((n) => n / (one.id_inputs * size));
    if (far) shares.push(...far.count[last].map((n) => n / (far.inputs * size)));
    return Math.max(...shares) * 1.05;
  };
  const measured = (one, name) => (measures.get(name).ood ? outside(one)?.measures[name] : one.measures[name]);
  const curveValues = (one, name) => (name === "risk" ? one.risk : measured(one, name));
  const curveRows = (measure) =>
    visible().flatMap((one) => {
      const values = curveValues(one, measure) || [];
      return P.coverages.flatMap((coverage, i) =>
        values[i] == null || coverage < 0.05 ? [] : [{ system: one.name, width: one.width, coverage, value: values[i] }]);
    });
  const tradeRows = () =>
    visible().filter((one) => at(one.measures.accuracy) != null).map((one) => ({
      system: one.name, accuracy: at(one.measures.accuracy), ece: at(one.measures.ece), system_rate: outside(one) ? at(outside(one).measures.system_rate) : null,
    }));
  const moving = () => P.measures.filter((measure) => measure.at_coverage && (ood() || !measure.ood));
  const liveRows = () =>
    P.systems.map((one) => {
      const row = { system: one.name, wanted_coverage: P.coverages[state.position], ...(ood() ? { ood: ood() } : {}) };
      for (const measure of moving()) row[measure.name] = at(measured(one, measure.name));
      return row;
    });
  const exampleRows = (kind) => {
    const wanted = P.coverages[state.position];
    return (P.examples[systemBox.value] || [])
      .filter((one) => one.kind === kind && (kind !== "ood" || one.dataset === ood()))
      .filter((one) => (one.share < wanted || wanted === 1) === (kind !== "rejected"))
      .sort((a, b) => b.confidence - a.confidence)
      .slice(0, 8);
  };

  // Tables and CSV.
  const HEADS = { system: "System", wanted_coverage: "Coverage wanted", range: "Confidence bin", count: "Inputs", confidence: "Mean confidence", set: "Data", share: "Share", value: "Value", measure: "Measure", ood: "OOD set", ...Object.fromEntries(P.measures.map((one) => [one.name, one.title])) };
  const DRAWN = ["left", "right", "zero", "gap", "width"];
  const HIDDEN = new Set([...DRAWN, "kind", "wanted_coverage", "ood"]);
  const WHOLE = new Set(["count", "row"]);
  const cell = (name, value, measure = name) => {
    if (typeof value === "number" || value == null) {
      const shown = WHOLE.has(name) ? value.toLocaleString("en") : plain(value, measure);
      const td = element("td", { className: "number", textContent: shown });
      td.dataset.value = value ?? "";
      td.dataset.name = name;
      return td;
    }
    return element("td", { textContent: value });
  };
  const fill = (table, rows) => {
    const names = rows.length ? Object.keys(rows[0]).filter((name) => !HIDDEN.has(name)) : [];
    const head = element("tr");
    for (const name of names) {
      const th = element("th", { scope: "col", textContent: HEADS[name] || name });
      if (rows.some((row) => typeof row[name] === "number")) th.className = "number";
      head.append(th);
    }
    const body = rows.map((row) =>
      element("tr", {}, ...names.map((name, i) => (i ? cell(name, row[name], row.measure) : element("th", { scope: "row", textContent: row[name] })))));
    table.replaceChildren(...table.querySelectorAll("caption"), element("thead", {}, head), element("tbody", {}, ...body));
  };
  const flat = (row) => {
    const { scores = {}, ...rest } = row;
    for (const [name, value] of Object.entries(scores)) rest[`score_${name}`] = value;
    return Object.fromEntries(Object.entries(rest).filter(([name]) => !DRAWN.includes(name)));
  };
  const csv = (rows) => {
    const all = rows.map(flat), names = [...new Set(all.flatMap(Object.keys))];
    const quote = (value) => {
      const text = value == null ? "" : String(value);
      return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
    };
    return [names, ...all.map((row) => names.map((name) => row[name]))].map((line) => line.map(quote).join(",") + "\n").join("");
  };
  const titles = new Map(P.curves.map((one) => [one.name, one.title]));
  const sources = {
    live: liveRows,
    table: () => P.table,
    reliability: () => visible().flatMap(binRows),
    histogram: () => visible().flatMap(shareRows),
    tradeoff: tradeRows,
    curves: () => P.curves.flatMap(({ name: measure }) => curveRows(measure).map((row) => ({ system: row.system, measure, coverage: row.coverage, value: row.value }))),
    examples: () => ["mistake", "rejected", "ood"].flatMap(exampleRows),
  };
  const download = (name) => {
    const link = element("a", { href: URL.createObjectURL(new Blob([csv(sources[name]())], { type: "text/csv" })), download: `${name}.csv` });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  document.querySelectorAll("details[data-table]").forEach((details) => {
    const name = details.dataset.table;
    const caption = details.previousElementSibling.previousElementSibling.previousElementSibling.textContent;
    const table = element("table", {}, element("caption", { textContent: `${caption}, percent` }));
    const scroll = element("div", { className: "scroll", tabIndex: 0 }, table);
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", `${caption}: numbers`);
    const button = element("button", { type: "button", className: "csv", textContent: "Download CSV" });
    button.dataset.csv = name;
    details.append(scroll, button);
    tables[name] = { details, table };
    details.addEventListener("toggle", () => details.open && fill(table, sources[name]()));
  });
  document.addEventListener("click", (event) => event.target.dataset && event.target.dataset.csv && download(event.target.dataset.csv));

  // Charts.
  const datasets = (chart, key) => {
    const one = byName.get(key);
    if (chart === "reliability") return { bins: binRows(one) };
    if (chart === "histogram") return { shares: shareRows(one) };
    if (chart === "tradeoff") return { points: tradeRows() };
    return { points: curveRows(key), cursor: [{ coverage: P.coverages[state.position] }] };
  };
  const draw = (node, chart) =>
    vegaEmbed(node, { ...P.charts[chart], datasets: datasets(chart, node.parentElement.dataset.key) }, { renderer: "svg", actions: false, tooltip: true }).then((result) => {
      views.set(node, { view: result.view, chart });
      sight.observe(node);
      return result.view;
    });
  const figure = (title, chart, key) => {
    const node = element("div", { className: "chart" });
    node.setAttribute("role", "img");
    node.dataset.chart = chart;
    const box = element("figure", {}, element("figcaption", {}, title, element("small")), node);
    box.dataset.key = key;
    return box;
  };
  const describe = (node, chart, key) => {
    const one = byName.get(key), table = "the numbers are in the table below";
    if (chart === "tradeoff") return;
    if (!one) return node.setAttribute("aria-label", `${titles.get(key)} against coverage; ${table}`);
    const far = outside(one), ece = `ECE ${percent(at(one.measures.ece))}`, told = `told apart ${percent(far ? at(far.measures.system_rate) : null)}`;
    node.previousElementSibling.lastChild.textContent = chart === "reliability" ? ece : told;
    const what = chart === "reliability" ? `Reliability diagram of ${one.name}: ${ece}` : `Confidence of accepted ID and OOD inputs, ${one.name}: ${told}`;
    node.setAttribute("aria-label", `${what}; ${table}`);
  };
  // Only charts in sight are redrawn at once, the others when they come into sight or go to the printer.
  const inSight = new Set(), stale = new Set();
  const redraw = (node) => {
    const { view, chart } = views.get(node), key = node.parentElement.dataset.key;
    if (chart === "histogram") view.signal("top", topShare(byName.get(key)));
    for (const [name, rows] of Object.entries(datasets(chart, key))) view.data(name, rows);
    stale.delete(node);
    return view.runAsync();
  };
  const sight = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) inSight.add(target);
      else inSight.delete(target);
      if (isIntersecting && stale.has(target)) redraw(target);
    }
  }, { rootMargin: "200px" });
  addEventListener("beforeprint", () => stale.forEach(redraw));
  const update = () => {
    for (const [node, { chart }] of views) {
      describe(node, chart, node.parentElement.dataset.key);
      stale.add(node);
      if (inSight.has(node)) redraw(node);
    }
  };
  const addSystem = (one) => ["reliability", "histogram"].filter((kind) => $(kind)).map((kind) => {
    const box = figure(one.name, kind, one.name);
    const after = visible().map((other) => other.name);
    const next = [...$(kind).children].find((child) => after.indexOf(child.dataset.key) > after.indexOf(one.name));
    $(kind).insertBefore(box, next || null);
    return draw(box.lastChild, kind);
  });
  const removeSystem = (name) => document.querySelectorAll("#reliability > figure, #histogram > figure").forEach((box) => {
    if (box.dataset.key !== name) return;
    views.get(box.lastChild)?.view.finalize();
    for (const known of [views, stale, inSight]) known.delete(box.lastChild);
    sight.unobserve(box.lastChild);
    box.remove();
  });

  // Everything that the slider moves.
  const tile = (one, measure) => {
    const value = at(measured(one, measure.name)), dd = element("dd", {}, text(measure, value));
    dd.dataset.key = measure.name;
    dd.dataset.value = value ?? "";
    const counted = measure.counted === "id" ? one : measure.counted === "ood" ? outside(one) : null;
    if (counted) dd.append(element("small", { textContent: `${Math.round(at(counted.accepted)).toLocaleString("en")} inputs` }));
    return element("div", { title: measure.sentence }, element("dt", { textContent: measure.title }), dd);
  };
  let announce = 0;
  const numbers = () => {
    const one = byName.get(systemBox.value), far = outside(one), wanted = P.coverages[state.position];
    slider.setAttribute("aria-valuetext", percent(wanted, 0));
    $("wanted").textContent = percent(wanted, 0);
    const tiles = P.measures.filter((measure) => measure.slides && (far || !measure.ood));
    $("tiles").replaceChildren(...tiles.map((measure) => tile(one, measure)));
    clearTimeout(announce);
    announce = setTimeout(() => {
      const tail = far ? ` It accepts ${percent(at(far.measures.ood_acceptance))} of the OOD inputs.` : "";
      $("reading").textContent = `At ${percent(wanted, 0)} coverage ${one.name} accepts ${percent(at(one.measures.coverage))} of the ID inputs, with accuracy ${percent(at(one.measures.accuracy))} and ECE ${percent(at(one.measures.ece))}.${tail}`;
    }, 300);
  };
  const examples = () => {
    for (const [kind, id] of [["mistake", "mistake"], ["rejected", "rejected"], ["ood", "ood-examples"]]) {
      if (!$(id)) continue;
      const items = exampleRows(kind).map((one) => {
        const picture = P.thumbnails[`${one.dataset}/${one.row}`], item = element("li");
        if (picture) item.append(element("img", { src: picture, alt: `Input ${one.row}`, width: 64, height: 64 }));
        item.append(element("b", { textContent: one.predicted == null ? `row ${one.row}` : `says ${one.predicted}` }));
        if (one.label != null) item.append(element("span", { textContent: `is ${one.label}` }));
        item.append(element("span", { textContent: `confidence ${percent(one.confidence)}` }));
        for (const [name, value] of Object.entries(one.scores)) item.append(element("span", { textContent: `${name} ${value.toPrecision(3)}` }));
        if (one.predicted != null) item.append(element("span", { textContent: `row ${one.row}` }));
        return item;
      });
      $(id).replaceChildren(...(items.length ? items : [element("li", { className: "none", textContent: "None at this coverage." })]));
    }
  };
  const render = () => {
    state.position = Number(slider.value) - 1;
    numbers();
    fill($("live"), liveRows());
    examples();
    update();
    for (const name in tables) if (tables[name].details.open) fill(tables[name].table, sources[name]());
  };
  let pending = 0;
  const later = () => {
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(render);
  };

  // The table of all systems: which rows, in which order.
  const all = $("all");
  const filter = () => {
    const coverage = document.querySelector("[name=table-coverage]:checked").value;
    for (const row of all.tBodies[0].rows) row.hidden = row.dataset.coverage !== coverage || (row.dataset.ood !== "" && row.dataset.ood !== ood());
  };
  all.tHead.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const th = button.closest("th"), column = th.cellIndex, up = th.getAttribute("aria-sort") !== "ascending";
    for (const other of all.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
    th.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = (row) => (column ? (row.cells[column].dataset.value === "" ? NaN : Number(row.cells[column].dataset.value)) : row.cells[0].textContent);
    const rows = [...all.tBodies[0].rows].sort((a, b) => {
      const x = key(a), y = key(b);
      if (typeof x === "string") return up ? x.localeCompare(y) : y.localeCompare(x);
      if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
      return up ? x - y : y - x;
    });
    all.tBodies[0].append(...rows);
  });

  // Controls.
  const swatch = (one) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), line = document.createElementNS(svg.namespaceURI, "line");
    for (const [name, value] of Object.entries({ width: 22, height: 8, "aria-hidden": "true" })) svg.setAttribute(name, value);
    for (const [name, value] of Object.entries({ x1: 0, x2: 22, y1: 4, y2: 4, stroke: one.color, "stroke-width": 2.4, "stroke-dasharray": one.dash.join(" ") })) line.setAttribute(name, value);
    svg.append(line);
    return svg;
  };
  for (const one of P.systems) {
    const box = element("input", { type: "checkbox", checked: state.shown.has(one.name), className: "hidden" });
    box.addEventListener("change", () => {
      if (box.checked) {
        state.shown.add(one.name);
        Promise.all(addSystem(one)).then(later);
      } else {
        state.shown.delete(one.name);
        removeSystem(one.name);
        later();
      }
    });
    $("chips").append(element("label", {}, box, swatch(one), one.name));
  }
  $("theme").addEventListener("click", () => {
    const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    root.dataset.theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
  });
  document.querySelectorAll("[name=table-coverage]").forEach((radio) => radio.addEventListener("change", filter));
  if (oodBox) oodBox.addEventListener("change", () => (filter(), later()));
  systemBox.addEventListener("change", later);
  slider.addEventListener("input", later);
  slider.value = P.coverages.length;
  systemBox.value = visible().at(-1).name;
  for (const { name, title } of P.curves) $("curves").append(figure(title, `curve-${name}`, name));
  const jobs = visible().flatMap(addSystem);
  document.querySelectorAll("#curves .chart, .chart[data-chart=tradeoff]").forEach((node) => jobs.push(draw(node, node.dataset.chart)));
  filter();
  render();
  Promise.all(jobs).then(() => {
    render();
    document.documentElement.dataset.ready = "yes";
  });
})();
