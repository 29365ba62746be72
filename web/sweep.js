// SPDX-License-Identifier: Apache-2.0
// A sweep: options that vary, the best plan with each combination of their values in a worker of
// its own, and their figures as a chart, a table and the CSV of `orthant plan --sweep`.
'use strict';

// name, key of a point, how it is written, head of its column, whether its axis begins at 0
const SWEPT_FIGURES = [
  ['Time of a step', 'step_seconds', formatSeconds, 'step'],
  ['Tokens a second', 'tokens_per_second', v => `${formatCount(v)}/s`, 'tokens'],
  ['MFU', 'mfu', formatShare, 'MFU', true],
  ['Memory of the fullest device', 'memory_bytes', formatBytes, 'memory', true],
  ['Time of the run', 'run_seconds', formatSeconds, 'run'],
  ['Cost of the run', 'dollars', formatDollars, 'cost'],
];
const SWEPT_COLOURS = ['compute', 'tp', 'pp', 'dp', 'ep', 'cp', 'all', 'update'];

// Axis 0 of a grid runs along the chart: places as numbers whose logarithms are drawn.
function placesOf(values) {
  const sizes = values.map(parseCount),
    numbers = sizes.every(v => v > 0);
  return new Map(values.map((text, i) => [text, numbers ? sizes[i] : 2 ** i]));
}

class Sweep {
  constructor(app) {
    this.app = app;
    this.rows = []; // of the last run: {point, line}, and its `grid`, `names`, `command`
    this.figure = SWEPT_FIGURES[0];
    this.note = '';
    if (hasGivenSweep(app.state)) this.take(GIVEN.swept);
  }

  // A sweep that was run before.
  take(swept) {
    const rows = combinations(swept).map((values, i) => ({ values, ...swept.rows[i] }));
    Object.assign(this, { given: true, grid: swept, names: swept.names, rows });
    Object.assign(this, { command: sweepCommand(this.app.state), note: `${rows.length} plans` });
  }

  get axes() {
    return this.app.state.sweep.length > 0 ? this.app.state.sweep : [''];
  }

  set axes(texts) {
    this.app.state.sweep = texts.filter(text => text !== '');
    this.app.write();
  }

  // ---- the form ----

  axis(text, i) {
    const [key, values] = [text.split('=')[0] || 'gpus', text.split('=').slice(1).join('=')];
    const options = KNOB_GROUPS.flatMap(([, knobs]) => knobs).filter(k => k[2] !== 'switch');
    if (!options.some(k => k[0] === key)) options.push([key, key]);
    const select = h(
      'select',
      { id: `swept-${i}`, 'aria-label': `Option ${i + 1} that varies` },
      options.map(k => h('option', { value: k[0], selected: k[0] === key }, k[1])),
    );
    const input = h('input', {
      id: `swept-values-${i}`,
      value: values,
      placeholder: '64..4096, or A,B,C',
      'aria-label': `Values of option ${i + 1}`,
    });
    const take = () => {
      const now = [...this.axes];
      now[i] = input.value.trim() === '' ? '' : `${select.value}=${input.value.trim()}`;
      this.axes = now;
    };
    select.addEventListener('change', take);
    input.addEventListener('change', take);
    input.addEventListener('keydown', e => {
      if (e.key !== 'Enter' || this.line) return;
      take();
      this.run();
    });
    return h('div', { class: 'bar swept' }, select, input);
  }

  form() {
    const axes = [...this.axes, ...(this.wider ? [''] : [])];
    const more = () => {
      this.wider = true;
      this.show();
      document.getElementById(`swept-values-${axes.length}`).focus();
    };
    const button = (id, text, disabled, onclick, cls = '') =>
      h('button', { type: 'button', id, disabled, onclick, class: cls }, text);
    return h(
      'div',
      { role: 'group', 'aria-label': 'What varies' },
      axes.map((text, i) => this.axis(text, i)),
      h(
        'div',
        { class: 'bar' },
        button('sweep-run', 'Plan them all', Boolean(this.line), () => this.run(), 'primary'),
        button('sweep-stop', 'Stop', !this.line, () => this.stop()),
        button('sweep-more', 'Vary another option', this.wider || axes.length >= 8, more),
      ),
      (this.progress = h('p', { id: 'sweep-progress', role: 'status' }, this.note)),
    );
  }

  // ---- the run ----

  async run() {
    const { service, state } = this.app,
      line = (this.line = service.open());
    const preset = (kind, name) => service.preset(kind, name);
    this.wider = false;
    this.rows = [];
    this.show();
    try {
      const grid = JSON.parse((await line.ask({ op: 'sweep', sweep: state.sweep })).text);
      if (grid.error) throw new Error(`${grid.error}${grid.hint ? `; ${grid.hint}` : ''}`);
      const all = combinations(grid),
        command = sweepCommand(state);
      Object.assign(this, { grid, command });
      for (const values of all) {
        this.say(`${this.rows.length} of ${all.length} planned`);
        const request = pointRequest(state, grid, values, preset);
        const { names, error, ...row } = JSON.parse((await line.ask(request)).text);
        if (error) throw new Error(error);
        this.names = names;
        this.rows.push({ values, ...row });
      }
      this.stop(`${all.length} plans`);
    } catch (error) {
      this.stop(error.message);
    }
  }

  say(note) {
    this.note = note;
    this.progress.textContent = note;
  }

  // Ends the run; what was planned stays.
  stop(note) {
    if (!this.line) return;
    this.line.worker.terminate();
    this.line = null;
    this.note = note || `Stopped after ${this.rows.length}`;
    this.show();
  }

  // ---- the figures ----

  chart() {
    const [name, key, format, , flat] = this.figure;
    const [along, ...others] = this.grid.axes;
    const places = placesOf(along.values);
    const series = new Map(),
      misses = [];
    for (const { values, point } of this.rows) {
      const x = places.get(values[0]);
      const own = others.map((axis, i) => `${labelOf(axis.key)} ${values[i + 1]}`).join(', ');
      if (!series.has(own)) series.set(own, []);
      if (!point.fits) misses.push([x, `${along.key} ${values[0]} ${own}: ${point.reason}`]);
      else if (key === 'step_seconds')
        series.get(own).push([x, point[key], point.step_seconds_low, point.step_seconds_high]);
      else series.get(own).push([x, point[key]]);
    }
    const shown = [...series].slice(0, SWEPT_COLOURS.length).map(([own, points], i) => {
      const colour = SWEPT_COLOURS[i],
        line = `l-${colour}`;
      return { name: own, line, band: line, dot: `c-${colour}`, points };
    });
    const text = new Map([...places].map(([value, place]) => [place, value]));
    const limited = key === 'memory_bytes';
    const capacity = this.rows
      .filter(r => r.point.fits)
      .map(r => [places.get(r.values[0]), r.point.capacity_bytes]);
    const lines = limited ? [...shown, { line: 'limit', points: capacity }] : shown;
    const axes = {
      labels: labelOf(along.key),
      format,
      flat,
      misses,
      ticks: [...places].map(([value, place]) => [place, value]),
      title: (own, x, y) =>
        `${along.key} ${text.get(x)}${own ? `, ${own}` : ''}: ${format(y)}`,
    };
    const more = series.size - shown.length;
    return [
      curveChart(`${name} against ${labelOf(along.key)}`, lines, [], axes),
      others.length > 0 ? legendOf(shown.map(c => [c.dot, c.name])) : null,
      limited ? h('p', { class: 'dim' }, 'The dashed line is the capacity.') : null,
      misses.length > 0 ? h('p', { class: 'dim' }, '× marks values without a plan.') : null,
      more > 0 ? h('p', { class: 'dim' }, `${more} more combinations are in the table.`) : null,
    ];
  }

  table() {
    const { axes } = this.grid;
    const figures = SWEPT_FIGURES.filter(f => this.rows.some(r => r.point[f[1]] !== undefined));
    const range = p => [p.step_seconds_low, p.step_seconds_high].map(formatSeconds).join(' to ');
    const take = (values, i) => {
      const changes = Object.fromEntries(axes.map(({ key }, k) => [key, values[k]]));
      return h(
        'button',
        {
          type: 'button',
          class: 'small',
          'aria-label': `Set the form to ${values.join(', ')}`,
          onclick: () => this.app.apply(changes),
        },
        `${i + 1}`,
      );
    };
    const named = axes.map(a => labelOf(a.key));
    return tableOf(
      'The best plan with each combination; a number sets the form to its values',
      ['', ...named, ...figures.map(f => f[3]), 'step in 4 of 5 cases', 'plan'],
      this.rows.map(({ values, point }, i) => [
        take(values, i),
        ...values,
        ...figures.map(([, key, format]) => (point.fits ? format(point[key]) : '')),
        point.fits ? range(point) : '',
        point.fits ? `${formatLayout(point)}; ${formatSchedule(point)}` : point.reason,
      ]),
    );
  }

  // The address of the CSV, as a file.
  csv() {
    if (this.url) URL.revokeObjectURL(this.url);
    const lines = [this.names, ...this.rows.map(row => row.line)];
    return (this.url = URL.createObjectURL(new Blob(lines, { type: 'text/csv' })));
  }

  results() {
    if (this.rows.length === 0 || this.line) return null;
    const choose = h(
      'select',
      { id: 'swept-figure', 'aria-label': 'Figure that the chart shows' },
      SWEPT_FIGURES.filter(f => this.rows.some(r => r.point[f[1]] > 0)).map(f =>
        h('option', { value: f[1], selected: f === this.figure }, f[0]),
      ),
    );
    choose.addEventListener('change', () => {
      this.figure = SWEPT_FIGURES.find(f => f[1] === choose.value);
      this.show();
      document.getElementById('swept-figure').focus();
    });
    return [
      h('p', { class: 'read' }, h('code', { id: 'sweep-command' }, this.command)),
      h(
        'div',
        { class: 'bar' },
        choose,
        h('a', { id: 'sweep-csv', href: this.csv(), download: 'sweep.csv' }, 'Save as CSV'),
      ),
      this.chart(),
      this.table(),
    ];
  }

  // ---- the section ----

  section() {
    this.element = h('div', {});
    this.show();
    return section(
      'sweep',
      'Sweep',
      'The best plan for each value of an option, or for each combination of several: 64..4096 ' +
        'doubles 64, A,B,C is a list. The first option runs along the chart.',
      this.element,
    );
  }

  show() {
    const parts = [this.form(), this.results()].flat(Infinity);
    this.element.replaceChildren(...parts.filter(Boolean));
  }
}

const labelOf = key =>
  (KNOB_GROUPS.flatMap(([, knobs]) => knobs).find(k => k[0] === key) || [key, key])[1];

// Options that vary have no value of their own.
function sweepCommand(state) {
  const swept = Object.fromEntries(state.sweep.map(text => [text.split('=')[0], '']));
  const plan = commandOf({ ...changed(state, swept), compared: [] });
  return [plan, ...state.sweep.map(text => `--sweep ${text}`)].join(' ');
}
