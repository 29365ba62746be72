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
  kernels: 'c-again',
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
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
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

// series: [{name, line, points: [[x, y]...]}]; marks: [[x, text]]
function curveChart(title, series, marks, labels) {
  const width = chartWidth(),
    height = 330,
    left = 62,
    right = 18,
    top = 26,
    bottom = height - 44;
  const all = series.flatMap(c => c.points).filter(p => p[1] > 0);
  if (all.length === 0) return h('p', { class: 'dim' }, 'Nothing to draw.');
  const xs = all.map(p => Math.log2(p[0]));
  const highest = Math.max(...all.map(p => p[1]));
  const ys = all.map(p => Math.log10(Math.max(p[1], highest * 1e-4)));
  const x0 = Math.min(...xs),
    x1 = Math.max(...xs, x0 + 1);
  const y0 = Math.floor(Math.min(...ys)),
    y1 = Math.ceil(Math.max(...ys));
  const X = v => left + ((Math.log2(v) - x0) / (x1 - x0)) * (width - left - right);
  const Y = v => bottom - ((Math.log10(v) - y0) / Math.max(1, y1 - y0)) * (bottom - top);
  const out = [];
  for (let p = y0; p <= y1; p++) {
    out.push(
      lineAt(left, Y(10 ** p), width - right, Y(10 ** p), 'grid'),
      textAt(
        left - 7,
        Y(10 ** p) + 4,
        p > 1 ? `${formatInteger(10 ** p)} s` : formatSeconds(10 ** p),
        'e dim',
      ),
    );
  }
  const every = Math.ceil((x1 - x0 + 1) / (width < 500 ? 4 : 11));
  for (let p = Math.ceil(x0); p <= x1; p += every) {
    out.push(
      lineAt(X(2 ** p), bottom, X(2 ** p), bottom + 5, 'tick'),
      textAt(X(2 ** p), bottom + 19, formatInteger(2 ** p), 'm dim'),
    );
  }
  out.push(textAt((left + width - right) / 2, height - 6, labels, 'm dim'));
  for (const [x, text, row] of marks) {
    if (!(x > 0) || Math.log2(x) < x0 || Math.log2(x) > x1) continue;
    const end = X(x) > width * 0.7;
    out.push(
      lineAt(X(x), top - 6, X(x), bottom, 'limit'),
      textAt(X(x) + (end ? -5 : 5), top + 4 + 15 * (row || 0), text, end ? 'e strong' : 'strong'),
    );
  }
  for (const c of series) {
    const points = c.points.filter(p => p[1] > highest * 1e-4);
    if (points.length === 0) continue;
    out.push(
      s('path', {
        class: `curve ${c.line}`,
        d: points
          .map((p, i) => `${i === 0 ? 'M' : 'L'}${X(p[0]).toFixed(1)} ${Y(p[1]).toFixed(1)}`)
          .join(''),
      }),
    );
    for (const p of points) {
      out.push(
        s(
          'circle',
          { cx: X(p[0]), cy: Y(p[1]), r: 3.5, class: `dot ${c.dot}` },
          s('title', {}, `${c.name}: ${formatSeconds(p[1])} on ${p[0]} devices`),
        ),
      );
    }
  }
  return frame(width, height, title, out);
}

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
    const x = X(Math.max(least, Math.min(r.least_seconds, slowest))),
      y = Y(r.least_bytes);
    out.push(
      s(
        'path',
        { class: 'cross', d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8` },
        s('title', {}, `${formatLayout(r)}: ${r.reason}`),
      ),
    );
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
