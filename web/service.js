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

class Service {
  constructor() {
    this.presets = readPresets(parts.presets);
    this.trees = new Map();
    this.waiting = new Map();
    this.next = 1;
    this.turn = 0;
    this.loaded = new Promise((resolve, reject) => Object.assign(this, { resolve, reject }));
    this.listen(firstWorker);
  }

  listen(worker) {
    this.worker = worker;
    worker.onerror = e => this.reject(new Error(e.message));
    worker.onmessage = ({ data }) => {
      if (data.module) {
        this.module = data.module;
        return this.resolve();
      }
      const done = this.waiting.get(data.id);
      this.waiting.delete(data.id);
      if (done) done(data);
    };
  }

  // A worker in place of one that is busy.
  replace() {
    this.worker.terminate();
    this.waiting.clear();
    this.listen(new Worker(workerUrl));
    this.worker.postMessage({ module: this.module });
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

  ask(request) {
    const id = this.next++;
    return new Promise(resolve => {
      this.waiting.set(id, resolve);
      this.worker.postMessage({ id, request: encodeRequest(request) });
    });
  }

  // The plan of a state: {text, answer, ms}. Promises of earlier requests never resolve.
  async plan(state) {
    const turn = ++this.turn;
    await this.loaded;
    const request = requestOf(state, (kind, name) => this.preset(kind, name));
    if (turn !== this.turn) return new Promise(() => {});
    if (this.waiting.size > 0) this.replace();
    const { text, ms } = await this.ask(request);
    return { text, answer: JSON.parse(text), ms };
  }

  async detail(op, more) {
    const { text } = await this.ask({ op, ...more });
    return JSON.parse(text);
  }
}
