// A layer's mask by where its inputs come from: where it looks, round by round.

const LEVELS = 16;
const FILM = 8;

function pixelMaps(inputs) {
  const { maps, layer, side } = inputs;
  const square = side > 1 ? `Each square stands for ${side} × ${side} places of the layer’s input` : "Each square is a place of the layer’s input";
  const values = maps.flatMap((map) => map.rows.flat());
  const range = [Math.min, Math.max].map((choose) => values.reduce((a, b) => choose(a, b)));
  const moved = maps.flatMap((map) => map.rows.flatMap((row, y) => row.map((value, x) => Math.abs(value - maps[0].rows[y][x]))));
  const change = moved.reduce((a, b) => Math.max(a, b), 1);
  const now = el("div", { class: "map" });
  const since = el("div", { class: "map" });
  const said = el("output", null);
  const slider = el("input", { type: "range", min: 0, max: maps.length - 1, step: 1, value: maps.length - 1, "aria-label": "Round of the mask shown" });
  const show = (i) => {
    slider.value = i;
    said.textContent = `round ${maps[i].round}`;
    slider.setAttribute("aria-valuetext", said.textContent);
    now.replaceChildren(pixels(maps[i].rows, range, `Mask of ${layer} by input, round ${maps[i].round}`));
    since.replaceChildren(changes(maps[i].rows, maps[0].rows, change, `Change of the mask of ${layer} since round ${maps[0].round}`));
    film.forEach((button) => button.setAttribute("aria-pressed", String(+button.dataset.map === i)));
  };
  slider.addEventListener("input", () => show(+slider.value));
  const film = picked(maps.length, FILM).map((i) =>
    el(
      "button",
      { type: "button", class: "frame", "data-map": i, title: `round ${maps[i].round}`, onclick: () => show(i) },
      pixels(maps[i].rows, range, `Mask of ${layer} by input, round ${maps[i].round}`),
      el("span", null, String(maps[i].round)),
    ),
  );
  show(maps.length - 1);
  return el(
    "div",
    { class: "inputs" },
    el("h4", null, `Where ${layer} looks`),
    note(`${square}; the stronger its tone, the more of the weights that begin there are active: from ${share(range[0], 1000)} to ${share(range[1], 1000)}.`),
    el(
      "div",
      { class: "maps" },
      el("figure", null, now, el("figcaption", null, "active weights, ", said)),
      maps.length > 1 ? el("figure", null, since, el("figcaption", null, "more ", el("i", { class: "key more" }), " and fewer ", el("i", { class: "key fewer" }), ` since round ${maps[0].round}`)) : null,
      maps.length > 1 ? el("div", { class: "reel" }, el("label", { class: "slider" }, "Round", slider), el("div", { class: "film" }, film)) : null,
    ),
  );
}

function picked(count, limit) {
  if (count <= limit) return [...Array(count).keys()];
  return [...new Set([...Array(limit).keys()].map((i) => Math.round((i * (count - 1)) / (limit - 1))))];
}

// Squares of the same depth are one path.
function squares(rows, level, name, label) {
  const paths = new Map();
  rows.forEach((row, y) =>
    row.forEach((value, x) => {
      const depth = level(value, x, y);
      if (depth) paths.set(depth, `${paths.get(depth) || ""}M${x} ${y}h1v1h-1z`);
    }),
  );
  const drawn = picture(rows[0].length, rows.length, label);
  drawn.classList.add("pixels");
  for (const [depth, d] of paths) drawn.append(svg("path", { d, class: name(depth), "fill-opacity": (Math.abs(depth) / LEVELS).toFixed(3) }));
  return drawn;
}

function pixels(rows, [low, high], label) {
  const level = (value) => Math.round((LEVELS * (1 + 15 * ((value - low) / (high - low || 1)))) / 16);
  return squares(rows, level, () => "square", label);
}

function changes(rows, first, most, label) {
  const level = (value, x, y) => Math.round((LEVELS * (value - first[y][x])) / most);
  return squares(rows, level, (depth) => (depth > 0 ? "more" : "fewer"), label);
}
