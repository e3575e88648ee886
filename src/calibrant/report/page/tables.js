// The table.
const columns = () => P.measures.filter((one) => (ood() || !one.ood) && (state.every || one.slides));
const best = (measure, some) => {
  const values = some.map((one) => value(one, measure.name)).filter((each) => each != null);
  if (values.length < 2 || measure.direction === "neither") return null;
  const found = measure.direction === "higher" ? Math.max(...values) : Math.min(...values);
  return values.every((each) => each === found) ? null : found;
};
const cell = (one, measure, top) => {
  const number = value(one, measure.name), row = measure.at_coverage ? summary(one, wanted()) : P.table.find((each) => each.system === one.name && each.ood === ood());
  const [low, high] = (measure.name === "accuracy" && rightLimits(one)) || [row?.[`${measure.name}_low`], row?.[`${measure.name}_high`]];
  // A bias-corrected estimate can lie outside of the range of the measure: what is shown does not.
  const shown = number == null || low == null || high == null ? number : Math.min(Math.max(number, low), high);
  const td = element("td", { className: "number" }, plain(measure, shown));
  td.dataset.key = measure.name;
  td.dataset.value = number ?? "";
  if (number != null && number === top) {
    td.classList.add("best");
    td.append(element("span", { className: "hidden", textContent: " (best)" }));
  }
  if (low != null && high != null && low < high) td.append(element("small", { textContent: `${plain(measure, low)} to ${plain(measure, high)}` }));
  const far = outside(one);
  if (measure.counted === "id") td.append(element("small", { textContent: `${whole(at(one.accepted))} of ${whole(one.id_inputs)}` }));
  if (measure.counted === "ood" && far) td.append(element("small", { textContent: `${whole(at(far.accepted))} of ${whole(far.inputs)}` }));
  return td;
};
const ordered = (some) => {
  if (!state.sort) return some;
  const { name, up } = state.sort, key = (one) => (name === "system" ? one.name : value(one, name));
  return [...some].sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x == null || y == null) return (x == null) - (y == null);
    return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1);
  });
};
const heading = (name, title, measure) => {
  const th = element("th", { scope: "col", className: measure ? "number" : "" });
  const button = element("button", { type: "button", title: measure?.sentence ?? "", textContent: title });
  if (measure?.arrow) button.append(Object.assign(element("span", { textContent: `\u00a0${measure.arrow}` }), { ariaHidden: "true" }));
  th.dataset.key = name;
  th.setAttribute("aria-sort", state.sort?.name !== name ? "none" : state.sort.up ? "ascending" : "descending");
  button.addEventListener("click", () => {
    state.sort = { name, up: state.sort?.name === name ? !state.sort.up : true };
    table();
    $("table").querySelector(`th[data-key="${name}"] button`).focus();
  });
  th.append(P.systems.length > 1 ? button : element("span", { title: measure?.sentence ?? "", textContent: title }));
  return th;
};
const table = () => {
  const some = visible(), shown = columns(), tops = new Map(shown.map((measure) => [measure, best(measure, some)]));
  const several = P.systems.length > 1;
  const head = element("tr", {}, ...(several ? [heading("system", "System")] : []), ...shown.map((one) => heading(one.name, one.title, one)));
  const body = ordered(some).map((one) => {
    const name = element("th", { scope: "row", textContent: one.name }), row = element("tr", {}, ...(several ? [name] : []), ...shown.map((each) => cell(one, each, tops.get(each))));
    row.dataset.system = one.name;
    if (one === system()) row.className = "chosen";
    return row;
  });
  $("table").replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
  const known = [...new Set(P.table.map((row) => row.wanted_coverage))].sort((a, b) => a - b).map((each) => percent(each, 0));
  const seeds = P.systems.some((one) => one.seeds.length > 1) ? ", averaged over seeds" : "";
  const marked = several ? " The best value of a column is marked." : "";
  const dash = body.some((row) => row.querySelector(`td[data-value=""]`)) ? " A dash means undefined: fewer than 30 inputs of either kind were accepted, or all of them fall into one bin of confidence." : "";
  $("table-note").textContent = `Values are percentages${seeds}${ood() ? `; outliers: ${called(ood())}` : ""}.${marked}${dash} 95\u00a0% intervals are given below the accuracy and, at ${listed(known)} coverage, below the other values.`.replaceAll(" %", "\u00a0%");
  if ($("every-system")) $("every-system").textContent = state.shown.size < P.systems.length ? `Show all ${P.systems.length} systems` : "Show fewer systems";
};

// Examples.
const exampleRows = (kind) =>
  (own(P.examples, system().name) || [])
    .filter((one) => one.kind === kind && (kind !== "ood" || one.dataset === ood()))
    .filter((one) => (one.share < wanted() || wanted() === 1) === (kind !== "rejected"))
    .sort((a, b) => b.confidence - a.confidence)
    .slice(0, 8);
const rank = (name, share) => {
  const meter = element("i"), shown = name === "selector" ? system().quantity : name;
  meter.style.width = `${100 * share}%`;
  return element("span", { className: "rank", title: `${shown}: higher than that of ${percent(share)}` }, element("span", { textContent: shown }), element("span", { className: "meter" }, meter), element("span", { textContent: percent(share, 0) }));
};
const example = (one) => {
  const picture = P.thumbnails[`${one.dataset}/${one.row}`], item = element("li");
  if (picture) item.append(element("img", { src: picture, alt: `Input ${one.row}`, width: 64, height: 64 }));
  const told = (kind, textContent) => item.append(element(kind, { textContent, title: textContent }));
  told("b", one.predicted == null ? `row ${one.row}` : `says ${one.predicted}`);
  if (one.label != null) told("span", `is ${one.label}`);
  item.append(element("span", { textContent: `confidence ${sure(one.confidence)}` }));
  for (const [name, share] of Object.entries(one.ranks)) item.append(rank(name, share));
  if (one.predicted != null) item.append(element("span", { textContent: `row ${one.row}` }));
  return item;
};
const examples = () => {
  for (const [kind, id] of [["mistake", "mistake"], ["rejected", "rejected"], ["ood", "ood-examples"]]) {
    const items = $(id) ? exampleRows(kind).map(example) : [];
    $(id)?.replaceChildren(...(items.length ? items : [element("li", { className: "none", textContent: "None at this operating point." })]));
  }
  const ranked = (own(P.examples, system().name) || []).some((one) => Object.keys(one.ranks).length);
  $("ranks-note").textContent = ranked ? `The percentage beside a score is the share of the ${P.reference} with a lower one; the higher an outlier score, the more unusual the input.` : "";
};

// Tables of charts, and CSV.
const everyCurve = () => P.measures.filter((one) => one.at_coverage && (ood() || !one.ood));
const sources = {
  live: () => P.systems.map((one) => ({ system: one.name, wanted_coverage: wanted(), ...(ood() ? { ood: ood() } : {}), ...Object.fromEntries(everyCurve().map((each) => [each.name, value(one, each.name)])) })),
  table: () => P.table,
  reliability: () => binRows(system()),
  histogram: () => shareRows(system()),
  curves: () => everyCurve().flatMap(({ name }) => visible().flatMap((one) => P.coverages.map((coverage, i) => ({ system: one.name, measure: name, coverage, value: curve(one, name)?.[i] ?? null })))),
  examples: () => ["mistake", "rejected", "ood"].flatMap(exampleRows).map(({ scores, ranks, ...rest }) => ({ ...rest, ...Object.fromEntries(Object.entries(scores).map(([name, each]) => [`score_${name}`, each])), ...Object.fromEntries(Object.entries(ranks).map(([name, each]) => [`rank_${name}`, each])) })),
};
const csv = (lines) => {
  const names = [...new Set(lines.flatMap(Object.keys))];
  // Text that a spreadsheet would take for a formula is marked as text.
  const safe = (each) => (typeof each === "string" && /^'*[=+@\t\r\n-]/.test(each) && Number.isNaN(Number(each)) ? `'${each}` : String(each ?? ""));
  const quote = (each) => (/[",\r\n]/.test(safe(each)) ? `"${safe(each).replaceAll('"', '""')}"` : safe(each));
  return [names, ...lines.map((row) => names.map((name) => row[name]))].map((row) => row.map(quote).join(",") + "\n").join("");
};
const HEADS = { range: "Confidence", count: "Inputs", accuracy: "Accuracy", low: "Low", high: "High", confidence: "Mean confidence", set: "Data", accepted: "Accepted", rejected: "Rejected", system: "System", measure: "Measure", coverage: "Coverage", value: "Value" };
const fill = (details) => {
  const lines = sources[details.dataset.table](), names = Object.keys(lines[0] || {}), node = details.querySelector("table");
  const one = (row, name) => {
    const each = row[name], number = typeof each === "number" || each == null;
    const shown = !number ? each : name === "count" ? whole(each) : plain(name === "value" ? measures.get(row.measure) : null, each);
    const td = element("td", { className: number ? "number" : "", textContent: shown });
    if (number) Object.assign(td.dataset, { name, value: each ?? "" });
    return td;
  };
  const head = element("tr", {}, ...names.map((name) => element("th", { scope: "col", className: typeof lines[0][name] === "number" ? "number" : "", textContent: HEADS[name] ?? name })));
  node.replaceChildren(node.caption, element("thead", {}, head), element("tbody", {}, ...lines.slice(0, 2000).map((row) => element("tr", {}, ...names.map((name) => one(row, name))))));
};
const tables = [...document.querySelectorAll("details[data-table]")];
const download = (name) => {
  const link = element("a", { href: URL.createObjectURL(new Blob([csv(sources[name]())], { type: "text/csv" })), download: `${name}.csv` });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};
