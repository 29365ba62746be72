// SPDX-License-Identifier: Apache-2.0
// From the state of the page to a request of the planner. The state holds the options of `orthant
// plan` by their names with underscores; what is absent is searched or has its default.
'use strict';

// What a state has besides options.
const PARTS = ['files', 'settings', 'compared', 'sweep', 'tour', 'plan'];
const FILE_KINDS = ['model', 'cluster', 'engine', 'script'];

// The options of a state that are set, as [name, value]: what is planned first.
function optionsOf({ model, cluster, engine, ...rest }) {
  return Object.entries({ model, cluster, engine, ...rest }).filter(
    ([key, value]) => !PARTS.includes(key) && value !== undefined && value !== '',
  );
}

// A state with other options; a preset replaces the file of its kind.
function changed(state, changes) {
  const files = { ...state.files };
  for (const kind of FILE_KINDS) if (kind in changes) delete files[kind];
  if ('model' in changes) delete files.script;
  return { ...state, ...changes, files };
}

// A preset or dropped file of a kind as a tree.
function parsePreset(kind, text) {
  return kind === 'models' ? JSON.parse(text) : parseYaml(text);
}

// The model of a state: from a file, or a preset.
function modelOf(state, preset) {
  const { model, script } = state.files || {};
  if (script) return { name: '', tree: null };
  return (
    model || { name: state.model, source: state.model, tree: preset('models', state.model) }
  );
}

const isScript = text =>
  /^#!|--(num-layers|tensor-model-parallel-size|micro-batch-size)\b/.test(text);

// A file of --compare: a script, or a RUN.yaml with its model as keys.
function comparedOf({ name, text }, preset) {
  if (isScript(text)) return { name, text };
  const run = parseYaml(text),
    model = run.model && (run.model.text || run.model);
  if (typeof model !== 'string') return { name, run };
  return { name, run: { ...run, model: preset('models', model) } };
}

// The cluster of a state, with the keys of the presets that it and its pools name.
function clusterOf(state, preset) {
  const { cluster } = state.files || {};
  const tree = cluster ? cluster.tree : preset('clusters', state.cluster);
  const named = (map, key) =>
    map[key] ? { ...map, [key]: preset('clusters', map[key].text || map[key]) } : map;
  if (!Array.isArray(tree.pools)) return named(tree, 'base');
  return { ...tree, pools: tree.pools.map(pool => named(pool, 'cluster')) };
}

// `preset(kind, name)` gives the tree of a preset, `preset(kind)` all of a kind; state.files =
// {model, cluster, engine} may hold {name, tree} that the user brought, used instead, and `script`
// {name, text}, which has the model and names its software.
function requestOf(state, preset) {
  const files = state.files || {};
  const model = modelOf(state, preset);
  const question = {};
  for (const [key, value] of optionsOf(state)) {
    if (!FILE_KINDS.includes(key)) question[key] = new Word(String(value));
  }
  const engineOf = name => (name === 'orthant' ? name : preset('engines', name));
  const engine = files.engine
    ? files.engine.tree
    : state.engine || !files.script
      ? engineOf(state.engine || 'orthant')
      : null;
  const settings = {};
  for (const [key, value] of Object.entries(state.settings || {})) {
    settings[key] = new Word(String(value));
  }
  const { script } = files,
    compare = (state.compared || []).map(file => comparedOf(file, preset));
  const scripts = script || compare.some(file => file.text);
  return {
    op: 'plan',
    model_name: model.name,
    model_source: model.source || '',
    question,
    cluster: clusterOf(state, preset),
    ...(script ? { script: { name: script.name, text: script.text } } : { model: model.tree }),
    ...(engine ? { engine } : {}),
    ...(scripts ? { engines: preset('engines') } : {}),
    ...(compare.length > 0 ? { compare } : {}),
    settings,
  };
}

// ---- a sweep ----

// The combinations of values of a grid {axes: [{key, values}]}, the last value fastest.
const combinations = ({ axes }) =>
  axes.reduce((all, { values }) => all.flatMap(head => values.map(v => [...head, v])), [[]]);

// The request of one combination.
function pointRequest(state, { axes }, values, preset) {
  const changes = Object.fromEntries(axes.map(({ key }, i) => [key, values[i]]));
  const request = requestOf({ ...changed(state, changes), compared: [] }, preset);
  return { ...request, op: 'point', sweep: axes.map(({ key }, i) => `${key}=${values[i]}`) };
}
