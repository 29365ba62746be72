// SPDX-License-Identifier: Apache-2.0
// Plans next to each other, term by term: a launch script next to plan 1, and the files of
// `orthant plan --compare`, which are RUN.yaml, scripts, or plans of this page that were kept.
'use strict';

// The terms of a plan's step, which add up to it: [name, seconds].
function termsOf(plan) {
  const { compute, recompute, ...rest } = plan.step_terms_seconds;
  return [
    ['compute', compute - recompute],
    ['recompute', recompute],
    ...Object.entries(plan.exposed_seconds).map(([axis, s]) => [`exposed ${axis}`, s]),
    ...Object.entries(rest),
  ];
}

const usedTerms = entries =>
  termsOf(entries[0][1])
    .map(([name]) => name)
    .filter(name => entries.some(([, plan]) => Object.fromEntries(termsOf(plan))[name] > 0));

// entries: [name, plan]; a bar each, of its terms, with its range under it.
function termsChart(entries, title) {
  const width = chartWidth(),
    left = width < 500 ? 96 : 190,
    row = 44;
  const most = Math.max(...entries.map(([, plan]) => plan.interval80.step_seconds[1]));
  const at = seconds => left + (seconds / most) * (width - left - 20);
  const bottom = 8 + entries.length * row,
    out = [];
  for (const tick of linearTicks(most, width < 500 ? 3 : 6)) {
    out.push(
      lineAt(at(tick), 8, at(tick), bottom, 'grid'),
      textAt(at(tick), bottom + 16, formatSeconds(tick), 'm dim'),
    );
  }
  entries.forEach(([name, plan], i) => {
    const y = 8 + i * row,
      [low, high] = plan.interval80.step_seconds;
    let start = 0;
    const letters = Math.floor(left / 7.5);
    const short = name.length > letters ? `${name.slice(0, letters - 1)}…` : name;
    out.push(textAt(left - 8, y + 18, short, i === 0 ? 'e strong' : 'e'));
    for (const [term, seconds] of termsOf(plan)) {
      if (seconds <= 0) continue;
      const text = `${name}, ${term}: ${formatSeconds(seconds)}`;
      out.push(
        boxAt(at(start), y, at(start + seconds) - at(start), 26, `cell ${TERM_CLASS[term]}`, text),
      );
      start += seconds;
    }
    out.push(lineAt(at(low), y + 32, at(high), y + 32, 'range'));
  });
  return frame(width, bottom + 24, title, out);
}

// "1.2 s", and for others how much more or less than the first.
function secondsCell(value, first) {
  const more = value - first;
  const sign = more < 0 ? '−' : '+';
  const here = formatSeconds(value);
  return more === 0 ? here : `${here} (${sign}${formatSeconds(Math.abs(more))})`;
}

function termsTable(entries, caption) {
  const values = name => entries.map(([, plan]) => Object.fromEntries(termsOf(plan))[name] || 0);
  const seconds = (name, all) => [name, ...all.map(value => secondsCell(value, all[0]))];
  const figures = (name, figure) => [name, ...entries.map(([, plan]) => figure(plan))];
  return tableOf(
    caption,
    ['', ...entries.map(([name]) => name)],
    [
      figures('layout', formatLayout),
      figures('schedule', formatSchedule),
      seconds(
        'step',
        entries.map(([, plan]) => plan.step_seconds),
      ),
      figures('in 4 of 5 cases', p => p.interval80.step_seconds.map(formatSeconds).join(' to ')),
      ...usedTerms(entries).map(name => seconds(name, values(name))),
      figures('MFU', p => formatShare(p.mfu)),
      figures('memory', p => {
        const share = formatShare(usedMemory(p.memory) / p.memory.capacity);
        return p.fits ? share : `${share}: does not fit`;
      }),
    ],
  );
}

function comparison(entries, title) {
  const key = name => [TERM_CLASS[name], name];
  return [
    termsChart(entries, title),
    legendOf(usedTerms(entries).map(key)),
    termsTable(entries, title),
  ];
}

const reasons = (title, list) =>
  list.length === 0
    ? null
    : [h('h3', {}, title), h('ul', { class: 'why' }, list.map(text => h('li', {}, text)))];

// The configuration of a launch script as it stands, next to plan 1.
function scriptSection(answer, plan, name, apply) {
  const own = answer.imported;
  const entries = plan ? [['plan 1', answer.plans[0]]] : [];
  entries.push([name, own]);
  return section(
    'script',
    `${name} as it stands`,
    'The configuration of the script, next to the fastest that its software can run.',
    comparison(entries, `${name} as it stands`),
    plan ? reasons(`${name} compared with plan 1`, own.why) : null,
    h(
      'div',
      { class: 'bar' },
      h(
        'button',
        { type: 'button', id: 'take-layout', onclick: () => apply(fixLayout(own)) },
        'Set the form to its layout',
      ),
    ),
  );
}

// ---- the form ----

// A plan as a RUN.yaml (JSON is YAML).
function keptPlan(answer, plan, number) {
  const run = {
    ...plan.run,
    data: { sequence_length: answer.sequence_length },
    batch: { ...plan.run.batch, global_batch_size: answer.global_batch_size },
  };
  return { name: `plan-${number}-${formatLayout(plan).replace(/,? /g, '-')}.yaml`, run };
}

async function addCompared(list, state, compare) {
  const files = [];
  for (const file of list) files.push({ name: file.name, text: await file.text() });
  return compare([...state.compared, ...files]);
}

function compareSection({ answer, plan, state, uncompared }, compare) {
  const { compared } = answer;
  const keep = () => {
    const { name, run } = keptPlan(answer, plan, state.plan + 1);
    return compare([...state.compared, { name, text: JSON.stringify(run) }]);
  };
  const entries = [['plan 1', answer.plans[0]], ...(compared || []).map(c => [c.name, c.plan])];
  return section(
    'compare',
    'Compare',
    'Other configurations of the same job, next to plan 1: plans that you keep, and files ' +
      '(RUN.yaml, launch scripts of Megatron-LM) with the same model, batch and sequence.',
    h(
      'div',
      { class: 'bar' },
      plan.run
        ? h(
            'button',
            { type: 'button', id: 'keep', onclick: keep },
            `Keep plan ${state.plan + 1} to compare`,
          )
        : null,
      h('label', { for: 'compare-files' }, 'Add files: '),
      h('input', {
        id: 'compare-files',
        type: 'file',
        multiple: true,
        onchange: e => addCompared(e.target.files, state, compare),
      }),
    ),
    state.compared.length === 0
      ? null
      : h(
          'div',
          { class: 'bar' },
          state.compared.map((file, i) =>
            h(
              'button',
              {
                type: 'button',
                class: 'small',
                onclick: () => compare(state.compared.filter((_, k) => k !== i)),
              },
              `Remove ${file.name}`,
            ),
          ),
        ),
    uncompared ? h('p', { class: 'bad', role: 'alert' }, uncompared) : null,
    compared ? comparison(entries, 'Plan 1 and what it is compared with') : null,
    (compared || []).map(c => [
      reasons(`${c.name} compared with plan 1`, c.plan.why),
      reasons(`${c.name} compared with ${compared[0].name}`, c.first),
    ]),
  );
}
