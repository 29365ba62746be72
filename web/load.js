// SPDX-License-Identifier: Apache-2.0
// Starts the worker with the planner, then unpacks style and scripts, and starts them.
'use strict';

const textOf = id => document.getElementById(id).textContent;
const packedOf = id => ({ program: textOf('unpack'), data: textOf(id) });

const workerUrl = URL.createObjectURL(
  new Blob([textOf('shared') + textOf('worker')], { type: 'text/javascript' }),
);
const firstWorker = new Worker(workerUrl);
firstWorker.postMessage({ packed: packedOf('planner') });

// {style, page, names, given}
const parts = {};
for (const part of new TextDecoder().decode(unpack(packedOf('parts'))).split(/^%%%% /m).slice(1)) {
  const end = part.indexOf('\n');
  parts[part.slice(0, end)] = part.slice(end + 1);
}

function put(tag, text) {
  const element = document.createElement(tag);
  element.textContent = text;
  document.head.append(element);
}

put('style', parts.style);
put('script', parts.page);
document.documentElement.style.visibility = '';
