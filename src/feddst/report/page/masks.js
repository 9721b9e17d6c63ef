// Weights that enter and leave, layer by layer, and how far clients' masks are apart.

function drawMasks(data) {
  const host = section("masks");
  const numbered = data.entries.map((entry, index) => ({ entry, index }));
  const alive = numbered.filter(({ entry }) => entry.masks && !isDense(entry.masks) && (entry.masks.layers.length || entry.masks.inputs));
  put(
    host,
    note(
      "Weights that come into a layer’s mask (up) and leave it (down), as a share of its active weights; the grey bar is the share of the layer’s weights that are active, with a mark where it began. Below, how far apart the masks of two clients of a round are: the share of one client’s active weights that the other does not hold.",
    ),
  );
  for (const words of silent(numbered)) put(host, note(words));
  if (alive.length) put(host, panels("Method", alive, lives));
}

function hasMoved(layer) {
  return layer.entered.some(Boolean) || layer.left.some(Boolean);
}

function isDense({ layers }) {
  return layers.length > 0 && layers.every((layer) => layer.active.every((active) => active === layer.size));
}

function silent(numbered) {
  const names = (list) => list.map(({ entry }) => entry.label).join(", ");
  const without = numbered.filter(({ entry }) => !entry.details);
  const dense = numbered.filter(({ entry }) => entry.details && isDense(entry.masks));
  const still = numbered.filter(({ entry }) => entry.details && !isDense(entry.masks) && !entry.masks.layers.some(hasMoved));
  const words = [];
  if (without.length) words.push(`No details were kept by: ${names(without)}. Runs made by this version of feddst keep them.`);
  if (dense.length) words.push(`Dense, with all weights active: ${names(dense)}.`);
  if (still.length) words.push(`The mask never moved in: ${names(still)}.`);
  return words;
}

function lives(entry, index, host) {
  const { layers, seed, together, inputs } = entry.masks;
  const words = [entry.seeds.length > 1 ? `Seed ${seed}.` : "", together > 1 ? `Each bar adds up to ${together} rounds in which the mask moved.` : ""].join(" ").trim();
  const most = Math.max(1e-9, ...layers.flatMap((layer) => layer.active.map((active, i) => Math.max(layer.entered[i], layer.left[i]) / Math.max(1, active))));
  const last = Math.max(1, ...layers.flatMap((layer) => layer.round));
  const drawn = stage((width) => {
    const fit = Math.max(1, Math.floor((width + 24) / 284));
    const columns = Math.ceil(layers.length / Math.ceil(layers.length / fit));
    const each = Math.floor((width - 24 * (columns - 1)) / columns);
    const grid = el("div", { class: "layers" }, layers.map((layer) => layerCard(layer, each, most, last)));
    grid.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
    return grid;
  }, host);
  return [words ? note(words) : null, layers.length ? drawn : null, inputs ? pixelMaps(inputs) : null];
}

function layerCard(layer, width, most, last) {
  const active = layer.active[layer.active.length - 1];
  const drawn = el(
    "figure",
    { class: "layer" },
    el(
      "figcaption",
      null,
      el("strong", null, layer.name),
      el("span", { class: "soft" }, `${share(active, layer.size)} of ${grouped.format(layer.size)} weights`),
    ),
    densityBar(layer, width),
    hasMoved(layer) ? moves(layer, width, most, last) : el("p", { class: "still soft" }, "did not move"),
    layer.apart.some(Boolean) ? apartLine(layer, width, last) : null,
  );
  return drawn;
}

function densityBar(layer, width) {
  const at = (active) => ((width * active) / layer.size).toFixed(1);
  const ends = [layer.active[0], layer.active[layer.active.length - 1]];
  return picture(
    width,
    8,
    `Density of ${layer.name}: ${share(ends[1], layer.size)}`,
    svg("rect", { width, height: 6, y: 1, rx: 3, class: "empty" }),
    svg("rect", { width: at(ends[1]), height: 6, y: 1, rx: 3, class: "full" }),
    ends[0] === ends[1] ? null : line(+at(ends[0]), 0, +at(ends[0]), 8, "base"),
  );
}

function moves(layer, width, most, last) {
  const height = 128;
  const [left, right, top, bottom] = [48, width - 8, 8, height - 24];
  const x = linear([0, last], [left, right]);
  const y = linear([-most, most], [bottom, top]);
  const thick = Math.max(1.5, Math.min(10, (0.7 * (right - left)) / Math.max(8, layer.round.length)));
  const drawn = picture(width, height, `Weights entering and leaving ${layer.name} by round`);
  const tick = roundBelow(most);
  for (const value of [tick, 0, -tick]) {
    drawn.append(line(left, y(value), right, y(value), value ? "grid" : "base"), text(left - 6, y(value) + 4, moved(value), { "text-anchor": "end" }));
  }
  layer.round.forEach((round, i) => {
    const of = Math.max(1, layer.active[i]);
    const place = Math.min(right - thick, Math.max(left, x(round) - thick / 2));
    const bars = svg("g", null, svg("title", null, `round ${round}: ${grouped.format(layer.entered[i])} entered, ${grouped.format(layer.left[i])} left`));
    for (const [value, name] of [[layer.entered[i] / of, "entered"], [-layer.left[i] / of, "left"]]) {
      const [a, b] = [y(0), y(value)];
      bars.append(svg("rect", { x: place.toFixed(1), width: thick.toFixed(1), y: Math.min(a, b).toFixed(1), height: Math.abs(a - b).toFixed(1), class: name }));
    }
    drawn.append(bars);
  });
  drawn.append(...roundTicks(x, last, bottom));
  return drawn;
}

function moved(value) {
  if (!value) return "0";
  return `${value > 0 ? "+" : "−"}${digits(Math.abs(100 * value), 2)} %`;
}

function roundTicks(x, last, y) {
  const ticks = evenTicks(0, last, 4);
  return ticks.map((tick, i) =>
    text(x(tick), y + 17, i === ticks.length - 1 ? `round ${tick}` : digits(tick, 4), { "text-anchor": i === ticks.length - 1 ? "end" : "middle" }),
  );
}

function apartLine(layer, width, last) {
  const height = 84;
  const [left, right, top, bottom] = [48, width - 8, 10, height - 22];
  const x = linear([0, last], [left, right]);
  const known = layer.round.map((round, i) => [round, layer.apart[i]]).filter(([, value]) => value !== null);
  const peak = Math.max(1e-6, ...known.map(([, value]) => value));
  const most = roundAbove(peak);
  const y = linear([0, most], [bottom, top]);
  const drawn = picture(width, height, `How far clients' masks are apart in ${layer.name} by round`);
  for (const value of [0, most]) {
    drawn.append(line(left, y(value), right, y(value), value ? "grid" : "base"), text(left - 6, y(value) + 4, `${digits(100 * value, 2)} %`, { "text-anchor": "end" }));
  }
  const points = known.map(([round, value]) => `${x(round).toFixed(1)},${y(value).toFixed(1)}`);
  drawn.append(svg("path", { d: `M${points.join("L")}`, class: "apart" }));
  for (const point of points) {
    const [cx, cy] = point.split(",");
    if (points.length <= 40) drawn.append(svg("circle", { cx, cy, r: 2.2, class: "apart-dot" }));
  }
  drawn.append(text(left, bottom + 16, "apart", { class: "soft" }));
  return drawn;
}
