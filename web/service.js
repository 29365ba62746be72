// SPDX-License-Identifier: Apache-2.0
// The worker as promises. A new plan makes all earlier requests stale; a worker that is still busy
// with one of them is replaced, since a search cannot be interrupted.
'use strict';

const fromBase64 = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));

async function unpack(id) {
  const packed = new Blob([fromBase64(document.getElementById(id).textContent)]);
  const stream = packed.stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

class Service {
  async start() {
    const [code, presets] = await Promise.all([unpack('module'), unpack('presets')]);
    this.module = await WebAssembly.compile(code);
    const script =
      document.getElementById('shared').textContent +
      document.getElementById('worker-code').textContent;
    this.url = URL.createObjectURL(new Blob([script], { type: 'text/javascript' }));
    this.presets = { models: {}, clusters: {}, engines: {} };
    for (const part of new TextDecoder().decode(presets).split(/^%%% /m).slice(1)) {
      const end = part.indexOf('\n');
      const [kind, file] = part.slice(0, end).split('/');
      this.presets[kind][file.replace(/\.(json|yaml)$/, '')] = part.slice(end + 1);
    }
    this.trees = new Map();
    this.waiting = new Map();
    this.next = 1;
    this.spawn();
  }

  spawn() {
    if (this.worker) this.worker.terminate();
    this.waiting.clear();
    this.worker = new Worker(this.url);
    this.worker.postMessage({ module: this.module });
    this.worker.onmessage = ({ data }) => {
      const done = this.waiting.get(data.id);
      this.waiting.delete(data.id);
      if (done) done(data);
    };
  }

  // The tree of a preset.
  preset(kind, name) {
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
    const request = requestOf(state, (kind, name) => this.preset(kind, name));
    if (this.waiting.size > 0) this.spawn();
    const { text, ms } = await this.ask(request);
    return { text, answer: JSON.parse(text), ms };
  }

  async detail(op, more) {
    const { text } = await this.ask({ op, ...more });
    return JSON.parse(text);
  }
}
