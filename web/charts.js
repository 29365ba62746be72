// SPDX-License-Identifier: Apache-2.0
// Drawings: bars of memory by stage, the waterfall from peak to MFU, curves on logarithmic axes,
// points of time and memory. Each has a title for screen readers; the tables are elsewhere.
'use strict';

const TERM_CLASS = {
  compute: 'c-compute',
  recompute: 'c-again',
  'exposed tp': 'c-tp',
  'exposed cp': 'c-cp',
  'exposed ep': 'c-ep',
  'exposed pp': 'c-pp',
  'exposed dp': 'c-dp',
  'exposed world': 'c-all',
  bubble: 'c-bubble',
  launches: 'c-host',
  update: 'c-update',
  kernels: 'c-kernels',
};
const MEMORY_CLASSES = [
  ['weights', 'weights', 'c-weights'],
  ['gradients', 'gradients', 'c-gradients'],
  ['optimizer', 'optimizer', 'c-optimizer'],
  ['activations', 'activations', 'c-activations'],
  ['gathered', 'gathered weights', 'c-gathered'],
  ['buffers', 'buffers', 'c-buffers'],
  ['allocator', 'allocator', 'c-loss'],
  ['context', 'runtime', 'c-context'],
];

const memoryParts = m =>
  MEMORY_CLASSES.map(([key, name, cls]) => [
    name,
    key === 'allocator' ? m.reserved - m.peak : m[key],
    cls,
  ]);

// Width that the container gives; charts are redrawn when it changes.
const chartWidth = () =>
  Math.max(280, Math.min(1400, (document.getElementById('sections').clientWidth || 900) - 42));

function frame(width, height, title, ...children) {
  return s(
    'svg',
    { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': title },
    s('title', {}, title),
    children,
  );
}

const textAt = (x, y, text, cls) => s('text', { x, y, class: cls || '' }, text);
const lineAt = (x1, y1, x2, y2, cls) => s('line', { x1, y1, x2, y2, class: cls });

function boxAt(x, y, width, height, cls, title) {
  return s('rect', { x, y, width: Math.max(0, width), height, class: cls }, s('title', {}, title));
}

// Ticks at 1, 2, 5 times powers of ten in [0, most].
function linearTicks(most, count) {
  const raw = most / count,
    power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(f => f * power).find(v => v >= raw);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}

// ---- memory ----

function memoryChart(stages, range) {
  const width = chartWidth(),
    left = 64,
    right = width < 500 ? 16 : 96,
    top = 28;
  const row = Math.max(7, Math.min(26, 420 / stages.length));
  const { capacity, allowed } = stages[0].memory;
  const most = Math.max(capacity, ...stages.map(t => usedMemory(t.memory))) * 1.03;
  const at = bytes => left + (bytes / most) * (width - left - right);
  const bottom = top + row * stages.length,
    out = [];
  for (const tick of linearTicks(most, width < 500 ? 4 : 8)) {
    out.push(
      lineAt(at(tick), top, at(tick), bottom, 'grid'),
      textAt(at(tick), bottom + 18, formatBytes(tick), 'm dim'),
    );
  }
  const every = Math.ceil(12 / row);
  stages.forEach((stage, i) => {
    let sum = 0;
    const y = top + i * row;
    for (const [name, bytes, cls] of memoryParts(stage.memory)) {
      if (bytes <= 0) continue;
      out.push(
        boxAt(
          at(sum),
          y + 1,
          at(sum + bytes) - at(sum),
          row - 2,
          `cell ${cls}`,
          `stage ${i}, ${name}: ${formatBytes(bytes)}`,
        ),
      );
      sum += bytes;
    }
    if (sum > capacity)
      out.push(
        boxAt(
          at(capacity),
          y + 1,
          at(sum) - at(capacity),
          row - 2,
          'over',
          `stage ${i}: ${formatBytes(sum - capacity)} too much`,
        ),
      );
    if (i % every !== 0) return;
    out.push(textAt(left - 8, y + row / 2 + 4, `stage ${i}`, 'e'));
    const crosses = at(sum) < at(capacity) && at(sum) + 62 > at(capacity);
    const label = (crosses ? at(capacity) : at(sum)) + 6;
    if (right > 50) out.push(textAt(label, y + row / 2 + 4, formatBytes(sum), ''));
  });
  out.push(
    lineAt(at(allowed), top, at(allowed), bottom, 'tick'),
    lineAt(at(capacity), top - 6, at(capacity), bottom + 3, 'limit'),
    textAt(
      Math.min(at(capacity), width - 70),
      top - 11,
      `capacity ${formatBytes(capacity)}`,
      'm strong',
    ),
  );
  if (range) {
    const y = bottom + 30;
    out.push(
      lineAt(at(range[0]), y, at(Math.min(range[1], most)), y, 'range'),
      textAt(at(range[0]) - 6, y + 4, '4 of 5 cases', 'e dim'),
    );
  }
  return frame(
    width,
    bottom + 42,
    'Memory of a device of each stage by class, against its capacity',
    out,
  );
}

// ---- from peak to MFU ----

// [name, share of the step, meaning]: losses that add up to 1 - MFU.
function lossesOf(estimate, terms) {
  const step = estimate.step_seconds,
    compute = terms.find(t => t.name === 'compute').seconds;
  const losses = [
    [
      'kernels',
      compute / step - estimate.mfu,
      'kernels below the peak: shapes, memory traffic, attention',
    ],
  ];
  for (const t of terms) {
    if (t.name !== 'compute' && t.seconds > 5e-4 * step)
      losses.push([t.name, t.seconds / step, t.meaning]);
  }
  return losses.sort((a, b) => b[1] - a[1]);
}

function waterfallChart(estimate, losses, range) {
  const width = chartWidth(),
    left = width < 500 ? 96 : 128,
    right = 64,
    row = 26,
    top = 8;
  const at = share => left + share * (width - left - right),
    out = [];
  const rows = [['peak', 1, 1, 'c-total', 'dense peak of the precision']];
  let level = 1;
  for (const [name, share, meaning] of losses) {
    rows.push([name, level, share, TERM_CLASS[name], meaning]);
    level -= share;
  }
  rows.push(['MFU', estimate.mfu, estimate.mfu, 'c-compute', 'what the model needs']);
  const bottom = top + rows.length * row;
  for (const tick of width < 500 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]) {
    out.push(
      lineAt(at(tick), top, at(tick), bottom, 'grid'),
      textAt(at(tick), bottom + 17, `${100 * tick} %`, 'm dim'),
    );
  }
  rows.forEach(([name, end, share, cls, meaning], i) => {
    const y = top + i * row;
    out.push(
      textAt(left - 8, y + 17, name, i === 0 || i === rows.length - 1 ? 'e strong' : 'e'),
      boxAt(
        at(end - share),
        y + 3,
        Math.max(1, at(end) - at(end - share)),
        row - 6,
        `cell ${cls}`,
        `${name}: ${formatShare(share)} (${meaning})`,
      ),
    );
    const loss = i > 0 && i < rows.length - 1;
    const after = i === rows.length - 1 ? Math.max(end, Math.min(1, range[1])) : end;
    out.push(textAt(at(after) + 6, y + 17, `${loss ? '−' : ''}${formatShare(share)}`, ''));
    if (loss) out.push(lineAt(at(end - share), y + row - 3, at(end - share), y + row + 3, 'tick'));
  });
  const y = top + (rows.length - 0.5) * row;
  out.push(lineAt(at(range[0]), y, at(Math.min(1, range[1])), y, 'range'));
  return frame(
    width,
    bottom + 24,
    'From the peak of the devices to MFU: what each loss takes',
    out,
  );
}

// ---- curves ----

// Places on an axis of `from` to `to` pixels: of a logarithmic one, or one that begins at 0.
const logScale = (least, most, from, to) => v =>
  from + (Math.log2(v / least) / Math.max(1e-9, Math.log2(most / least))) * (to - from);
const linearScale = (most, from, to) => v => from + (v / most) * (to - from);

const DEVICES = {
  labels: 'devices',
  format: v => (v > 1 ? `${formatInteger(v)} s` : formatSeconds(v)),
  title: (name, x, y) => `${name}: ${formatSeconds(y)} on ${x} devices`,
};

// Powers of ten in [least, most], and twice and five times them where these are few.
function logTicks(least, most) {
  const factors = most / least < 300 ? [1, 2, 5] : [1];
  const first = Math.floor(Math.log10(least)),
    count = Math.ceil(Math.log10(most)) - first + 1;
  return Array.from({ length: count }, (_, i) => factors.map(f => f * 10 ** (first + i)))
    .flat()
    .filter(v => v >= least && v <= most);
}

// Powers of two in [least, most], every one that has room.
function powerTicks(least, most, room) {
  const first = Math.ceil(Math.log2(least) - 1e-9),
    last = Math.floor(Math.log2(most) + 1e-9);
  const every = Math.ceil((last - first + 1) / room);
  return Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, i) => {
    const value = 2 ** (first + i * every);
    return [value, formatInteger(value)];
  });
}

// series: [{name, line, dot, points: [[x, y, low, high]...]}], a bar from low to high where given;
// marks: [[x, text, row]]; misses: [[x, text]], points without a value; ticks: [[x, text]...]
function curveChart(title, series, marks, axes = DEVICES) {
  const width = chartWidth(),
    height = 330,
    left = 62,
    right = 18,
    top = 26,
    bottom = height - 44;
  const { misses = [], flat = false } = axes;
  const all = series.flatMap(c => c.points).filter(p => p[1] > 0);
  if (all.length === 0) return h('p', { class: 'dim' }, 'Nothing to draw.');
  const xs = [...all, ...misses].map(p => p[0]);
  const highest = Math.max(...all.map(p => p[3] || p[1])),
    least = Math.max(Math.min(...all.map(p => p[2] || p[1])), highest * 1e-4);
  const x0 = Math.min(...xs),
    x1 = Math.max(...xs, 2 * x0);
  const y0 = least / 1.2,
    y1 = highest * 1.2;
  const side = axes.ticks ? 24 : 0;
  const X = logScale(x0, x1, left + side, width - right - side);
  const Y = flat ? linearScale(1.05 * highest, bottom, top) : logScale(y0, y1, bottom, top);
  const out = [];
  for (const tick of flat ? linearTicks(1.05 * highest, 5) : logTicks(y0, y1)) {
    out.push(
      lineAt(left, Y(tick), width - right, Y(tick), 'grid'),
      textAt(left - 7, Y(tick) + 4, axes.format(tick), 'e dim'),
    );
  }
  let end = 0;
  for (const [x, text] of axes.ticks || powerTicks(x0, x1, width < 500 ? 4 : 11)) {
    out.push(lineAt(X(x), bottom, X(x), bottom + 5, 'tick'));
    if (X(x) - 3.5 * text.length < end) continue;
    out.push(textAt(X(x), bottom + 19, text, 'm dim'));
    end = X(x) + 3.5 * text.length + 6;
  }
  out.push(textAt((left + width - right) / 2, height - 6, axes.labels, 'm dim'));
  for (const [x, text, row] of marks) {
    if (!(x >= x0 && x <= x1)) continue;
    const late = X(x) > width * 0.7;
    out.push(
      lineAt(X(x), top - 6, X(x), bottom, 'limit'),
      textAt(X(x) + (late ? -5 : 5), top + 4 + 15 * (row || 0), text, late ? 'e strong' : 'strong'),
    );
  }
  for (const c of series) {
    const points = c.points.filter(p => p[1] > highest * 1e-4);
    const path = points.map(p => `${X(p[0]).toFixed(1)} ${Y(p[1]).toFixed(1)}`);
    if (c.line && points.length > 0)
      out.push(s('path', { class: `curve ${c.line}`, d: `M${path.join('L')}` }));
    for (const [x, y, low, high] of points) {
      if (low) out.push(lineAt(X(x), Y(low), X(x), Y(high), `band ${c.band}`));
      if (!c.dot) continue;
      const text = s('title', {}, axes.title(c.name, x, y));
      out.push(s('circle', { cx: X(x), cy: Y(y), r: 3.5, class: `dot ${c.dot}` }, text));
    }
  }
  for (const [x, text] of misses) out.push(crossAt(X(x), bottom - 8, text));
  return frame(width, height, title, out);
}

const crossAt = (x, y, text) =>
  s('path', { class: 'cross', d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8` }, s('title', {}, text));

// ---- points ----

// plans: [{step_seconds, memory_bytes, interval80, ...}]; front: indices on the Pareto front
function pointChart(plans, rejected, capacity, front, chosen) {
  const width = chartWidth(),
    height = 360,
    left = 66,
    right = 18,
    top = 26,
    bottom = height - 44;
  const cannot = rejected.filter(r => r.kind === 'memory' && r.least_bytes > 0);
  const fastest = plans[0].step_seconds;
  const slowest = Math.max(
    fastest * 1.05,
    ...plans.map(p => p.step_seconds),
    ...cannot.map(r => Math.min(r.least_seconds, 3 * fastest)),
  );
  const most = Math.max(capacity * 1.25, ...plans.map(p => p.memory_bytes));
  const least = Math.min(fastest, ...cannot.map(r => r.least_seconds).filter(v => v > 0)) * 0.97;
  const X = v => left + ((v - least) / (slowest * 1.02 - least)) * (width - left - right);
  const Y = v => bottom - (Math.min(v, most) / most) * (bottom - top);
  const out = [];
  for (const tick of linearTicks(most, 6)) {
    out.push(
      lineAt(left, Y(tick), width - right, Y(tick), 'grid'),
      textAt(left - 7, Y(tick) + 4, formatBytes(tick), 'e dim'),
    );
  }
  for (const tick of linearTicks(slowest, width < 500 ? 4 : 8).filter(t => t >= least)) {
    out.push(
      lineAt(X(tick), bottom, X(tick), bottom + 5, 'tick'),
      textAt(X(tick), bottom + 19, formatSeconds(tick), 'm dim'),
    );
  }
  out.push(
    textAt((left + width - right) / 2, height - 6, 'time of a step', 'm dim'),
    lineAt(left, Y(capacity), width - right, Y(capacity), 'limit'),
    textAt(width - right, Y(capacity) - 6, `capacity ${formatBytes(capacity)}`, 'e strong'),
  );
  for (const r of cannot) {
    const x = X(Math.max(least, Math.min(r.least_seconds, slowest)));
    out.push(crossAt(x, Y(r.least_bytes), `${formatLayout(r)}: ${r.reason}`));
  }
  const line = front.map(i => `${X(plans[i].step_seconds)},${Y(plans[i].memory_bytes)}`).join(' ');
  out.push(s('polyline', { points: line, class: 'front' }));
  plans.forEach((p, i) =>
    out.push(
      s(
        'circle',
        {
          cx: X(p.step_seconds),
          cy: Y(p.memory_bytes),
          r: i === chosen ? 7 : 4.5,
          class:
            `dot ${front.includes(i) ? 'c-compute' : 'c-bubble'} ` +
            `${i === chosen ? 'chosen-dot' : ''}`,
        },
        s(
          'title',
          {},
          `${formatLayout(p)}, ${formatSchedule(p)}: ${formatSeconds(p.step_seconds)}, ` +
            formatBytes(p.memory_bytes),
        ),
      ),
    ),
  );
  return frame(width, height, 'Plans as points of time and memory', out);
}
