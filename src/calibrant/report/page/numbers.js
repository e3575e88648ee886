// What the page was given, what is chosen, and how numbers are written. All numbers are the library's: see payload.py.
const P = JSON.parse(document.getElementById("payload").textContent);
const $ = (id) => document.getElementById(id);
const byName = new Map(P.systems.map((one) => [one.name, one]));
const measures = new Map(P.measures.map((one) => [one.name, one]));
const slider = $("coverage"), errorBox = $("error"), systemBox = $("system"), oodBox = $("ood");
const state = { position: P.coverages.length - 1, error: null, refused: "", shown: new Set(P.shown), every: false, sort: null };
const edges = Array.from({ length: P.bins + 1 }, (_, m) => m / P.bins);
// Text is set as text, never as HTML: names come from users.
const element = (tag, properties = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
};
const strong = (text) => element("strong", { textContent: text });

// How numbers are written.
const percent = (value, digits = 1) => (value == null ? "–" : (100 * value).toFixed(digits) + " %");
const rounded = (value) => {
  if (value == null) return "–";
  const shown = 100 * value;
  if (shown > 0 && shown < 0.05) return "less than 0.1 %";
  if (shown < 100 && shown >= 99.95) return "more than 99.9 %";
  return (Number.isInteger(shown) || (shown >= 10 && shown <= 90) ? shown.toFixed(0) : shown.toFixed(1)) + " %";
};
// A confidence below 1 is never shown as 100 %.
const sure = (value) => {
  const digits = value < 1 ? [1, 2, 3, 4].find((each) => Number((100 * value).toFixed(each)) < 100) : 0;
  return digits == null ? "more than 99.9999 %" : percent(value, digits);
};
const threshold = (value) => {
  const digits = value > 0 && value < 1 ? Math.min(12, Math.max(2, 1 + Math.ceil(-Math.log10(Math.min(value, 1 - value))))) : 3;
  return value.toFixed(digits);
};
// Six digits of a value or, near 1, of what it lacks.
const precise = (value) => Number(value > 0.9 && value < 1 ? value.toFixed(Math.min(17, 5 + Math.ceil(-Math.log10(1 - value)))) : value.toPrecision(6));
const whole = (value) => Math.round(value).toLocaleString("en");
const plain = (measure, value) => (value == null ? "–" : measure?.unit === "number" ? Number(value.toPrecision(4)).toString() : (100 * Math.min(Math.max(value, 0), 1)).toFixed(1));
const text = (measure, value) => (measure.unit === "number" || value == null ? plain(measure, value) : percent(value));
const own = (map, key) => (Object.hasOwn(map, key) ? map[key] : undefined); // "constructor" can be the name of a class
const called = (set) => own(P.names, set) ?? set;
const listed = (parts) => (parts.length < 2 ? parts.join("") : `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}`);

// What is chosen, and what the system does there.
const system = () => byName.get(systemBox ? systemBox.value : P.systems[0].name);
const ood = () => (oodBox ? oodBox.value : P.ood[0] ?? null);
const outside = (one, set = ood()) => (set ? own(one.ood, set) : undefined);
const at = (values) => (values ? values[state.position] : null);
const wanted = () => P.coverages[state.position];
const visible = () => [system(), ...P.systems.filter((one) => state.shown.has(one.name) && one !== system())];
const rows = new Map(P.table.map((row) => [JSON.stringify([row.system, row.wanted_coverage, row.ood]), row]));
const summary = (one, coverage) => rows.get(JSON.stringify([one.name, coverage, ood()]));
const curve = (one, name) => (measures.get(name).ood ? outside(one)?.measures[name] : one.measures[name]);
const value = (one, name) => (measures.get(name).at_coverage ? at(curve(one, name)) ?? null : P.table.find((row) => row.system === one.name && row.ood === ood())?.[name] ?? null);
const wrong = (one) => one.measures.accuracy.map((accuracy) => (accuracy == null ? null : 1 - accuracy));
const positionOfError = (one, most) => wrong(one).findLastIndex((each) => each != null && each <= most + 1e-9);
// The interval of the share that is right: the table's where it has one, which is a bootstrap, else that of the payload.
const rightLimits = (one) => {
  const row = summary(one, wanted());
  return row?.accuracy_low != null ? [row.accuracy_low, row.accuracy_high] : at(one.right);
};
const certified = (one) => (own(P.certificates, one.name) || []).filter((each) => each.certified);
const positionOfThreshold = (one, level) => {
  if (level == null) return P.coverages.length - 1;
  const distance = one.thresholds.map((each) => (each[0] == null ? Infinity : Math.abs(each[0] - level)));
  return distance.indexOf(Math.min(...distance));
};

// Bins of confidence: with intervals (Wilson) for as many inputs as there are, however many seeds saw them.
const Z = 1.959963984540054;
const FEW = 10; // bins of fewer inputs are joined by a pale line
const wilson = (share, n) => {
  const middle = (share + (Z * Z) / (2 * n)) / (1 + (Z * Z) / n);
  const half = (Z / (1 + (Z * Z) / n)) * Math.sqrt((share * (1 - share)) / n + (Z * Z) / (4 * n * n));
  return { low: Math.max(0, middle - half), high: Math.min(1, middle + half) };
};
const range = (m) => `${(100 * edges[m]).toFixed(0)} to ${(100 * edges[m + 1]).toFixed(0)} %`;
const binRows = (one, position = state.position) =>
  one.count[position].flatMap((count, m) => {
    if (!count) return [];
    const accuracy = one.correct[position][m] / count, confidence = one.confidence[position][m] / count;
    return [{ range: range(m), count, accuracy, ...wilson(accuracy, count / one.seeds.length), confidence }];
  });
const shares = (counts, inputs, seeds) => {
  const last = P.coverages.length - 1, accepted = counts[state.position];
  return counts[last].map((all, m) => ({ accepted: accepted[m] / (inputs * seeds), rejected: (all - accepted[m]) / (inputs * seeds) }));
};
const shareRows = (one) => {
  const far = outside(one), size = one.seeds.length;
  const sets = [[called("id"), shares(one.count, one.id_inputs, size)]];
  if (far) sets.push([called(ood()), shares(far.count, far.inputs, size)]);
  return sets.flatMap(([set, bins]) => bins.map((bin, m) => ({ set, range: range(m), ...bin })));
};
