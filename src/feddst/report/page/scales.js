// From values to places on the page, and the values at which an axis has a tick.

function linear(domain, range) {
  const [low, high] = domain;
  const span = high - low || 1;
  const scale = (value) => range[0] + ((value - low) / span) * (range[1] - range[0]);
  scale.back = (place) => low + ((place - range[0]) / (range[1] - range[0])) * span;
  scale.ticks = (count) => evenTicks(low, high, count);
  return scale;
}

function logarithmic(domain, range) {
  const [low, high] = domain.map(Math.log10);
  const inner = linear([low, high], range);
  const scale = (value) => inner(Math.log10(value));
  scale.back = (place) => 10 ** inner.back(place);
  scale.ticks = () => decadeTicks(domain);
  return scale;
}

function evenTicks(low, high, count) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const rough = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999) * power;
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) ticks.push(+(i * step).toPrecision(10));
  return ticks;
}

// The largest of 1, 2 and 5 times a power of ten that is not above a value.
function roundBelow(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [5, 2, 1].find((factor) => factor * power <= value * 1.001) * power;
}

// The smallest of 1, 2.5 and 5 times a power of ten that is not below a value.
function roundAbove(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return +([1, 2.5, 5, 10].find((factor) => factor * power >= value * 0.999) * power).toPrecision(10);
}

function decadeTicks([low, high]) {
  const wide = Math.log10(high / low) > 2.2;
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const factor of wide ? [1] : [1, 2, 5]) {
      const value = +(factor * 10 ** power).toPrecision(10);
      if (value >= low * 0.999 && value <= high * 1.001) ticks.push(value);
    }
  }
  return ticks.length > 1 ? ticks : evenTicks(low, high, 4);
}

// What a line has at x, straight between its points; null where it has none.
function valueAt(xs, ys, x) {
  if (!xs.length || x < xs[0] || x > xs[xs.length - 1]) return null;
  let right = xs.findIndex((value) => value >= x);
  if (right === 0 || xs[right] === x) return ys[right];
  const part = (x - xs[right - 1]) / (xs[right] - xs[right - 1]);
  return ys[right - 1] + part * (ys[right] - ys[right - 1]);
}

// Heights for labels near those wanted, rising downwards: none over another, none beyond the ends.
function spreadOut(wanted, gap, top, bottom) {
  const order = wanted.map((_, i) => i).sort((a, b) => wanted[a] - wanted[b]);
  const heights = [...wanted];
  let free = top;
  for (const i of order) {
    heights[i] = Math.max(heights[i], free);
    free = heights[i] + gap;
  }
  let ground = bottom;
  for (const i of order.reverse()) {
    heights[i] = Math.min(heights[i], ground);
    ground = heights[i] - gap;
  }
  return heights;
}
