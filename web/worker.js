// SPDX-License-Identifier: Apache-2.0
// In the worker: first the module, packed or compiled; then requests in order, each answer with the
// name of its request.
'use strict';
let engine = null;

// The planner is the presets, as text, and the module, which begins with a zero.
function take({ module, packed }) {
  const planner = packed && unpack(packed);
  const end = packed && planner.indexOf(0);
  const compiled = module || new WebAssembly.Module(planner.subarray(end));
  engine = new Engine(compiled);
  if (!packed) return;
  postMessage({ module: compiled, presets: new TextDecoder().decode(planner.subarray(0, end)) });
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
