// SPDX-License-Identifier: Apache-2.0
// From the state of the page to a request of the planner. The state holds the options of `orthant
// plan` by their names with underscores; what is absent is searched or has its default.
'use strict';

const QUESTION_KEYS = [
  'gpus',
  'global_batch_size',
  'sequence_length',
  'tokens',
  'critical_batch_tokens',
  'tp',
  'pp',
  'vpp',
  'cp',
  'ep',
  'etp',
  'dp',
  'zero',
  'micro_batch_size',
  'pipeline',
  'recompute',
  'precision',
  'expert_imbalance',
  'price',
  'memory_margin',
  'top',
  'variants',
  'simple',
];

// A preset or dropped file of a kind as a tree.
function parsePreset(kind, text) {
  return kind === 'models' ? JSON.parse(text) : parseYaml(text);
}

// `preset(kind, name)` gives the tree of a preset; state.files = {model, cluster, engine} may hold
// {name, tree} that the user brought, used instead.
function requestOf(state, preset) {
  const files = state.files || {};
  const model = files.model || {
    name: state.model,
    source: state.model,
    tree: preset('models', state.model),
  };
  const question = { model_name: model.name, model_source: model.source || '' };
  for (const key of QUESTION_KEYS) {
    const value = state[key];
    const given = value !== undefined && value !== '' && value !== null;
    if (given) question[key] = new Word(String(value));
  }
  const engine = files.engine
    ? files.engine.tree
    : !state.engine || state.engine === 'orthant'
      ? 'orthant'
      : preset('engines', state.engine);
  const settings = {};
  for (const [key, value] of Object.entries(state.settings || {})) {
    settings[key] = new Word(String(value));
  }
  return {
    op: 'plan',
    question,
    model: model.tree,
    cluster: files.cluster ? files.cluster.tree : preset('clusters', state.cluster),
    engine,
    settings,
  };
}
