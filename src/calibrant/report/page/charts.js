// The page's charts: plain SVG, drawn at the width of their place; colors come from the style sheet.
const Charts = (() => {
  const node = (tag, attributes = {}, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };
  const label = (text, x, y, attributes = {}) => node("text", { x, y, ...attributes }, text);
  const hue = (color) => `var(--c-${color.slice(1).toLowerCase()}, ${color})`;

  // Steps of 1, 2 or 5 times a power of ten, four or five of them.
  const ticks = (low, high) => {
    const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((times) => times * power).find((one) => one >= rough * 0.999);
    const first = Math.floor(low / step + 1e-9), last = Math.ceil(high / step - 1e-9);
    return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
  };

  // Axes. `x` and `y` are lists of ticks, whose ends are the ends of the axis; the returned X and Y are scales.
  const frame = (place, { height, x, y, xText, yText, xTitle, right = 26, bottom = 44, left = 48, top = 12 }) => {
    const width = Math.max(260, Math.round(place.clientWidth || 560));
    const scale = (ends, from, to) => (value) => from + ((value - ends[0]) / (ends.at(-1) - ends[0])) * (to - from);
    const X = scale(x, left, width - right), Y = scale(y, height - bottom, top);
    const root = node("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
    for (const value of y) {
      root.append(node("line", { class: "grid", x1: left, x2: width - right, y1: Y(value), y2: Y(value) }));
      root.append(label(yText(value), left - 8, Y(value) + 4, { class: "tick", "text-anchor": "end" }));
    }
    for (const value of x) root.append(label(xText(value), X(value), height - bottom + 18, { class: "tick", "text-anchor": "middle" }));
    root.append(label(xTitle, (left + width - right) / 2, height - 6, { class: "tick", "text-anchor": "middle" }));
    place.querySelector("svg")?.remove();
    place.prepend(root);
    return { root, X, Y, width, height, left, right: width - right, top, bottom: height - bottom };
  };

  // A rule that follows the pointer or the arrow keys through `xs` and tells all values there.
  const hover = (place, axes, xs, tell, pick) => {
    const old = place.querySelector(".tip");
    const tip = old || Object.assign(document.createElement("div"), { className: "tip", hidden: true });
    tip.setAttribute("role", "status");
    if (!old) place.append(tip);
    const rule = node("line", { class: "hover", y1: axes.top, y2: axes.bottom, visibility: "hidden" });
    axes.root.append(rule);
    const show = (i) => {
      place.rule = i;
      const x = axes.X(xs[i]), zoom = place.clientWidth / axes.width || 1;
      for (const end of ["x1", "x2"]) rule.setAttribute(end, x);
      rule.setAttribute("visibility", "visible");
      tip.replaceChildren(...tell(i));
      tip.hidden = false;
      tip.style.left = `${Math.max(0, Math.min(x * zoom + 12, place.clientWidth - tip.offsetWidth))}px`;
      if (x * zoom + 12 + tip.offsetWidth > place.clientWidth) tip.style.left = `${Math.max(0, x * zoom - 12 - tip.offsetWidth)}px`;
    };
    const hide = () => {
      place.rule = null;
      rule.setAttribute("visibility", "hidden");
      tip.hidden = true;
    };
    const nearest = (event) => {
      const box = axes.root.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * axes.width;
      return xs.reduce((best, value, i) => (Math.abs(axes.X(value) - at) < Math.abs(axes.X(xs[best]) - at) ? i : best), 0);
    };
    place.tabIndex = 0;
    place.onpointermove = (event) => show(nearest(event));
    place.onpointerleave = place.onblur = hide;
    place.onclick = (event) => pick?.(nearest(event));
    place.onkeydown = (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key], at = place.rule ?? place.start ?? 0;
      if (step) show(Math.max(0, Math.min(xs.length - 1, at + step)));
      else if (event.key === "Enter" && place.rule != null) pick?.(place.rule);
      else if (event.key === "Escape") hide();
      else return;
      event.preventDefault();
    };
    if (place.rule != null && place.rule < xs.length) show(place.rule);
  };

  // Labels at the ends of lines, pushed apart so that none covers another.
  const spread = (items, low, high, least = 15) => {
    items.sort((a, b) => a.y - b.y);
    items.forEach((item, i) => (item.y = Math.max(item.y, i ? items[i - 1].y + least : low)));
    for (let i = items.length - 1; i >= 0; i--) items[i].y = Math.min(items[i].y, i < items.length - 1 ? items[i + 1].y - least : high);
    return items;
  };

  // Where the label of a point is furthest from its curve of points [x, y]: left or right of it, above or below.
  const clearest = (curve, at, level, width, axes) => {
    const corners = [-1, 1].flatMap((side) => [level - 9, level + 19].map((y) => ({ side, y, x: at + 9 * side })));
    const inside = corners.filter(({ x, y, side }) => y > axes.top + 8 && y < axes.bottom - 2 && x + side * width > axes.left && x + side * width < axes.right);
    const room = ({ x, y, side }) => Math.min(999, ...curve.filter(([each]) => side * (each - at) >= 0 && side * (each - x) <= width).map(([, each]) => Math.abs(each - (y - 4)) || 999));
    return (inside.length ? inside : corners).reduce((best, one) => (room(one) > room(best) ? one : best));
  };

  // Lines against coverage. series: { name, color, dash, width, values }, the most important first.
  const lines = (place, { series, xs, position, xTitle, xText, yText, tell, pick, zero }) => {
    const values = series.flatMap((one) => one.values.filter((value, i) => value != null && xs[i] >= 0.05));
    const most = Math.max(...values, zero ? 0.001 : -Infinity), least = zero ? 0 : Math.min(...values);
    const y = values.length ? ticks(least, most > least ? most : least + 1) : [0, 1];
    const direct = place.clientWidth >= 440 && series.length <= 6;
    const right = direct && series.length > 1 ? Math.min(190, 30 + 7.4 * Math.max(...series.map((one) => one.name.length))) : 26;
    const step = y[1] - y[0], yTick = (value) => yText(value, step);
    const axes = frame(place, { height: 280, x: [0, 0.25, 0.5, 0.75, 1], y, xText, yText: yTick, xTitle, right });
    const at = axes.X(xs[position]), ends = [];
    axes.root.append(node("line", { class: "cursor", x1: at, x2: at, y1: axes.top, y2: axes.bottom }));
    for (const one of [...series].reverse()) {
      let path = "", last = null;
      one.values.forEach((value, i) => {
        if (value == null || xs[i] < 0.05) return;
        path += `${path && one.values[i - 1] != null ? "L" : "M"}${axes.X(xs[i]).toFixed(1)} ${axes.Y(value).toFixed(1)}`;
        last = value;
      });
      const style = `stroke:${hue(one.color)};stroke-width:${one.width}`;
      axes.root.append(node("path", { class: "line", d: path, style, "stroke-dasharray": one.dash.join(" ") }));
      const here = one.values[position];
      if (here != null) axes.root.append(node("circle", { class: "dot", cx: at, cy: axes.Y(here), r: 4, style: `fill:${hue(one.color)}` }));
      if (last != null) ends.push({ y: axes.Y(last) + 4, name: one.name, color: one.color });
    }
    if (direct && series.length > 1)
      for (const end of spread(ends, axes.top + 4, axes.bottom)) {
        axes.root.append(node("circle", { cx: axes.right + 8, cy: end.y - 4, r: 3.5, style: `fill:${hue(end.color)}` }));
        axes.root.append(label(end.name, axes.right + 16, end.y, { class: "name" }));
      }
    const only = series.length === 1 ? series[0].values[position] : null;
    if (only != null) {
      const shown = yText(only, Math.min(step / 10, 0.001)), curve = series[0].values.map((value, i) => [axes.X(xs[i]), value == null ? NaN : axes.Y(value)]);
      const { x, y, side } = clearest(curve, at, axes.Y(only), 8 * shown.length, axes);
      axes.root.append(label(shown, x, y, { class: "name", "text-anchor": side < 0 ? "end" : "start" }));
    }
    place.start = position;
    hover(place, axes, xs, tell, pick);
    return direct;
  };

  // The reliability diagram, as nearly square as it fits: line and band of all inputs, pale at bins of fewer than `few`,
  // filled dots of those accepted. all, accepted: { confidence, accuracy, low, high, count }
  const reliability = (place, { all, accepted, few, xText, tell }) => {
    const quarters = [0, 0.25, 0.5, 0.75, 1];
    const side = Math.min(600, Math.max(260, place.clientWidth));
    const axes = frame(place, { height: side - 18, x: quarters, y: quarters, xText, yText: xText, xTitle: "Confidence" });
    const [X, Y] = [axes.X, axes.Y];
    axes.root.append(node("line", { class: "diagonal", x1: X(0), y1: Y(0), x2: X(1), y2: Y(1) }));
    const edge = (one, key) => `${X(one.confidence).toFixed(1)} ${Y(one[key]).toFixed(1)}`;
    const band = [...all.map((one) => edge(one, "high")), ...[...all].reverse().map((one) => edge(one, "low"))];
    const alone = all.length === 1 && { x: X(all[0].confidence) - 9, width: 18, y: Y(all[0].high), height: Y(all[0].low) - Y(all[0].high) };
    axes.root.append(alone ? node("rect", { class: "band", ...alone }) : node("path", { class: "band", d: `M${band.join("L")}Z` }));
    const pieces = all.slice(1).map((one, i) => ({ d: `M${edge(all[i], "accuracy")}L${edge(one, "accuracy")}`, sparse: Math.min(one.count, all[i].count) < few }));
    for (const sparse of [true, false]) {
      const d = pieces.filter((piece) => piece.sparse === sparse).map((piece) => piece.d).join("");
      if (d) axes.root.append(node("path", { class: sparse ? "line main sparse" : "line main", d }));
    }
    const most = Math.max(1, ...all.map((one) => one.count)), size = (one) => 3 + 5 * Math.sqrt(one.count / most);
    const dot = (one, kind) => axes.root.append(node("circle", { class: kind, cx: X(one.confidence), cy: Y(one.accuracy), r: size(one) }));
    all.forEach((one) => dot(one, "hollow"));
    accepted.forEach((one) => dot(one, "dot main"));
    const corner = [axes.left + 10, axes.top + 14], far = [axes.right - 8, axes.bottom - 10];
    axes.root.append(label("underconfident", ...corner, { class: "tick" }), label("overconfident", ...far, { class: "tick", "text-anchor": "end" }));
    hover(place, axes, all.map((one) => one.confidence), tell);
    return axes.height;
  };

  // Accepted and rejected per bin, upwards of ID inputs and downwards of outliers. bars: { accepted, rejected } shares.
  // cut: the threshold, { value, name }, where it is one on the confidence.
  const histogram = (place, { up, down, top, cut, height, xText, upName, downName, tell }) => {
    const bins = up.length, y = ticks(down ? -top : 0, top);
    const width = 1 / bins;
    const yText = (value) => xText(Math.abs(value));
    const axes = frame(place, { height, x: [0, 0.25, 0.5, 0.75, 1], y, xText, yText, xTitle: "Confidence" });
    const bar = (m, from, to, kind) => {
      const [a, b] = [axes.Y(from), axes.Y(to)].sort((p, q) => p - q), x = axes.X(m * width) + 1;
      if (b - a > 0.01) axes.root.append(node("rect", { class: kind, x, y: a, width: Math.max(1, axes.X(width) - axes.X(0) - 2), height: b - a }));
    };
    up.forEach((one, m) => (bar(m, 0, one.accepted, "accepted"), bar(m, one.accepted, one.accepted + one.rejected, "rejected")));
    down?.forEach((one, m) => (bar(m, 0, -one.accepted, "outlier"), bar(m, -one.accepted, -one.accepted - one.rejected, "rejected")));
    if (down) axes.root.append(node("line", { class: "zero", x1: axes.left, x2: axes.right, y1: axes.Y(0), y2: axes.Y(0) }));
    if (cut) {
      const x = axes.X(cut.value), start = x - 8 - 7.5 * cut.name.length, before = start > axes.left;
      const y = axes.top + (down && before && start < axes.left + 20 + 7.5 * upName.length ? 32 : 14);
      axes.root.append(node("line", { class: "cursor", x1: x, x2: x, y1: axes.top, y2: axes.bottom }));
      axes.root.append(label(cut.name, x + (before ? -6 : 6), y, { class: "name", "text-anchor": before ? "end" : "start" }));
    }
    if (down) axes.root.append(label(upName, axes.left + 10, axes.top + 14, { class: "name" }));
    if (down) axes.root.append(label(downName, axes.left + 10, axes.bottom - 10, { class: "name" }));
    hover(place, axes, up.map((_, m) => (m + 0.5) * width), tell);
  };

  return { lines, reliability, histogram, hue };
})();
