// What came out, in words and a few numbers.

function drawHeading(data) {
  const [first, ...rest] = data.headline;
  put(section("heading"),
    el("p", { class: "over" }, `${data.title} · ${data.data}`),
    el("h1", null, first),
    rest.length ? el("p", { class: "lead" }, rest.join(" ")) : null,
    tiles(data.entries, data.metric),
  );
  put(section("footer"),
    `Made by feddst ${data.version}. This file needs no network: data, scripts and styles are all inside.`,
  );
}

const ABREAST = 5;

function tiles(entries, metric) {
  const drawn = el("div", { class: "tiles" }, entries.map((entry, i) => tile(entry, i, metric)));
  drawn.style.setProperty("--columns", Math.ceil(entries.length / Math.ceil(entries.length / ABREAST)));
  return drawn;
}

function tile(entry, i, metric) {
  const [best, spread] = entry.best.split(" ± ");
  const drawn = el(
    "article",
    { class: "tile" },
    el("h2", null, swatch(i), el("span", null, breakable(entry.label))),
    el("p", { class: "big" }, best, best === "–" ? null : el("small", null, metric.percent ? " %" : ` ${metric.name}`), spread ? el("small", null, ` ± ${spread}`) : null),
    el("p", { class: "soft of" }, entry.best_of),
    el("p", { class: "soft facts" }, entry.facts.map((fact) => el("span", null, fact))),
    entry.unfinished.length ? el("p", { class: "flag" }, unfinishedWords(entry)) : null,
  );
  drawn.style.setProperty("--own", colour(i));
  return drawn;
}

// Words that are rather broken after a sign than within a name.
function breakable(words) {
  return words.split(/(?<=[+:=/])/).flatMap((part) => [part, el("wbr")]);
}

function unfinishedWords(entry) {
  const all = entry.unfinished.length === entry.seeds.length;
  return all ? "not finished" : `seed ${entry.unfinished.join(", ")} not finished`;
}
