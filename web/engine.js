// SPDX-License-Identifier: Apache-2.0
// The planning half: a WebAssembly module that answers requests (src/planner/web/web.h). A request
// is an object; it travels as lines, one node each, and the answer comes back as JSON text.
'use strict';

// A scalar as it stands in a YAML file, without quotes: the tables of the planner give it a type.
class Word {
  constructor(text) {
    this.text = text;
  }
}

const escapeField = text =>
  String(text).replace(/[\\\t\n]/g, c => (c === '\\' ? '\\\\' : c === '\t' ? '\\t' : '\\n'));

// Appends the lines of `value` at `depth` under `key`.
function encodeNode(value, depth, key, lines) {
  const line = (kind, text) =>
    lines.push(`${depth}\t${kind}\t${escapeField(key)}\t${escapeField(text)}`);
  if (value === null || value === undefined) return line('n', '');
  if (value instanceof Word) return line('w', value.text);
  if (typeof value === 'string') return line('t', value);
  if (typeof value !== 'object') return line('w', String(value));
  line(Array.isArray(value) ? 'l' : 'm', '');
  for (const [name, child] of Object.entries(value)) {
    encodeNode(child, depth + 1, Array.isArray(value) ? '' : name, lines);
  }
}

function encodeRequest(request) {
  const lines = [];
  encodeNode(request, 0, '', lines);
  return lines.join('\n') + '\n';
}

// The bytes of a text of web/text_of.awk: each character is 7 bits.
function bytesOf(text) {
  const bytes = new Uint8Array((text.length * 7) >> 3);
  for (let i = 0, size = 0, bits = 0, word = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    word = (word << 7) | (code < 128 ? code : [0, 13, 60][code - 128]);
    bits += 7;
    if (bits < 8) continue;
    bits -= 8;
    bytes[size++] = word >> bits;
  }
  return bytes;
}

// What the page holds with gzip.
const unpacked = text =>
  new Response(new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream('gzip')));

class Engine {
  constructor(module) {
    this.exports = new WebAssembly.Instance(module, {}).exports;
  }

  // The answer to a request, encoded as lines, as JSON text.
  call(lines) {
    const bytes = new TextEncoder().encode(lines);
    const at = this.exports.page_request();
    if (bytes.length > 1 << 20) throw new Error('the request has more than 1 MiB');
    new Uint8Array(this.exports.memory.buffer, at, bytes.length).set(bytes);
    const answer = this.exports.page_call(bytes.length);
    const length = this.exports.page_length();
    return new TextDecoder().decode(new Uint8Array(this.exports.memory.buffer, answer, length));
  }
}
