// Switches between a few things, and pictures that are drawn again when the page changes its shape.

let groups = 0;

// options: [{value, label}]; calls `chosen` with the value picked.
function segmented(legend, options, value, chosen) {
  const name = `choice${(groups += 1)}`;
  return el(
    "fieldset",
    { class: "segmented" },
    el("legend", null, legend),
    options.map((option) =>
      el(
        "label",
        null,
        el("input", { type: "radio", name, value: option.value, checked: option.value === value, onchange: () => chosen(option.value) }),
        el("span", null, option.label),
      ),
    ),
  );
}

// A panel for each entry of which one is seen on the screen, and all of them on paper.
function panels(legend, entries, build) {
  const host = el("div", { class: "panels" });
  const made = entries.map(({ entry, index }) => {
    const heading = el("h3", { class: "panel-title" }, swatch(index), entry.label);
    return el("div", { class: "panel", "data-entry": index }, heading, build(entry, index, host));
  });
  const choose = (value) => made.forEach((panel, i) => panel.classList.toggle("unchosen", String(entries[i].index) !== value));
  const last = String(entries[entries.length - 1].index);
  if (entries.length > 1) {
    const options = entries.map(({ entry, index }) => ({ value: String(index), label: shortened(entry.label, 40) }));
    put(host, segmented(legend, options, last, choose));
  }
  put(host, ...made);
  choose(last);
  return host;
}

// A place whose picture follows its width; `draw` gets the width and gives an element. Before the page is printed it is
// drawn once more, with everything; while it is printed nothing may change, or pages would be lost.
const redrawn = [];
const PAPER = 688; // pixels between the margins of A4

function stage(draw, source) {
  const host = el("div", { class: "stage" });
  const update = () => {
    const width = onPaper ? PAPER : Math.round((source || host).clientWidth) || PAPER;
    host.replaceChildren(draw(Math.max(280, width)));
  };
  redrawn.push(update);
  let seen = 0;
  new ResizeObserver(() => {
    const width = Math.round((source || host).clientWidth);
    if (width && width !== seen && !onPaper && !window.matchMedia("print").matches) {
      seen = width;
      update();
    }
  }).observe(source || host);
  host.update = update;
  return host;
}

let onPaper = false;
let unfolded = [];
for (const [name, value] of [["beforeprint", true], ["afterprint", false]]) {
  window.addEventListener(name, () => {
    onPaper = value;
    if (onPaper) unfolded = [...document.querySelectorAll("details.printed:not([open])")];
    for (const folded of unfolded) folded.open = onPaper;
    redrawn.forEach((update) => update());
  });
}
