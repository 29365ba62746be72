// SPDX-License-Identifier: Apache-2.0
// The YAML of cluster files, engine files and RUN.yaml: block maps and lists, lists and maps in
// brackets, plain and quoted scalars, comments. Plain scalars stay words. Anything else (anchors,
// tags, block texts, several documents) is an error that names the line.
'use strict';

// The text of a line without its comment.
function stripComment(line) {
  let quote = '';
  for (let i = 0; i < line.length; i++) {
    const c = line[i];
    if (quote) {
      if (c === '\\' && quote === '"') i++;
      else if (c === quote) quote = '';
    } else if ((c === '"' || c === "'") && (i === 0 || /[\s[{,:]/.test(line[i - 1]))) quote = c;
    else if (c === '#' && (i === 0 || /\s/.test(line[i - 1]))) return line.slice(0, i);
  }
  return line;
}

class YamlReader {
  constructor(text) {
    this.lines = [];
    text.split(/\r?\n/).forEach((raw, i) => {
      const line = stripComment(raw).trimEnd();
      if (line.trim() === '' || (i === 0 && line === '---')) return;
      if (/^\s*\t/.test(line)) throw new Error(`line ${i + 1}: a tab as indentation`);
      const indent = line.length - line.trimStart().length;
      this.lines.push({ indent, text: line.trim(), at: i + 1 });
    });
    this.next = 0;
  }

  fail(what) {
    const line = this.lines[Math.min(this.next, this.lines.length - 1)];
    throw new Error(`line ${line ? line.at : 1}: ${what}`);
  }

  scalar(text) {
    if (text === '' || text === '~' || text === 'null') return null;
    if (text[0] === '"') return JSON.parse(text);
    if (text[0] === "'") return text.slice(1, -1).replace(/''/g, "'");
    if ('&*!|>%@`'.includes(text[0])) this.fail(`"${text[0]}" at the start of a value`);
    return new Word(text);
  }

  // A value in brackets or a scalar, from the characters `s` at `i`; returns [value, end].
  flow(s, i, ends) {
    const skip = () => {
      while (i < s.length && /\s/.test(s[i])) i++;
    };
    skip();
    if (s[i] === '[' || s[i] === '{') {
      const map = s[i] === '{',
        out = map ? {} : [];
      for (i++, skip(); s[i] !== (map ? '}' : ']'); skip()) {
        if (i >= s.length) this.fail('a bracket that does not end');
        let key;
        if (map) {
          [key, i] = this.flow(s, i, ':');
          key = key instanceof Word ? key.text : String(key);
          if (s[i] !== ':') this.fail('a key without a colon');
          i++;
        }
        let value;
        [value, i] = this.flow(s, i, ',]}');
        if (map) out[key] = value;
        else out.push(value);
        skip();
        if (s[i] === ',') i++;
      }
      return [out, i + 1];
    }
    if (s[i] === '"' || s[i] === "'") {
      const quote = s[i];
      let end = i + 1;
      while (end < s.length && s[end] !== quote) end += s[end] === '\\' && quote === '"' ? 2 : 1;
      return [this.scalar(s.slice(i, end + 1)), end + 1];
    }
    let end = i;
    while (end < s.length && !ends.includes(s[end])) end++;
    return [this.scalar(s.slice(i, end).trim()), end];
  }

  value(text) {
    // A list in brackets may go on over lines.
    let whole = text;
    const open = t => (t.match(/[[{]/g) || []).length - (t.match(/[\]}]/g) || []).length;
    if (/^[[{]/.test(text)) {
      while (open(whole) > 0 && this.next < this.lines.length) {
        whole += ' ' + this.lines[this.next++].text;
      }
      return this.flow(whole, 0, '')[0];
    }
    return this.scalar(text);
  }

  block(indent) {
    const line = this.lines[this.next];
    return line.text === '-' || line.text.startsWith('- ') ? this.list(indent) : this.map(indent);
  }

  list(indent) {
    const out = [];
    while (this.next < this.lines.length) {
      const line = this.lines[this.next];
      if (line.indent !== indent || !/^-( |$)/.test(line.text)) break;
      const rest = line.text.slice(1).trimStart();
      if (rest === '') {
        this.next++;
        out.push(this.nested(indent));
      } else if (/^[^\s"'[{][^:]*:( |$)/.test(rest)) {
        // a map that begins on this line
        line.indent += line.text.length - rest.length;
        line.text = rest;
        out.push(this.map(line.indent));
      } else {
        this.next++;
        out.push(this.value(rest));
      }
    }
    return out;
  }

  nested(indent) {
    const line = this.lines[this.next];
    const list = line && line.text.startsWith('-');
    if (!line || line.indent < indent || (line.indent === indent && !list)) return null;
    return this.block(line.indent);
  }

  // A plain text may go on over lines that are indented deeper.
  folded(text, indent) {
    let whole = text;
    while (!/^[[{"']/.test(text) && this.next < this.lines.length) {
      const line = this.lines[this.next];
      if (line.indent <= indent) break;
      if (/:( |$)/.test(line.text)) this.fail('a map where a text goes on');
      whole += ' ' + line.text;
      this.next++;
    }
    return whole;
  }

  map(indent) {
    const out = {};
    while (this.next < this.lines.length) {
      const line = this.lines[this.next];
      if (line.indent < indent) break;
      if (line.indent > indent) this.fail('indented deeper than its map');
      const match = /^("[^"]*"|'[^']*'|[^:]+?)\s*:(?:\s+(.*)|$)/.exec(line.text);
      if (!match) this.fail('neither "key: value" nor "- value"');
      const key = match[1].replace(/^["']|["']$/g, '');
      if (key in out) this.fail(`the key "${key}" twice`);
      this.next++;
      out[key] = match[2] ? this.value(this.folded(match[2], indent)) : this.nested(indent);
    }
    return out;
  }

  document() {
    if (this.lines.length === 0) return {};
    if (/^[[{]/.test(this.lines[0].text)) {
      this.next = 1;
      return this.value(this.lines[0].text);
    }
    const out = this.block(this.lines[0].indent);
    if (this.next < this.lines.length) this.fail('indented less than the document');
    return out;
  }
}

const parseYaml = text => new YamlReader(text).document();

// The value of a tree as JavaScript: words that are numbers become numbers.
function plainValue(node) {
  if (node instanceof Word) {
    const number = Number(node.text);
    if (node.text === 'true' || node.text === 'false') return node.text === 'true';
    return node.text !== '' && Number.isFinite(number) ? number : node.text;
  }
  if (Array.isArray(node)) return node.map(plainValue);
  if (node && typeof node === 'object') {
    return Object.fromEntries(Object.entries(node).map(([k, v]) => [k, plainValue(v)]));
  }
  return node;
}
