// Scores against upload, rounds and compute.

function drawScores(data) {
  const host = section("scores");
  const curved = data.entries.filter((entry) => Object.values(entry.curves).some((curve) => curve.x.length));
  if (!data.axes.length || !curved.length) {
    put(host, note("No round has been evaluated yet, so there is nothing to draw."));
    return;
  }
  const state = { axis: data.axis, log: false, near: mostlyNear(seriesOn(data, data.axis), data.metric), off: new Set() };
  const drawn = stage((width) => scoreChart(data, state, width));
  const change = (key) => (value) => {
    state[key] = value;
    drawn.update();
  };
  put(
    host,
    note(`Mean over all clients of the global model’s ${data.metric.name} on each client’s own test examples; ${data.spread}.`),
    el(
      "div",
      { class: "controls" },
      segmented("Against", data.axes.map((axis) => ({ value: axis.key, label: AXIS_NAMES[axis.key] })), state.axis, change("axis")),
      segmented("Scale", [{ value: "linear", label: "linear" }, { value: "log", label: "log" }], "linear", (value) => change("log")(value === "log")),
      segmented(`${data.metric.title} axis`, [{ value: "all", label: "whole" }, { value: "near", label: "near the best" }], state.near ? "near" : "all", (value) => change("near")(value === "near")),
    ),
    legend(data, state, drawn),
    drawn,
  );
}

const AXIS_NAMES = { measured: "upload", formula: "upload by formula", rounds: "rounds", compute: "compute" };

function legend(data, state, drawn) {
  const buttons = data.entries.map((entry, i) =>
    el(
      "button",
      {
        type: "button",
        "aria-pressed": "true",
        title: "show or hide",
        onclick: (event) => {
          const hidden = !state.off.has(i);
          if (hidden) state.off.add(i);
          else state.off.delete(i);
          event.currentTarget.setAttribute("aria-pressed", String(!hidden));
          drawn.update();
        },
      },
      el("span", { class: "check", "aria-hidden": "true" }),
      swatch(i),
      entry.label,
      entry.unfinished.length ? el("span", { class: "flag" }, unfinishedWords(entry)) : null,
    ),
  );
  return el("div", { class: "legend", role: "group", "aria-label": "Methods shown" }, el("span", { class: "soft" }, "Show"), buttons);
}

function seriesOn(data, axis) {
  return data.entries
    .map((entry, index) => {
      const curve = entry.curves[axis];
      return { index, label: entry.label, x: curve.x, ...entry.bands[curve.band] };
    })
    .filter((each) => each.x.length);
}

function scoreChart(data, state, width) {
  const axis = data.axes.find((each) => each.key === state.axis);
  const series = seriesOn(data, axis.key).filter((each) => onPaper || !state.off.has(each.index));
  return lineChart({
    width,
    height: width < 640 || onPaper ? 320 : 440,
    label: `Mean client ${data.metric.name}${data.metric.percent ? " in per cent" : ""} against ${axis.title}`,
    series,
    metric: data.metric,
    x: { title: axis.title, unit: axis.unit, log: state.log, caps: axis.caps },
    y: { title: `mean client ${data.metric.heading}`, domain: heightDomain(series, state.near, data.metric) },
    named: true,
  });
}

// From a little below the lowest to a little above the highest, or only what is near the best.
function heightDomain(series, near, metric) {
  const values = series.flatMap((each) => [...(each.low || each.mean), ...(each.high || each.mean)]);
  if (!values.length) return metric.percent ? [0, 100] : [0, 1];
  let [low, top] = [Math.min(...values), Math.max(...values)];
  if (near && metric.higher) low = Math.max(low, nearEnd(series, metric));
  if (near && !metric.higher) top = Math.min(top, nearEnd(series, metric));
  const room = Math.max(0.5 * pointOf(series, metric), 0.04 * (top - low));
  return metric.percent ? [Math.max(0, low - room), Math.min(100, top + room)] : [low - room, top + room];
}

// A point: one per cent, or a hundredth of what other scores range over.
function pointOf(series, metric) {
  if (metric.percent) return 1;
  const means = series.flatMap((each) => each.mean);
  const range = Math.max(...means) - Math.min(...means);
  return range / 100 || Math.abs(Math.max(...means)) / 100 || 0.01;
}

// A little beyond the lines that end near the best.
function nearEnd(series, metric) {
  const way = metric.higher ? 1 : -1;
  const point = pointOf(series, metric);
  const ends = series.map((each) => way * each.mean[each.mean.length - 1]);
  const best = Math.max(...ends);
  const worst = Math.min(...ends.filter((end) => end > best - 20 * point));
  return way * (worst - Math.max(2 * point, 2 * (best - worst)));
}

// Whether three quarters of all points are near the best: then the others only press them together.
function mostlyNear(series, metric) {
  const means = series.flatMap((each) => each.mean);
  const end = nearEnd(series, metric);
  return means.filter((mean) => (metric.higher ? mean > end : mean < end)).length >= 0.75 * means.length;
}
