// Elements of the page and of pictures. Text only ever goes in as text.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function el(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function picture(width, height, label, ...children) {
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, ...children);
}

function text(x, y, words, attributes) {
  return svg("text", { x: x.toFixed(1), y: y.toFixed(1), ...attributes }, words);
}

function line(x1, y1, x2, y2, name) {
  const at = [x1, y1, x2, y2].map((value) => value.toFixed(1));
  return svg("line", { x1: at[0], y1: at[1], x2: at[2], y2: at[3], class: name });
}

// Room that words take, for labels in bold.
const ruler = document.createElement("canvas").getContext("2d");

function widthOf(words) {
  ruler.font = `600 12.5px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(words).width;
}

function put(host, ...children) {
  return filled(host, null, children);
}

function section(id) {
  return document.getElementById(id);
}

function note(words) {
  return el("p", { class: "note" }, words);
}
