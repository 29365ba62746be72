// SPDX-License-Identifier: Apache-2.0
// Numbers as text. Powers of 1000; three digits.
'use strict';

const digits = (value, n = 3) =>
  Number(value.toPrecision(n)).toLocaleString('en-US', {
    maximumSignificantDigits: n,
    useGrouping: false,
  });

function scaled(value, units, step = 1000) {
  let i = 0;
  while (Math.abs(value) >= step * 0.9995 && i < units.length - 1) {
    value /= step;
    i++;
  }
  return `${digits(value)}${units[i]}`;
}

const formatBytes = bytes => scaled(bytes, [' bytes', ' kB', ' MB', ' GB', ' TB', ' PB']);
const formatFlops = flops =>
  scaled(flops, [' FLOP', ' kFLOP', ' MFLOP', ' GFLOP', ' TFLOP', ' PFLOP']);
const formatInteger = n => Math.round(n).toLocaleString('en-US');
const formatCount = count => scaled(count, ['', 'k', 'M', 'B', 'T', 'P']);

// What formatCount prints and options take (4k, 10B, 15T), as a number; NaN for anything else.
function parseCount(text) {
  const powers = { k: 1, K: 1, M: 2, G: 3, B: 3, T: 4, P: 5, E: 6 };
  const [, number, unit] = /^([\d.,_]+(?:e[+-]?\d+)?) ?([kKMGBTPE]?)$/.exec(text.trim()) || [];
  return number ? number.replace(/[,_]/g, '') * 1000 ** (powers[unit] || 0) : NaN;
}

const formatShare = share => `${(100 * share).toFixed(1)} %`;
const formatDollars = dollars => '$' + (dollars < 1000 ? dollars.toFixed(2) : formatCount(dollars));

function formatSeconds(s) {
  if (!Number.isFinite(s)) return 'no time';
  if (s === 0) return '0 s';
  if (s < 1e-3) return `${digits(s * 1e6)} µs`;
  if (s < 1) return `${digits(s * 1e3)} ms`;
  if (s < 120) return `${digits(s)} s`;
  if (s < 7200) return `${digits(s / 60)} min`;
  return s < 172800 ? `${digits(s / 3600)} h` : `${digits(s / 86400)} days`;
}

// "tp 8, pp 4, dp 16, ZeRO 1": what differs from 1.
function formatLayout(c) {
  const parts = ['tp', 'pp', 'vpp', 'cp', 'ep'].filter(k => c[k] > 1).map(k => `${k} ${c[k]}`);
  parts.push(`dp ${c.dp}`);
  if (c.dp > 1) parts.push(`ZeRO ${c.zero}`);
  return parts.join(', ');
}

function formatSchedule(c) {
  const recompute = c.recompute === 'none' ? '' : `, recompute ${c.recompute}`;
  const pipeline = c.pp > 1 ? `${c.pipeline}, ` : '';
  return (
    `${pipeline}${c.micro_batches} micro-batch${c.micro_batches > 1 ? 'es' : ''} of ` +
    `${c.micro_batch_size}${recompute}`
  );
}

const usedMemory = m => m.reserved + m.context;
