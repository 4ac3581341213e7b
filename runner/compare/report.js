"use strict";
/* Makes the page's plots interactive: the x axis, zoom, values at a place, lines that hide. Without
 * this script the static plots stay. Texts of runs are never parsed: names are moved from the
 * legends as they are, and the data block has numbers only. */
(() => {
const block = document.getElementById("data");
if (!block) return;
const data = JSON.parse(block.textContent);
if (data.plots.length < 2) return; /* the first is null */
const [LEFT, TOP, WIDTH, HEIGHT] = data.frame;
const SVG = document.querySelector("figure svg").namespaceURI;
const COLORS = 8, DOT_DISTANCE = 10, TICKS = 5, TIP_ROWS = 14;
const AXES = { step: "step", tokens: "tokens", time: "time of training" };

/* What the page shows; the part of its address behind # has the same. zoom: [from, to] on the axis,
 * or null; at: a place on it, or null. */
const state = { x: "step", hide: new Set(), zoom: null, at: null };

/* ---- numbers ------------------------------------------------------------------------------- */

const decode = text => new Float32Array(Uint8Array.from(atob(text), c => c.charCodeAt(0)).buffer);
const positions = (x, count) => typeof x === "string" ? Float64Array.from(decode(x))
    : Float64Array.from({ length: count }, (_, i) => x[0] + i * x[1]);
const letterOf = run => run < 26 ? String.fromCharCode(65 + run) : "#" + (run + 1);

/* The index of the last value at or below v in an ascending array; -1: none. */
function below(array, v) {
    let low = 0, high = array.length;
    while (low < high) {
        const middle = (low + high) >> 1;
        if (array[middle] <= v) low = middle + 1;
        else high = middle;
    }
    return low - 1;
}

/* Seconds of training up to a step, on the line between two known steps. */
function secondsAt(run, step) {
    if (!run.seconds) return NaN;
    const i = below(run.step, step);
    if (i < 0) return run.seconds[0] * step / run.step[0];
    if (i + 1 >= run.step.length) return run.seconds[i];
    const part = (step - run.step[i]) / (run.step[i + 1] - run.step[i]);
    return run.seconds[i] + part * (run.seconds[i + 1] - run.seconds[i]);
}

/* Where the points of a line are on the chosen axis. */
function placesOf(line) {
    const run = data.runs[line.run], axis = state.x;
    line.places ||= { step: line.step };
    line.places[axis] ||= axis === "tokens" ? line.step.map(s => s * run.tokens)
        : line.step.map(s => secondsAt(run, s));
    return line.places[axis];
}

for (const run of data.runs) {
    if (!run.seconds) continue;
    run.seconds = decode(run.seconds);
    run.step = positions(run.step, run.seconds.length);
}
data.plots = data.plots.filter(plot => plot);
for (const plot of data.plots)
    for (const line of plot.lines) {
        line.low = decode(line.low);
        line.thin = Boolean(line.high) && !line.band;
        line.high = line.high ? decode(line.high) : line.low;
        line.step = positions(line.x, line.low.length);
        line.group = data.runs[line.run].group;
    }

const isShown = line => !state.hide.has(line.group);
const linesOf = plot => plot.lines.filter(isShown);

/* The first and the last place of all plots: they share one axis. */
function wholeRange() {
    let low = Infinity, high = -Infinity;
    for (const plot of data.plots)
        for (const line of linesOf(plot)) {
            const places = placesOf(line), last = places[places.length - 1];
            if (places[0] < low) low = places[0];
            if (last > high) high = last;
        }
    if (!(low <= high)) return [0, 1];
    return low < high ? [low, high] : [low - 1, high + 1];
}

/* The range of the values between two places, or if none is there of the `around` points before and
 * after; null: there are none. */
function valueRange(plot, from, to, around = 0) {
    let low = Infinity, high = -Infinity;
    for (const line of linesOf(plot)) {
        const places = placesOf(line);
        const end = Math.min(below(places, to) + 1 + around, places.length);
        let i = Math.max(below(places, from), 0);
        if (!around && places[i] < from) i++;
        for (; i < end; i++) {
            if (line.low[i] < low) low = line.low[i];
            if (line.high[i] > high) high = line.high[i];
        }
    }
    if (!(low <= high)) return around ? null : valueRange(plot, from, to, 1);
    const size = Math.max(Math.abs(low), Math.abs(high));
    let least = 1e-9 * size + 1e-9;
    if (low === high) least = size > 0 ? Math.max(least, 0.01 * size) : 1; /* a flat line */
    if (high - low < least) { low -= least; high += least; }
    const margin = 0.03 * (high - low);
    low = plot.zero && low >= 0 ? Math.min(0, low) : low - margin;
    return [low, high + margin];
}

/* ---- labels -------------------------------------------------------------------------------- */

/* 1, 2 or 5 times a power of ten: gives two to five ticks. */
function tickStep(low, high) {
    const rough = (high - low) / TICKS, power = 10 ** Math.floor(Math.log10(rough));
    const lead = rough / power;
    return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

/* The unit of an axis: [divisor, the text behind its numbers]. */
function unitOf(most) {
    return most >= 1e13 ? [1e12, "T"] : most >= 1e10 ? [1e9, "G"] : most >= 1e7 ? [1e6, "M"]
        : most >= 1e4 ? [1e3, "k"] : [1, ""];
}
const timeUnit = most => most >= 10800 ? [3600, "h"] : most >= 300 ? [60, "min"] : [1, "s"];

function ticksOf(low, high, unit) {
    const step = tickStep(low / unit[0], high / unit[0]), ticks = [];
    const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    for (let k = Math.ceil(low / unit[0] / step); k * step <= high / unit[0]; k++) {
        const text = decimals > 4 ? (k * step).toPrecision(3) : (k * step).toFixed(decimals);
        ticks.push({ at: k * step * unit[0], text: k === 0 ? "0" : text + unit[1] });
    }
    return ticks;
}

function placeText(v) {
    if (state.x === "step") return "step " + Math.round(v).toLocaleString("en");
    if (state.x === "tokens") return Math.round(v).toLocaleString("en") + " tokens";
    const [size, name] = timeUnit(v);
    return (v / size).toFixed(size > 1 ? 2 : 1) + " " + name;
}

/* ---- drawing ------------------------------------------------------------------------------- */

function svg(name, attributes, text) {
    const node = document.createElementNS(SVG, name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    return node;
}

const lineClass = group => "data k" + group % COLORS +
    (group >= COLORS ? group < 2 * COLORS ? " d1" : " d2" : "");

function drawAxes(plot, into) {
    const [x0, x1] = plot.x, [y0, y1] = plot.y, bottom = TOP + HEIGHT;
    const time = state.x === "time";
    const unit = time ? [timeUnit(x1)[0], ""] : unitOf(Math.max(Math.abs(x0), Math.abs(x1)));
    for (const tick of ticksOf(y0, y1, unitOf(Math.max(Math.abs(y0), Math.abs(y1))))) {
        const y = plot.yAt(tick.at);
        into.append(svg("line", { class: tick.at ? "grid" : "zero", x1: LEFT, x2: LEFT + WIDTH,
                                  y1: y, y2: y }),
                    svg("text", { x: LEFT - 8, y: y + 5, "text-anchor": "end" }, tick.text));
    }
    for (const tick of ticksOf(x0, x1, unit)) {
        const x = plot.xAt(tick.at);
        into.append(svg("line", { class: "zero", x1: x, x2: x, y1: bottom, y2: bottom + 5 }),
                    svg("text", { x, y: bottom + 25, "text-anchor": "middle" }, tick.text));
    }
    into.append(svg("line", { class: "zero", x1: LEFT, x2: LEFT + WIDTH, y1: bottom, y2: bottom }),
                svg("text", { class: "axis", x: LEFT + WIDTH / 2, y: bottom + 50,
                              "text-anchor": "middle" },
                    AXES[state.x] + (time ? ", " + timeUnit(x1)[1] : "")));
}

/* The points of a line around the range of the axis: [first, end). */
function partOf(line, plot) {
    const places = placesOf(line);
    return [Math.max(below(places, plot.x[0]), 0),
            Math.min(below(places, plot.x[1]) + 2, places.length)];
}

function drawLine(line, plot, into) {
    const places = placesOf(line), [first, end] = partOf(line, plot), dots = [];
    let path = "", down = false;
    for (let i = first; i < end; i++) {
        const ok = isFinite(line.low[i]) && isFinite(places[i]);
        if (ok) {
            const x = plot.xAt(places[i]).toFixed(1), y = plot.yAt(line.low[i]).toFixed(1);
            path += (down ? "L" : "M") + x + " " + y;
            dots.push([x, y]);
        }
        down = ok;
    }
    into.append(svg("path", { class: lineClass(line.group), d: path }));
    const width = end > first ? plot.xAt(places[end - 1]) - plot.xAt(places[first]) : 0;
    if (width >= (dots.length - 1) * DOT_DISTANCE)
        for (const [cx, cy] of dots)
            into.append(svg("circle", { class: "k" + line.group % COLORS, cx, cy, r: 2.6 }));
}

/* The area between the least and the largest values: a band, or a line of which each point stands
 * for many records. */
function drawArea(line, plot, into) {
    const places = placesOf(line), [first, end] = partOf(line, plot);
    let path = "", back = "";
    for (let i = first; i <= end; i++) {
        if (i < end && isFinite(line.low[i]) && isFinite(places[i])) {
            const x = plot.xAt(places[i]).toFixed(1);
            path += (back ? "L" : "M") + x + " " + plot.yAt(line.high[i]).toFixed(1);
            back = "L" + x + " " + plot.yAt(line.low[i]).toFixed(1) + back;
        } else if (back) {
            path += back + "Z";
            back = "";
        }
    }
    const look = lineClass(line.group).replace("data", line.band ? "band" : "range");
    into.append(svg("path", { class: look, d: path }));
}

function draw(plot) {
    const whole = wholeRange();
    plot.x = state.zoom || whole;
    plot.y = valueRange(plot, plot.x[0], plot.x[1]) || [0, 1];
    plot.xAt = v => LEFT + WIDTH * (v - plot.x[0]) / (plot.x[1] - plot.x[0]);
    plot.yAt = v => TOP + HEIGHT * (plot.y[1] - v) / (plot.y[1] - plot.y[0]);
    const frame = { x: LEFT, y: TOP, width: WIDTH, height: HEIGHT };
    const inner = svg("svg", { ...frame, viewBox: `${LEFT} ${TOP} ${WIDTH} ${HEIGHT}` });
    const shown = linesOf(plot).reverse(); /* the first line on top */
    const axes = svg("g", {});
    drawAxes(plot, axes);
    for (const line of shown) if (line.band) drawArea(line, plot, inner);
    for (const line of shown) if (line.thin) drawArea(line, plot, inner);
    for (const line of shown) if (!line.band && !line.thin) drawLine(line, plot, inner);
    plot.over = svg("g", {});
    plot.svg.replaceChildren(...(plot.about ? [plot.about] : []), axes, inner, plot.over);
}

/* ---- values at a place --------------------------------------------------------------------- */

const short = v => Math.abs(v) >= 1e6 || (v && Math.abs(v) < 1e-4) ? v.toExponential(4)
    : String(+v.toPrecision(6));

/* The point of the line nearest to the place; -1: the line does not reach it. */
function nearest(line, place) {
    const places = placesOf(line), i = below(places, place), last = places.length - 1;
    const slack = last > 0 ? (places[last] - places[0]) / last : 0;
    if (place < places[0] - slack || place > places[last] + slack) return -1;
    if (i < 0) return 0;
    return i < last && places[i + 1] - place < place - places[i] ? i + 1 : i;
}

/* A legend's mark and name, copied as nodes. A run of several with one colour is its letter. */
function nameOf(line, plot) {
    const alone = data.runs.filter(run => run.group === line.group).length === 1;
    const entry = plot.figure.querySelector(`.legend [data-group="${line.group}"]`);
    const name = document.createDocumentFragment();
    if (entry) name.append(entry.querySelector("svg").cloneNode(true));
    name.append(alone && entry ? " " + entry.textContent.trim() : " " + letterOf(line.run));
    return name;
}

function showValues(plot, place) {
    const rows = [];
    for (const line of linesOf(plot)) {
        const i = line.band ? -1 : nearest(line, place);
        if (i < 0 || !isFinite(line.low[i])) continue;
        const row = document.createElement("div");
        const high = line.high[i] > line.low[i] ? " to " + short(line.high[i]) : "";
        row.append(nameOf(line, plot), ": " + short(line.low[i]) + high);
        rows.push(row);
    }
    const head = document.createElement("div"), more = document.createElement("div");
    head.append(placeText(place));
    more.append(rows.length > TIP_ROWS ? `and ${rows.length - TIP_ROWS} more` : "");
    plot.tip.replaceChildren(head, ...rows.slice(0, TIP_ROWS), more);
    plot.tip.hidden = false;
    const right = (place - plot.x[0]) / (plot.x[1] - plot.x[0]) < 0.5;
    plot.tip.style.left = right ? "auto" : "12%";
    plot.tip.style.right = right ? "2%" : "auto";
}

/* Marks the place in each plot; values are listed in the plot in use. */
function point(place, plot) {
    state.at = place;
    for (const p of data.plots) {
        const x = place === null ? NaN : p.xAt(place);
        const inside = x >= LEFT && x <= LEFT + WIDTH;
        p.over.replaceChildren(...(inside ? [svg("line", { class: "cursor", x1: x, x2: x, y1: TOP,
                                                           y2: TOP + HEIGHT })] : []));
        if (p === plot && inside) showValues(p, place);
        else p.tip.hidden = true;
    }
}

/* ---- the address --------------------------------------------------------------------------- */

const groupOf = letter => data.runs.findIndex((_, run) => letterOf(run) === letter);

function readAddress() {
    const words = new URLSearchParams(location.hash.slice(1));
    const pair = (words.get("zoom") || "").split(",").map(Number);
    const hidden = (words.get("hide") || "").split(",").map(groupOf).filter(run => run >= 0);
    state.x = Object.hasOwn(AXES, words.get("x")) ? words.get("x") : "step";
    state.hide = new Set(hidden.map(run => data.runs[run].group));
    state.zoom = pair.length === 2 && pair[0] < pair[1] ? pair : null;
    state.at = words.has("at") && isFinite(words.get("at")) ? Number(words.get("at")) : null;
}

function writeAddress() {
    const words = [];
    const first = group => letterOf(data.runs.findIndex(run => run.group === group));
    if (state.x !== "step") words.push("x=" + state.x);
    if (state.hide.size)
        words.push("hide=" + [...state.hide].map(first).map(encodeURIComponent).join(","));
    if (state.zoom) words.push("zoom=" + state.zoom.map(v => +v.toPrecision(7)).join(","));
    history.replaceState(null, "", "#" + words.join("&"));
}

/* ---- what a reader does -------------------------------------------------------------------- */

function redraw() {
    for (const plot of data.plots) draw(plot);
    for (const button of document.querySelectorAll(".legend button"))
        button.setAttribute("aria-pressed", String(!state.hide.has(Number(button.dataset.group))));
    for (const radio of document.querySelectorAll(".controls input"))
        radio.checked = radio.value === state.x;
    document.querySelector(".controls button").disabled = !state.zoom;
}

function change(next) {
    Object.assign(state, { at: null }, next);
    redraw();
    point(null, null);
    writeAddress();
}

/* Zooms by a factor around a place, and not out of the whole. */
function zoomBy(plot, factor, place) {
    const [low, high] = wholeRange(), [x0, x1] = plot.x;
    const from = Math.max(low, place - (place - x0) * factor);
    const to = Math.min(high, place + (x1 - place) * factor);
    if (from <= low && to >= high) change({ zoom: null });
    else if (to - from > 1e-6 * (high - low)) change({ zoom: [from, to] });
}

function moveBy(plot, share) {
    const [low, high] = wholeRange(), width = plot.x[1] - plot.x[0];
    const from = Math.min(Math.max(plot.x[0] + share * width, low), high - width);
    if (state.zoom) change({ zoom: [from, from + width] });
}

/* The place under the pointer. */
function placeOf(plot, event) {
    const box = plot.svg.getBoundingClientRect();
    const u = (event.clientX - box.left) / box.width * plot.svg.viewBox.baseVal.width;
    const part = Math.min(Math.max((u - LEFT) / WIDTH, 0), 1);
    return plot.x[0] + part * (plot.x[1] - plot.x[0]);
}

function onKey(plot, event) {
    const place = state.at ?? (plot.x[0] + plot.x[1]) / 2, width = plot.x[1] - plot.x[0];
    const arrow = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const sharp = { "+": 0.5, "=": 0.5, "-": 2, _: 2 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (sharp) {
        zoomBy(plot, sharp, place);
        point(place, plot);
    } else if (arrow && event.shiftKey) {
        moveBy(plot, arrow / 4);
    } else if (arrow) {
        const next = Math.min(Math.max(place + arrow * width / 100, plot.x[0]), plot.x[1]);
        point(next, plot);
    } else if (event.key === "Escape") {
        change({ zoom: null });
    } else {
        return;
    }
    event.preventDefault();
}

/* Dragging chooses a part of the axis. */
function onDrag(plot, event) {
    if (event.button !== 0) return;
    const from = placeOf(plot, event);
    const box = svg("rect", { class: "chosen", y: TOP, height: HEIGHT, width: 0 });
    const ends = to => [Math.min(from, to), Math.max(from, to)];
    const move = e => {
        const [a, b] = ends(placeOf(plot, e)).map(plot.xAt);
        box.setAttribute("x", a);
        box.setAttribute("width", b - a);
        plot.svg.append(box);
    };
    const stop = e => {
        plot.svg.removeEventListener("pointermove", move);
        plot.svg.removeEventListener("pointerup", stop);
        plot.svg.removeEventListener("pointercancel", stop);
        box.remove();
        const [a, b] = ends(placeOf(plot, e));
        if (e.type === "pointerup" && plot.xAt(b) - plot.xAt(a) > 4) change({ zoom: [a, b] });
    };
    plot.svg.setPointerCapture(event.pointerId);
    plot.svg.addEventListener("pointermove", move);
    plot.svg.addEventListener("pointerup", stop);
    plot.svg.addEventListener("pointercancel", stop);
}

function listen(plot) {
    const on = (name, act) => plot.svg.addEventListener(name, act);
    on("pointermove", e => point(placeOf(plot, e), plot));
    on("pointerleave", () => point(null, null));
    on("blur", () => point(null, null));
    on("pointerdown", e => onDrag(plot, e));
    on("dblclick", () => change({ zoom: null }));
    on("keydown", e => onKey(plot, e));
    plot.svg.addEventListener("wheel", e => {
        if (!e.ctrlKey) return; /* the page scrolls */
        e.preventDefault();
        zoomBy(plot, e.deltaY > 0 ? 1.25 : 0.8, placeOf(plot, e));
    }, { passive: false });
}

/* ---- set-up -------------------------------------------------------------------------------- */

function element(name, properties, ...children) {
    const node = Object.assign(document.createElement(name), properties);
    node.append(...children);
    return node;
}

function addControls() {
    const choices = Object.keys(AXES).map(axis => element("label", {},
        element("input", { type: "radio", name: "axis", value: axis,
                           onchange: () => change({ x: axis, zoom: null }) }), " " + axis));
    const reset = element("button", { type: "button", onclick: () => change({ zoom: null }) },
                          "Whole axis");
    const help = element("small", { id: "keys" }, "Drag to zoom, or + and −, or Ctrl and the " +
        "wheel; a double click or Escape shows the whole axis. Arrow keys show values, with " +
        "Shift they move the part shown. A legend's entry hides its lines.");
    document.querySelector(".plots").before(element("div", { className: "controls" },
        element("fieldset", {}, element("legend", {}, "x axis"), ...choices), reset, help));
}

function addButtons(figure) {
    for (const span of figure.querySelectorAll(".legend span")) {
        const group = Number(span.dataset.group);
        const button = element("button", { type: "button", onclick: () => {
            const hide = new Set(state.hide);
            if (!hide.delete(group)) hide.add(group);
            change({ hide });
        } }, ...span.childNodes);
        button.dataset.group = group;
        span.replaceWith(button);
    }
}

addControls();
for (const plot of data.plots) {
    plot.figure = document.querySelector(`figure[data-plot="${plot.id}"]`);
    plot.svg = plot.figure.querySelector("svg");
    plot.about = plot.svg.querySelector("desc");
    plot.tip = element("div", { className: "tip", hidden: true });
    plot.tip.setAttribute("role", "status");
    plot.svg.setAttribute("tabindex", "0");
    plot.svg.setAttribute("role", "group");
    plot.svg.setAttribute("aria-describedby", "keys");
    plot.svg.after(plot.tip);
    addButtons(plot.figure);
    listen(plot);
}

function start() {
    readAddress();
    const at = state.at;
    redraw();
    point(at, data.plots[0]);
}
addEventListener("hashchange", start);
start();
})();
