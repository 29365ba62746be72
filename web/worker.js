// SPDX-License-Identifier: Apache-2.0
// In the worker: first the module, packed or compiled; then requests in order, each answer with the
// name of its request.
'use strict';
let engine = null;

async function take({ module, packed }) {
  const compiled = module || (await WebAssembly.compile(await unpacked(packed).arrayBuffer()));
  engine = new Engine(compiled);
  if (packed) postMessage({ module: compiled });
}

onmessage = ({ data }) => {
  if (!data.request) return take(data);
  const start = performance.now();
  let text;
  try {
    text = engine.call(data.request);
  } catch (error) {
    text = JSON.stringify({ error: `the planner stopped: ${error.message}`, hint: '', status: 70 });
  }
  postMessage({ id: data.id, text, ms: performance.now() - start });
};
