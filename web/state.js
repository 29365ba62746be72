// SPDX-License-Identifier: Apache-2.0
// What the page shows: the options of `orthant plan` that are set, files that the user brought, the
// plan that is looked at. It lives in the fragment of the address, so a link is a plan.
'use strict';

// {state, settings, files, answer}: what the page starts with; `orthant plan --html` writes its
// own.
const GIVEN = JSON.parse(textOf('given') || parts.given);
const STATE_KEYS = ['model', 'cluster', 'engine', ...QUESTION_KEYS];
const FILE_KINDS = { model: 'models', cluster: 'clusters', engine: 'engines' };

function fileOf(kind, name, text) {
  const json = kind === 'model';
  const tree = json ? JSON.parse(text) : parseYaml(text);
  return { name, text, tree, source: '' };
}

function givenState() {
  const state = { ...GIVEN.state, files: {}, settings: { ...GIVEN.settings }, tour: -1, plan: 0 };
  for (const [kind, { name, text }] of Object.entries(GIVEN.files || {})) {
    state.files[kind] = fileOf(kind, name, text);
  }
  return state;
}

// Whether the page has the answer to a state from its start.
const isGiven = state =>
  writeFragment({ ...state, tour: -1, plan: 0 }) === writeFragment(givenState());

function readFragment(fragment) {
  const given = new URLSearchParams(fragment.replace(/^#/, ''));
  if (given.size === 0) return givenState();
  const state = { files: {}, settings: {} };
  for (const key of STATE_KEYS) if (given.has(key)) state[key] = given.get(key);
  for (const [key, value] of given) {
    if (key.startsWith('set.')) state.settings[key.slice(4)] = value;
  }
  for (const kind of Object.keys(FILE_KINDS)) {
    if (!given.has(`${kind}_file`)) continue;
    const text = given.get(`${kind}_file`),
      end = text.indexOf('\n');
    state.files[kind] = fileOf(kind, text.slice(0, end), text.slice(end + 1));
  }
  state.tour = given.has('tour') ? Number(given.get('tour')) : -1;
  state.plan = given.has('plan') ? Number(given.get('plan')) : 0;
  state.model = state.model || 'llama3-8b';
  state.cluster = state.cluster || 'h100';
  return state;
}

function writeFragment(state) {
  const out = new URLSearchParams();
  for (const key of STATE_KEYS) {
    if (state[key] !== undefined && state[key] !== '') out.set(key, state[key]);
  }
  for (const [key, value] of Object.entries(state.settings)) out.set(`set.${key}`, value);
  for (const [kind, file] of Object.entries(state.files)) {
    const lean = kind === 'model' ? file.text : file.text.replace(/^\s*#.*\n/gm, '');
    out.set(`${kind}_file`, `${file.name}\n${lean}`);
  }
  if (state.plan > 0) out.set('plan', state.plan);
  if (state.tour >= 0) out.set('tour', state.tour);
  return '#' + out.toString();
}

// The command that gives the same plan in a terminal.
function commandOf(state) {
  const words = ['orthant plan'];
  for (const key of STATE_KEYS) {
    const file = state.files[key];
    const value = file ? `./${file.name}` : state[key];
    if (value === undefined || value === '') continue;
    words.push(`--${key.replace(/_/g, '-')}${value === 'true' ? '' : ` ${value}`}`);
  }
  for (const [key, value] of Object.entries(state.settings)) words.push(`--set ${key}=${value}`);
  return words.join(' ');
}
