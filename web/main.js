// SPDX-License-Identifier: Apache-2.0
// State in, page out: reads the fragment, asks the worker, draws. Answers to an older state are
// dropped by the service.
'use strict';

// Milliseconds without a change after which the worker may be busy.
const PAUSE = 250;

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

  sayAtEnd(text) {
    document.getElementById('searched').textContent = text;
  }

  // ---- state ----

  read() {
    if (this.written === location.hash) return;
    this.written = location.hash;
    try {
      this.begin(readFragment(location.hash));
    } catch (error) {
      this.begin(readFragment(''));
      this.say(`The link is damaged: ${error.message}`);
    }
    this.compute();
  }

  // Another state, with a sweep of its own.
  begin(state) {
    if (this.sweep) this.sweep.stop();
    this.state = state;
    this.sweep = new Sweep(this);
  }

  write() {
    this.written = writeFragment(this.state);
    history.pushState(null, '', this.written);
  }

  apply(changes) {
    this.state = changed(this.state, changes);
    const { script } = this.state.files;
    if (!script && changes.engine === 'orthant') this.state.engine = '';
    this.state.plan = 0;
    this.write();
    return this.compute();
  }

  bring(kind, file) {
    const { cluster, model } = this.state;
    if (file && kind === 'script') {
      const files = this.state.files.cluster ? { cluster: this.state.files.cluster } : {};
      this.begin({ cluster, model, files, settings: {}, compared: [], sweep: [], tour: -1 });
    }
    if (file && kind === 'model') delete this.state.files.script;
    if (file) this.state.files[kind] = file;
    else delete this.state.files[kind];
    this.state.plan = 0;
    this.write();
    return this.compute();
  }

  tour(at) {
    const files = at >= 0 ? {} : this.state.files;
    const knobs = at >= 0 ? TOUR[at][1] : this.state;
    const rest = { settings: {}, compared: [], sweep: [], plan: 0, tour: at };
    this.begin({ ...knobs, files, ...rest });
    this.write();
    this.compute();
    if (at >= 0) document.getElementById('tour').scrollIntoView({ block: 'nearest' });
  }

  // The files that the plans are compared with.
  compare(files) {
    this.state.compared = files;
    this.write();
    return this.compute();
  }

  choose(index) {
    this.state.plan = index;
    this.write();
    return this.detail();
  }

  // ---- answers ----

  async compute() {
    const turn = (this.turn = (this.turn || 0) + 1);
    this.asked = performance.now();
    this.knobs.show(this.state);
    showTour(this);
    const given = isGiven(this.state);
    if (given) this.show(GIVEN.answer);
    const late = setTimeout(() => {
      if (!given) document.body.classList.add('busy');
      this.say(given ? 'The charts follow…' : 'Searching…');
    }, 150);
    let found;
    found = await this.ask(this.state);
    if (found.answer.error && this.state.compared.length > 0) {
      // A file of another job does not hide the plan.
      const alone = await this.ask({ ...this.state, compared: [] });
      if (!alone.answer.error) found = { ...alone, uncompared: found.answer.error };
    }
    clearTimeout(late);
    if (turn !== this.turn) return;
    document.body.classList.remove('busy');
    if (found.answer.error) return given ? this.keep(found.answer) : this.refuse(found.answer);
    if (given) this.ms = found.ms;
    else Object.assign(this, { uncompared: null }, found);
    this.knobs.showError(null);
    this.say('');
    this.sayAtEnd(
      `Searched ${formatCount(found.answer.search.candidates)} configurations in ` +
        `${formatSeconds(found.ms / 1e3)}.`,
    );
    return this.detail();
  }

  async ask(state) {
    try {
      return await this.service.plan(state);
    } catch (error) {
      return { text: '', answer: { error: error.message, hint: '' }, ms: 0 };
    }
  }

  // An answer that needs no search, before the details of its plans.
  show(answer) {
    Object.assign(this, { answer, text: JSON.stringify(answer, null, 2), ms: 0 });
    this.data = { remedies: null, details: null };
    this.choosePlan();
    this.draw();
  }

  choosePlan() {
    if (this.state.plan >= this.answer.plans.length) this.state.plan = 0;
    this.plan = this.answer.plans[this.state.plan] || null;
    this.knobs.showChosen(this.answer, this.plan || this.answer.nearest);
  }

  // The page has an answer of the program that it cannot compute itself.
  keep({ error }) {
    this.say(`This plan was made by the program; charts of its stages are missing: ${error}`);
    this.done();
  }

  refuse({ error, hint }) {
    const key = /^([a-z_]+)[:=. ]/.exec(error);
    this.answer = this.plan = null;
    this.sayAtEnd('');
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
    const turn = this.turn;
    this.choosePlan();
    const { plan } = this,
      index = this.state.plan;
    const remedies = plan ? [] : (await this.service.detail('remedies')).remedies;
    const details = await this.service.detail('stages', { index });
    if (turn !== this.turn) return;
    this.data = { remedies, details };
    this.draw();
    const timeline = await this.service.detail('timeline', { index });
    Object.assign(this.data, { timeline });
    if (plan) {
      this.data.devices = await this.service.detail('devices', { index });
      // It is a limit of one kind of device: a mixed cluster has none.
      if (!this.answer.cluster.pools)
        this.data.crossover = await this.service.detail('crossover', this.numbers());
    }
    if (turn !== this.turn) return;
    this.draw();
    if (plan && this.ms < 400) {
      await new Promise(resolve => setTimeout(resolve, PAUSE));
      if (turn !== this.turn) return;
      await this.more();
    }
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

  // Sets the form to the fewest devices that end the run in `time`.
  async meet(time) {
    this.say('Searching…');
    const most = { ...this.state, gpus: String(this.answer.cluster.devices), compared: [] };
    const { answer } = await this.service.plan(most, { op: 'deadline', deadline: time });
    await (answer.error ? this.compute() : this.apply({ gpus: String(answer.devices) }));
    this.say(answer.error || answer.text);
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
    const { details } = data;
    const { script } = this.state.files;
    const out = [
      [
        'script',
        [answer.imported],
        () => scriptSection(answer, plan, script ? script.name : 'the file', apply),
      ],
      ['memory', [details], () => memorySection(details, this.memoryRange())],
      ['mfu', [details], () => mfuSection(details)],
      ['timeline', [data.timeline], () => timelineSection(data.timeline, details)],
    ];
    const sweep = ['sweep', [this.sweep], () => this.sweep.section()];
    const [first, last] = this.sweep.given ? [[sweep], []] : [[], [sweep]];
    if (!plan) return [...first, ...out, ...last];
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
      ...first,
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
      [
        'compare',
        [plan, answer.compared || plan],
        () => compareSection(this, files => this.compare(files)),
      ],
      ...last,
      ['run', [plan], () => runSection(answer, plan, time => this.meet(time))],
    ];
  }

  // Of the plan, with allocator and runtime; null if nothing fits.
  memoryRange() {
    if (!this.plan) return null;
    const { interval80, memory } = this.plan;
    return interval80.peak.map(v => (v * usedMemory(memory)) / memory.peak);
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
    if (this.measured && data.details)
      this.measured.plan = plan || {
        ...data.details.estimate,
        interval80: { step_seconds: data.details.estimate.interval80 },
      };
    const key = [data.details, this.measured && this.measured.seconds];
    if (data.details && (!this.filesKey || key.some((k, i) => k !== this.filesKey[i]))) {
      filesSection(this);
      this.filesKey = key;
    }
    this.measureTimes(start);
  }

  // Milliseconds of a drawing that began at `start`: of the page's first one since the page was
  // opened, of a question's first one since it was asked, of the last one itself.
  measureTimes(start) {
    const { dataset } = document.body,
      now = performance.now();
    if (!dataset.first) dataset.first = now.toFixed(0);
    if (this.asked) dataset.shown = (now - this.asked).toFixed(0);
    this.asked = 0;
    dataset.draw = (now - start).toFixed(1);
  }

  // After a change of width or colours.
  drawAll() {
    this.nodes.clear();
    this.draw();
  }
}

try {
  window.app = new App(new Service());
} catch (error) {
  document.getElementById('status').textContent =
    `This browser cannot run the page: ${error.message}`;
}
