// What the runs were asked for, and the commands that ask for it.

function drawSettings(data) {
  const host = section("settings");
  const different = data.settings.filter((setting) => setting.differs);
  if (data.entries.length > 1) {
    put(
      host,
      note(different.length ? `Where the entries differ; ${unaffected(data.entries)}.` : "The entries have the same options."),
      different.length ? optionTable(different, data.entries) : null,
    );
  }
  put(
    host,
    el("details", { class: "printed" }, el("summary", null, `All ${data.settings.length} options`), optionTable(data.settings, data.entries)),
    el(
      "details",
      null,
      el("summary", null, "Where the runs are"),
      el("ul", { class: "paths" }, data.entries.flatMap((entry) => entry.paths.map((path) => el("li", null, el("code", null, path))))),
    ),
    el("h3", null, "Make it again"),
    data.commands.note ? note(data.commands.note) : null,
    data.commands.runs.length ? commandList("The runs", data.commands.runs) : null,
    commandList("This report", [data.commands.report]),
  );
}

const COLUMNS = 6;
const NO_EFFECT = "–";

// A column for each entry or, where these are many, each value with the entries that have it.
function optionTable(settings, entries) {
  return entries.length > COLUMNS ? valueTable(settings, entries) : entryTable(settings, entries);
}

function unaffected(entries) {
  return entries.length > COLUMNS ? "entries whose method does not use an option are left out" : `${NO_EFFECT} is an option without effect on a method`;
}

function entryTable(settings, entries) {
  return scrolled(
    el(
      "table",
      { class: "options" },
      el("thead", null, el("tr", null, el("th", { scope: "col" }, "option"), entries.map((entry) => el("th", { scope: "col" }, entry.label)))),
      el(
        "tbody",
        null,
        settings.map((setting) => {
          const cells = setting.differs ? setting.values.map((value) => el("td", null, shownValue(value))) : el("td", { colspan: entries.length }, shownValue(setting.values[0]));
          return el("tr", null, el("th", { scope: "row" }, setting.name), cells);
        }),
      ),
    ),
    "Options",
  );
}

function valueTable(settings, entries) {
  return scrolled(
    el(
      "table",
      { class: "options values" },
      el("thead", null, el("tr", null, el("th", { scope: "col" }, "option"), el("th", { scope: "col" }, "value"))),
      el("tbody", null, settings.map((setting) => el("tr", null, el("th", { scope: "row" }, setting.name), el("td", null, valueLines(setting, entries))))),
    ),
    "Options",
  );
}

function valueLines(setting, entries) {
  if (!setting.differs) return [shownValue(setting.values[0])];
  const having = new Map();
  setting.values.forEach((value, i) => {
    if (value !== NO_EFFECT) having.set(value, [...(having.get(value) || []), entries[i].label]);
  });
  return [...having].map(([value, labels]) => el("div", null, el("strong", null, shownValue(value)), ` ${labels.join(", ")}`));
}

function shownValue(value) {
  return value === "" ? "(empty)" : value;
}

const SHOWN = 6;

function commandList(title, commands) {
  const line = (command) => el("code", { class: "command" }, command.split(/( )/).map((word) => (word === " " ? word : el("span", null, word))));
  return el(
    "div",
    { class: "commands" },
    el("p", { class: "soft" }, title),
    commands.slice(0, SHOWN).map(line),
    commands.length > SHOWN ? el("details", null, el("summary", null, `${commands.length - SHOWN} more`), commands.slice(SHOWN).map(line)) : null,
  );
}
