// Numbers as a person would write them.

const grouped = new Intl.NumberFormat("en-GB");

function digits(value, count) {
  if (value === 0) return "0";
  const places = Math.max(0, Math.min(6, count - 1 - Math.floor(Math.log10(Math.abs(value)) + 1e-9)));
  return new Intl.NumberFormat("en-GB", { maximumFractionDigits: places }).format(value);
}

function percent(value, places = 1) {
  return `${value.toFixed(places)} %`;
}

// A score as it is shown, with its unit, and without.
function scored(value, metric) {
  return metric.percent ? percent(value) : digits(value, 4);
}

function bare(value, metric) {
  return metric.percent ? value.toFixed(1) : digits(value, 4);
}

// What is shown of a stored score.
function shown(stored, metric) {
  return metric.percent ? 100 * stored : stored;
}

function share(part, whole) {
  const value = whole ? (100 * part) / whole : 0;
  return percent(value, value > 0 && value < 1 ? 2 : 1);
}

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = count;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit ? digits(size, 4) : Math.round(size)} ${units[unit]}`;
}

function shortened(words, letters) {
  return words.length <= letters ? words : `${words.slice(0, letters - 1)}…`;
}
