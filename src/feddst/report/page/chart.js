// Lines over an axis, with bands, caps and a cursor that reads all of them.

const DASHES = ["", "7 4", "2 3", "8 3 2 3"];
const COLOURS = 9;
const LETTERS = 26;
const FAR = 40; // pixels before the end of the axis: a line that ends earlier is led to its name
const SAMPLE = 16; // pixels of a line in front of its name

function colour(i) {
  return `var(--c${i % COLOURS})`;
}

function dash(i) {
  return DASHES[Math.floor(i / COLOURS) % DASHES.length] || null;
}

function swatch(i) {
  return svg(
    "svg",
    { width: 22, height: 10, viewBox: "0 0 22 10", class: "swatch", "aria-hidden": "true" },
    svg("line", { x1: 1, y1: 5, x2: 21, y2: 5, stroke: colour(i), "stroke-width": 3, "stroke-dasharray": dash(i) }),
  );
}

// A piece of an entry's line, to stand before its name in a picture: some of the colours are too light for words.
function sample(x, y, i) {
  return svg("line", { x1: x.toFixed(1), y1: y.toFixed(1), x2: (x + SAMPLE).toFixed(1), y2: y.toFixed(1), stroke: colour(i), "stroke-width": 3, "stroke-dasharray": dash(i) });
}

// spec: {width, height, label, series: [{index, label, x, mean, low?, high?}], metric, x: {title, unit, log, caps}, y: {title, domain}, named}
function lineChart(spec) {
  const plot = laidOut(spec);
  const drawn = picture(spec.width, spec.height, spec.label, gridOf(plot), capsOf(plot));
  drawn.classList.add("chart");
  const inner = svg("g", { "clip-path": `url(#${plot.clip})` });
  drawn.append(
    svg("clipPath", { id: plot.clip }, svg("rect", { x: plot.left, y: plot.top - 2, width: plot.right - plot.left + 4, height: plot.bottom - plot.top + 4 })),
    inner,
  );
  for (const each of spec.series) if (each.low) inner.append(bandOf(each, plot));
  for (const each of spec.series) inner.append(lineOf(each, plot));
  if (plot.named) drawn.append(namesOf(plot));
  return withCursor(drawn, plot);
}

let clips = 0;

function laidOut(spec) {
  const named = spec.named && spec.width > 640 && spec.series.length <= 14;
  const longest = Math.max(30, ...spec.series.map((each) => widthOf(shortened(each.label, LETTERS))));
  const plot = { ...spec, named, left: 46, top: spec.x.caps?.length ? 40 : 24, bottom: spec.height - 44, clip: `clip${(clips += 1)}` };
  plot.right = spec.width - (named ? 18 + SAMPLE + longest : 14);
  const xs = spec.series.flatMap((each) => each.x);
  const positive = xs.filter((value) => value > 0);
  const most = Math.max(1e-9, ...xs);
  const reach = Math.max(most, ...(spec.x.caps || []).map((cap) => cap.x).filter((x) => x <= most * 1.25));
  plot.caps = (spec.x.caps || []).filter((cap) => cap.x <= reach);
  plot.xScale =
    spec.x.log && positive.length && Math.min(...positive) < reach
      ? logarithmic([Math.min(...positive), reach], [plot.left, plot.right])
      : linear([0, reach], [plot.left, plot.right]);
  plot.low = spec.x.log && positive.length ? Math.min(...positive) : 0;
  plot.high = reach;
  plot.yScale = linear(spec.y.domain, [plot.bottom, plot.top]);
  return plot;
}

function gridOf(plot) {
  const grid = svg("g", { class: "axis" });
  for (const tick of plot.yScale.ticks((plot.bottom - plot.top) / 48)) {
    const y = plot.yScale(tick);
    grid.append(line(plot.left, y, plot.right, y, "grid"), text(plot.left - 8, y + 4, digits(tick, 4), { "text-anchor": "end" }));
  }
  let free = -Infinity;
  for (const tick of plot.xScale.ticks((plot.right - plot.left) / 90)) {
    const x = plot.xScale(tick);
    const words = digits(tick, 3);
    if (x - words.length * 3.6 < free) continue;
    free = x + words.length * 3.6 + 8;
    grid.append(line(x, plot.bottom, x, plot.bottom + 5, "tick"), text(x, plot.bottom + 19, words, { "text-anchor": "middle" }));
  }
  grid.append(text(0, 11, plot.y.title, { class: "title" }));
  const unit = plot.x.unit ? ` [${plot.x.unit}]` : "";
  grid.append(
    line(plot.left, plot.bottom, plot.right, plot.bottom, "base"),
    text((plot.left + plot.right) / 2, plot.height - 6, plot.x.title + unit, { "text-anchor": "middle", class: "title" }),
  );
  return grid;
}

function capsOf(plot) {
  const caps = svg("g", { class: "caps" });
  let free = -Infinity;
  for (const cap of plot.caps) {
    if (cap.x < plot.low) continue;
    const x = plot.xScale(cap.x);
    caps.append(line(x, plot.top, x, plot.bottom, "cap"));
    const half = cap.label.length * 3.2;
    const middle = Math.min(x, plot.width - half);
    if (middle - half < free) continue;
    free = middle + half + 6;
    caps.append(text(middle, plot.top - 8, cap.label, { "text-anchor": "middle" }));
  }
  return caps;
}

function placed(plot, x, y) {
  return `${plot.xScale(Math.max(x, plot.low)).toFixed(1)},${plot.yScale(y).toFixed(1)}`;
}

function bandOf(each, plot) {
  const up = each.x.map((x, i) => placed(plot, x, each.high[i]));
  const back = each.x.map((x, i) => placed(plot, x, each.low[i])).reverse();
  return svg("path", { class: "band", d: `M${[...up, ...back].join("L")}Z`, fill: colour(each.index) });
}

function lineOf(each, plot) {
  const group = svg("g", { class: "series", "data-label": each.label });
  const points = each.x.map((x, i) => placed(plot, x, each.mean[i]));
  if (!points.length) return group;
  group.append(svg("path", { class: "line", d: `M${points.join("L")}`, stroke: colour(each.index), "stroke-dasharray": dash(each.index) }));
  if (points.length <= 30) {
    for (const point of points) {
      const [cx, cy] = point.split(",");
      group.append(svg("circle", { cx, cy, r: 2.6, fill: colour(each.index) }));
    }
  }
  return group;
}

function namesOf(plot) {
  const ends = plot.series.filter((each) => each.mean.length);
  const wanted = ends.map((each) => Math.min(plot.bottom, Math.max(plot.top, plot.yScale(each.mean[each.mean.length - 1]))));
  const heights = spreadOut(wanted, 17, plot.top, plot.bottom);
  const names = svg("g", { class: "names" });
  ends.forEach((each, i) => {
    const end = [plot.xScale(Math.max(each.x[each.x.length - 1], plot.low)), plot.yScale(each.mean[each.mean.length - 1])];
    if (end[0] < plot.right - FAR && end[1] <= plot.bottom) names.append(leader(end, [plot.right + 8, heights[i]], each.index));
    names.append(sample(plot.right + 10, heights[i], each.index), text(plot.right + SAMPLE + 16, heights[i] + 4, shortened(each.label, LETTERS)));
  });
  return names;
}

function leader(from, to, i) {
  const drawn = line(from[0] + 5, from[1], to[0], to[1], "leader");
  drawn.setAttribute("stroke", colour(i));
  return drawn;
}

// The picture with a cursor: the pointer or the arrow keys move it, and a box beside it says what each line has there.
function withCursor(drawn, plot) {
  const box = el("div", { class: "tip", role: "status", hidden: true });
  const mark = svg("g", { class: "cursor" });
  const area = svg("rect", { x: plot.left, y: plot.top, width: Math.max(0, plot.right - plot.left), height: plot.bottom - plot.top, class: "area" });
  drawn.append(mark, area);
  const host = el("div", { class: "plot", tabindex: 0, "aria-label": `${plot.label}. Left and right arrow keys read values.`, role: "group" }, drawn, box);
  let place = null;
  const hide = () => {
    place = null;
    box.hidden = true;
    mark.replaceChildren();
  };
  const show = (x) => {
    place = Math.min(plot.right, Math.max(plot.left, x));
    readOut(plot, place, mark, box);
    const zoom = drawn.clientWidth ? drawn.clientWidth / plot.width : 1;
    const left = place * zoom;
    box.style.left = left + box.offsetWidth + 24 > host.clientWidth ? `${Math.max(0, left - box.offsetWidth - 14)}px` : `${left + 14}px`;
  };
  area.addEventListener("pointermove", (event) => {
    const frame = drawn.getBoundingClientRect();
    show(((event.clientX - frame.left) * plot.width) / frame.width);
  });
  area.addEventListener("pointerleave", hide);
  host.addEventListener("blur", hide);
  host.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1 };
    if (event.key === "Escape") hide();
    if (!(event.key in steps)) return;
    event.preventDefault();
    const step = (plot.right - plot.left) / 50;
    show(place === null ? (plot.left + plot.right) / 2 : place + steps[event.key] * step);
  });
  return host;
}

// What lines are ordered by: the best comes first, one that has no value last.
function merit(mean, metric) {
  if (mean === null) return -Number.MAX_VALUE;
  return metric.higher ? mean : -mean;
}

function readOut(plot, place, mark, box) {
  const x = plot.xScale.back(place);
  const read = plot.series
    .map((each) => ({ each, mean: valueAt(each.x, each.mean, x) }))
    .sort((a, b) => merit(b.mean, plot.metric) - merit(a.mean, plot.metric));
  mark.replaceChildren(line(place, plot.top, place, plot.bottom, "hair"));
  const rows = read.map(({ each, mean }) => {
    if (mean !== null && plot.yScale(mean) <= plot.bottom + 1) {
      mark.append(svg("circle", { cx: place.toFixed(1), cy: plot.yScale(mean).toFixed(1), r: 4, fill: colour(each.index), class: "dot" }));
    }
    const spread = mean !== null && each.low ? `${bare(valueAt(each.x, each.low, x), plot.metric)}–${bare(valueAt(each.x, each.high, x), plot.metric)}` : "";
    return el(
      "tr",
      null,
      el("th", { scope: "row" }, swatch(each.index), shortened(each.label, 34)),
      el("td", null, mean === null ? "–" : scored(mean, plot.metric)),
      el("td", { class: "soft" }, spread),
    );
  });
  const where = plot.x.unit ? `${digits(x, 3)} ${plot.x.unit}` : `round ${Math.round(x)}`;
  box.replaceChildren(el("p", null, where), el("table", null, el("tbody", null, rows)));
  box.hidden = false;
}
