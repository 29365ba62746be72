// SPDX-License-Identifier: Apache-2.0
// A tour as a chain of problems and fixes. Each step is a state of the page: its knobs work.
'use strict';

const TOUR = [
  [
    'One device',
    { model: 'llama3-8b', cluster: 'h100', gpus: '1', global_batch_size: '512' },
    'A parameter needs 16 bytes while it is trained: 2 for its weight, 2 for its gradient, 12 ' +
      'for the ' +
      'optimizer. 8 billion of them are more than one device holds, before any activation. No ' +
      'layout helps.',
  ],
  [
    'Data parallelism: copies',
    {
      model: 'llama3-8b',
      cluster: 'h100',
      gpus: '8',
      global_batch_size: '512',
      tp: '1',
      pp: '1',
      cp: '1',
      zero: '0',
    },
    'Eight devices with eight copies of the state: each sees other sequences and they add up ' +
      'their ' +
      'gradients. Memory of a device has not changed, so it still fails. Freeing one value fixes ' +
      'it.',
  ],
  [
    'Sharded data parallelism',
    {
      model: 'llama3-8b',
      cluster: 'h100',
      gpus: '8',
      global_batch_size: '512',
      tp: '1',
      pp: '1',
      cp: '1',
      zero: '3',
    },
    'ZeRO 3, or FSDP: each device keeps an eighth of weights, gradients and optimizer, and ' +
      'gathers ' +
      'the weights of a layer just before it is used. The gathers hide under compute, as long as ' +
      'each ' +
      'device has enough tokens to compute.',
  ],
  [
    'The crossover',
    {
      model: 'llama3-70b',
      cluster: 'h100',
      gpus: '2048',
      global_batch_size: '1024',
      sequence_length: '4096',
      tp: '1',
      pp: '1',
      cp: '2',
      zero: '3',
    },
    'The same batch on more devices leaves fewer tokens for each, but every device still ' +
      'receives all ' +
      'weights. Beyond the crossover it waits for them; see the waterfall and the crossover ' +
      'chart. The ' +
      'batch cannot grow forever: beyond the critical batch it stops saving steps.',
  ],
  [
    'Pipelines and bubbles',
    {
      model: 'llama3-70b',
      cluster: 'h100',
      gpus: '256',
      global_batch_size: '128',
      sequence_length: '4096',
      tp: '1',
      cp: '1',
      pp: '16',
      pipeline: '1f1b',
      zero: '1',
      micro_batch_size: '1',
      vpp: '1',
    },
    'A pipeline cuts the layers into stages: a device holds a sixteenth of the weights and only ' +
      'sends ' +
      'activations. But stages wait while the pipeline fills and drains: zoom into the timeline. ' +
      'More ' +
      'micro-batches, more chunks on each stage, or a schedule that splits the backward fill the ' +
      'gap.',
  ],
  [
    'Tensor parallelism stays in the domain',
    {
      model: 'llama3-70b',
      cluster: 'h100',
      gpus: '256',
      global_batch_size: '128',
      sequence_length: '4096',
      tp: '16',
      pp: '1',
      zero: '1',
    },
    'tp cuts each matrix and adds up results in every layer: it divides everything, and needs ' +
      'links ' +
      'to match. 16 ranks do not fit into the 8 devices of NVLink, and the step shows it. tp 8 ' +
      'is one ' +
      'click away.',
  ],
  [
    'Long sequences',
    {
      model: 'llama3-8b',
      cluster: 'h100',
      gpus: '64',
      sequence_length: '131072',
      global_batch_size: '32',
      cp: '8',
    },
    'One sequence of 131,072 tokens is too much for a device: cp cuts the sequence, and keys and ' +
      'values travel around a ring while attention computes.',
  ],
  [
    'Experts',
    {
      model: 'qwen3-30b-a3b',
      cluster: 'h100',
      gpus: '64',
      engine: 'megatron-core',
      global_batch_size: '512',
      sequence_length: '4096',
      tp: '1',
      pp: '1',
      ep: '8',
    },
    'A token visits 8 of 128 experts. ep gives each device its own experts, and tokens travel to ' +
      'them ' +
      'and back in every layer: inside the NVLink domain this is cheap, beyond it is not. Try ep ' +
      '64.',
  ],
  [
    'All of it',
    { model: 'llama3.1-405b', cluster: 'h100', gpus: '16384', tokens: '15T' },
    '405 billion parameters on 16,384 devices: tp inside the domain, a pipeline across nodes, ' +
      'sharded ' +
      'data parallelism over the rest. The search has priced or ruled out every layout; the list ' +
      'says why ' +
      'this one wins.',
  ],
];

function showTour(app) {
  const root = document.getElementById('tour'),
    at = app.state.tour;
  root.hidden = !(at >= 0 && at < TOUR.length);
  if (root.hidden) return root.replaceChildren();
  const [title, , text] = TOUR[at];
  const go = to => app.tour(to);
  root.replaceChildren(
    h(
      'div',
      { class: 'tour-head' },
      h('strong', {}, `${at + 1} of ${TOUR.length}: ${title}`),
      h('button', { type: 'button', 'aria-label': 'End the tour', onclick: () => go(-1) }, 'End'),
    ),
    h('p', {}, text),
    h(
      'div',
      { class: 'bar' },
      h(
        'button',
        { type: 'button', id: 'tour-back', disabled: at === 0, onclick: () => go(at - 1) },
        'Back',
      ),
      h(
        'button',
        {
          type: 'button',
          id: 'tour-next',
          class: 'primary',
          disabled: at === TOUR.length - 1,
          onclick: () => go(at + 1),
        },
        at === TOUR.length - 1 ? 'The end' : `Next: ${TOUR[at + 1][0].toLowerCase()}`,
      ),
      h('button', { type: 'button', onclick: () => go(at) }, 'Reset this step'),
    ),
  );
}
