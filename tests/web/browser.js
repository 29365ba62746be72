// SPDX-License-Identifier: Apache-2.0
// node browser.js PAGE OUT MODULES: the page in headless Chromium, from disk, as its users meet it.
// Leaves screenshots in OUT. playwright-core and axe-core are in MODULES/node_modules.
'use strict';
const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');

const [page_, out, modules] = process.argv.slice(2).map(p => path.resolve(p));
const { chromium } = require(path.join(modules, 'node_modules/playwright-core'));
const axe = fs.readFileSync(path.join(modules, 'node_modules/axe-core/axe.min.js'), 'utf8');
const address = 'file://' + page_;
const FAILING = '#model=llama3-8b&cluster=h100&gpus=8&tp=1&pp=1&cp=1&zero=0&global_batch_size=512';

let browser;
const requests = [];

async function open(hash = '', options = {}, file = address) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.errors = [];
  page.on('pageerror', e => page.errors.push(e.message));
  page.on('console', m => {
    if (m.type() === 'error') page.errors.push(m.text());
  });
  page.on('request', r => requests.push(r.url()));
  await page.goto(file + hash);
  await ready(page, '0');
  return page;
}

// Polls `test` in the page: waitForFunction would need eval, which the page's policy forbids.
async function until(page, test, given) {
  for (let i = 0; i < 1200; i++) {
    if (await page.evaluate(test, given)) return;
    if (page.errors.length > 0) throw new Error(page.errors.join('; '));
    await page.waitForTimeout(50);
  }
  throw new Error(`waited a minute for ${test}`);
}

// Waits for an answer after the turn `before`.
const ready = (page, before) =>
  until(page, turn => Number(document.body.dataset.ready || 0) > Number(turn), before);

async function after(page, action) {
  const before = await page.evaluate(() => document.body.dataset.ready);
  await action();
  await ready(page, before);
}

// Drops a file on the page.
async function drop(page, name, text) {
  const data = await page.evaluateHandle(
    ([n, t]) => {
      const transfer = new DataTransfer();
      transfer.items.add(new File([t], n));
      return transfer;
    },
    [name, text],
  );
  await page.dispatchEvent('body', 'drop', { dataTransfer: data });
}

const root = path.join(__dirname, '../..');
const textOf = name => fs.readFileSync(path.join(root, name), 'utf8');
const title = page => page.textContent('#result h2');
const close = async page => {
  assert.deepEqual(page.errors, []);
  await page.context().close();
};

// ---- the cases ----

const cases = {
  async 'the first page has a plan with ranges and all charts'() {
    const page = await open();
    assert.match(await title(page), /^Fits: dp 64/);
    assert.match(await page.textContent('.tile'), /a step[\d.]+ s to [\d.]+ s/);
    for (const id of ['memory', 'mfu', 'devices', 'crossover']) {
      assert.ok((await page.locator(`#${id} svg rect, #${id} svg circle`).count()) > 3, id);
      assert.ok((await page.locator(`#${id} table`).count()) >= 1, `${id} has a table`);
    }
    assert.ok(await page.locator('#timeline canvas').isVisible());
    // The counts of the search come last; nothing chooses dollars for an empty field.
    assert.equal(await page.textContent('#status'), '');
    assert.match(await page.textContent('main > :last-child'), /^Searched [\d.]+k? config/);
    assert.equal(await page.getAttribute('#knob-price', 'placeholder'), 'none');
    await close(page);
  },

  async 'a plan of the program is the page with this plan'() {
    const { width, height } = { width: 1280, height: 900 };
    const context = await browser.newContext({ viewport: { width, height } });
    const page = await context.newPage();
    page.errors = [];
    await page.goto('file://' + path.join(out, 'plan.html'));
    await until(page, () => document.querySelector('.tile'));
    const first = await page.textContent('#result');
    assert.match(first, /qwen3-8b on 32/);
    await ready(page, '0');
    assert.equal(await page.textContent('#result'), first);
    assert.ok(await page.locator('#timeline canvas').isVisible());
    await after(page, () => page.selectOption('#knob-tp', '4'));
    assert.match(page.url(), /model=qwen3-8b.*tp=4/);
    assert.match(await title(page), /tp 4/);
    await close(page);
    const plain = await browser.newContext({ javaScriptEnabled: false });
    const report = await plain.newPage();
    await report.goto('file://' + path.join(out, 'plan.html'));
    assert.ok(await report.locator('#memory svg').isVisible());
    await report.screenshot({ path: path.join(out, 'without_scripts.png'), fullPage: true });
    await plain.close();
  },

  async 'scripts and compared files of the program are in its page, which computes the same'() {
    for (const [file, section, heads] of [
      ['from.html', '#script', ['', 'plan 1', 'megatron_script.sh']],
      ['from.html', '#compare', ['', 'plan 1', 'megatron_script.sh']],
      ['compared.html', '#compare', ['', 'plan 1', 'run.yaml']],
    ]) {
      const page = await open('', {}, 'file://' + path.join(out, file));
      assert.deepEqual(await page.locator(`${section} thead th`).allTextContents(), heads);
      const [given, own] = await page.evaluate(async () => {
        const { answer } = await window.app.ask(window.app.state);
        return [GIVEN.answer, answer];
      });
      assert.deepEqual(own, given);
      await after(page, () => page.selectOption('#knob-tp', '2'));
      assert.match(await title(page), /tp 2/);
      await close(page);
    }
  },

  async 'out of memory is said, and the remedy fits'() {
    const page = await open(FAILING);
    assert.equal(await title(page), 'Out of memory');
    assert.ok((await page.locator('#memory .over').count()) > 0);
    await page.screenshot({ path: path.join(out, 'out_of_memory.png'), fullPage: true });
    // The losses, of which recompute is one, and MFU are the whole of the peak and of the step.
    const rows = await page.locator('#mfu tbody tr').allTextContents();
    assert.match(rows.join('\n'), /^recompute1\d\.\d %/m);
    const [whole, step, again, stages] = await page.evaluate(() => {
      const { estimate, terms } = window.app.data.details;
      const seconds = Object.fromEntries(terms.map(t => [t.name, t.seconds]));
      const shares = lossesOf(estimate, terms).map(l => l[1]);
      const sum = Object.values(seconds).reduce((a, b) => a + b);
      return [shares.reduce((a, b) => a + b, estimate.mfu), sum / estimate.step_seconds,
        seconds.recompute, window.app.data.details.chunks[0].recompute * 64];
    });
    assert.ok(Math.abs(whole - 1) < 3e-3 && Math.abs(step - 1) < 1e-6, `${whole} ${step}`);
    assert.ok(Math.abs(again / stages - 1) < 0.02, `${again} s of recompute, chunks ${stages} s`);
    await after(page, () => page.click('#remedy'));
    assert.match(await title(page), /^Fits/);
    assert.ok(!new URL(page.url()).hash.includes('zero=0'));
    await close(page);
  },

  async 'tp beyond the fast domain is said, and one click mends it'() {
    const page = await open(
      '#model=llama3-70b&cluster=h100&gpus=256&global_batch_size=128&tp=16&pp=1&zero=1',
    );
    const slow = await page.textContent('.tile:nth-child(2) b');
    assert.match(await page.textContent('.finding h3'), /tp beyond the fast domain/);
    await after(page, () => page.click('.finding .remedy'));
    assert.equal(await page.inputValue('#knob-tp'), '8');
    assert.ok(parseFloat(await page.textContent('.tile:nth-child(2) b')) > parseFloat(slow));
    await close(page);
  },

  async 'a bubble is said with its formula'() {
    const page = await open(
      '#model=llama3-70b&cluster=h100&gpus=256&global_batch_size=128' +
        '&sequence_length=4096&tp=1&cp=1&pp=16&pipeline=1f1b&zero=1&micro_batch_size=1&vpp=1',
    );
    const text = await page.textContent('#result');
    assert.match(text, /Pipeline bubble.*\(16−1\)\/\(8\+16−1\)/s);
    await page.screenshot({ path: path.join(out, 'bubble.png'), fullPage: true });
    await close(page);
  },

  async 'a knob changes the plan, the link and the way back'() {
    const page = await open();
    await after(page, () => page.selectOption('#knob-tp', '4'));
    assert.match(await title(page), /tp 4/);
    assert.ok(page.url().includes('tp=4'));
    const same = await open(new URL(page.url()).hash);
    assert.equal(await title(same), await title(page));
    await close(same);
    await after(page, () => page.goBack());
    assert.match(await title(page), /^Fits: dp 64/);
    await after(page, () =>
      page.fill('#knob-gpus', '63').then(() => page.press('#knob-gpus', 'Tab')),
    );
    assert.match(await title(page), /Not a job yet|Fits|Out of memory/);
    await close(page);
  },

  async 'switches, deadlines and many plans'() {
    const page = await open('#model=llama3-8b&cluster=h100&gpus=64&tokens=161G');
    await after(page, () => page.check('#knob-variants'));
    assert.match(page.url(), /variants=true/);
    await after(page, () => page.uncheck('#knob-variants'));
    await after(page, () => page.check('#knob-simple'));
    assert.match(page.url(), /simple=true/);
    await page.fill('#deadline', '6d');
    await page.click('#meet');
    await until(page, () =>
      document.getElementById('status').textContent.startsWith('6 days: planned for 32: 32 '),
    );
    // 64 take 2.7 days, so 32 take less than 6, and 24 more.
    assert.match(page.url(), /gpus=32/);
    if (await page.locator('#more').count()) await page.click('#more');
    await until(page, () => document.querySelectorAll('#pareto tbody').length === 2);
    assert.ok((await page.locator('#pareto svg circle').count()) > 12);
    assert.ok((await page.locator('#pareto tbody >> nth=1 >> tr').count()) > 5);
    await close(page);
  },

  async 'dropped files are used: model, cluster, RUN.yaml, metrics'() {
    const page = await open();
    const model = textOf('presets/models/qwen3-8b.json');
    await after(page, () => drop(page, 'config.json', model));
    assert.match(await page.textContent('#result .dim'), /config\.json on 64/);
    const cluster = textOf('presets/clusters/a100-80g.yaml');
    await after(page, () => drop(page, 'mine.yaml', cluster));
    assert.match(await page.textContent('#result .dim'), /a100/);
    const again = await open(new URL(page.url()).hash);
    assert.equal(await page.textContent('#result .dim'), await again.textContent('#result .dim'));
    await close(again);
    await after(page, () =>
      drop(page, 'run.yaml', 'parallel: {tp: 2, pp: 2}\nbatch:\n  global_batch_size: 256\n'),
    );
    assert.match(await title(page), /tp 2, pp 2/);
    const lines = [9, 4, 4.1, 4.2].map((t, i) => JSON.stringify({ step: i + 1, step_seconds: t }));
    await drop(page, 'metrics.jsonl', lines.join('\n'));
    assert.match(await page.textContent('#measured'), /3 steps, median 4\.1 s/);
    const before = await page.textContent('.tile b');
    await after(page, () => page.click('#calibrate'));
    assert.notEqual(await page.textContent('.tile b'), before);
    await after(page, () => page.selectOption('#knob-engine', 'torchtitan'));
    await after(page, () => drop(page, 'config.json', model.replace('qwen3', 'gpt2')));
    assert.equal(await title(page), 'Not a job yet');
    assert.equal(await page.locator('#measured').count(), 0);
    await drop(page, 'broken.json', '{');
    await until(page, () => /broken\.json/.test(document.getElementById('status').textContent));
    await close(page);
  },

  async 'a dropped launch script is planned as the program plans it'() {
    const page = await open();
    const script = textOf('tests/fixtures/import/megatron_script.sh');
    await after(page, () => drop(page, 'megatron_script.sh', script));
    assert.match(await page.textContent('#script h2'), /megatron_script\.sh as it stands/);
    assert.ok((await page.locator('#script svg rect').count()) > 5);
    await page.click('[data-kind=command]');
    assert.equal(
      (await page.textContent('#output')).trim(),
      'orthant plan --from ./megatron_script.sh --cluster h100',
    );
    await page.click('[data-kind=json]');
    const answer = fs.readFileSync(path.join(modules, 'script.json'), 'utf8');
    assert.equal(await page.textContent('#output'), answer);
    await page.screenshot({ path: path.join(out, 'script.png'), fullPage: true });
    const same = await open(new URL(page.url()).hash);
    assert.equal(await same.textContent('#result'), await page.textContent('#result'));
    await close(same);
    await after(page, () => page.click('#take-layout'));
    assert.match(page.url(), /tp=4/);
    await after(page, () => page.selectOption('#knob-engine', 'orthant'));
    assert.equal(await page.evaluate(() => window.app.answer.engine), 'orthant');
    await after(page, () =>
      drop(page, 'bad.sh', script.replace('--num-layers', '--new-flag 1 --num-layers')),
    );
    assert.equal(await title(page), 'Not a job yet');
    assert.match(await page.textContent('#result'), /new-flag/);
    await after(page, () => page.selectOption('#knob-model', 'llama3-8b'));
    assert.match(await title(page), /^Fits/);
    assert.equal(await page.locator('#script').count(), 0);
    await close(page);
  },

  async 'plans and files are compared term by term, with the keyboard'() {
    const job = '#model=llama3-8b&cluster=h100&gpus=64&global_batch_size=64&sequence_length=8192';
    const page = await open(job);
    await page.focus('#keep');
    await after(page, () => page.keyboard.press('Enter'));
    const run =
      'model: llama3-8b\ndata: {sequence_length: 8192}\n' +
      'batch: {global_batch_size: 64, micro_batch_size: 1}\n' +
      'precision: {compute: bf16}\nparallel: {tp: 8, pp: 2, zero: 1, recompute: full}\n';
    const files = [{ name: 'slow.yaml', mimeType: 'text/yaml', buffer: Buffer.from(run) }];
    await after(page, () => page.setInputFiles('#compare-files', files));
    const heads = await page.locator('#compare thead th').allTextContents();
    assert.equal(heads[1], 'plan 1');
    assert.match(heads[2], /^plan-1-dp-64/);
    assert.equal(heads[3], 'slow.yaml');
    const figures = await page.textContent('#compare tbody');
    assert.match(figures, /step[\d.]+ m?s[\d.]+ m?s[\d.]+ m?s \(\+/);
    assert.ok((await page.locator('#compare svg rect').count()) > 6);
    // The bars add up to the step, within the pixels of the screen.
    const right = await page.evaluate(() =>
      [...document.querySelectorAll('#compare svg rect')]
        .map(r => ({ y: r.y.baseVal.value, end: r.x.baseVal.value + r.width.baseVal.value }))
        .reduce((ends, { y, end }) => ({ ...ends, [y]: Math.max(end, ends[y] || 0) }), {}),
    );
    const [first, , last] = Object.values(right),
      left = await page.evaluate(() =>
        Number(document.querySelector('#compare svg rect').getAttribute('x')),
      );
    const steps = await page.evaluate(() => [
      window.app.answer.plans[0].step_seconds,
      window.app.answer.compared[1].plan.step_seconds,
    ]);
    assert.ok(Math.abs((last - left) / (first - left) / (steps[1] / steps[0]) - 1) < 0.02);
    await page.locator('#compare').screenshot({ path: path.join(out, 'compare.png') });
    const same = await open(new URL(page.url()).hash);
    assert.equal(await same.textContent('#compare'), await page.textContent('#compare'));
    await close(same);
    // Of another batch: said there, and the plan stays.
    await after(page, () => page.click('[aria-label="×2: double Global batch"]'));
    assert.match(await page.textContent('#compare [role=alert]'), /global batch 64.*128/);
    assert.match(await title(page), /^Fits/);
    for (const name of ['plan-1', 'slow']) {
      await page.focus(`#compare button:has-text("Remove ${name}")`);
      await after(page, () => page.keyboard.press('Enter'));
    }
    assert.equal(await page.locator('#compare svg').count(), 0);
    await close(page);
  },

  async 'a sweep is that of the program: run, stopped, drawn, saved, linked, with the keyboard'() {
    const page = await open('#model=llama3-8b&cluster=h100&pp=1&cp=1');
    const done = () => until(page, () => document.getElementById('sweep-stop').disabled);
    await page.focus('#swept-values-0');
    await page.keyboard.type('1..32');
    await page.focus('#sweep-more');
    await page.keyboard.press('Enter');
    await page.selectOption('#swept-1', 'zero');
    await page.focus('#swept-values-1');
    await page.keyboard.type('1,3');
    await page.keyboard.press('Enter');
    await done();
    assert.equal(await page.textContent('#sweep-progress'), '12 plans');
    const csv = await page.evaluate(async () => {
      const { names, rows } = window.app.sweep;
      return names + rows.map(row => row.line).join('');
    });
    assert.equal(csv, fs.readFileSync(path.join(modules, 'sweep.csv'), 'utf8'));
    const saved = page.waitForEvent('download');
    await page.click('#sweep-csv');
    assert.equal(fs.readFileSync(await (await saved).path(), 'utf8'), csv);
    const fits = csv.split('\n').filter(line => /,true,/.test(line)).length;
    assert.ok(fits > 4 && fits < 12);
    assert.equal(await page.locator('#sweep circle').count(), fits);
    assert.equal(await page.locator('#sweep .cross').count(), 12 - fits);
    await page.selectOption('#swept-figure', 'mfu');
    assert.match(await page.getAttribute('#sweep svg', 'aria-label'), /^MFU against Devices/);
    await page.locator('#sweep').screenshot({ path: path.join(out, 'sweep.png') });
    await after(page, () => page.click('[aria-label="Set the form to 16, 3"]'));
    assert.equal(await page.inputValue('#knob-gpus'), '16');
    assert.equal(await page.inputValue('#knob-zero'), '3');
    assert.ok(await page.locator('#sweep circle').count()); // the figures stay
    const same = await open(new URL(page.url()).hash);
    assert.equal(await same.inputValue('#swept-values-1'), '1,3');
    await same.fill('#swept-values-0', '8..4096');
    await same.click('#sweep-run');
    await same.click('#sweep-stop');
    assert.match(await same.textContent('#sweep-progress'), /^Stopped after \d/);
    await same.fill('#swept-values-0', '8,,16');
    await same.click('#sweep-run');
    await until(same, () => /value is missing/.test(document.getElementById('sweep').textContent));
    await close(same);
    await close(page);
  },

  async 'a sweep of the program is the page with its rows, which the page plans the same'() {
    const page = await open('', {}, 'file://' + path.join(out, 'swept.html'));
    const rows = () =>
      page.evaluate(() => {
        const { names, rows: all } = window.app.sweep;
        return names + all.map(row => row.line).join('');
      });
    const csv = fs.readFileSync(path.join(modules, 'sweep.csv'), 'utf8');
    const fits = csv.split('\n').filter(line => /,true,/.test(line)).length;
    assert.equal(await page.getAttribute('#sections > section', 'id'), 'sweep');
    assert.equal(await page.locator('#sweep circle').count(), fits);
    assert.equal(await page.locator('#sweep .cross').count(), 12 - fits);
    assert.equal(await rows(), csv);
    assert.equal(
      await page.textContent('#sweep-command'),
      'orthant plan --model llama3-8b --cluster h100 --pp 1 --cp 1' +
        ' --sweep gpus=1,2,4,8,16,32 --sweep zero=1,3',
    );
    const [given, own] = await page.evaluate(async () => {
      const { answer } = await window.app.ask(window.app.state);
      return [GIVEN.answer, answer];
    });
    assert.deepEqual(own, given);
    await page.selectOption('#swept-figure', 'memory_bytes');
    assert.equal(await page.locator('#sweep path.limit').count(), 1);
    await page.locator('#sweep').screenshot({ path: path.join(out, 'swept.png') });
    await page.click('#sweep-run');
    await until(page, () => document.getElementById('sweep-stop').disabled);
    assert.equal(await rows(), csv);
    await after(page, () => page.click('[aria-label="Set the form to 16, 3"]'));
    assert.equal(await page.inputValue('#knob-gpus'), '16');
    assert.ok(await page.locator('#sweep circle').count());
    await close(page);
    const plain = await browser.newContext({ javaScriptEnabled: false });
    const lines = await plain.newPage();
    await lines.goto('file://' + path.join(out, 'swept.html'));
    assert.equal(await lines.textContent('noscript pre'), csv);
    await plain.close();
  },

  async 'pools of a mixed cluster may name presets'() {
    const page = await open('#model=llama3-8b&micro_batch_size=1&tp=1&cp=1&zero=1');
    const cluster =
      'name: two kinds\npools:\n  - {cluster: h100, num_devices: 16}\n' +
      '  - {cluster: a100-80g, num_devices: 16}\nbetween: {bytes_per_s: 25e9, latency_s: 10e-6}\n';
    await after(page, () => drop(page, 'mixed.yaml', cluster));
    assert.match(await title(page), /^Fits/);
    const pools = await page.evaluate(() => window.app.answer.cluster.pools.map(p => p.devices));
    assert.deepEqual(pools, [16, 16]);
    assert.equal(await page.locator('#crossover').count(), 0); // a limit of one kind of device
    await close(page);
  },

  async 'the text to take along is that of the program'() {
    const page = await open('#model=gpt2&cluster=h100&gpus=8');
    await until(page, () => /model: gpt2/.test(document.getElementById('output').textContent));
    await page.click('[data-kind=sbatch]');
    await until(page, () => /#SBATCH/.test(document.getElementById('output').textContent));
    await page.click('[data-kind=command]');
    assert.equal(
      (await page.textContent('#output')).trim(),
      'orthant plan --model gpt2 --cluster h100 --gpus 8',
    );
    await after(page, () => page.selectOption('#knob-engine', 'torchtitan'));
    assert.match(await title(page), /^Not a job yet/); // it trains no gpt2
    await after(page, () => page.selectOption('#knob-model', 'llama3-8b'));
    await page.click('[data-kind=torchtitan]');
    await until(page, () => /torchrun/.test(document.getElementById('output').textContent));
    await close(page);
  },

  async 'the keyboard reaches and does everything'() {
    const page = await open('#model=gpt2&cluster=h100&gpus=8&pp=2&tp=1');
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.className), 'skip');
    const reached = new Set();
    for (let i = 0; i < 140; i++) {
      await page.keyboard.press('Tab');
      reached.add(
        await page.evaluate(() => document.activeElement.id || document.activeElement.tagName),
      );
    }
    for (const id of [
      'knob-model',
      'knob-tp',
      'knob-recompute',
      'tour-open',
      'CANVAS',
      'file-input',
      'output',
      'copy-output',
      'SUMMARY',
    ])
      assert.ok(reached.has(id), `Tab reaches ${id}`);
    await page.focus('canvas');
    const first = await page.textContent('#action-text');
    await page.keyboard.press('ArrowRight');
    assert.notEqual(await page.textContent('#action-text'), first);
    await page.keyboard.press('ArrowDown');
    assert.match(await page.textContent('#action-text'), /stage 1/);
    for (const key of ['+', '+', 'End', 'Home', '0']) await page.keyboard.press(key);
    await page.focus('#knob-zero');
    await after(page, () => page.keyboard.press('3'));
    assert.match(page.url(), /zero=3/);
    await close(page);
  },

  async 'each step of the tour is a live state'() {
    const page = await open();
    await after(page, () => page.click('#tour-open'));
    const titles = [];
    for (;;) {
      titles.push(await title(page));
      if (await page.isDisabled('#tour-next')) break;
      await after(page, () => page.click('#tour-next'));
    }
    assert.equal(titles.length, 9);
    assert.equal(titles[0], 'Out of memory');
    assert.equal(titles[1], 'Out of memory');
    for (const t of titles.slice(2)) assert.match(t, /^Fits/, titles.join('; '));
    await page.screenshot({ path: path.join(out, 'tour_405b.png'), fullPage: true });
    await close(page);
  },

  async 'no violation of accessibility rules, light and dark, wide and narrow'() {
    for (const [name, width, scheme, hash] of [
      ['light', 1280, 'light', '#tour=2&' + FAILING.slice(1)],
      ['dark', 1280, 'dark', ''],
      ['phone', 360, 'light', ''],
      ['projector', 1920, 'dark', ''],
    ]) {
      const page = await open(hash, { viewport: { width, height: 900 }, colorScheme: scheme });
      if (width < 800) await page.click('#panel > summary');
      await page.evaluate(() =>
        document.querySelectorAll('details').forEach(d => {
          d.open = true;
        }),
      );
      await page.evaluate(axe);
      const found = await page.evaluate(() =>
        axe.run({
          runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
        }),
      );
      const broken = found.violations.map(
        v =>
          `${name}: ${v.id}: ${v.nodes.length} of ${v.nodes[0].html}: ${v.nodes[0].failureSummary}`,
      );
      assert.equal(broken.join('\n'), '');
      assert.ok(
        await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth),
        `${name} scrolls sideways`,
      );
      await page.screenshot({ path: path.join(out, `${name}.png`), fullPage: true });
      await close(page);
    }
  },

  // Times depend on the machine and what else runs on it: they are printed, not judged.
  async times() {
    const shown = async hash => {
      const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
      page.errors = [];
      await page.goto(address + hash);
      await ready(page, '0');
      const first = await page.evaluate(() => document.body.dataset.first);
      return { page, first };
    };
    const start = await shown('');
    const link = await shown('#model=qwen3-8b&cluster=a100-80g&gpus=32&tp=2');
    await link.page.close();
    const { page } = start;
    const knobs = [];
    for (const tp of ['2', '4', '1', '2', '8', '4']) {
      await after(page, () => page.selectOption('#knob-tp', tp));
      knobs.push(
        await page.evaluate(() => {
          const { shown, draw } = document.body.dataset;
          return [window.app.ms, shown, draw];
        }),
      );
    }
    await after(page, () => page.evaluate(() => window.app.tour(8)));
    const large = await page.evaluate(() => window.app.ms);
    const list = i => knobs.map(k => Number(k[i]).toFixed(0)).join(' ');
    console.log(
      `    first result ${start.first} ms after the start, of a link ${link.first} ms; ` +
        `knobs: ${list(1)} ms until the result is drawn, of them ${list(0)} ms search; ` +
        `the last drawing ${list(2)} ms; ` +
        `405B on 16,384 devices: ${large.toFixed(0)} ms; ` +
        `load ${require('node:os').loadavg()[0].toFixed(1)}`,
    );
    await page.close();
  },

  async 'nothing is asked of any network'() {
    assert.deepEqual(
      requests.filter(u => !/^(file|blob|data):/.test(u)),
      [],
    );
  },
};

(async () => {
  browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
  const wanted = process.env.ONLY;
  let passed = 0,
    failed = 0;
  for (const [name, run] of Object.entries(cases)) {
    if (wanted && !name.includes(wanted)) continue;
    try {
      await run();
      passed++;
      console.log(`ok  ${name}`);
    } catch (error) {
      failed++;
      console.log(`BAD ${name}\n${error.stack.split('\n').slice(0, 14).join('\n')}`);
    }
  }
  await browser.close();
  console.log(`${passed} passed, ${failed} failed`);
  process.exitCode = failed > 0 ? 1 : 0;
})();
