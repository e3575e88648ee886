// The verdict.
const answered = (one) =>
  P.ood.map((set) => {
    const share = at(outside(one, set)?.measures.ood_acceptance);
    return { name: called(set), share: share === 0 ? "none" : share === 1 ? "all" : rounded(share) };
  });
const ofOutliers = (one) => {
  const [first, ...more] = answered(one), tied = ({ share }) => element("span", { className: "tied", textContent: share });
  return first ? [` Of ${first.name}, `, tied(first), " would be answered", ...more.flatMap((each) => [`, of ${each.name} `, tied(each)]), "."] : [];
};
// Outliers that pass, as often as inputs do or often: the sentence before would read as if the threshold were good for them too.
const passing = (one) => {
  const kept = at(one.measures.coverage), share = (set) => at(outside(one, set)?.measures.ood_acceptance) ?? 0;
  const bold = (sets, told) => (sets.length ? [" ", element("b", { textContent: told(listed(sets.map(called))) })] : []);
  return [
    ...bold(P.ood.filter((set) => share(set) >= kept), (names) => `This threshold does not keep ${names} out.`),
    ...bold(P.ood.filter((set) => share(set) < kept && share(set) >= 0.25), (names) => `It keeps ${names} out only in part; a smaller coverage answers fewer.`),
  ];
};
const ARTICLES = { confidence: "a ", trust: "", "selector output": "a " };
const MEANINGS = { trust: "Trust is the probability that an answer is right when some inputs are outliers, for which no answer is right." };
const NOTE = $("threshold-note").textContent;
const levels = (one) => at(one.thresholds);
const verdict = () => {
  const one = system(), accuracy = at(one.measures.accuracy), cuts = levels(one), first = cuts[0];
  const kept = rounded(at(one.measures.coverage)), what = called("id");
  const parts = [], ends = rightLimits(one), interval = ends ? `(95 % interval: ${plain(null, ends[0])} to ${plain(null, ends[1])})` : "";
  const limits = ends ? [" ", element("span", { className: "tied limits", textContent: interval })] : [];
  if (accuracy == null) parts.push(strong("No answer reaches this threshold."), " Choose a larger coverage.");
  else if (first == null) parts.push(strong(`Answer all ${what}`), ": ", strong(rounded(accuracy)), " right", ...limits, ".", ...ofOutliers(one));
  else {
    // Every seed has a threshold of its own, so that several are not one rule: they stand below.
    const rule = cuts.length > 1 ? [`${one.name} answers `] : [`Accept answers with ${ARTICLES[one.quantity]}${one.quantity} of at least `, strong(threshold(first)), ": "];
    parts.push(...rule, strong(kept), ` of ${what}, `, strong(rounded(accuracy)), " of them right", ...limits, "; hand the rest to a person.", ...ofOutliers(one), ...passing(one));
  }
  $("verdict").replaceChildren(...parts);
  const beside = visible().slice(1, 2).map((other) => {
    const far = listed(answered(other).map(({ name, share }) => `${share} of ${name}`));
    const kept = `${rounded(at(other.measures.coverage))} of ${what}, ${rounded(at(other.measures.accuracy))} right`;
    return `${other.name}, asked for the same coverage, answers ${kept}${far ? `, and ${far}` : ""}.`;
  });
  if ($("beside")) $("beside").textContent = beside.join(" ");
  $("threshold-row").hidden = first == null;
  const named = cuts.map((each, i) => (each == null ? "–" : precise(each)) + (cuts.length > 1 ? ` (seed ${one.seeds[i]})` : ""));
  $("threshold").textContent = `${one.quantity} ≥ ${named.join(", ")}`;
  $("threshold-note").hidden = first == null || !(NOTE || MEANINGS[one.quantity]);
  $("threshold-note").textContent = [MEANINGS[one.quantity], NOTE].filter(Boolean).join(" ");
  const promises = own(P.certificates, one.name) || [];
  $("certificate").hidden = !promises.length;
  $("certificate").replaceChildren(...promises.map((each) => {
    const seed = promises.length > 1 ? ` (seed ${each.seed})` : "";
    const where = each.threshold == null ? ", answering everything" : `: ${one.quantity} ≥ ${precise(each.threshold)}`;
    const head = each.certified ? `Certificate${seed}${where}. ` : `No certificate${seed}. `;
    const taken = each.threshold == null ? [] : [" ", element("code", { textContent: each.threshold }), " ", element("button", { type: "button", className: "copy", textContent: "Copy" })];
    const apart = promises.length === 1 && each.threshold != null && first != null && each.threshold !== first && positionOfThreshold(one, each.threshold) === state.position;
    const near = apart ? ` The numbers on this page are those at ${precise(first)}, the slider's nearest position.` : "";
    return element("p", {}, strong(head), each.sentence, ...taken, near);
  }));
  return $("verdict").textContent;
};
const strip = (name, right, bad) => {
  const part = (kind, share) => {
    const node = element("i", { className: kind });
    node.style.width = `${100 * Math.max(0, share)}%`;
    return node;
  };
  const answeredShare = right + bad, told = `${name}: ${percent(right)} answered right, ${percent(bad)} answered wrong, ${percent(1 - answeredShare)} handed to a person`;
  const track = element("span", { className: "track" }, part("right", right), part("wrong", bad), part("hand", 1 - answeredShare));
  track.setAttribute("role", "img");
  track.setAttribute("aria-label", told);
  return element("div", { className: "strip" }, element("span", { className: "strip-name", textContent: name }), track, element("span", { className: "strip-value", textContent: rounded(answeredShare).replace("less than ", "<").replace("more than ", ">") }));
};
const strips = () => {
  const some = visible().slice(0, 2);
  $("strips").replaceChildren(...some.map((one) => {
    const kept = at(one.measures.coverage) ?? 0, accuracy = at(one.measures.accuracy) ?? 0;
    const block = element("div", { className: "strip-block" });
    if (P.systems.length > 1) block.append(element("p", { className: "strip-title", textContent: one.name }));
    block.append(strip(called("id"), kept * accuracy, kept * (1 - accuracy)));
    for (const set of P.ood) block.append(strip(called(set), 0, at(outside(one, set)?.measures.ood_acceptance) ?? 0));
    return block;
  }));
};
