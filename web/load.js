// SPDX-License-Identifier: Apache-2.0
// Starts the worker with the planner, then unpacks style and scripts, and starts them.
'use strict';

const textOf = id => document.getElementById(id).textContent;

const workerUrl = URL.createObjectURL(
  new Blob([textOf('shared') + textOf('worker')], { type: 'text/javascript' }),
);
const firstWorker = new Worker(workerUrl);
const compiled = new Promise((resolve, reject) => {
  firstWorker.onmessage = ({ data }) => resolve(data.module);
  firstWorker.onerror = e => reject(new Error(e.message));
});
firstWorker.postMessage({ packed: textOf('planner') });

function put(tag, text) {
  const element = document.createElement(tag);
  element.textContent = text;
  document.head.append(element);
}

const parts = {}; // style, page, presets, given

(async () => {
  const text = await unpacked(textOf('parts')).text();
  for (const part of text.split(/^%%%% /m).slice(1)) {
    const end = part.indexOf('\n');
    parts[part.slice(0, end)] = part.slice(end + 1);
  }
  put('style', parts.style);
  put('script', parts.page);
  document.documentElement.style.visibility = '';
})();
