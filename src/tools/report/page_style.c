// SPDX-License-Identifier: Apache-2.0
// One style sheet for pages and for charts as files, in parts within the string length limit of
// compilers.
#include <stddef.h>

#include "report/page_frame.h"

const char ot_colours_light[] =
    "--page:#f4f5f7;--card:#fff;--text:#1b1f24;--dim:#59636e;"
    "--edge:#d5dae0;--accent:#0b57a4;--idle:#eceff2;"
    "--compute:#2f6db3;--again:#8db8e3;--tp:#e0861a;--cp:#b8a100;--ep:#7d5fc0;--pp:#1f9a8a;"
    "--dp:#c64a3c;--all:#a0557f;--bubble:#c3cad2;--host:#7a838d;--update:#4c8a4f;--total:#1b1f24";
const char ot_colours_dark[] =
    "--page:#0f1216;--card:#171b21;--text:#e6e9ed;"
    "--dim:#9aa5b1;--edge:#303740;--accent:#7db6f2;--idle:#222831;"
    "--compute:#5b9be0;--again:#34608f;--tp:#f0a040;--cp:#d9c53a;--ep:#a68be6;--pp:#41bfae;"
    "--dp:#e8705f;--all:#cf86ac;--bubble:#4a535e;--host:#8b96a2;--update:#6fb272;"
    "--total:#e6e9ed";

const char *const ot_chart_style[] = {
    "svg text{fill:var(--text)}svg .dim{fill:var(--dim)}svg .e{text-anchor:end}svg .m{text-anchor:"
    "middle}\n"
    "svg .strong{font-weight:600}svg .small{font-size:10px}svg .on{fill:#fff}\n"
    "svg .grid{stroke:var(--edge)}svg .tick{stroke:var(--dim)}\n"
    "svg .limit{stroke:var(--text);stroke-width:1.5;stroke-dasharray:5 3}\n"
    "svg .curve{fill:none;stroke-width:2}svg .l-total{stroke-width:3.2}\n"
    "svg .dot{stroke:var(--card);stroke-width:1}\n"
    "svg .band{fill:none;opacity:.4}svg .cell{stroke:none}\n"
    "svg .act{stroke:var(--card);stroke-width:.7}\n"
    "svg .s1{opacity:.78}svg .s2{opacity:.58}svg .s3{opacity:.42}\n"
    ".idle{fill:var(--idle);background:var(--idle)}\n",
    ".c-compute,.c-forward,.c-weights{fill:var(--compute);background:var(--compute)}\n"
    ".c-again{fill:var(--again);background:var(--again)}\n"
    ".c-tp,.c-backward,.c-gradients{fill:var(--tp);background:var(--tp)}\n"
    ".c-cp{fill:var(--cp);background:var(--cp)}\n"
    ".c-ep,.c-activations{fill:var(--ep);background:var(--ep)}\n"
    ".c-pp,.c-gathered,.c-weight{fill:var(--pp);background:var(--pp)}\n"
    ".c-dp{fill:var(--dp);background:var(--dp)}\n"
    ".c-all{fill:var(--all);background:var(--all)}\n"
    ".c-teacher{fill:var(--all);background:var(--all)}\n"
    ".c-bubble,.c-loss{fill:var(--bubble);background:var(--bubble)}\n"
    ".c-host,.c-context{fill:var(--host);background:var(--host)}\n"
    ".c-update,.c-optimizer{fill:var(--update);background:var(--update)}\n"
    ".c-buffers{fill:var(--cp);background:var(--cp)}\n"
    ".c-total{fill:var(--total);background:var(--total)}\n"
    ".l-compute{stroke:var(--compute)}.l-again{stroke:var(--again);stroke-dasharray:7 3}\n"
    ".l-tp{stroke:var(--tp)}.l-cp{stroke:var(--cp)}.l-ep{stroke:var(--ep)}\n"
    ".l-pp{stroke:var(--pp);stroke-dasharray:3 2}.l-dp{stroke:var(--dp)}\n"
    ".l-all{stroke:var(--all);stroke-dasharray:1 3}.l-bubble{stroke:var(--dim);stroke-dasharray:8 "
    "3 2 3}\n"
    ".l-teacher{stroke:var(--all);stroke-dasharray:1 "
    "2}.l-host{stroke:var(--host);stroke-dasharray:2 4}.l-update{stroke:var(--update)}\n"
    ".l-total{stroke:var(--total)}\n",
    NULL,
};

const char *const ot_page_style[] = {
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--page);color:var(--text);font:16px/1.5 system-ui,-apple-system,"
    "\"Segoe UI\",Roboto,\"Helvetica Neue\",Arial,sans-serif}\n"
    "main,header,nav,footer{max-width:1240px;margin:0 auto;padding:0 16px}\n"
    "header{padding-top:28px}\n"
    "h1{font-size:1.7rem;line-height:1.2;margin:0 0 4px;overflow-wrap:anywhere}\n"
    "h2{font-size:1.15rem;margin:0 0 4px}h3{font-size:1rem;margin:18px 0 4px}\n"
    "p{margin:6px 0}.dim,figcaption,.read{color:var(--dim)}.read{font-size:.92rem;margin-bottom:"
    "12px}\n"
    "a{color:var(--accent)}nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:4px 16px;padding:"
    "0;margin:12px 0;font-size:.95rem}\n"
    "section{background:var(--card);border:1px solid var(--edge);border-radius:10px;padding:18px "
    "20px;margin:14px 0}\n"
    "footer{color:var(--dim);font-size:.85rem;padding-bottom:32px}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:"
    "14px 0}\n"
    ".tile{border:1px solid var(--edge);border-radius:8px;padding:10px 12px}\n"
    ".tile b{display:block;font-size:1.35rem;line-height:1.25;font-variant-numeric:tabular-nums}\n"
    ".tile span{color:var(--dim);font-size:.85rem}\n"
    ".chips{list-style:none;display:flex;flex-wrap:wrap;gap:6px;padding:0;margin:12px 0}\n"
    ".chips li{border:1px solid var(--edge);border-radius:999px;padding:2px 11px;font-size:.92rem;"
    "white-space:nowrap}.chips b{font-variant-numeric:tabular-nums}\n",
    "figure{margin:0}\n"
    // Shadows at the sides that hide something: the covers move with the content, the shadows do
    // not.
    ".scroll{overflow-x:auto;background:linear-gradient(90deg,var(--card) 30%,transparent) 0 "
    "0/40px "
    "100% no-repeat local,linear-gradient(270deg,var(--card) 30%,transparent) 100% 0/40px 100% "
    "no-repeat local,linear-gradient(90deg,var(--dim),transparent) 0 0/10px 100% no-repeat scroll,"
    "linear-gradient(270deg,var(--dim),transparent) 100% 0/10px 100% no-repeat scroll}\n"
    "svg{display:block;width:100%;min-width:760px;height:auto;font-size:13px}\n"
    "svg text{paint-order:stroke;stroke:var(--card);stroke-width:3px}\n"
    "svg .on{stroke:rgba(0,0,0,.45);stroke-width:2px}\n"
    ".legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 18px;padding:0;margin:10px 0 0;"
    "font-size:.92rem}.legend b{font-weight:600;font-variant-numeric:tabular-nums}\n"
    ".key{display:inline-block;width:.85em;height:.85em;border-radius:2px;margin-right:6px;"
    "vertical-align:-.06em;border:1px solid rgba(128,128,128,.5)}\n",
    "table{border-collapse:collapse;font-size:.92rem;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:5px 8px;border-bottom:1px solid var(--edge);text-align:right;white-space:"
    "nowrap}\n"
    "thead th{color:var(--dim);font-weight:600;vertical-align:bottom}\n"
    "th[scope=row],td.t{text-align:left}tbody tr.best{background:var(--idle)}\n"
    "table.facts th,table.facts td{white-space:normal;text-align:left;vertical-align:top}\n"
    "table.facts th{font-weight:500;color:var(--dim);min-width:9em}"
    "table.facts td{overflow-wrap:anywhere}\n"
    "details{margin-top:10px}summary{cursor:pointer;color:var(--accent);font-size:.92rem}\n"
    "li{margin:3px 0}ol,ul{padding-left:22px}\n"
    "pre{overflow-x:auto;background:var(--idle);border-radius:8px;padding:12px;font-size:.86rem;"
    "line-height:1.4}\n"
    ":focus-visible{outline:2px solid var(--accent);outline-offset:2px}\n"
    "@media(max-width:600px){section{padding:14px 12px}h1{font-size:1.35rem}.tile "
    "b{font-size:1.15rem}}\n"
    "@media print{:root{--page:#fff}section{break-inside:avoid;border:0}nav{display:none}}\n",
    NULL,
};
