// SPDX-License-Identifier: Apache-2.0
// The worker as promises. A new plan makes all earlier requests stale; a worker that is still busy
// with one of them is replaced, since a search cannot be interrupted.
'use strict';

// Presets by kind and name, as texts.
function readPresets(text) {
  const presets = { models: {}, clusters: {}, engines: {} };
  for (const part of text.split(/^%%% /m).slice(1)) {
    const end = part.indexOf('\n');
    const [kind, file] = part.slice(0, end).split('/');
    presets[kind][file.replace(/\.(json|yaml)$/, '')] = part.slice(end + 1);
  }
  return presets;
}

// A worker and who waits for its answers.
class Line {
  constructor(worker) {
    Object.assign(this, { worker, waiting: new Map(), next: 1 });
    worker.onmessage = ({ data }) => {
      const done = this.waiting.get(data.id);
      this.waiting.delete(data.id);
      done(data);
    };
  }

  ask(request) {
    const id = this.next++;
    return new Promise(resolve => {
      this.waiting.set(id, resolve);
      this.worker.postMessage({ id, request: encodeRequest(request) });
    });
  }
}

class Service {
  constructor() {
    this.presets = readPresets(parts.presets);
    this.trees = new Map();
    this.turn = 0;
    this.loaded = compiled.then(module => {
      this.module = module;
      this.line = new Line(firstWorker);
    });
  }

  // A further worker.
  open() {
    const worker = new Worker(workerUrl);
    worker.postMessage({ module: this.module });
    return new Line(worker);
  }

  // The tree of a preset, or all of a kind by name.
  preset(kind, name) {
    if (!name) {
      const names = Object.keys(this.presets[kind]);
      return Object.fromEntries(names.map(n => [n, this.preset(kind, n)]));
    }
    const key = `${kind}/${name}`;
    if (!(name in this.presets[kind])) throw new Error(`there is no preset "${name}"`);
    if (!this.trees.has(key)) this.trees.set(key, parsePreset(kind, this.presets[kind][name]));
    return this.trees.get(key);
  }

  // The plan of a state, or what `more` asks of it: {text, answer, ms}. Promises of earlier
  // requests never resolve.
  async plan(state, more) {
    const turn = ++this.turn;
    await this.loaded;
    const question = requestOf(state, (kind, name) => this.preset(kind, name));
    const request = { ...question, ...more };
    if (turn !== this.turn) return new Promise(() => {});
    if (this.line.waiting.size > 0) {
      this.line.worker.terminate();
      this.line = this.open();
    }
    const { text, ms } = await this.line.ask(request);
    return { text, answer: JSON.parse(text), ms };
  }

  async detail(op, more) {
    const { text } = await this.line.ask({ op, ...more });
    return JSON.parse(text);
  }
}
