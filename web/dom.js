// SPDX-License-Identifier: Apache-2.0
// Elements. Text is always text: nothing of a file or link becomes markup.
'use strict';

function create(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child);
  }
  return node;
}

const h = (tag, attributes, ...children) =>
  create(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) =>
  create(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);

// A table behind a chart. Rows are lists of cells; the first cell is the row's heading.
function tableOf(caption, head, rows) {
  return h(
    'div',
    { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': `Figures: ${caption}` },
    h(
      'table',
      {},
      h('caption', {}, caption),
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          head.map(t => h('th', { scope: 'col' }, t)),
        ),
      ),
      h(
        'tbody',
        {},
        rows.map(cells =>
          h(
            'tr',
            {},
            cells.map((c, i) => (i === 0 ? h('th', { scope: 'row' }, c) : h('td', {}, c))),
          ),
        ),
      ),
    ),
  );
}

const foldedTable = (caption, head, rows) =>
  h(
    'details',
    { class: 'figures' },
    h('summary', {}, 'Figures as a table'),
    tableOf(caption, head, rows),
  );

const legendOf = entries =>
  h(
    'ul',
    { class: 'legend' },
    entries.map(([cls, name, figure]) =>
      h('li', {}, h('i', { class: `key ${cls}` }), name, figure ? h('b', {}, figure) : null),
    ),
  );

async function copyText(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch {
    // a page from disk may lack the clipboard
    const area = h('textarea', {}, text);
    document.body.append(area);
    area.select();
    button.textContent = document.execCommand('copy') ? 'Copied' : 'Press Ctrl+C';
    area.remove();
    button.focus();
  }
  setTimeout(() => {
    button.textContent = before;
  }, 1600);
}
