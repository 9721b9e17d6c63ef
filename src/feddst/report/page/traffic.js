// Bytes up and down, by part.

const PARTS = [["values", "values"], ["mask", "masks"], ["header", "headers"], ["other", "values and headers, not taken apart"]];

function drawTraffic(data) {
  const sent = data.entries.map((entry, index) => ({ entry, index })).filter(({ entry }) => entry.traffic.rounds);
  const host = section("traffic");
  if (!sent.length) {
    put(host, note("No round has been played yet."));
    return;
  }
  const state = { each: "run" };
  const drawn = stage((width) => trafficBars(sent, state.each === "round", width));
  const used = PARTS.filter(([key]) => sent.some(({ entry }) => entry.traffic.up[key] || entry.traffic.down[key]));
  put(
    host,
    note("What clients sent up and what the server sent down, measured: the length of every payload, headers included. Means over seeds."),
    el(
      "div",
      { class: "controls" },
      segmented("Bytes of", [{ value: "run", label: "the whole run" }, { value: "round", label: "a round" }], "run", (value) => {
        state.each = value;
        drawn.update();
      }),
      el("p", { class: "keys" }, used.map(([key, words]) => el("span", null, el("i", { class: `key ${key}` }), words))),
    ),
    drawn,
  );
}

function trafficBars(sent, round, width) {
  const narrow = width < 560;
  const left = 52;
  const right = narrow ? 84 : 190;
  const height = 78 * sent.length;
  const per = (entry) => (round ? entry.traffic.rounds : 1);
  const total = (parts) => PARTS.reduce((sum, [key]) => sum + parts[key], 0);
  const most = Math.max(1, ...sent.flatMap(({ entry }) => [entry.traffic.up, entry.traffic.down].map((parts) => total(parts) / per(entry))));
  const scale = linear([0, most], [0, width - left - right]);
  const drawn = picture(width, height, "Bytes up and down by part");
  drawn.classList.add("bars");
  sent.forEach(({ entry, index }, i) => {
    const top = 78 * i;
    drawn.append(sample(0, top + 10, index), text(SAMPLE + 8, top + 14, shortened(entry.label, Math.floor((width - 24) / 7.5)), { class: "strong" }));
    [["up", entry.traffic.up], ["down", entry.traffic.down]].forEach(([way, parts], k) => {
      const y = top + 22 + 22 * k;
      drawn.append(text(left - 10, y + 13, way, { "text-anchor": "end" }));
      let place = left;
      for (const [key, words] of PARTS) {
        const size = parts[key] / per(entry);
        if (!size) continue;
        const title = svg("title", null, `${way}, ${words}: ${bytes(size)} (${share(parts[key], total(parts))})`);
        drawn.append(svg("rect", { x: place.toFixed(2), y, width: scale(size).toFixed(2), height: 17, class: key }, title));
        place += scale(size);
      }
      const masks = parts.mask && !narrow ? `, ${share(parts.mask, total(parts))} masks` : "";
      drawn.append(text(place + 8, y + 13, bytes(total(parts) / per(entry)) + masks));
    });
  });
  return drawn;
}
