// SPDX-License-Identifier: Apache-2.0
// State in, page out: reads the fragment, asks the worker, draws. Answers to an older state are
// dropped by the service.
'use strict';

class App {
  constructor(service) {
    this.service = service;
    this.toggles = { critical: false, dense: false, flat: false };
    this.knobs = new Knobs(document.getElementById('knobs'), service, changes =>
      this.apply(changes),
    );
    this.sections = document.getElementById('sections');
    document.getElementById('panel').open = innerWidth > 860;
    this.answer = this.plan = this.measured = null;
    this.nodes = new Map();
    window.addEventListener('hashchange', () => this.read());
    window.addEventListener('popstate', () => this.read());
    let timer;
    window.addEventListener('resize', () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.drawAll(), 120);
    });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.drawAll());
    listenForDrops(this);
    this.listenToHeader();
    this.read();
  }

  listenToHeader() {
    document.getElementById('tour-open').onclick = () => this.tour(this.state.tour >= 0 ? -1 : 0);
    document.getElementById('copy-link').onclick = e => copyText(location.href, e.currentTarget);
    document.getElementById('theme').onclick = () => {
      const dark = getComputedStyle(document.documentElement).colorScheme.includes('dark');
      document.documentElement.dataset.theme = dark ? 'light' : 'dark';
      this.drawAll();
    };
  }

  say(text) {
    document.getElementById('status').textContent = text;
  }

  // ---- state ----

  read() {
    if (this.written === location.hash) return;
    this.written = location.hash;
    try {
      this.state = readFragment(location.hash);
    } catch (error) {
      this.state = readFragment('');
      this.say(`The link is damaged: ${error.message}`);
    }
    this.compute();
  }

  write() {
    this.written = writeFragment(this.state);
    history.pushState(null, '', this.written);
  }

  apply(changes) {
    Object.assign(this.state, changes);
    for (const kind of Object.keys(FILE_KINDS)) {
      if (kind in changes && changes[kind] !== 'file') delete this.state.files[kind];
    }
    if ('engine' in changes && changes.engine === 'orthant') this.state.engine = '';
    this.state.plan = 0;
    this.write();
    return this.compute();
  }

  bring(kind, file) {
    if (file) this.state.files[kind] = file;
    else delete this.state.files[kind];
    this.state.plan = 0;
    this.write();
    return this.compute();
  }

  tour(at) {
    const files = at >= 0 ? {} : this.state.files;
    const knobs = at >= 0 ? TOUR[at][1] : this.state;
    this.state = { ...knobs, files, settings: {}, plan: 0, tour: at };
    this.write();
    this.compute();
    if (at >= 0) document.getElementById('tour').scrollIntoView({ block: 'nearest' });
  }

  choose(index) {
    this.state.plan = index;
    this.write();
    return this.detail();
  }

  // ---- answers ----

  async compute() {
    const turn = (this.turn = (this.turn || 0) + 1);
    this.knobs.show(this.state);
    showTour(this);
    const late = setTimeout(() => {
      document.body.classList.add('busy');
      this.say('Searching…');
    }, 150);
    let found;
    try {
      found = await this.service.plan(this.state);
    } catch (error) {
      found = { text: '', answer: { error: error.message, hint: '' }, ms: 0 };
    }
    clearTimeout(late);
    if (turn !== this.turn) return;
    document.body.classList.remove('busy');
    this.text = found.text;
    this.ms = found.ms;
    if (found.answer.error) return this.refuse(found.answer);
    this.answer = found.answer;
    this.knobs.showError(null);
    this.say(
      `${formatCount(found.answer.search.candidates)} configurations in ` +
        `${formatSeconds(found.ms / 1e3)}`,
    );
    return this.detail();
  }

  refuse({ error, hint }) {
    const key = /^([a-z_]+)[:=. ]/.exec(error);
    this.answer = this.plan = null;
    this.knobs.clearChosen();
    this.knobs.showError(key ? key[1] : null);
    this.say('');
    document
      .getElementById('result')
      .replaceChildren(
        h('h2', { class: 'bad' }, 'Not a job yet'),
        h('p', {}, error),
        hint ? h('p', { class: 'dim' }, hint) : '',
      );
    this.sections.replaceChildren();
    this.nodes.clear();
    this.filesKey = null;
    filesSection(this);
    this.done();
  }

  // Everything about the chosen plan. Sections appear as they are answered.
  async detail() {
    const turn = this.turn,
      answer = this.answer;
    if (this.state.plan >= answer.plans.length) this.state.plan = 0;
    const plan = (this.plan = answer.plans[this.state.plan] || null);
    const index = this.state.plan;
    const remedies = plan ? [] : (await this.service.detail('remedies')).remedies;
    const details = await this.service.detail('stages', { index });
    if (turn !== this.turn) return;
    this.data = { remedies, details };
    this.knobs.showChosen(answer, plan || answer.nearest);
    this.draw();
    const timeline = await this.service.detail('timeline', { index });
    Object.assign(this.data, { timeline });
    if (plan) {
      this.data.devices = await this.service.detail('devices', { index });
      this.data.crossover = await this.service.detail('crossover', this.numbers());
    }
    if (turn !== this.turn) return;
    this.draw();
    if (plan && this.ms < 400) await this.more();
    this.done();
  }

  // Further plans cost a longer search: asked for, unless the search is short.
  async more() {
    const turn = this.turn;
    const pareto = await this.service.detail('pareto');
    if (turn !== this.turn) return;
    this.data.pareto = pareto;
    this.draw();
  }

  numbers() {
    return Object.fromEntries(Object.entries(this.toggles).map(([k, v]) => [k, v ? 1 : 0]));
  }

  async toggle(name) {
    this.toggles[name] = !this.toggles[name];
    this.data.crossover = await this.service.detail('crossover', this.numbers());
    this.draw();
    document.getElementById(`toggle-${name}`).focus();
  }

  measure(name, rows) {
    const sorted = rows.map(r => r.step_seconds).sort((a, b) => a - b);
    this.measured = { name, count: rows.length, seconds: sorted[Math.floor(sorted.length / 2)] };
    if (!this.answer) return this.say('There is no plan yet to compare the run with.');
    this.draw();
    document.getElementById('measured').scrollIntoView({ block: 'center' });
  }

  async calibrate() {
    const found = await this.service.detail('calibrate', {
      index: this.state.plan,
      seconds: this.measured.seconds,
    });
    if (found.error) return this.say(found.error);
    const text = JSON.stringify(found.cluster);
    await this.bring('cluster', {
      ...fileOf('cluster', `${found.cluster.name}.calibrated.yaml`, text),
    });
    this.say(
      `Computation takes ${found.compute.toFixed(3)} of the time predicted, exposed ` +
        `communication ${found.exposed.toFixed(3)}.`,
    );
  }

  done() {
    document.body.dataset.ready = String(this.turn);
    document.body.dataset.ms = String(Math.round(this.ms));
  }

  // ---- drawing ----

  // What the sections show: [id, what it depends on, how it is built]. A section is built again
  // only when something that it depends on has changed.
  list() {
    const { answer, plan, data } = this,
      apply = changes => this.apply(changes);
    const shown = plan || data.details.estimate,
      scale = usedMemory(shown.memory) / shown.memory.peak;
    const range = plan ? plan.interval80.peak.map(v => v * scale) : null;
    const out = [
      ['memory', [data.details], () => memorySection(data.details, range)],
      ['mfu', [data.details], () => mfuSection(data.details)],
      ['timeline', [data.timeline], () => timelineSection(data.timeline, data.details)],
    ];
    if (!plan) return out;
    const points = data.devices && data.devices.points.length > 0;
    const more = () =>
      section(
        'pareto',
        'Time against memory',
        null,
        h(
          'button',
          {
            type: 'button',
            id: 'more',
            onclick: e => {
              e.currentTarget.disabled = true;
              e.currentTarget.textContent = 'Searching…';
              this.more();
            },
          },
          'Search for more plans',
        ),
      );
    return [
      ...out,
      ['devices', [points && data.devices], () => devicesSection(data.devices, answer)],
      [
        'crossover',
        [data.crossover],
        () => crossoverSection(data.crossover, answer, this.toggles, name => this.toggle(name)),
      ],
      [
        'pareto',
        [data.details, data.pareto || 'none'],
        () => (data.pareto ? paretoSection(data.pareto, answer, plan, apply) : more()),
      ],
      ['plans', [plan], () => plansSection(answer, this.state.plan, i => this.choose(i))],
      ['run', [plan], () => runSection(answer, plan)],
    ];
  }

  // The section `id`, built before or now; null without its data. What was open stays open.
  built([id, keys, build]) {
    if (!keys[0]) return null;
    const old = this.nodes.get(id);
    if (old && keys.every((k, i) => k === old.keys[i])) return old.node;
    const node = build();
    const label = d => d.querySelector('summary').textContent.slice(0, 12);
    const open = new Set(
      old && old.node ? [...old.node.querySelectorAll('details[open]')].map(label) : [],
    );
    if (node) for (const d of node.querySelectorAll('details')) d.open = open.has(label(d));
    this.nodes.set(id, { keys, node });
    return node;
  }

  draw() {
    const { answer, plan, data } = this;
    if (!answer || !data) return;
    const start = performance.now();
    document.getElementById('result').replaceChildren(
      ...resultOf(answer, plan, this.state, data.remedies, changes => this.apply(changes))
        .flat()
        .filter(Boolean),
    );
    const step = plan ? formatSeconds(plan.step_seconds) : 'out of memory';
    document.title = `${titleOf(answer)}: ${step}`;
    const parts = this.list()
      .map(part => this.built(part))
      .filter(Boolean);
    parts.forEach((part, i) => {
      const now = this.sections.children[i];
      if (now === part) return;
      if (now) now.before(part);
      else this.sections.append(part);
      if (part.timeline) part.timeline.draw();
    });
    while (this.sections.children.length > parts.length) this.sections.lastChild.remove();
    if (this.measured)
      this.measured.plan = plan || {
        ...data.details.estimate,
        interval80: { step_seconds: data.details.estimate.interval80 },
      };
    const key = [data.details, this.measured && this.measured.seconds];
    if (!this.filesKey || key.some((k, i) => k !== this.filesKey[i])) filesSection(this);
    this.filesKey = key;
    document.body.dataset.draw = (performance.now() - start).toFixed(1);
  }

  // After a change of width or colours.
  drawAll() {
    this.nodes.clear();
    this.draw();
  }
}

(async () => {
  const service = new Service();
  try {
    await service.start();
    window.app = new App(service);
  } catch (error) {
    document.getElementById('status').textContent =
      `This browser cannot run the page: ${error.message}`;
  }
})();
