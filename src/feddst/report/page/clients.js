// How scores spread over clients.

function drawClients(data) {
  const host = section("clients");
  const { metric } = data;
  const numbered = data.entries.map((entry, index) => ({ entry, index }));
  const counted = numbered.filter(({ entry }) => entry.clients.length);
  const worst = numbered.filter(({ entry }) => entry.worst.x.length);
  put(host, note(`The mean hides those who are served badly. Each client is judged on its own test examples; the worst tenth is the mean over the tenth of the clients with the ${metric.higher ? "lowest" : "highest"} ${metric.name}.`));
  const without = numbered.filter(({ entry }) => !entry.clients.length);
  if (without.length) put(host, note(`No details were kept by: ${without.map(({ entry }) => entry.label).join(", ")}.`));
  if (counted.length) put(host, panels("Method", counted, (entry, index, host) => histogram(entry, index, host, metric)));
  if (!worst.length) return;
  const series = worst.map(({ entry, index }) => ({ index, label: entry.label, x: entry.worst.x, mean: entry.worst.mean }));
  put(
    host,
    el("h3", null, "The worst tenth of the clients"),
    stage((width) =>
      lineChart({
        width,
        height: width < 640 ? 260 : 300,
        label: `${metric.title} of the worst tenth of the clients${metric.percent ? " in per cent" : ""} by round`,
        series,
        metric,
        x: { title: "rounds", unit: "", log: false, caps: [] },
        y: { title: `${metric.name} of the worst tenth${metric.percent ? " [%]" : ""}`, domain: heightDomain(series, false, metric) },
        named: true,
      }),
    ),
  );
}

const GAP = 10; // pixels between two names

function histogram(entry, index, host, metric) {
  const { clients } = entry;
  const state = { at: clients.length - 1 };
  const said = el("output", null);
  const drawn = stage((width) => bars(clients[state.at], index, Math.min(width, 900), metric), host);
  const inWords = (score) => scored(shown(score, metric), metric);
  const show = () => {
    const each = clients[state.at];
    slider.setAttribute("aria-valuetext", `round ${each.round}`);
    said.textContent = `round ${each.round}: mean ${inWords(each.mean)}${each.worst === null ? "" : `, worst tenth ${inWords(each.worst)}`}`;
    drawn.update();
  };
  const slider = el("input", {
    type: "range",
    min: 0,
    max: clients.length - 1,
    step: 1,
    value: state.at,
    "aria-label": `Evaluated round of ${entry.label}`,
    oninput: (event) => {
      state.at = +event.currentTarget.value;
      show();
    },
  });
  show();
  return [el("p", { class: "slider" }, clients.length > 1 ? slider : null, said), drawn];
}

function bars(each, index, width, metric) {
  const height = 240;
  const [left, right, top, bottom] = [46, width - 10, 24, height - 42];
  const total = each.counts.reduce((a, b) => a + b, 0);
  const [from, to] = (each.span || [0, 1]).map((end) => shown(end, metric));
  const x = linear([from, to], [left, right]);
  const y = linear([0, (100 * Math.max(...each.counts)) / total], [bottom, top]);
  const step = (to - from) / each.counts.length;
  const begin = (i) => from + i * step;
  const drawn = picture(width, height, `Clients by ${metric.name} after round ${each.round}`);
  drawn.classList.add("histogram");
  for (const tick of y.ticks(3)) drawn.append(line(left, y(tick), right, y(tick), "grid"), text(left - 8, y(tick) + 4, `${digits(tick, 3)} %`, { "text-anchor": "end" }));
  const edge = (score) => (metric.percent ? Math.round(score) : digits(score, 4));
  each.counts.forEach((count, i) => {
    const part = (100 * count) / total;
    const title = svg("title", null, `${edge(begin(i))} to ${edge(begin(i + 1))}${metric.percent ? " %" : ""}: ${grouped.format(count)} of ${grouped.format(total)} clients`);
    drawn.append(svg("rect", { x: (x(begin(i)) + 1).toFixed(1), width: Math.max(1, x(begin(1)) - x(from) - 2).toFixed(1), y: y(part).toFixed(1), height: (bottom - y(part)).toFixed(1), fill: colour(index), class: "count" }, title));
  });
  drawn.append(line(left, bottom, right, bottom, "base"));
  for (const tick of metric.percent ? [0, 20, 40, 60, 80, 100] : x.ticks(6)) drawn.append(text(x(tick), bottom + 18, metric.percent ? String(tick) : digits(tick, 4), { "text-anchor": "middle" }));
  drawn.append(text((left + right) / 2, height - 4, `${metric.name} of a client${metric.percent ? " [%]" : ""}; height: share of the clients`, { "text-anchor": "middle", class: "title" }));
  const marks = [["mean", each.mean], ["worst tenth", each.worst]].filter(([, value]) => value !== null);
  marks.sort((a, b) => a[1] - b[1]);
  const places = marks.map(([, value]) => x(shown(value, metric)));
  const middles = sideBySide(places, marks.map(([name]) => widthOf(name)), width);
  marks.forEach(([name], i) => {
    drawn.append(line(places[i], top - 6, places[i], bottom, "marker"), text(middles[i], top - 11, name, { "text-anchor": "middle", class: "strong" }));
  });
  return drawn;
}

// Middles for words near the places wanted, which rise: none over another, none beyond the ends.
function sideBySide(wanted, widths, end) {
  const middles = [...wanted];
  let free = 0;
  middles.forEach((middle, i) => {
    middles[i] = Math.max(middle, free + widths[i] / 2);
    free = middles[i] + widths[i] / 2 + GAP;
  });
  let last = end;
  for (let i = middles.length - 1; i >= 0; i -= 1) {
    middles[i] = Math.min(middles[i], last - widths[i] / 2);
    last = middles[i] - widths[i] / 2 - GAP;
  }
  return middles;
}
