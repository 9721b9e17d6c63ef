// The table of best scores under caps.

function drawStandings(data) {
  const [heading, ...lines] = data.table.lines;
  put(section("caps"),
    note(data.table.caption),
    scrolled(
      el(
        "table",
        { class: heading.length > 6 ? "numbers many" : "numbers" },
        el("thead", null, el("tr", null, heading.map((word) => el("th", { scope: "col" }, word)))),
        el("tbody", null, lines.map((words, i) => standing(words, i, lines, data.metric))),
      ),
      `Best ${data.metric.name} under upload caps`,
    ),
    data.table.notes.map(note),
  );
}

function standing([name, ...words], i, lines, metric) {
  const cells = words.map((word, column) => {
    const scored = column < words.length - 2;
    return el("td", { class: scored && isBest(lines, i, column + 1, metric) ? "best" : null }, word);
  });
  return el("tr", null, el("th", { scope: "row", class: name.length > LETTERS ? "long" : null }, swatch(i), name), cells);
}

function isBest(lines, row, column, metric) {
  const scores = lines.map((line) => parseFloat(line[column]));
  const best = metric.higher ? Math.max : Math.min;
  return lines.length > 1 && scores[row] === best(...scores.filter((score) => !Number.isNaN(score)));
}

function scrolled(table, label) {
  return el("div", { class: "scrolled", tabindex: 0, role: "group", "aria-label": label }, table);
}
