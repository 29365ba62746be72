// SPDX-License-Identifier: Apache-2.0
// node answers.js PAGE MODULE PRESETS OUT JOB...: the answers of the page to jobs, which are
// options of `orthant plan`, in files OUT/0, OUT/1, ... as the program prints them with --json.
// What the page holds packed must be the module, and the presets.
'use strict';
const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const vm = require('node:vm');
const zlib = require('node:zlib');

// The page's own modules: they are plain scripts that share one scope.
const scripts = ['engine.js', 'yaml.js', 'job.js'];
const text = name => fs.readFileSync(path.join(__dirname, '../../web', name), 'utf8');
const page = vm.runInThisContext(`(() => {${scripts.map(text).join('\n')}
return {
  Engine, bytesOf, encodeRequest, requestOf, parsePreset, combinations, pointRequest,
};})()`);

const [, , html, wasm, presets, out, ...jobs] = process.argv;
const source = fs.readFileSync(html, 'utf8');
const textOf = id => new RegExp(`id="${id}">([^<]*)<`).exec(source)[1];
const unpacked = id => zlib.gunzipSync(page.bytesOf(textOf(id)));
const code = unpacked('planner');
assert.ok(code.equals(fs.readFileSync(wasm)), 'the page holds another module');
const module_ = new WebAssembly.Module(code);
if (WebAssembly.Module.imports(module_).length > 0) throw new Error('the module has imports');
const engine = new page.Engine(module_);
const fileOf = (kind, name) =>
  fs.readFileSync(path.join(presets, kind, name + (kind === 'models' ? '.json' : '.yaml')), 'utf8');
const presetNames = kind =>
  fs.readdirSync(path.join(presets, kind)).map(file => file.replace(/\.(json|yaml)$/, ''));
const preset = (kind, name) =>
  name
    ? page.parsePreset(kind, fileOf(kind, name))
    : Object.fromEntries(presetNames(kind).map(n => [n, preset(kind, n)]));

// Without comments the presets say the same.
const parts = unpacked('parts').toString();
const shortened = /^%%%% presets\n(.*?)^%%%% /ms.exec(parts)[1].split(/^%%% /m).slice(1);
const files = ['models', 'clusters', 'engines'].flatMap(kind =>
  fs.readdirSync(path.join(presets, kind)),
);
assert.equal(shortened.length, files.length);
for (const part of shortened) {
  const end = part.indexOf('\n'),
    file = part.slice(0, end);
  const [kind, name] = file.split('/');
  const whole = preset(kind, name.replace(/\.(json|yaml)$/, ''));
  assert.deepEqual(page.parsePreset(kind, part.slice(end + 1)), whole, file);
}

// The words of the form are those that the module takes.
const options = /^%%%% options\n(.*?)^%%%% /ms.exec(parts)[1].trim().split('\n');
const choices = options.map(line => line.split('\t')).filter(([, words]) => words !== '');
assert.ok(choices.length >= 5, options.join('; '));
for (const [key, words] of choices) {
  const state = { model: 'gpt2', cluster: 'h100', [key]: 'neither' };
  const request = page.encodeRequest(page.requestOf(state, preset));
  const { error, hint } = JSON.parse(engine.call(request));
  const allowed = `${error} ${hint}`.match(/[a-z0-9][a-z0-9-]*/g);
  assert.deepEqual(words.split(' ').filter(word => !allowed.includes(word)), [], error);
}

const textOfFile = file => fs.readFileSync(file, 'utf8');

jobs.forEach((job, number) => {
  const words = job.split(/\s+/),
    state = {};
  for (let i = 0; i < words.length; i += 2) {
    if (words[i] === '--set') {
      const [key, value] = words[i + 1].split('=');
      state.settings = { ...state.settings, [key]: value };
    } else if (words[i] === '--from') {
      const text = textOfFile(words[i + 1]);
      state.files = { script: { name: path.basename(words[i + 1]), text } };
    } else if (words[i] === '--compare') {
      const name = path.basename(words[i + 1]);
      state.compared = [...(state.compared || []), { name, text: textOfFile(words[i + 1]) }];
    } else if (words[i] === '--sweep') {
      state.sweep = [...(state.sweep || []), words[i + 1]];
    } else if (words[i] === '--cluster' && words[i + 1].endsWith('.yaml')) {
      state.files = { cluster: { tree: page.parsePreset('clusters', textOfFile(words[i + 1])) } };
    } else {
      state[words[i].slice(2).replace(/-/g, '_')] = words[i + 1];
    }
  }
  const ask = request => engine.call(page.encodeRequest(request));
  const file = path.join(out, String(number));
  if (state.deadline) {
    const { deadline, ...rest } = state;
    const request = { ...page.requestOf(rest, preset), op: 'deadline', deadline };
    return fs.writeFileSync(file, ask(request));
  }
  if (!state.sweep) return fs.writeFileSync(file, ask(page.requestOf(state, preset)) + '\n');
  const grid = JSON.parse(ask({ op: 'sweep', sweep: state.sweep }));
  const rows = page
    .combinations(grid)
    .map(values => JSON.parse(ask(page.pointRequest(state, grid, values, preset))));
  assert.equal(rows.length, grid.points);
  fs.writeFileSync(file, rows[0].names + rows.map(row => row.line).join(''));
});
