// SPDX-License-Identifier: Apache-2.0
// The verdict: does it fit, how fast, and what to do about the two failures that people meet: out
// of memory, and low MFU. Each remedy is a button that sets its knobs.
'use strict';

const KNOB_OF_FREED = name => name.replace(/-/g, '_');

const remedyButton = (text, changes, apply) =>
  h('button', { type: 'button', class: 'remedy', onclick: () => apply(changes) }, text);

function tile(value, label, range) {
  return h(
    'div',
    { class: 'tile' },
    h('b', {}, value),
    h('span', {}, label),
    range ? h('span', { class: 'interval' }, range) : null,
  );
}

function tilesOf(answer, plan) {
  const [low, high] = plan.interval80.step_seconds,
    used = usedMemory(plan.memory);
  const peak = plan.interval80.peak.map(v => (v * used) / plan.memory.peak);
  const tokens = answer.global_batch_size * answer.sequence_length;
  const productive = answer.goodput ? answer.goodput.productive : 1;
  const days = step => (answer.steps * step) / productive / 86400;
  const tiles = [
    tile(
      formatSeconds(plan.step_seconds),
      'a step',
      `${formatSeconds(low)} to ${formatSeconds(high)}`,
    ),
    tile(
      formatShare(plan.mfu),
      'MFU',
      `${formatShare((plan.mfu * plan.step_seconds) / high)} to ` +
        formatShare((plan.mfu * plan.step_seconds) / low),
    ),
    tile(
      `${((100 * used) / plan.memory.capacity).toFixed(0)} %`,
      'of memory',
      `${formatBytes(peak[0])} to ${formatBytes(peak[1])} of ${formatBytes(plan.memory.capacity)}`,
    ),
    tile(
      `${formatCount(tokens / plan.step_seconds)}/s`,
      'tokens',
      `${formatCount(tokens / high)} to ${formatCount(tokens / low)}`,
    ),
    tile(
      `${digits(days(plan.step_seconds))} days`,
      `for ${formatCount(answer.tokens)} tokens`,
      `${digits(days(low))} to ${digits(days(high))}`,
    ),
  ];
  if (plan.cost) {
    tiles.push(
      tile(
        formatDollars(plan.cost.dollars),
        'for the run',
        plan.cost.interval80.map(formatDollars).join(' to '),
      ),
    );
  }
  return h('div', { class: 'tiles' }, tiles);
}

// ---- out of memory ----

function remedyText(remedy, answer) {
  const what = remedy.freed
    ? `Let the search choose ${remedy.freed.replace(/-/g, ' ')}`
    : remedy.precision
      ? `Use the precision ${remedy.precision}`
      : `Use ${remedy.devices} devices`;
  const now = remedy.freed
    ? {
        recompute: `: ${remedy.recompute}`,
        zero: `: ${remedy.zero}`,
        'micro-batch-size': `: ${remedy.micro_batch_size}`,
        tp: `: ${remedy.tp}`,
        pp: `: ${remedy.pp}`,
        cp: `: ${remedy.cp}`,
        ep: `: ${remedy.ep}`,
        dp: `: ${remedy.dp}`,
      }[remedy.freed] || ''
    : '';
  return `${what}${now} (${formatSeconds(remedy.step_seconds)}, MFU ${formatShare(remedy.mfu)})`;
}

// Changes on the same devices first, the fastest of them before the others.
const byCost = (a, b) => a.devices - b.devices || a.step_seconds - b.step_seconds;

function memoryFailure(answer, remedies, apply) {
  const m = answer.nearest.memory,
    used = usedMemory(m),
    limit = used > m.capacity ? m.capacity : m.allowed;
  const list = [...(remedies || [])].sort(byCost);
  const changes = r =>
    r.freed
      ? { [KNOB_OF_FREED(r.freed)]: '' }
      : r.precision
        ? { precision: r.precision }
        : { gpus: String(r.devices) };
  const best = list[0];
  return [
    h('h2', { class: 'bad' }, 'Out of memory'),
    h(
      'p',
      {},
      `The nearest layout, ${formatLayout(answer.nearest)}, ${formatSchedule(answer.nearest)}, ` +
        `needs ${formatBytes(used)} of ${formatBytes(limit)} ` +
        `${limit < m.capacity ? 'that the memory margin leaves ' : ''}on stage ${m.stage}: ` +
        `${formatBytes(used - limit)} too much.`,
    ),
    best
      ? h(
          'p',
          { class: 'fix' },
          h('span', {}, 'Cheapest remedy: '),
          h(
            'button',
            { type: 'button', class: 'primary', id: 'remedy', onclick: () => apply(changes(best)) },
            remedyText(best, answer),
          ),
        )
      : h('p', {}, remedies ? 'No change of one value makes it fit.' : 'Looking for remedies…'),
    list.length > 1
      ? h(
          'div',
          { class: 'remedies' },
          list.slice(1).map(r => remedyButton(remedyText(r, answer), changes(r), apply)),
        )
      : null,
  ];
}

// ---- low MFU ----

// The findings on a plan: [title, explanation, [[button, changes]...]].
function diagnose(answer, plan, state) {
  const domain = answer.cluster.levels[0].size,
    out = [];
  const step = plan.step_seconds,
    exposed = plan.exposed_seconds;
  const bubble = plan.step_terms_seconds.bubble / step;
  const gbs = answer.global_batch_size;
  if (plan.tp > domain && domain > 1) {
    out.push([
      'tp beyond the fast domain',
      `tp ${plan.tp} does not fit into the ${domain} devices of ` +
        `${answer.cluster.levels[0].name}: its collectives of every layer cross ` +
        `${answer.cluster.levels[1].name} at ` +
        `${formatBytes(answer.cluster.levels[1].bytes_per_second)}/s ` +
        `instead of ${formatBytes(answer.cluster.levels[0].bytes_per_second)}/s. Exposed: ` +
        `${formatShare(exposed.tp / step)} of the step.`,
      [
        [`tp ${domain}`, { tp: String(domain) }],
        ['Let the search choose tp', { tp: '' }],
      ],
    ]);
  }
  if (bubble > 0.1) {
    const m = plan.micro_batches,
      p = plan.pp;
    out.push([
      'Pipeline bubble',
      `${p} stages with ${m} micro-batches wait for each other ` +
        `${formatShare(bubble)} of the step. Balanced 1F1B: (p−1)/(m+p−1) = ` +
        `(${p}−1)/(${m}+${p}−1) = ` +
        `${formatShare((p - 1) / (m + p - 1))}.`,
      [
        ['Twice the batch', { global_batch_size: String(2 * gbs) }],
        ['Let the search choose the schedule', { pipeline: '', vpp: '', micro_batch_size: '' }],
        ['Let the search choose pp', { pp: '', vpp: '', pipeline: '' }],
      ],
    ]);
  }
  const dp = exposed.dp / step;
  if (dp > 0.1) {
    const each = (gbs * answer.sequence_length) / answer.cluster.devices;
    out.push([
      'Gradients and weights over dp are exposed',
      `${formatShare(dp)} of the step waits for ` +
        `reductions and gathers: ${formatCount(each)} tokens a device and step do not hide them.`,
      [
        ['Twice the batch', { global_batch_size: String(2 * gbs) }],
        ['Half the devices', { gpus: String(Math.max(1, answer.cluster.devices / 2)) }],
        ['Let the search choose ZeRO and pp', { zero: '', pp: '' }],
      ],
    ]);
  }
  const ep = exposed.ep / step;
  if (ep > 0.15) {
    out.push([
      'Tokens travel to experts',
      `${formatShare(ep)} of the step waits for all-to-alls of ep ` +
        `${plan.ep}${plan.ep * plan.tp > domain ? `, beyond the domain of ${domain}` : ''}.`,
      [['Let the search choose ep', { ep: '', tp: '', pp: '' }]],
    ]);
  }
  const again = plan.step_terms_seconds.recompute / step;
  if (again > 0.12) {
    out.push([
      'Recompute',
      `${formatShare(again)} of the step computes activations again.`,
      [['Let the search choose recompute', { recompute: '', micro_batch_size: '' }]],
    ]);
  }
  return out;
}

function diagnosis(answer, plan, state, apply) {
  return diagnose(answer, plan, state).map(([title, text, buttons]) =>
    h(
      'div',
      { class: 'finding' },
      h('h3', {}, title),
      h('p', {}, text),
      h(
        'div',
        { class: 'remedies' },
        buttons.map(([name, changes]) => remedyButton(name, changes, apply)),
      ),
    ),
  );
}

// ---- the section ----

function titleOf(answer) {
  return `${answer.model.name} on ${answer.cluster.devices} × ${answer.cluster.device}`;
}

// " (plan 2, equal to the first)"; nothing for the first.
function orderOf(answer, plan) {
  const at = answer.plans.indexOf(plan) + 1;
  return at === 1 ? '' : ` (plan ${at}${plan.equal_to_best ? ', equal to the first' : ''})`;
}

function resultOf(answer, plan, state, remedies, apply) {
  const tokens = answer.global_batch_size * answer.sequence_length;
  const job = h(
    'p',
    { class: 'dim' },
    `${titleOf(answer)}: ${answer.global_batch_size} sequences of ` +
      `${answer.sequence_length} tokens a step (${formatCount(tokens)}), ${answer.precision}, ` +
      `software ${answer.engine}; ${formatCount(answer.model.parameters)} parameters`,
  );
  if (!plan) return [...memoryFailure(answer, remedies, apply), job];
  return [
    h('h2', { class: 'good' }, 'Fits: ', h('span', {}, formatLayout(plan))),
    h('p', { class: 'schedule' }, formatSchedule(plan), orderOf(answer, plan)),
    job,
    tilesOf(answer, plan),
    diagnosis(answer, plan, state, apply),
    plan.doubt ? h('p', { class: 'bad' }, plan.doubt) : null,
    plan.doubts.length + plan.beyond_published.length > 0
      ? h(
          'details',
          { class: 'doubts' },
          h('summary', {}, 'What the range does not know'),
          h(
            'ul',
            {},
            [...plan.doubts, ...plan.beyond_published.map(t => `beyond published runs: ${t}`)].map(
              t => h('li', {}, t),
            ),
          ),
        )
      : null,
  ];
}
