// SPDX-License-Identifier: Apache-2.0
// In the worker: requests of one generation in order; each answer names its request.
'use strict';
let engine = null;
onmessage = ({ data }) => {
  if (data.module) {
    engine = new Engine(data.module);
    return;
  }
  const start = performance.now();
  let text;
  try {
    text = engine.call(data.request);
  } catch (error) {
    text = JSON.stringify({ error: `the planner stopped: ${error.message}`, hint: '', status: 70 });
  }
  postMessage({ id: data.id, text, ms: performance.now() - start });
};
