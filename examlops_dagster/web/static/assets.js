// Live states, filters, choosing and the arrow keys. Without it the page works by links and forms.
"use strict";

const POLL_MILLISECONDS = 3000;
const NAME_SHOWN = 34;
const prefix = document.body.dataset.prefix;
const filters = document.getElementById("filters");
const panel = document.getElementById("detail");
const status = document.getElementById("live");
let nodes, rows, chosen, tag = "", downstreams;

function collect() {
  nodes = [...document.querySelectorAll("a.node")];
  rows = [...document.querySelectorAll("tbody tr")];
  downstreams = nodes.map(() => []);
  nodes.forEach((node, n) => upstreams(node).forEach((up) => downstreams[up].push(n)));
  nodes.forEach((node, n) => node.setAttribute("tabindex", n === 0 ? "0" : "-1"));
}

function upstreams(node) {
  return node.dataset.up ? node.dataset.up.split(" ").map(Number) : [];
}

function nameOf(n) {
  return rows[n].dataset.name;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function squeeze(text) {
  text.removeAttribute("textLength");
  const room = text.previousElementSibling.previousElementSibling.width.baseVal.value - 24;
  if (text.getComputedTextLength() <= room) return;
  text.setAttribute("textLength", room);
  text.setAttribute("lengthAdjust", "spacingAndGlyphs");
}

function shortened(text) {
  return text.length <= NAME_SHOWN ? text : `${text.slice(0, NAME_SHOWN - 1)}…`;
}

// ---- filters ---------------------------------------------------------------------------------
function applyFilters() {
  const wanted = new FormData(filters);
  const text = wanted.get("q").toLowerCase();
  let found = 0;
  rows.forEach((row, n) => {
    const cells = row.cells;
    const fits = (!text || nameOf(n).toLowerCase().includes(text)) &&
      (!wanted.get("kind") || cells[1].textContent === wanted.get("kind")) &&
      (!wanted.get("state") || cells[2].dataset.state === wanted.get("state"));
    if (row.hidden === fits) row.hidden = !fits;
    nodes[n].classList.toggle("off", !fits);
    found += fits;
  });
  const isFiltered = text || wanted.get("kind") || wanted.get("state");
  setText(document.getElementById("found"), isFiltered ? `${found} of ${rows.length}` : "");
  const query = new URLSearchParams([...wanted].filter(([, value]) => value));
  if (chosen !== undefined) query.set("asset", chosen);
  history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
}

// ---- choosing --------------------------------------------------------------------------------
function curve(from, to) {
  const box = (n) => nodes[n].transform.baseVal[0].matrix;
  const rect = nodes[from].querySelector("rect");
  const [width, half] = [rect.width.baseVal.value, rect.height.baseVal.value / 2];
  const [x1, y1, x2, y2] = [box(from).e + width, box(from).f + half, box(to).e, box(to).f + half];
  return `M${x1} ${y1}C${x1 + 36} ${y1} ${x2 - 36} ${y2} ${x2} ${y2}`;
}

function mark() {
  const n = rows.findIndex((row) => row.dataset.name === chosen);
  nodes.forEach((node, i) => {
    node.classList.toggle("chosen", i === n);
    if (i === n) node.setAttribute("aria-current", "true");
    else node.removeAttribute("aria-current");
  });
  const lines = n < 0 ? [] : [
    ...upstreams(nodes[n]).map((up) => curve(up, n)), ...downstreams[n].map((down) => curve(n, down)),
  ];
  document.querySelector(".chosen-edges").setAttribute("d", lines.join(""));
  return n;
}

async function choose(name, moveFocus) {
  chosen = name;
  const n = mark();
  applyFilters();
  if (n >= 0) {
    nodes.forEach((node) => node.setAttribute("tabindex", "-1"));
    nodes[n].setAttribute("tabindex", "0");
    nodes[n].scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  await refreshDetail();
  if (moveFocus) panel.focus({ preventScroll: true });
}

async function refreshDetail() {
  if (chosen === undefined) return;
  const name = chosen;
  const answer = await fetch(`${prefix}/build/assets/detail?${new URLSearchParams({ asset: name })}`);
  if (name !== chosen) return;
  const found = new DOMParser().parseFromString(await answer.text(), "text/html");
  panel.replaceChildren(...found.body.childNodes);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  const href = link.getAttribute("href") || "";
  if (!href.startsWith("?asset=")) return;
  event.preventDefault();
  choose(new URLSearchParams(href.slice(0, href.indexOf("#"))).get("asset"), true);
});

// ---- arrow keys ------------------------------------------------------------------------------
const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

document.addEventListener("keydown", (event) => {
  const node = document.activeElement.closest && document.activeElement.closest("a.node");
  const step = STEPS[event.key];
  if (!node || !step) return;
  event.preventDefault();
  const [column, row] = [Number(node.dataset.column) + step[0], Number(node.dataset.row) + step[1]];
  let best, least = Infinity;
  for (const other of nodes) {
    const apart = Math.abs(Number(other.dataset.row) - row);
    if (Number(other.dataset.column) === column && apart < least && (step[0] || apart === 0)) {
      [best, least] = [other, apart];
    }
  }
  if (!best) return;
  node.setAttribute("tabindex", "-1");
  best.setAttribute("tabindex", "0");
  best.focus();
  best.scrollIntoView({ block: "nearest", inline: "nearest" });
});

// ---- live ------------------------------------------------------------------------------------
function show(found) {
  for (const name of ["total", "fresh", "stale"]) {
    setText(document.querySelector(`[data-count="${name}"]`), String(found.counts[name]));
  }
  let changed = false;
  found.nodes.forEach(([state, sign, shown, version, why, kind], n) => {
    const [node, cells] = [nodes[n], rows[n].cells];
    const old = [cells[2].dataset.state, cells[2].lastElementChild.textContent, cells[3].textContent,
      cells[4].textContent];
    if (old[0] === state && old[1] === shown && old[2] === String(version || "—") && old[3] === (why || "—")) return;
    changed = true;
    node.dataset.state = cells[2].dataset.state = state;
    node.setAttribute("aria-label", `${nameOf(n)}, ${kind}, ${shown}`);
    const words = node.querySelector(".state");
    setText(words, `${sign} ${shortened(`${kind} · ${shown}`)}`);
    squeeze(words);
    setText(cells[2].firstElementChild, sign);
    setText(cells[2].lastElementChild, shown);
    setText(cells[3], String(version || "—"));
    setText(cells[4], why || "—");
  });
  return changed;
}

async function redraw() {
  const answer = await fetch(`${prefix}/build/assets${location.search}`);
  const found = new DOMParser().parseFromString(await answer.text(), "text/html");
  const scrolled = [...document.querySelectorAll(".scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
  document.getElementById("content").replaceWith(found.getElementById("content"));
  document.getElementById("counts").replaceWith(found.getElementById("counts"));
  document.body.dataset.structure = found.body.dataset.structure;
  const kinds = filters.elements.kind;
  const kind = kinds.value;
  kinds.replaceChildren(...found.getElementById("filters").elements.kind.children);
  kinds.value = kind;
  [...document.querySelectorAll(".scroll")].forEach((box, n) => {
    [box.scrollLeft, box.scrollTop] = scrolled[n] || [0, 0];
  });
  collect();
  mark();
  applyFilters();
}

async function poll() {
  try {
    const answer = await fetch(`${prefix}/build/assets/live`, { headers: tag ? { "If-None-Match": tag } : {} });
    if (answer.status === 200) {
      const found = await answer.json();
      if (found.structure !== document.body.dataset.structure) {
        await redraw();
        await refreshDetail();
      } else if (show(found)) {
        applyFilters();
        await refreshDetail();
      }
      tag = answer.headers.get("ETag") || "";
    }
    setText(status, answer.ok || answer.status === 304 ? "" : `The server answers ${answer.status}.`);
  } catch {
    setText(status, "The server does not answer; states are those of its last answer.");
  }
  setTimeout(poll, POLL_MILLISECONDS);
}

collect();
filters.addEventListener("input", applyFilters);
filters.addEventListener("submit", (event) => { event.preventDefault(); applyFilters(); });
filters.querySelector("button").hidden = true;
chosen = new URLSearchParams(location.search).get("asset") ?? undefined;
if (chosen !== undefined) mark();
applyFilters();
poll();
