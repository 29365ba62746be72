// SPDX-License-Identifier: Apache-2.0
// The form: every option of a plan. "auto" leaves a value to the search, and the value that it
// chose stands next to the label. A field that nothing is chosen for is "none" while it is empty.
'use strict';

const POWERS = n => Array.from({ length: n }, (_, i) => String(2 ** i));

// The words and the help of the program's options, by their keys (web/bundle.sh).
const OPTIONS = Object.fromEntries(
  parts.options
    .trim()
    .split('\n')
    .map(line => line.split('\t'))
    .map(([key, words, help]) => [key, { words: words.split(' '), help }]),
);

// key, label, values of a select or 'words' (those of the option), 'number', 'text', 'switch'; the
// word of the empty field (else "auto")
const KNOB_GROUPS = [
  [
    'Job',
    [
      ['model', 'Model', 'models'],
      ['global_batch_size', 'Global batch', 'number'],
      ['sequence_length', 'Sequence', 'number'],
      ['tokens', 'Tokens of the run', 'text'],
      ['precision', 'Precision', 'words'],
    ],
  ],
  [
    'Machine',
    [
      ['cluster', 'Cluster', 'clusters'],
      ['gpus', 'Devices', 'number'],
      ['engine', 'Software', 'engines'],
      ['memory_margin', 'Memory margin, percent', 'text'],
      ['price', 'Dollars a device hour', 'text', 'none'],
    ],
  ],
  [
    'Layout',
    [
      ['tp', 'tp', POWERS(7)],
      ['pp', 'pp', POWERS(8)],
      ['vpp', 'vpp', [...'12345678']],
      ['cp', 'cp', POWERS(7)],
      ['ep', 'ep', POWERS(8)],
      ['zero', 'ZeRO', 'words'],
      ['micro_batch_size', 'Micro-batch', POWERS(6)],
      ['pipeline', 'Schedule', 'words'],
      ['recompute', 'Recompute', 'words'],
      ['simple', 'Simplest of equal plans', 'switch'],
      ['variants', 'Also slower variants', 'switch'],
    ],
  ],
];
const LAYOUT_KEYS = [
  ...KNOB_GROUPS[2][1].filter(k => k[2] !== 'switch').map(k => k[0]),
  'dp',
  'etp',
];

class Knobs {
  constructor(form, service, changed) {
    this.form = form;
    this.service = service;
    this.changed = changed;
    this.inputs = {};
    this.chosen = {};
    form.addEventListener('submit', event => event.preventDefault());
    for (const [title, knobs] of KNOB_GROUPS) {
      form.append(
        h(
          'fieldset',
          {},
          h('legend', {}, title),
          knobs.map(k => this.knob(...k)),
          title === 'Layout'
            ? h(
                'button',
                {
                  type: 'button',
                  id: 'free',
                  class: 'wide',
                  onclick: () => this.changed(Object.fromEntries(LAYOUT_KEYS.map(k => [k, '']))),
                },
                'Leave all to the search',
              )
            : null,
        ),
      );
    }
  }

  // On or off, with its label after it.
  toggle(key, label) {
    const id = `knob-${key}`;
    const { help } = OPTIONS[key];
    const input = h('input', { id, type: 'checkbox', 'aria-describedby': `${id}-help` });
    input.addEventListener('change', () => this.changed({ [key]: input.checked ? 'true' : '' }));
    this.inputs[key] = input;
    return h(
      'div',
      { class: 'knob wide' },
      h('label', { class: 'toggle', title: help }, input, label),
      h('span', { id: `${id}-help`, class: 'sr' }, help),
    );
  }

  knob(key, label, values, empty = 'auto') {
    if (values === 'switch') return this.toggle(key, label);
    const id = `knob-${key}`;
    const { help } = OPTIONS[key];
    const input =
      values === 'number' || values === 'text'
        ? h('input', {
            id,
            type: 'text',
            placeholder: empty,
            inputmode: values === 'text' ? 'text' : 'numeric',
            'aria-describedby': `${id}-help`,
          })
        : this.select(id, key, values);
    input.addEventListener('change', () => this.changed({ [key]: input.value.trim() }));
    this.inputs[key] = input;
    this.chosen[key] = h('span', { class: 'chosen' });
    return h(
      'div',
      { class: `knob ${values === 'number' ? 'number' : ''}` },
      h('label', { for: id, title: help }, label, ' ', this.chosen[key]),
      values === 'number' ? this.factor(input, key, label, 0.5) : null,
      input,
      values === 'number' ? this.factor(input, key, label, 2) : null,
      h('span', { id: `${id}-help`, class: 'sr' }, help),
    );
  }

  factor(input, key, label, factor) {
    const sign = factor > 1 ? '×2' : '÷2';
    return h(
      'button',
      {
        type: 'button',
        class: 'factor',
        'aria-label': `${sign}: ${factor > 1 ? 'double' : 'halve'} ${label}`,
        onclick: () => {
          const now = parseCount(input.value) || Number(this.chosen[key].dataset.value) || 1;
          this.changed({ [key]: String(Math.max(1, Math.round(now * factor))) });
        },
      },
      sign,
    );
  }

  select(id, key, values) {
    const named = typeof values === 'string' && values !== 'words';
    const names = named
      ? Object.keys(this.service.presets[values])
      : values === 'words'
        ? OPTIONS[key].words
        : values;
    const options = names.map(v => h('option', { value: v }, v));
    if (key === 'engine') options.unshift(h('option', { value: '' }, 'orthant'));
    else if (!named) options.unshift(h('option', { value: '' }, 'auto'));
    return h('select', { id, 'aria-describedby': `${id}-help` }, options);
  }

  // Shows the state; a value that no option has becomes one.
  show(state) {
    for (const [key, input] of Object.entries(this.inputs)) {
      const file = state.files[key] || (key === 'model' && state.files.script);
      const value = file ? 'file' : state[key] || '';
      if (input.tagName === 'SELECT') {
        for (const old of input.querySelectorAll('[data-own]')) old.remove();
        if (key === 'engine') {
          const { script } = state.files;
          input.options[0].textContent = script ? 'that of the script' : 'orthant';
          if (script) input.append(h('option', { value: 'orthant', 'data-own': '1' }, 'orthant'));
        }
        if (![...input.options].some(o => o.value === value)) {
          input.append(h('option', { value, 'data-own': '1' }, file ? file.name : value));
        }
      }
      if (input.type === 'checkbox') input.checked = value === 'true';
      else input.value = value;
      input.closest('.knob').classList.toggle('fixed', value !== '');
    }
  }

  // The values that the search chose, next to the knobs that are free.
  showChosen(answer, plan) {
    const values = {
      ...plan,
      global_batch_size: answer.global_batch_size,
      sequence_length: answer.sequence_length,
      gpus: answer.cluster.devices,
      precision: answer.precision,
    };
    for (const [key, element] of Object.entries(this.chosen)) {
      const value = values[key];
      element.dataset.value = value === undefined ? '' : value;
      element.textContent = this.inputs[key].value === '' && value !== undefined ? `${value}` : '';
    }
    this.chosen.tokens.textContent = this.inputs.tokens.value ? '' : formatCount(answer.tokens);
  }

  clearChosen() {
    for (const element of Object.values(this.chosen)) element.textContent = '';
  }

  showError(key) {
    for (const [name, input] of Object.entries(this.inputs)) {
      input.toggleAttribute('aria-invalid', name === key);
    }
  }
}
