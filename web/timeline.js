// SPDX-License-Identifier: Apache-2.0
// The replayed step on a canvas: a row a stage, a box an action. Wheel, buttons and keys zoom; drag
// and keys move. The action under the pointer, or the one that the keys have reached, is explained
// with its numbers.
'use strict';

const ACTION_KINDS = [
  ['forward', '--compute', 'F'],
  ['backward', '--tp', 'B'],
  ['weight gradients', '--pp', 'W'],
  ['norm and update', '--update', 'U'],
];
const WORK_OF_KIND = ['forward', 'backward', 'weight'];

class Timeline {
  constructor(data, details) {
    this.actions = data.actions.map(([stage, chunk, micro, kind, start, end]) => ({
      stage,
      chunk,
      micro,
      kind,
      start,
      end,
    }));
    // The last actions end a little earlier: then stages wait for the slowest device.
    this.total = details.estimate.step_seconds;
    this.details = details;
    this.stages = details.stages.length;
    this.rows = Array.from({ length: this.stages }, () => []);
    for (const a of this.actions) this.rows[a.stage].push(a);
    for (const row of this.rows) row.sort((a, b) => a.start - b.start);
    this.from = 0;
    this.to = this.total;
    this.current = this.rows[0][0];
    this.canvas = h('canvas', {
      tabindex: 0,
      role: 'application',
      'aria-roledescription': 'timeline',
      'aria-label':
        'Timeline of a step: arrows move between actions, plus and minus zoom, 0 shows all',
      'aria-describedby': 'action-text',
    });
    this.text = h('div', {
      id: 'action-text',
      class: 'action',
      role: 'status',
      'aria-live': 'polite',
    });
    this.listen();
    this.element = h('div', { class: 'timeline' }, this.buttons(), this.canvas, this.text);
  }

  buttons() {
    const button = (label, name, run) =>
      h('button', { type: 'button', 'aria-label': name, onclick: run }, label);
    return h(
      'div',
      { class: 'bar' },
      button('+', '+ zoom in', () => this.zoom(0.5)),
      button('−', '− zoom out', () => this.zoom(2)),
      button('◂', 'Earlier', () => this.move(-0.25)),
      button('▸', 'Later', () => this.move(0.25)),
      button('All', 'All of the step', () => this.show(0, this.total)),
      button('Begin', 'Begin: the fill of the pipeline', () => this.show(0, this.total / 5)),
      button('End', 'End: the drain of the pipeline', () =>
        this.show(this.total * 0.8, this.total),
      ),
    );
  }

  show(from, to) {
    const least = this.total / 2000;
    const span = Math.min(this.total, Math.max(least, to - from));
    this.from = Math.max(0, Math.min(from, this.total - span));
    this.to = this.from + span;
    this.draw();
  }

  zoom(factor, around) {
    const middle = around === undefined ? (this.from + this.to) / 2 : around;
    this.show(middle - (middle - this.from) * factor, middle + (this.to - middle) * factor);
  }

  move(share) {
    const by = share * (this.to - this.from);
    this.show(this.from + by, this.to + by);
  }

  timeAt(x) {
    return this.from + ((x - this.left) / (this.width - this.left)) * (this.to - this.from);
  }

  listen() {
    const c = this.canvas;
    c.addEventListener(
      'wheel',
      e => {
        if (!e.ctrlKey && !e.metaKey && document.activeElement !== c) return; // the page scrolls
        e.preventDefault();
        this.zoom(e.deltaY > 0 ? 1.25 : 0.8, this.timeAt(e.offsetX));
      },
      { passive: false },
    );
    c.addEventListener('pointerdown', e => {
      this.drag = { x: e.offsetX, from: this.from, to: this.to };
      c.setPointerCapture(e.pointerId);
    });
    c.addEventListener('pointerup', () => {
      this.drag = null;
    });
    c.addEventListener('pointermove', e => {
      if (this.drag) {
        const by =
          ((this.drag.x - e.offsetX) / (this.width - this.left)) * (this.drag.to - this.drag.from);
        if (by !== 0) this.show(this.drag.from + by, this.drag.to + by);
        return;
      }
      const row = this.rows[Math.floor((e.offsetY - this.top) / this.row)];
      const t = this.timeAt(e.offsetX);
      const found = row && row.find(a => a.start <= t && t < a.end);
      if (found && found !== this.current) this.select(found, false);
    });
    c.addEventListener('keydown', e => this.key(e));
  }

  key(e) {
    const row = this.rows[this.current.stage],
      at = row.indexOf(this.current);
    const near = stage =>
      this.rows[stage] &&
      this.rows[stage].reduce((best, a) =>
        Math.abs(a.start - this.current.start) < Math.abs(best.start - this.current.start)
          ? a
          : best,
      );
    const steps = {
      ArrowRight: () => row[at + 1],
      ArrowLeft: () => row[at - 1],
      Home: () => row[0],
      End: () => row[row.length - 1],
      ArrowDown: () => near(this.current.stage + 1),
      ArrowUp: () => near(this.current.stage - 1),
    };
    const zooms = { '+': 0.5, '=': 0.5, '-': 2, _: 2 };
    if (e.key in steps) {
      const next = steps[e.key]();
      if (next) this.select(next, true);
    } else if (e.key in zooms) this.zoom(zooms[e.key], this.current.start);
    else if (e.key === '0') this.show(0, this.total);
    else return;
    e.preventDefault();
  }

  select(action, follow) {
    this.current = action;
    const outside = action.start < this.from || action.end > this.to;
    if (follow && outside) {
      const span = this.to - this.from;
      this.show(action.start - span / 3, action.start + (span * 2) / 3);
    } else this.draw();
  }

  explain() {
    const a = this.current,
      kind = ACTION_KINDS[a.kind][0];
    const parts = [
      `${kind}${a.micro >= 0 ? ` of micro-batch ${a.micro}` : ''}, stage ${a.stage}: ` +
        `${formatSeconds(a.start)} to ${formatSeconds(a.end)}, ${formatSeconds(a.end - a.start)}`,
    ];
    const chunk = this.details.chunks[a.chunk],
      work = chunk && chunk[WORK_OF_KIND[a.kind]];
    if (a.kind === 3 || !work) return parts;
    const waits = ['tp', 'cp', 'ep', 'pp', 'dp', 'world']
      .filter(k => work[k] > 0)
      .map(k => ` + ${formatSeconds(work[k])} exposed ${k}`)
      .join('');
    const launches = ` + ${formatSeconds(work.launches)} launches`;
    const host = work.launches > 1e-4 * work.total ? launches : '';
    parts.push(
      `blocks ${chunk.first_block} to ${chunk.first_block + chunk.blocks - 1}: ` +
        `${formatSeconds(work.compute)} kernels${host}${waits} = ${formatSeconds(work.total)}`,
    );
    if (a.kind === 1 && chunk.recompute > 0) {
      parts.push(`of the kernels, ${formatSeconds(chunk.recompute)} recompute`);
    }
    const all = chunk.forward.compute + chunk.backward.compute + chunk.weight.compute;
    parts.push(
      `its micro-batch, forward and backward: ${formatFlops(chunk.matrix_flops)} of products on ` +
        `each device / ${formatSeconds(all)} of kernels = ` +
        `${formatFlops(chunk.matrix_flops / all)}/s`,
    );
    return parts;
  }

  draw() {
    const ratio = window.devicePixelRatio || 1;
    this.width = chartWidth();
    this.left = 30;
    this.top = 4;
    this.row = Math.max(8, Math.min(30, 420 / this.stages));
    const height = this.top + this.row * this.stages + 22;
    const c = this.canvas,
      style = getComputedStyle(document.documentElement);
    const colour = name => style.getPropertyValue(name).trim();
    c.width = this.width * ratio;
    c.height = height * ratio;
    c.style.width = `${this.width}px`;
    c.style.height = `${height}px`;
    const g = c.getContext('2d');
    g.scale(ratio, ratio);
    g.font = '11px system-ui, sans-serif';
    this.drawRows(g, colour);
    this.drawAxis(g, colour, height);
    this.text.replaceChildren(...this.explain().map(t => h('p', {}, t)));
  }

  drawRows(g, colour) {
    const scale = (this.width - this.left) / (this.to - this.from);
    const fills = ACTION_KINDS.map(k => colour(k[1])),
      idle = colour('--idle'),
      card = colour('--card');
    const text = colour('--text');
    this.rows.forEach((row, stage) => {
      const y = this.top + stage * this.row;
      g.fillStyle = idle;
      g.fillRect(this.left, y + 1, this.width - this.left, this.row - 2);
      g.fillStyle = text;
      if (this.row >= 11 || stage % 2 === 0) g.fillText(String(stage), 4, y + this.row / 2 + 4);
      for (const a of row) {
        if (a.end < this.from || a.start > this.to) continue;
        const x = Math.max(this.left, this.left + (a.start - this.from) * scale);
        const width = this.left + (a.end - this.from) * scale - x;
        const lap = Math.floor(a.chunk / this.stages);
        g.globalAlpha = [1, 0.78, 0.6, 0.48][Math.min(3, Math.max(0, lap))];
        g.fillStyle = fills[a.kind];
        g.fillRect(x, y + 1, Math.max(0.5, width - (width > 3 ? 0.8 : 0)), this.row - 2);
        g.globalAlpha = 1;
        if (width > 18 && this.row >= 12 && a.micro >= 0) {
          g.fillStyle = card;
          g.fillText(String(a.micro), x + 3, y + this.row / 2 + 4);
        }
        if (a !== this.current) continue;
        g.strokeStyle = text;
        g.lineWidth = 2;
        g.strokeRect(x + 1, y + 2, Math.max(1, width - 2), this.row - 4);
      }
    });
  }

  drawAxis(g, colour, height) {
    g.fillStyle = colour('--dim');
    const count = this.width < 500 ? 3 : 7;
    for (let i = 0; i <= count; i++) {
      const t = this.from + ((this.to - this.from) * i) / count;
      const x = this.left + ((this.width - this.left) * i) / count;
      g.textAlign = i === 0 ? 'left' : i === count ? 'right' : 'center';
      g.fillText(formatSeconds(t), x, height - 5);
    }
    g.textAlign = 'left';
  }

  table() {
    const rows = this.rows.map((row, stage) => {
      const busy = kind =>
        row.filter(a => a.kind === kind).reduce((sum, a) => sum + a.end - a.start, 0);
      const sums = [0, 1, 2, 3].map(busy),
        all = sums.reduce((x, y) => x + y, 0);
      return [
        `stage ${stage}`,
        ...sums.map(formatSeconds),
        formatSeconds(this.total - all),
        formatShare(1 - all / this.total),
      ];
    });
    return foldedTable(
      'Time of each stage',
      ['stage', ...ACTION_KINDS.map(k => k[0]), 'waiting', 'share waiting'],
      rows,
    );
  }
}
