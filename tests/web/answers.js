// SPDX-License-Identifier: Apache-2.0
// node answers.js MODULE PRESETS JOB...: the answers of the WebAssembly module to jobs, which are
// options of `orthant plan`, one after another as the program prints them with --json.
'use strict';
const fs = require('node:fs');
const path = require('node:path');
const vm = require('node:vm');

// The page's own modules: they are plain scripts that share one scope.
const text = name => fs.readFileSync(path.join(__dirname, '../../web', name), 'utf8');
const page = vm.runInThisContext(`(() => {${['engine.js', 'yaml.js', 'job.js'].map(text).join('\n')}
return { Engine, encodeRequest, requestOf, parsePreset };})()`);

const [, , wasm, presets, ...jobs] = process.argv;
const module_ = new WebAssembly.Module(fs.readFileSync(wasm));
if (WebAssembly.Module.imports(module_).length > 0) throw new Error('the module has imports');
const engine = new page.Engine(module_);
const preset = (kind, name) => {
  const file = path.join(presets, kind, name + (kind === 'models' ? '.json' : '.yaml'));
  return page.parsePreset(kind, fs.readFileSync(file, 'utf8'));
};

for (const job of jobs) {
  const words = job.split(/\s+/),
    state = {};
  for (let i = 0; i < words.length; i += 2) {
    if (words[i] === '--set') {
      const [key, value] = words[i + 1].split('=');
      state.settings = { ...state.settings, [key]: value };
    } else {
      state[words[i].slice(2).replace(/-/g, '_')] = words[i + 1];
    }
  }
  process.stdout.write(engine.call(page.encodeRequest(page.requestOf(state, preset))) + '\n');
}
