// Charts.
// One line of a tip or a legend, with a sample of the curve of a system.
const swatch = (one) => {
  const sample = element("i", { className: "swatch" }), color = Charts.hue(one.color), [on, off] = one.dash;
  sample.style.background = on ? `repeating-linear-gradient(90deg, ${color} 0 ${on}px, transparent ${on}px ${on + off}px)` : color;
  return sample;
};
const line = (one, ...parts) => element("div", {}, ...(one ? [swatch(one)] : []), ...parts);
const whole0 = (number) => `${Math.round(1000 * number) / 10} %`;
// A tick has as many digits as the step between ticks needs, and a value one more.
const digitsOf = (step) => Math.max(0, Math.ceil(-Math.log10(100 * step) - 1e-6));
const ticked = (number, step) => percent(number, digitsOf(step));
const MAIN = [["wrong", { title: "Wrong among the answers", unit: "percent" }], ...(P.ood.length ? [["ood_acceptance", { title: "Outliers answered", unit: "percent" }]] : [])];
const others = () => P.measures.filter((one) => one.slides && !["coverage", "accuracy", "ood_acceptance"].includes(one.name));
const series = (name) => visible().map((one) => ({ ...one, values: (name === "wrong" ? wrong(one) : curve(one, name)) || P.coverages.map(() => null) })).map((one, i) => ({ ...one, width: i ? one.width + 0.4 : 3 }));
const places = new Map();
const place = (parent, name, about) => {
  const chart = element("div", { className: "chart" });
  chart.dataset.chart = name;
  parent.append(element("figure", {}, element("figcaption", {}, element("span", { textContent: about.title }), element("small")), chart));
  places.set(chart, { name, about });
};
const drawLines = (chart) => {
  const { name, about } = places.get(chart), some = series(name);
  const tell = (i) => [
    element("b", { textContent: `Coverage ${percent(P.coverages[i], 0)}` }),
    ...[...some].filter((one) => one.values[i] != null).sort((a, b) => b.values[i] - a.values[i]).map((one) => line(one, P.systems.length > 1 ? `${one.name} ` : "", strong(text(about, one.values[i])))),
  ];
  const yText = about.unit === "number" ? (number) => Number(number.toPrecision(4)).toString() : ticked;
  const direct = Charts.lines(chart, { series: some, xs: P.coverages, position: state.position, xTitle: "Coverage", xText: whole0, yText, tell, pick: choose, zero: about.unit !== "number" });
  chart.parentElement.querySelector(".line-key")?.remove();
  if (!direct && some.length > 1) chart.after(element("div", { className: "line-key" }, ...some.map((one) => line(one, `${one.name} `, strong(text(about, at(one.values)))))));
  chart.previousSibling.lastChild.textContent = name === "ood_acceptance" || measures.get(name)?.ood ? called(ood()) : "";
  chart.setAttribute("role", "group");
  chart.setAttribute("aria-label", `${about.title} against coverage; at ${percent(wanted(), 0)}: ${some.map((one) => `${one.name} ${text(about, at(one.values))}`).join(", ")}`);
};
const drawBins = () => {
  const one = system(), bins = binRows(one), all = binRows(one, P.coverages.length - 1);
  const ece = percent(at(one.measures.ece));
  $("reliability-note").textContent = `ECE ${ece} of the accepted`;
  $("reliability").setAttribute("role", "group");
  $("reliability").setAttribute("aria-label", `Accuracy against confidence of what ${one.name} accepts: ECE ${ece}; the numbers are below`);
  const told = (name, bin) => line(null, `${name}: `, strong(percent(bin.accuracy)), ` right (${plain(null, bin.low)} to ${percent(bin.high)}), ${whole(bin.count)} inputs`);
  const tell = (i) => {
    const kept = bins.find((bin) => bin.range === all[i].range);
    return [element("b", { textContent: `Confidence ${all[i].range}` }), line(null, "mean confidence: ", strong(percent(all[i].confidence))), told("all", all[i]), kept ? told("accepted", kept) : line(null, "none accepted")];
  };
  const height = Charts.reliability($("reliability"), { all, accepted: bins, few: FEW * one.seeds.length, xText: whole0, tell });
  const far = outside(one), size = one.seeds.length;
  const up = shares(one.count, one.id_inputs, size), down = far && shares(far.count, far.inputs, size);
  const top = Math.max(...[...up, ...(down || [])].map((bar) => bar.accepted + bar.rejected));
  const part = (name, bar) => line(null, `${name}: `, strong(percent(bar.accepted)), " accepted, ", strong(percent(bar.rejected)), " rejected");
  const cuts = levels(one), cut = one.quantity === "confidence" && cuts.length === 1 && cuts[0] != null && { value: cuts[0], name: `threshold ${threshold(cuts[0])}` };
  const tellShares = (m) => [element("b", { textContent: `Confidence ${range(m)}` }), part(called("id"), up[m]), ...(down ? [part(called(ood()), down[m])] : [])];
  Charts.histogram($("histogram"), { up, down, top, cut, height, xText: whole0, upName: `${called("id")} ↑`, downName: `${called(ood())} ↓`, tell: tellShares });
  $("histogram-note").textContent = `${rounded(at(one.measures.coverage))} of ${called("id")}${far ? `, ${rounded(at(far.measures.ood_acceptance))} of ${called(ood())} accepted` : " accepted"}`;
  $("histogram").setAttribute("role", "group");
  $("histogram").setAttribute("aria-label", `Accepted and rejected inputs over confidence: ${$("histogram-note").textContent}; the numbers are below`);
};
const draw = () => {
  drawBins();
  for (const chart of places.keys()) if (chart.clientWidth) drawLines(chart);
};

// Everything, at the operating point.
const cue = () => document.querySelectorAll(".scroll").forEach((box) => {
  box.parentElement.toggleAttribute("data-more", box.scrollWidth - box.clientWidth - box.scrollLeft > 4);
  box.parentElement.toggleAttribute("data-wide", box.scrollWidth > box.clientWidth + 4);
});
let announce = 0;
const render = () => {
  if (state.error != null) {
    const found = positionOfError(system(), state.error);
    $("unreachable").textContent = found < 0 ? `At no coverage are at most ${Number((100 * state.error).toPrecision(4))} % of the answers wrong.` : "";
    if (found >= 0) state.position = found;
  } else $("unreachable").textContent = state.refused;
  errorBox.setAttribute("aria-invalid", state.refused !== "");
  slider.value = state.position + 1;
  slider.setAttribute("aria-valuetext", percent(wanted(), 0));
  $("wanted").textContent = percent(wanted(), 0);
  const told = verdict(), one = system(), far = outside(one);
  $("brief").textContent = rounded(at(one.measures.coverage));
  $("brief").append(element("span", { className: "long", textContent: " answered" }), ` · ${rounded(at(one.measures.accuracy))} right`);
  if (far) $("brief").append(element("span", { className: "long", textContent: ` · ${called(ood())} ${rounded(at(far.measures.ood_acceptance))}` }));
  strips();
  table();
  examples();
  draw();
  tables.filter((details) => details.open).forEach(fill);
  cue();
  clearTimeout(announce);
  announce = setTimeout(() => ($("reading").textContent = `At ${percent(wanted(), 0)} coverage: ${told}`), 300);
};
let pending = 0;
const later = () => {
  cancelAnimationFrame(pending);
  pending = requestAnimationFrame(render);
};
const choose = (position) => {
  Object.assign(state, { position, error: null, refused: "" });
  errorBox.value = "";
  later();
};

// Controls.
slider.addEventListener("input", () => choose(Number(slider.value) - 1));
errorBox.addEventListener("input", () => {
  const typed = errorBox.value === "" ? NaN : Number(errorBox.value) / 100, fine = typed >= 0 && typed <= 1;
  state.error = fine ? typed : null;
  state.refused = fine || (errorBox.value === "" && !errorBox.validity.badInput) ? "" : "The share of wrong answers must be a number from 0 to 100 %.";
  later();
});
const restart = () => {
  const one = system(), sure = certified(one)[0];
  if (sure) state.position = positionOfThreshold(one, sure.threshold);
  return Boolean(sure);
};
systemBox?.addEventListener("change", () => (state.shown.add(system().name), chips(), later()));
oodBox?.addEventListener("change", later);
$("every-measure").addEventListener("change", (event) => ((state.every = event.target.checked), later()));
$("every-system")?.addEventListener("click", () => {
  state.shown = new Set(state.shown.size < P.systems.length ? P.systems.map((one) => one.name) : P.shown);
  chips();
  later();
});
const chips = () => {
  const legend = $("chips")?.querySelector("legend");
  $("chips")?.replaceChildren(legend, ...P.systems.map((one) => {
    const box = element("input", { type: "checkbox", className: "hidden", checked: state.shown.has(one.name) });
    box.addEventListener("change", () => (state.shown[box.checked ? "add" : "delete"](one.name), later()));
    return element("label", {}, box, swatch(one), one.name);
  }));
};
const copy = (button, content) => {
  const done = (well) => {
    const before = (button.dataset.text ??= button.textContent);
    button.textContent = well ? "Copied" : "Select and copy it by hand";
    setTimeout(() => (button.textContent = before), 1500);
  };
  const area = element("textarea", { value: content, className: "hidden" });
  document.body.append(area);
  area.select();
  const well = document.execCommand("copy");
  area.remove();
  button.focus();
  done(well);
};
$("copy").addEventListener("click", (event) => copy(event.target, levels(system()).join(", ")));
document.addEventListener("click", (event) => {
  if (event.target.dataset?.csv) download(event.target.dataset.csv);
  if (event.target.className === "copy") copy(event.target, event.target.previousElementSibling.textContent);
});
tables.forEach((details) => details.addEventListener("toggle", () => details.open && (fill(details), cue())));
$("more-curves").addEventListener("toggle", draw);
document.addEventListener("scroll", (event) => event.target.className === "scroll" && cue(), true);
addEventListener("resize", later);
$("theme").addEventListener("click", () => {
  const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.dataset.theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
});
for (const [name, about] of MAIN) place($("curves"), name, about);
for (const about of others()) place($("other-curves"), about.name, about);
if (systemBox) systemBox.value = P.shown[0];
$("look").hidden = !Object.values(P.examples).some((some) => some.length);
chips();
if (!restart()) {
  const found = P.start.error == null ? -1 : positionOfError(system(), P.start.error);
  state.position = found >= 0 ? found : P.coverages.findIndex((each) => each >= P.start.coverage - 1e-9);
  if (found >= 0) Object.assign(state, { error: P.start.error }), (errorBox.value = Number((100 * P.start.error).toPrecision(6)));
}
render();
document.documentElement.dataset.ready = "yes";
