// rows: draws one row per GPU. Cells are created once; then only texts and widths change. The user chooses the order and which rows
// are shown.
import { keyOf, MANY, model, near, UNWATCHED } from "./data.js";
import * as f from "./format.js";
import { remedies } from "./words.js";

const REASONS = {
	sw_power_cap: "power limit", hw_slowdown: "hardware slowdown", sync_boost: "sync boost",
	sw_thermal: "heat", hw_thermal: "heat (hardware)", power_brake: "power brake",
	application_clocks: "clocks set by user", display: "display", idle: "idle",
};
const CALM = new Set(["idle", "application_clocks", "display"]);
const RESTS = new Set(["ok", "asleep", "closed"]); // States that need no attention.
const SERIOUS = new Set(["throttle", "evict", "quarantine"]); // Levels of health that need attention.
const STATES = {
	ok: ["ok", "good"], asleep: ["asleep", "calm"], lost: ["lost", "bad"], fault: ["fault", "bad"],
	denied: ["no permission", "warn"], stalled: ["driver hangs", "bad"], closed: ["closed", "calm"],
};

export const $ = (id) => document.getElementById(id);

export function el(tag, props = {}, ...children) {
	const e = document.createElement(tag);
	for (const [k, v] of Object.entries(props)) {
		if (k.startsWith("aria") && !k.includes("-"))
			e.setAttribute(`aria-${k.slice(4).toLowerCase()}`, v);
		else if (k.includes("-") || k === "role" || k === "scope")
			e.setAttribute(k, v);
		else
			e[k] = v;
	}
	e.append(...children);
	return e;
}

export function put(e, text) {
	if (e.textContent !== text)
		e.textContent = text;
}

// Shows the value of key, or a dash if it is unknown. The reason is then in the title and, for screen readers, in the text.
export function figure(e, d, key, show) {
	const v = d[key];
	if (v !== null && v !== undefined) {
		if (e.dataset.unknown) {
			delete e.dataset.unknown;
			e.removeAttribute("title");
		}
		put(e, show(v));
		return v;
	}
	unknown(e, d.absent?.[key]);
	return null;
}

export function unknown(e, key) {
	const why = f.absence(key);
	if (e.title === why && e.firstElementChild?.className === "none")
		return;
	e.dataset.unknown = "1";
	e.title = why;
	e.replaceChildren(el("span", { className: "none", ariaHidden: "true", textContent: f.DASH }),
		el("span", { className: "unseen", textContent: `unknown: ${why}` }));
}

// Shows " since 16 Nov 15:22". Until the time is known, empty space is reserved, so that nothing
// moves later.
export function since(e, t) {
	put(e, f.sinceText(t ?? Date.now()));
	e.classList.toggle("later", !t);
}

export function width(bar, ratio) {
	const known = Number.isFinite(ratio) ? ratio : 0, p = `scaleX(${Math.max(0, Math.min(1, known)).toFixed(3)})`;
	if (bar.style.transform !== p) // Without this check, the browser would draw again although nothing changed.
		bar.style.transform = p;
}

function meter(hue) {
	const value = el("span", { className: "v" }), of = el("span", { className: "of" }), unit = el("span", { className: "unit" });
	const fill = el("i", { className: `fill ${hue}` }), mark = el("i", { className: "mark", hidden: true });
	const bar = el("span", { className: "bar", ariaHidden: "true" }, fill, mark);
	const cell = el("td", { className: `meter m-${hue}`, role: "cell" }, el("span", { className: "pair" }, value, of, unit), bar);
	return { cell, value, of, unit, fill, mark };
}

function makeRow(d, toggle) {
	const r = { key: keyOf(d), open: false };
	const id = `detail-${d.index}`;
	r.number = el("span", { className: "index" });
	r.name = el("span", { className: "name" });
	r.button = el("button", { type: "button", className: "opener", "aria-expanded": "false", "aria-controls": id },
		el("span", { className: "chevron", ariaHidden: "true" }), r.number, r.name);
	r.badge = el("span", { className: "badge" });
	r.canvas = el("canvas", { className: "spark", width: 1, height: 1, ariaHidden: "true" });
	r.sparkText = el("span", { className: "unseen" });
	r.power = meter("power");
	r.temperature = meter("heat");
	r.use = meter("use");
	r.memory = meter("memory");
	r.clock = el("td", { className: "num c-clock", role: "cell" });
	r.reasons = el("td", { className: "reasons", role: "cell" });
	r.energy = el("td", { className: "num c-energy", role: "cell" });
	r.tr = el("tr", { className: "gpu", role: "row" }, el("th", { scope: "row", role: "rowheader" }, r.button),
		el("td", { className: "c-state", role: "cell" }, r.badge), el("td", { className: "c-spark", role: "cell" }, r.canvas, r.sparkText),
		r.power.cell, r.temperature.cell, r.use.cell, r.memory.cell, r.clock, r.reasons, r.energy);
	r.place = el("td", { role: "cell" });
	r.detailRow = el("tr", { id, className: "detail", hidden: true, role: "row" }, r.place);
	r.trouble = el("td", { role: "cell" }, el("span", { className: "what" }), el("span", { className: "remedy" }));
	r.troubleRow = el("tr", { className: "trouble", hidden: true, role: "row" }, r.trouble);
	r.button.addEventListener("click", (e) => {
		e.stopPropagation();
		toggle(r);
	});
	r.tr.addEventListener("click", () => getSelection().isCollapsed && toggle(r));
	return r;
}

// Shows "265 / 700 W", or "265 W" if the limit is null.
function fillMeter(m, d, key, show, limit, unit, ratio, hot) {
	const v = figure(m.value, d, key, show);
	put(m.of, v === null || limit === null ? "" : `/ ${show(limit)}`);
	put(m.unit, v === null ? "" : unit);
	width(m.fill, v === null ? 0 : ratio);
	if (m.fill.classList.contains("hot") !== Boolean(hot))
		m.fill.classList.toggle("hot");
}

function attribute(e, name, value) {
	if (e[name] !== value)
		e[name] = value;
}

function mark(m, ratio) {
	m.mark.hidden = !(ratio > 0 && ratio <= 1);
	if (!m.mark.hidden)
		m.mark.style.left = `${(ratio * 100).toFixed(1)}%`;
}

const whole = (v) => v.toFixed(0);
const heatLimit = (d) => d.temperature_gpu_max_celsius ?? d.temperature_slowdown_celsius ?? null;

function fillReasons(cell, d) {
	const list = d.clock_event_reasons, key = list?.join();
	if (!list)
		return unknown(cell, d.absent?.clock_event_reasons);
	if (cell.dataset.key === key && !cell.querySelector(".unseen"))
		return;
	cell.dataset.key = key;
	cell.title = list.map((x) => REASONS[x] || f.words(x)).join(", ");
	cell.replaceChildren(...(list.length ? list.map((x) =>
		el("span", { className: CALM.has(x) ? "tag calm" : "tag warn", textContent: REASONS[x] || f.words(x) })) :
		[el("span", { className: "none", textContent: "nothing" })]));
}

export const shortName = (d) => (d.name || d.uuid || "GPU").replace(/^NVIDIA /, "");

// Returns the problems of a GPU that still works; the health table has the numbers.
export function ailments(d) {
	return [
		d.recovery_action && d.recovery_action !== "none" && `the driver requests: ${f.words(d.recovery_action)}`,
		d.ecc_uncorrected_errors > 0 && `${d.ecc_uncorrected_errors} uncorrected memory errors`,
		d.remapped_rows_pending && "a repair of its memory needs a reset",
		d.remapped_rows_failed && "rows of its memory could not be replaced",
	].filter(Boolean);
}

// Returns what is wrong with a GPU and what to do; null: nothing is wrong. /api/v1/health has more facts than the last reading.
export function troubleOf(d) {
	const h = model.health.get(d.uuid), serious = SERIOUS.has(h?.level) && h.why;
	if (!RESTS.has(d.state))
		return { what: d.message || f.words(d.state), remedy: remedies[d.cause] || (serious && h.advice) || "" };
	if (serious)
		return { what: `${h.level} since ${f.when(Date.parse(h.since_utc))}: ${h.why}`, remedy: h.advice || "" };
	const list = ailments(d);
	return list.length ? { what: list.join("; "), remedy: h?.advice || "" } : null;
}

function fillTrouble(r, d) {
	const t = troubleOf(d), [what, remedy] = r.trouble.children;
	r.ill = Boolean(t);
	r.troubleRow.hidden = !t || r.tr.hidden;
	put(what, t ? f.sentences(t.what) : "");
	put(remedy, t ? f.sentences(t.remedy) : "");
}

export function stateWord(d) {
	if (d.state === "ok" && needsCare(d))
		return ["attention", "warn"];
	return STATES[d.state] || [f.words(d.state), "warn"];
}

function fillRow(r, d) {
	const [word, tone] = stateWord(d), limit = d.power_limit_watts || null, max = heatLimit(d) || null;
	put(r.number, String(d.index));
	put(r.name, shortName(d));
	attribute(r.name, "title", [d.name, d.uuid].filter(Boolean).join(" "));
	put(r.badge, word);
	attribute(r.badge, "className", `badge ${tone}`);
	attribute(r.badge, "title", d.message || ailments(d).join("; "));
	r.tr.classList.toggle("down", d.state !== "ok");
	fillMeter(r.power, d, "power_watts", whole, limit, "W", d.power_watts / limit);
	fillMeter(r.temperature, d, "temperature_gpu_celsius", whole, max, "°C", d.temperature_gpu_celsius / (max || 100),
		max && d.temperature_gpu_celsius >= max - 3);
	fillMeter(r.use, d, "utilization_gpu_ratio", (v) => whole(100 * v), null, "%", d.utilization_gpu_ratio);
	fillMeter(r.memory, d, "memory_used_bytes", f.gib, d.memory_total_bytes ?? null, "GiB", d.memory_used_bytes / d.memory_total_bytes);
	mark(r.power, d.power_limit_default_watts > limit ? limit / d.power_limit_default_watts : 0);
	figure(r.clock, d, "clock_sm_hertz", f.hertz);
	fillReasons(r.reasons, d);
	fillTrouble(r, d);
	const total = d.energy_joules_total !== undefined ? "energy_joules_total" : "energy_joules";
	if (figure(r.energy, d, total, f.joules) !== null)
		attribute(r.energy, "title", `${f.wattHours(d[total])}${f.sinceText(model.since.get(r.key))}`);
}

// Size and colour of the small charts. They are read once, not per row and second, because reading them makes the browser lay out
// the whole page.
let canvas = null;
export function restyle() {
	canvas = null;
}

function measureCanvas(c) {
	const ratio = devicePixelRatio || 1;
	return { w: c.clientWidth, h: c.clientHeight, ratio, colour: getComputedStyle(c).color };
}

function drawSpark(r, d) {
	const s = model.sparks.get(r.key), c = r.canvas;
	if (!s?.time.length)
		return;
	canvas ||= measureCanvas(c);
	const { w, h, ratio, colour } = canvas;
	if (!w) {
		canvas = null;
		return;
	}
	if (c.width !== Math.round(w * ratio) || c.height !== Math.round(h * ratio)) {
		c.width = Math.round(w * ratio);
		c.height = Math.round(h * ratio);
	}
	const g = c.getContext("2d"), known = s.value.filter((v) => v !== null);
	const top = Math.max(d.power_limit_watts || 0, ...known, 1), end = s.time.at(-1), begin = end - 120;
	const x = (t) => (t - begin) / 120 * w, y = (v) => h - 1.5 - v / top * (h - 3);
	g.setTransform(ratio, 0, 0, ratio, 0, 0);
	g.clearRect(0, 0, w, h);
	g.lineWidth = 1.5;
	g.lineJoin = "round";
	g.fillStyle = g.strokeStyle = colour;
	const all = runs(s, begin);
	for (const run of all) {
		const line = new Path2D();
		run.forEach(([t, v], i) => (i ? line.lineTo(x(t), y(v)) : line.moveTo(x(t), y(v))));
		const area = new Path2D(line);
		area.lineTo(x(run.at(-1)[0]), h);
		area.lineTo(x(run[0][0]), h);
		g.globalAlpha = 0.16;
		g.fill(area);
		g.globalAlpha = 1;
		g.stroke(line);
	}
	// A dashed line joins readings of an unwatched time, because nothing was measured in between.
	const joins = new Path2D();
	all.slice(1).forEach((run, i) => {
		const [t, v] = all[i].at(-1), apart = run[0][0] - t;
		if (apart <= near() || apart > 2.5 * UNWATCHED)
			return;
		joins.moveTo(x(t), y(v));
		joins.lineTo(x(run[0][0]), y(run[0][1]));
	});
	g.lineWidth = 1;
	g.setLineDash([2, 2]);
	g.stroke(joins);
	g.setLineDash([]);
	put(r.sparkText, known.length ? `power in the last two minutes: ${Math.min(...known).toFixed(0)} to ${Math.max(...known).toFixed(0)} W` : "power unknown");
}

// Returns the readings after `begin` as lists, which are drawn as separate lines: nothing was measured between two lists.
function runs(s, begin) {
	const out = [];
	let run = [], last = 0;
	s.time.forEach((t, i) => {
		if (t < begin)
			return;
		if (run.length && (t - last > near() || s.value[i] === null)) {
			out.push(run);
			run = [];
		}
		if (s.value[i] !== null)
			run.push([t, s.value[i]]);
		last = t;
	});
	if (run.length)
		out.push(run);
	return out;
}

const DENSE = 24; // With more GPUs than this, rows are as low as possible.
const REST = 5; // A row that is not visible is updated once in this many readings; so are small charts if there are many GPUs.
const COLUMNS = {
	index: (d) => d.index, state: (d) => stateWord(d)[0], power: (d) => d.power_watts, temperature: (d) => d.temperature_gpu_celsius,
	utilisation: (d) => d.utilization_gpu_ratio, memory: (d) => d.memory_used_bytes, clock: (d) => d.clock_sm_hertz,
	reasons: (d) => d.clock_event_reasons?.map((x) => REASONS[x] || f.words(x)).join(), energy: (d) => d.energy_joules_total ?? d.energy_joules,
};
export const wanted = { by: "index", down: false, attention: true, words: "" };

export const needsCare = (d) => troubleOf(d) !== null;

// Compares two rows in the chosen order. Unknown values come last in both directions; equal values are in the order of the indices.
function compare(a, b) {
	if (wanted.attention && needsCare(a.device) !== needsCare(b.device))
		return needsCare(b.device) - needsCare(a.device);
	const of = COLUMNS[wanted.by], x = of(a.device) ?? null, y = of(b.device) ?? null;
	if (x === null || y === null)
		return (x === null) - (y === null) || a.device.index - b.device.index;
	const way = wanted.down ? -1 : 1;
	return way * (typeof x === "number" ? x - y : String(x).localeCompare(String(y))) || a.device.index - b.device.index;
}

export function sortBy(column) {
	wanted.down = wanted.by === column ? !wanted.down : !["index", "state", "reasons"].includes(column);
	wanted.by = column;
}

// A word such as 3 or 0-7 selects GPUs; other words are searched in the text of a row and in its processes.
function matches(d, word, users) {
	const range = word.match(/^(\d+)(?:-(\d+))?$/);
	if (range)
		return d.index >= Number(range[1]) && d.index <= Number(range[2] ?? range[1]);
	const text = [d.name, d.uuid, d.pci_bus_id, stateWord(d)[0], d.message, COLUMNS.reasons(d), ...ailments(d), ...(users.get(d.uuid) || [])];
	return text.filter(Boolean).join(" ").toLowerCase().includes(word);
}

// Sorts the rows and hides those that do not match the filter; returns how many are shown.
export function arrange(body) {
	const words = wanted.words.toLowerCase().split(/\s+/).filter(Boolean), users = new Map();
	for (const p of words.length ? model.processes : [])
		users.set(p.device_uuid, [...(users.get(p.device_uuid) || []), p.user, p.name]);
	const order = [...rows.values()].sort(compare);
	let shown = 0;
	order.forEach((r, i) => {
		const hide = !words.every((w) => matches(r.device, w, users));
		r.tr.hidden = hide;
		r.detailRow.hidden = hide || !r.open;
		r.troubleRow.hidden = hide || !r.ill;
		shown += !hide;
		const at = body.children[3 * i];
		if (at !== r.tr)
			for (const part of [r.tr, r.troubleRow, r.detailRow])
				body.insertBefore(part, at || null);
	});
	return shown;
}

export const rows = new Map();
let round = 0;
const narrow = matchMedia("(max-width: 1180px)"), narrower = matchMedia("(max-width: 900px)"); // The same widths as in style.css.

// Rows off screen are updated less often.
const sight = new IntersectionObserver((list) => {
	for (const { target, isIntersecting } of list) {
		const r = target.row;
		r.seen = isIntersecting;
		if (isIntersecting && r.device && rows.has(r.key)) {
			fillRow(r, r.device);
			drawSpark(r, r.device);
		}
	}
}, { rootMargin: "80px" });

// Draws the rows. all: updates every row at once, as after a change of the theme. Returns true if rows were added or removed.
export function drawRows(body, toggle, all) {
	const seen = new Set(), many = model.devices.length > MANY;
	let changed = false;
	round++;
	model.devices.forEach((d, i) => {
		const key = keyOf(d);
		seen.add(key);
		let r = rows.get(key);
		const fresh = !r;
		if (fresh) {
			r = makeRow(d, toggle);
			r.tr.row = r;
			rows.set(key, r);
			body.append(r.tr, r.troubleRow, r.detailRow);
			sight.observe(r.tr);
			changed = true;
		}
		r.device = d;
		const turn = (round + i) % REST === 0;
		if (fresh || all || turn || r.seen)
			fillRow(r, d);
		if (fresh || all)
			r.place.colSpan = r.trouble.colSpan = narrower.matches ? 7 : narrow.matches ? 8 : 10; // A span of more columns than the table has would add empty columns.
		if (fresh || all || (r.seen && (turn || !many)))
			drawSpark(r, d);
	});
	for (const [key, r] of rows)
		if (!seen.has(key)) {
			r.detail?.close();
			sight.unobserve(r.tr);
			r.tr.remove();
			r.troubleRow.remove();
			r.detailRow.remove();
			rows.delete(key);
			changed = true;
		}
	const table = body.closest("table"), kind = `gpus${many ? " many" : ""}${model.devices.length > DENSE ? " dense" : ""}`;
	if (table.className !== kind) {
		table.className = kind;
		restyle();
	}
	return changed;
}
