// SPDX-License-Identifier: Apache-2.0
// What the page shows: the options of `orthant plan` that are set, files that the user brought, the
// plan that is looked at. It lives in the fragment of the address, so a link is a plan.
'use strict';

// {state, settings, files, compared, swept, answer}: what the page starts with; `orthant plan
// --html` writes its own. `swept` {axes, rows, names}: a sweep.
const GIVEN = JSON.parse(textOf('given') || parts.given);
const GIVEN_SWEEP = (GIVEN.swept ? GIVEN.swept.axes : []).map(
  ({ key, values }) => `${key}=${values}`,
);

function fileOf(kind, name, text) {
  const tree =
    kind === 'script' ? null : kind === 'model' ? JSON.parse(text) : parseYaml(text);
  return { name, text, tree, source: '' };
}

function givenState() {
  const state = { ...GIVEN.state, settings: { ...GIVEN.settings }, tour: -1, plan: 0 };
  Object.assign(state, { files: {}, compared: GIVEN.compared || [], sweep: GIVEN_SWEEP });
  for (const [kind, { name, text }] of Object.entries(GIVEN.files || {})) {
    state.files[kind] = fileOf(kind, name, text);
  }
  return state;
}

// Whether the page has the answer to a state from its start.
function isGiven(state) {
  const words = of => writeFragment({ ...of, tour: -1, plan: 0, sweep: [] }).split('&').sort();
  return words(state).join() === words(givenState()).join();
}

const hasGivenSweep = state =>
  GIVEN.swept && isGiven(state) && state.sweep.join() === GIVEN_SWEEP.join();

function readFragment(fragment) {
  const given = new URLSearchParams(fragment.replace(/^#/, ''));
  if (given.size === 0) return givenState();
  const state = { files: {}, settings: {}, compared: [], sweep: given.getAll('sweep') };
  for (const [key, value] of given) {
    if (key.startsWith('set.')) state.settings[key.slice(4)] = value;
    else if (!PARTS.includes(key) && !/^compare$|_file$/.test(key)) state[key] = value;
  }
  const parted = text => [text.slice(0, text.indexOf('\n')), text.slice(text.indexOf('\n') + 1)];
  for (const kind of FILE_KINDS) {
    if (!given.has(`${kind}_file`)) continue;
    state.files[kind] = fileOf(kind, ...parted(given.get(`${kind}_file`)));
  }
  for (const text of given.getAll('compare')) {
    const [name, rest] = parted(text);
    state.compared.push({ name, text: rest });
  }
  state.tour = given.has('tour') ? Number(given.get('tour')) : -1;
  state.plan = given.has('plan') ? Number(given.get('plan')) : 0;
  state.model = state.model || 'llama3-8b';
  state.cluster = state.cluster || 'h100';
  return state;
}

function writeFragment(state) {
  const out = new URLSearchParams();
  for (const [key, value] of optionsOf(state)) out.set(key, value);
  for (const [key, value] of Object.entries(state.settings)) out.set(`set.${key}`, value);
  for (const [kind, file] of Object.entries(state.files)) {
    const whole = kind === 'model' || kind === 'script';
    const text = whole ? file.text : file.text.replace(/^\s*#.*\n/gm, '');
    out.set(`${kind}_file`, `${file.name}\n${text}`);
  }
  for (const { name, text } of state.compared) out.append('compare', `${name}\n${text}`);
  for (const text of state.sweep) out.append('sweep', text);
  if (state.plan > 0) out.set('plan', state.plan);
  if (state.tour >= 0) out.set('tour', state.tour);
  return '#' + out.toString();
}

// One word of a POSIX shell: no name of a file or value of a field becomes a command.
function shellWord(text) {
  const word = String(text);
  return /^[\w\-./:=,@%+]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`;
}

// The command that gives the same plan in a terminal.
function commandOf(state) {
  const words = ['orthant plan'],
    { script } = state.files;
  if (script) words.push(`--from ${shellWord(`./${script.name}`)}`);
  const named = Object.entries(state.files).map(([kind, { name }]) => [kind, `./${name}`]);
  const { script: _, ...files } = Object.fromEntries(named);
  for (const [key, value] of optionsOf({ ...state, ...files })) {
    if (script && key === 'model') continue;
    words.push(shellWord(`--${key.replace(/_/g, '-')}`));
    if (value !== 'true') words.push(shellWord(value));
  }
  for (const [key, value] of Object.entries(state.settings)) {
    words.push(`--set ${shellWord(`${key}=${value}`)}`);
  }
  for (const { name } of state.compared) words.push(`--compare ${shellWord(`./${name}`)}`);
  return words.join(' ');
}
