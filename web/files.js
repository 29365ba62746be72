// SPDX-License-Identifier: Apache-2.0
// Files in and out: what is dropped on the page or chosen (a model's config.json, a cluster or
// engine file, RUN.yaml, metrics.jsonl), and what the page writes (RUN.yaml, scripts, JSON).
'use strict';

// ---- in ----

// The kind of a file, from its name and content: {kind, ...}.
function recognize(name, text) {
  if (/\.jsonl$/.test(name)) return { kind: 'metrics', rows: readMetrics(text) };
  if (/\.json$/.test(name)) {
    const tree = JSON.parse(text);
    if (tree.model_type || tree.architectures) return { kind: 'model', tree };
    throw new Error(`${name}: neither model_type nor architectures: not a model's config.json`);
  }
  if (isScript(text) || /\.sh$/.test(name)) return { kind: 'script', tree: null };
  if (/\.(toml|py)$/.test(name)) {
    throw new Error(
      `${name}: configurations of other software are read by the program: ` +
        `orthant plan --from ${shellWord(name)}`,
    );
  }
  const tree = parseYaml(text);
  if (tree.levels || tree.device || tree.base || tree.pools) return { kind: 'cluster', tree };
  if (tree.kernels || tree.overlap_reduce) return { kind: 'engine', tree };
  if (tree.parallel || tree.batch) return { kind: 'run', tree };
  throw new Error(
    `${name}: not recognized: a model's config.json, a cluster or engine file, ` +
      'RUN.yaml, a launch script of Megatron-LM or metrics.jsonl',
  );
}

// The steps of a run that a prediction can be compared with: all but the first, which is slower.
function readMetrics(text) {
  const rows = [];
  text.split('\n').forEach((line, i) => {
    if (line.trim() === '') return;
    let row;
    try {
      row = JSON.parse(line);
    } catch {
      throw new Error(`line ${i + 1} is not JSON`);
    }
    if (row.step_seconds > 0) rows.push(row);
  });
  if (rows.length < 2) throw new Error('it has fewer than two lines with step_seconds');
  return rows.slice(1);
}

function changesOfRun(tree) {
  const run = plainValue(tree),
    p = run.parallel || {},
    b = run.batch || {},
    out = {};
  for (const key of ['tp', 'pp', 'vpp', 'cp', 'ep', 'etp', 'zero', 'pipeline']) {
    if (p[key] !== undefined) out[key] = String(p[key]);
  }
  if (typeof p.recompute === 'string') out.recompute = p.recompute;
  for (const key of ['global_batch_size', 'micro_batch_size'])
    if (b[key]) out[key] = String(b[key]);
  if (run.data && run.data.sequence_length) out.sequence_length = String(run.data.sequence_length);
  if (run.tokens) out.tokens = String(run.tokens);
  if (typeof run.model === 'string') out.model = run.model;
  return out;
}

async function takeFiles(list, app) {
  for (const file of list) {
    try {
      const text = await file.text(),
        found = recognize(file.name, text);
      if (found.kind === 'metrics') app.measure(file.name, found.rows);
      else if (found.kind === 'run') app.apply(changesOfRun(found.tree));
      else app.bring(found.kind, { name: file.name, text, tree: found.tree, source: '' });
      app.say(`${file.name} is used`);
    } catch (error) {
      app.say(
        error.message.startsWith(file.name) ? error.message : `${file.name}: ${error.message}`,
      );
    }
  }
}

function listenForDrops(app) {
  let depth = 0;
  const mark = on => document.body.classList.toggle('dropping', on);
  document.addEventListener('dragenter', e => {
    e.preventDefault();
    mark(++depth > 0);
  });
  document.addEventListener('dragleave', () => mark(--depth > 0));
  document.addEventListener('dragover', e => e.preventDefault());
  document.addEventListener('drop', e => {
    e.preventDefault();
    depth = 0;
    mark(false);
    takeFiles(e.dataTransfer.files, app);
  });
}

// ---- out ----

const OUTPUTS = [
  ['run', 'RUN.yaml'],
  ['mpirun', 'mpirun'],
  ['sbatch', 'Slurm'],
  ['mpijob', 'Kubernetes'],
  ['command', 'Command'],
  ['json', 'JSON'],
];

// With the launch script of the plan's software, if the program knows how to write it.
function outputsOf(app) {
  const { files } = app.state,
    { engine } = app.answer || { engine: 'orthant' };
  const tree = files.engine
    ? files.engine.tree
    : engine === 'orthant'
      ? {}
      : app.service.preset('engines', engine);
  const own = tree.software ? [[tree.software.text, tree.software.text]] : [];
  return [OUTPUTS[0], ...own, ...OUTPUTS.slice(1)];
}

async function outputText(kind, app) {
  if (kind === 'command') return commandOf(app.state) + '\n';
  if (kind === 'json') return app.text + '\n';
  const answer = await app.service.detail('emit', { kind, index: app.state.plan });
  return answer.error
    ? `# ${answer.error}\n${answer.hint ? `# ${answer.hint}\n` : ''}`
    : answer.text;
}

function measuredView(app) {
  const m = app.measured;
  if (!m || !app.answer) return null;
  const low = m.plan.interval80.step_seconds[0],
    high = m.plan.interval80.step_seconds[1];
  const inside = m.seconds >= low && m.seconds <= high;
  return h(
    'div',
    { class: 'finding', id: 'measured' },
    h('h3', {}, `${m.name}: measured beside predicted`),
    h(
      'p',
      {},
      `${m.count} steps, median ${formatSeconds(m.seconds)}; this plan ` +
        `${formatSeconds(m.plan.step_seconds)}, ` +
        `${(100 * (m.plan.step_seconds / m.seconds - 1)).toFixed(1)} %; ` +
        `${inside ? 'inside' : 'outside'} the range of 4 in 5 cases, ${formatSeconds(low)} to ` +
        `${formatSeconds(high)}.`,
    ),
    h(
      'div',
      { class: 'remedies' },
      h(
        'button',
        { type: 'button', id: 'calibrate', onclick: () => app.calibrate() },
        'Calibrate the cluster by it',
      ),
    ),
  );
}

function filesSection(app) {
  const root = document.getElementById('files');
  const area = h('pre', { id: 'output', tabindex: 0, 'aria-label': 'Text to copy' });
  const show = async kind => {
    const text = await outputText(kind, app);
    area.textContent = text;
    for (const b of buttons.children) {
      b.setAttribute('aria-pressed', String(b.dataset.kind === kind));
    }
  };
  const buttons = h(
    'div',
    { class: 'bar' },
    outputsOf(app).map(([kind, name]) =>
      h(
        'button',
        { type: 'button', 'data-kind': kind, 'aria-pressed': 'false', onclick: () => show(kind) },
        name,
      ),
    ),
  );
  const input = h('input', {
    type: 'file',
    id: 'file-input',
    multiple: true,
    onchange: e => takeFiles(e.target.files, app),
  });
  const own = Object.entries(app.state.files).map(([kind, file]) =>
    h(
      'button',
      { type: 'button', onclick: () => app.bring(kind, null) },
      `Use presets instead of ${file.name}`,
    ),
  );
  root.replaceChildren(
    h('h2', { id: 'files-title' }, 'Files'),
    h(
      'p',
      { class: 'read' },
      'Drop files anywhere on the page: a model’s config.json, a cluster or engine ' +
        'file, RUN.yaml, a launch script of Megatron-LM, or metrics.jsonl of a run. They stay in ' +
        'this page.',
    ),
    h('p', {}, h('label', { for: 'file-input' }, 'Or choose: '), input),
    h('div', { class: 'bar' }, own),
    measuredView(app) || '',
    h('h3', {}, 'Take this plan with you'),
    buttons,
    area,
    h(
      'button',
      {
        type: 'button',
        id: 'copy-output',
        onclick: e => copyText(area.textContent, e.currentTarget),
      },
      'Copy',
    ),
  );
  if (app.plan) show('run');
  else area.textContent = commandOf(app.state);
}
