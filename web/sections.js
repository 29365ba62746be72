// SPDX-License-Identifier: Apache-2.0
// The charts of the page, each with what it shows, how to read it, and its figures as a table.
'use strict';

function section(id, title, read, ...content) {
  return h(
    'section',
    { class: 'card', id, 'aria-labelledby': `${id}-title` },
    h('h2', { id: `${id}-title` }, title),
    read ? h('p', { class: 'read' }, read) : null,
    content,
  );
}

// ---- memory ----

function memorySection(details, range) {
  const stages = details.stages;
  const used = MEMORY_CLASSES.filter(([key, name]) =>
    stages.some(t => memoryParts(t.memory).find(p => p[0] === name)[1] > 0),
  );
  const fullest = stages.reduce((a, b) => (usedMemory(b.memory) > usedMemory(a.memory) ? b : a));
  const parts = new Map(memoryParts(fullest.memory).map(([name, bytes]) => [name, bytes]));
  return section(
    'memory',
    'Memory of each stage',
    'A bar is a device of a stage at its fullest; it must end left of the thin line, which ' +
      'leaves the memory margin below the capacity. The list gives the fullest stage.',
    memoryChart(stages, range),
    legendOf(used.map(([, name, cls]) => [cls, name, formatBytes(parts.get(name))])),
    foldedTable(
      'Memory of each stage',
      ['stage', 'blocks', ...used.map(u => u[1]), 'in all', 'of capacity'],
      stages.map((t, i) => {
        const own = new Map(memoryParts(t.memory).map(([name, bytes]) => [name, bytes]));
        return [
          `stage ${i}`,
          `${t.blocks}`,
          ...used.map(u => formatBytes(own.get(u[1]))),
          formatBytes(usedMemory(t.memory)),
          formatShare(usedMemory(t.memory) / t.memory.capacity),
        ];
      }),
    ),
  );
}

// ---- MFU ----

function mfuSection(details) {
  const e = details.estimate,
    losses = lossesOf(e, details.terms);
  const range = [
    (e.mfu * e.step_seconds) / e.interval80[1],
    (e.mfu * e.step_seconds) / e.interval80[0],
  ];
  return section(
    'mfu',
    'From peak to MFU',
    'Each bar is what one loss takes of the peak; what remains is MFU, with its range of 4 in 5 ' +
      'cases.',
    waterfallChart(e, losses, range),
    foldedTable(
      'Losses between peak and MFU',
      ['loss', 'share of the step', 'a step', 'meaning'],
      [
        ...losses.map(([name, share, meaning]) => [
          name,
          formatShare(share),
          formatSeconds(share * e.step_seconds),
          meaning,
        ]),
        ['MFU', formatShare(e.mfu), formatSeconds(e.mfu * e.step_seconds), 'what the model needs'],
      ],
    ),
  );
}

// ---- timeline ----

function timelineSection(data, details) {
  const read =
    'Time runs to the right, a row is a stage, a number a micro-batch; later chunks are ' +
    'paler. Grey is waiting. Wheel with Ctrl, drag, or the keys: arrows, + and −, 0.';
  if (!data.complete) {
    return section(
      'timeline',
      'One step, stage by stage',
      null,
      h(
        'p',
        {},
        'This step has too many actions to draw. `orthant plan --trace` writes all of them.',
      ),
    );
  }
  const timeline = new Timeline(data, details);
  const out = section(
    'timeline',
    'One step, stage by stage',
    read,
    timeline.element,
    legendOf(
      ACTION_KINDS.filter((k, i) => timeline.actions.some(a => a.kind === i)).map(
        ([name, ,], i) => [
          ['c-compute', 'c-tp', 'c-pp', 'c-update'][ACTION_KINDS.findIndex(k => k[0] === name)],
          name,
        ],
      ),
    ),
    timeline.table(),
  );
  out.timeline = timeline;
  return out;
}

// ---- devices ----

function devicesSection(data, answer) {
  const points = data.points;
  const names = points[0].terms
    .map(t => t.name)
    .filter(name =>
      points.some(p => p.terms.find(t => t.name === name).seconds > 0.004 * p.step_seconds),
    );
  const series = [
    {
      name: 'step',
      line: 'l-total',
      dot: 'c-total',
      points: points.map(p => [p.devices, p.step_seconds]),
    },
    ...names.map(name => ({
      name,
      line: TERM_CLASS[name].replace('c-', 'l-'),
      dot: TERM_CLASS[name],
      points: points.map(p => [p.devices, p.terms.find(t => t.name === name).seconds]),
    })),
  ];
  return section(
    'devices',
    'The same batch on more devices',
    'The layout with more or less data parallelism, simulated at each point. Where a waiting ' +
      'time ' +
      'crosses compute, more devices mostly wait.',
    curveChart(
      'Terms of a step against devices',
      series,
      [[answer.cluster.devices, 'now', 0]],
    ),
    legendOf(series.map(c => [c.dot, c.name])),
    foldedTable(
      'Step against devices',
      ['devices', 'step', '4 of 5 cases', 'MFU', 'fits', ...names],
      points.map(p => [
        `${p.devices}`,
        formatSeconds(p.step_seconds),
        p.interval80.map(formatSeconds).join(' to '),
        formatShare(p.mfu),
        p.fits ? 'yes' : 'no',
        ...names.map(n => formatSeconds(p.terms.find(t => t.name === n).seconds)),
      ]),
    ),
  );
}

// ---- crossover ----

// `toggles` {critical, dense, flat}; `toggle(name)` asks again.
function crossoverSection(data, answer, toggles, toggle) {
  const most =
    8 * Math.max(data.crossover, answer.cluster.devices, answer.limits.batch_floor_devices);
  const shown = data.points.filter(p => p.devices <= most);
  const of = (a, b) => shown.map(p => [p.devices, p[a] + (b ? p[b] : 0)]);
  const pair = toggles.flat ? ['flat_gather', 'flat_reduce'] : ['gather', 'reduce'];
  const compute = {
    name: 'compute',
    line: 'l-compute',
    dot: 'c-compute',
    points: of('forward', 'backward'),
  };
  const traffic = {
    name: 'gathers and reductions',
    line: 'l-dp',
    dot: 'c-dp',
    points: of(...pair),
  };
  const at = toggles.flat ? data.crossover_flat : data.crossover;
  const check = (name, label) =>
    h(
      'label',
      { class: 'toggle' },
      h('input', {
        type: 'checkbox',
        checked: toggles[name],
        id: `toggle-${name}`,
        onchange: () => toggle(name),
      }),
      label,
    );
  const sparse = answer.model.active_parameters < answer.model.parameters;
  return section(
    'crossover',
    'Where sharded weights stop hiding',
    `ZeRO 3 alone, by bandwidth: each device computes its share of ${formatCount(data.tokens)} ` +
      `tokens ` +
      'while all weights pass through its links. To the right of the crossover it waits.',
    h(
      'div',
      { class: 'bar' },
      check('critical', 'critical batch'),
      sparse ? check('dense', 'as if dense: only active weights travel') : null,
      check('flat', 'flat rings: each device uses its own link alone'),
    ),
    curveChart(
      'Compute and traffic of sharded weights against devices',
      [compute, traffic],
      [
        [at, `crossover ${formatInteger(at)}`, 0],
        [answer.cluster.devices, 'now', 1],
        [answer.limits.batch_floor_devices, 'one sequence each', 2],
      ],
    ),
    legendOf([
      ['c-compute', 'compute'],
      ['c-dp', 'gathers and reductions'],
    ]),
    foldedTable(
      'Compute and traffic against devices',
      ['devices', 'forward', 'gathers', 'backward', 'gathers and reductions'],
      shown.map(p => [
        `${p.devices}`,
        formatSeconds(p.forward),
        formatSeconds(p[pair[0]]),
        formatSeconds(p.backward),
        formatSeconds(p[pair[1]]),
      ]),
    ),
  );
}

// ---- pareto ----

// Plans that no other plan beats in both.
function frontOf(plans) {
  const out = [];
  let least = Infinity;
  plans.forEach((p, i) => {
    if (p.memory_bytes >= least) return;
    least = p.memory_bytes;
    out.push(i);
  });
  return out;
}

function fixLayout(c) {
  return Object.fromEntries(
    ['tp', 'pp', 'vpp', 'cp', 'ep', 'zero', 'micro_batch_size', 'pipeline', 'recompute'].map(k => [
      k,
      String(c[k]),
    ]),
  );
}

function paretoSection(data, answer, plan, apply) {
  const plans = data.plans;
  if (plans.length === 0) return null;
  const same = p =>
    formatLayout(p) === formatLayout(plan) && formatSchedule(p) === formatSchedule(plan);
  const front = frontOf(plans),
    reasons = { memory: 'cannot fit', slower: 'cannot win', rule: 'not valid' };
  return section(
    'pareto',
    'Time against memory',
    'A point is a layout; the line joins those that no other beats in both. Crosses cannot fit: ' +
      'they ' +
      'stand at their least time and memory.',
    pointChart(plans, data.rejected, answer.plans[0].memory.capacity, front, plans.findIndex(same)),
    legendOf([
      ['c-compute', 'best for its memory'],
      ['c-bubble', 'other plans'],
      ['cross-key', 'cannot fit'],
    ]),
    h(
      'details',
      { class: 'figures' },
      h('summary', {}, 'Figures as a table'),
      tableOf(
        'Plans by time',
        ['layout', 'schedule', 'step', '4 of 5 cases', 'MFU', 'memory', 'use'],
        plans.map((p, i) => [
          formatLayout(p),
          formatSchedule(p),
          formatSeconds(p.step_seconds),
          p.interval80.map(formatSeconds).join(' to '),
          formatShare(p.mfu),
          formatBytes(p.memory_bytes),
          h(
            'button',
            {
              type: 'button',
              class: 'small',
              'aria-label': `Fix the layout ${formatLayout(p)}`,
              onclick: () => apply(fixLayout(p)),
            },
            'Fix',
          ),
        ]),
      ),
    ),
    h(
      'details',
      { class: 'figures' },
      h(
        'summary',
        {},
        `Rejected, with reasons (${data.rejected.length} of ` +
          `${formatCount(answer.search.candidates)} configurations)`,
      ),
      tableOf(
        'Rejected configurations',
        ['layout', 'schedule', 'kind', 'reason'],
        data.rejected.map(r => [formatLayout(r), formatSchedule(r), reasons[r.kind], r.reason]),
      ),
    ),
  );
}

// ---- plans and reasons ----

function plansSection(answer, chosen, choose) {
  return section(
    'plans',
    answer.simpler ? 'Plans, simplest first, then fastest' : 'Plans, fastest first',
    'Ranges hold the measured step in 4 of 5 cases; plans marked = cannot be told from the first.',
    tableOf(
      'Plans',
      ['plan', 'layout', 'schedule', 'step', '4 of 5 cases', 'MFU', 'bubble', 'memory'],
      answer.plans.map((p, i) => [
        h(
          'button',
          {
            type: 'button',
            class: 'small',
            'aria-pressed': String(i === chosen),
            'aria-label': `Show plan ${i + 1}`,
            onclick: () => choose(i),
          },
          `${i + 1}`,
        ),
        formatLayout(p),
        formatSchedule(p),
        formatSeconds(p.step_seconds) + (i > 0 && p.equal_to_best ? ' =' : ''),
        p.interval80.step_seconds.map(formatSeconds).join(' to '),
        formatShare(p.mfu),
        formatShare(p.bubble_fraction),
        formatShare(usedMemory(p.memory) / p.memory.capacity),
      ]),
    ),
    h('h3', {}, chosen === 0 ? 'Why this plan' : `Plan ${chosen + 1} against plan 1`),
    h(
      'ul',
      { class: 'why' },
      answer.plans[chosen].why.map(t => h('li', {}, t)),
    ),
  );
}

// ---- the run ----

// `meet(time)`: the fewest devices that end the run in time.
function runSection(answer, plan, meet) {
  const g = answer.goodput,
    [low, high] = plan.interval80.step_seconds;
  const hours = step =>
    ((answer.steps * step) / (g ? g.productive : 1) / 3600) * answer.cluster.devices;
  const rows = [
    ['steps', formatCount(answer.steps)],
    [
      'device hours',
      `${formatCount(hours(plan.step_seconds))} (${formatCount(hours(low))} to ` +
        `${formatCount(hours(high))})`,
    ],
  ];
  if (g) {
    rows.push(
      ['time that counts', formatShare(g.productive)],
      ['checkpoints', formatShare(g.checkpoints)],
      ['lost steps', formatShare(g.lost)],
      ['recovery', formatShare(g.recovery)],
      ['between failures', formatSeconds(g.mtbf_seconds)],
      ['checkpoint every', formatSeconds(g.checkpoint_interval_seconds)],
      ['interruptions', digits(g.interruptions)],
      ['spare devices', String(g.spares)],
    );
  }
  if (plan.cost) {
    rows.push([
      'cost',
      `${formatDollars(plan.cost.dollars)} ` +
        `(${plan.cost.interval80.map(formatDollars).join(' to ')})`,
    ]);
    if (plan.cost.kwh)
      rows.push([
        'energy of the devices',
        `${formatCount(plan.cost.kwh)}Wh`.replace(
          /([\d.]+)(k|M|B)?Wh/,
          (_, n, u) => `${n} ${{ k: 'MWh', M: 'GWh', B: 'TWh' }[u] || 'kWh'}`,
        ),
      ]);
  }
  return section(
    'run',
    'The whole run',
    g ? 'With failures at the rate of Llama 3, and checkpoints at ' + 'the best interval.' : null,
    tableOf('The whole run', ['figure', 'value'], rows),
    h(
      'div',
      { class: 'bar' },
      h('label', { for: 'deadline' }, 'Fewest devices that end it in'),
      h('input', { id: 'deadline', value: '30d', size: 6 }),
      h(
        'button',
        {
          type: 'button',
          id: 'meet',
          onclick: () => meet(document.getElementById('deadline').value),
        },
        'Find',
      ),
    ),
    answer.assumed.length > 0
      ? h('p', { class: 'dim' }, `Assumed: ${answer.assumed.join('; ')}.`)
      : null,
  );
}
