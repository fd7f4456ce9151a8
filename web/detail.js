// detail: what opens below a row.  Charts of the past with what comes live, and every figure.
import { history, model, now, ranges } from "./data.js";
import * as f from "./format.js";
import { packages, quantities } from "./words.js";
import { el, put, unknown, width } from "./rows.js";

const CHARTS = [
	{
		title: "Power", hue: "power", show: (v) => `${v.toFixed(0)} W`, unit: "W", scale: 1,
		series: [["power_watts", "power"], ["power_limit_watts", "limit", "limit"]],
		top: (d) => d.power_limit_watts * 1.06, lines: () => [],
	},
	{
		title: "Temperature", hue: "heat", show: (v) => `${v.toFixed(0)} °C`, unit: "°C", scale: 1, low: 20,
		series: [["temperature_gpu_celsius", "GPU"], ["temperature_memory_celsius", "memory", "second"]],
		top: (d) => Math.max(...limits(d).map((l) => l[0]), 60) + 9, lines: limits,
	},
	{
		title: "Utilisation", hue: "use", show: (v) => `${v.toFixed(0)} %`, unit: "%", scale: 100,
		series: [["utilization_gpu_ratio", "GPU"], ["utilization_memory_ratio", "memory bus", "second"]],
		top: () => 102, lines: () => [],
	},
	{
		title: "Memory", hue: "memory", show: (v) => `${v.toFixed(1)} GiB`, unit: "GiB", scale: 2 ** -30,
		series: [["memory_used_bytes", "used"]],
		top: (d) => d.memory_total_bytes / 2 ** 30 * 1.06,
		lines: (d) => (d.memory_total_bytes ? [[d.memory_total_bytes / 2 ** 30, "all"]] : []),
	},
];
const ASKED = CHARTS.flatMap((c) => c.series.map((s) => s[0]));

function limits(d) {
	return [["temperature_gpu_max_celsius", "max"], ["temperature_slowdown_celsius", "slowdown"]]
		.filter(([k]) => d[k] != null).map(([k, word]) => [d[k], `${word} ${d[k]} °C`]);
}

let library = null;
function loadCharts() {
	library ||= new Promise((done, fail) => {
		if (!packages.charts)
			return fail(new Error("Charts were left out of this build: npm was not there. Figures of the past: /api/v1/series."));
		document.head.append(el("link", { rel: "stylesheet", href: "assets/uplot.css" }));
		document.head.append(el("script", { src: "assets/uplot.js", onload: done, onerror: () => fail(new Error("The charts could not be loaded.")) }));
	});
	return library;
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// ---- the past, as columns that share their times

// How far points usually lie apart: a service that reads every 10 s has no holes in between.
function distance(times) {
	const steps = times.slice(1).map((t, i) => t - times[i]).sort((a, b) => a - b);
	return steps[steps.length >> 1] || 0;
}

export class Past {
	constructor(step) {
		this.step = step;
		this.time = [];
		this.columns = new Map(); // key: { mean, min, max }
	}

	// Points that the service does not have are holes: a time with nulls is put in between.
	load(series) {
		const times = new Set();
		for (const s of series) {
			this.step = Math.max(this.step, s.step_seconds || 0);
			const hole = 2.5 * Math.max(this.step, distance(s.time));
			s.time.forEach((t, i) => {
				times.add(t);
				if (i && t - s.time[i - 1] > hole)
					times.add(s.time[i - 1] + this.step);
			});
		}
		this.time = [...times].sort((a, b) => a - b);
		const place = new Map(this.time.map((t, i) => [t, i]));
		for (const s of series) {
			const c = this.column(s.quantity);
			for (const kind of ["mean", "min", "max"])
				s.time.forEach((t, i) => { c[kind][place.get(t)] = s[kind]?.[i] ?? null; });
		}
		return this;
	}

	column(key) {
		if (!this.columns.has(key)) {
			const empty = () => new Array(this.time.length).fill(null);
			this.columns.set(key, { mean: empty(), min: empty(), max: empty(), sum: 0, count: 0 });
		}
		return this.columns.get(key);
	}

	// A reading that came live: a new point, or more of the last one where steps are long.
	add(t, d, span) {
		const last = this.time.at(-1) ?? 0;
		const begin = this.step > 1 ? Math.floor(t / this.step) * this.step : t;
		if (t <= last)
			return;
		const fresh = begin > last;
		if (fresh && last && t - last > 2.5 * Math.max(this.step, model.interval / 1000))
			this.push(last + this.step, () => null);
		if (fresh)
			this.push(begin, () => null);
		for (const key of ASKED)
			this.more(this.column(key), d[key], fresh);
		while (this.time.length && this.time[0] < t - span)
			this.shift();
	}

	more(c, v, fresh) {
		const i = this.time.length - 1;
		if (fresh)
			c.sum = c.count = 0;
		if (v === null || v === undefined)
			return;
		if (!c.count && c.mean[i] !== null) {
			c.sum = c.mean[i];
			c.count = 1;
		}
		c.sum += v;
		c.count++;
		c.mean[i] = c.sum / c.count;
		c.min[i] = Math.min(c.min[i] ?? v, v);
		c.max[i] = Math.max(c.max[i] ?? v, v);
	}

	push(t, value) {
		this.time.push(t);
		for (const c of this.columns.values())
			for (const kind of ["mean", "min", "max"])
				c[kind].push(value());
	}

	shift() {
		this.time.shift();
		for (const c of this.columns.values())
			for (const kind of ["mean", "min", "max"])
				c[kind].shift();
	}
}

// ---- one chart

class Chart {
	constructor(spec, detail) {
		this.spec = spec;
		this.detail = detail;
		this.legend = el("span", { className: "legend" });
		this.summary = el("p", { className: "unseen" });
		this.place = el("div", { className: "plot", ariaHidden: "true" });
		this.blank = el("p", { className: "blank", hidden: true });
		this.box = el("figure", { className: "chart" },
			el("figcaption", {}, el("b", { className: `h-${spec.hue}`, textContent: spec.title }), this.legend), this.place, this.blank, this.summary);
	}

	data() {
		const p = this.detail.past, k = this.spec.scale, out = [p.time];
		for (const [key, , kind] of this.spec.series) {
			const c = p.column(key), scale = (list) => list.map((v) => (v === null ? null : v * k));
			out.push(scale(c.mean));
			if (!kind)
				out.push(scale(c.max), scale(c.min));
		}
		return out;
	}

	draw() {
		const d = this.detail.row.device;
		if (!this.plot)
			this.plot = new window.uPlot(this.options(), this.data(), this.place);
		else
			this.plot.setData(this.data(), false);
		const end = Math.max(this.detail.past.time.at(-1) || 0, now() - 2 * this.detail.past.step);
		this.plot.batch(() => {
			this.plot.setScale("x", { min: end - this.detail.range.seconds, max: end });
			this.plot.setScale("y", this.bounds(d));
		});
		this.say(this.plot.cursor.idx ?? null);
	}

	bounds(d) {
		const values = this.plot.data.slice(1).flat().filter((v) => v !== null);
		const top = this.spec.top(d), most = values.reduce((a, b) => Math.max(a, b), 0);
		const low = this.spec.low ? values.reduce((a, b) => Math.min(a, b), this.spec.low) : 0;
		return { min: low, max: Math.max(Number.isFinite(top) ? top : 0, most * 1.05, low + 1) };
	}

	options() {
		const main = css(`--${this.spec.hue}`), soft = css("--text-2"), grid = css("--line"), font = "11px system-ui, sans-serif";
		const series = [{}], bands = [];
		for (const [, label, kind] of this.spec.series) {
			const n = series.length, plain = { label, spanGaps: false, points: { show: false } };
			if (kind === "limit")
				series.push({ ...plain, stroke: css("--limit"), width: 1, dash: [5, 4] });
			else if (kind)
				series.push({ ...plain, stroke: soft, width: 1 });
			else {
				series.push({ ...plain, stroke: main, width: 1.75 });
				series.push({ ...plain, width: 0, stroke: "transparent" }, { ...plain, width: 0, stroke: "transparent" });
				bands.push({ series: [n + 1, n + 2], fill: `${main}38` });
			}
		}
		const axis = { stroke: soft, font, grid: { stroke: grid, width: 1 }, ticks: { show: false } };
		return {
			width: this.place.clientWidth || 300, height: this.place.clientHeight || 160, series, bands,
			legend: { show: false }, padding: [8, 20, 0, 0],
			cursor: { sync: { key: this.detail.row.key }, drag: { x: false, y: false }, points: { size: 6 }, y: false },
			scales: { x: { time: true, auto: false }, y: { auto: false } },
			axes: [{ ...axis, size: 24, space: 48, values: (u, list) => this.times(list) },
				{ ...axis, size: 40, space: 28 }],
			hooks: { setCursor: [(u) => this.say(u.cursor.idx)], draw: [(u) => this.lines(u)] },
		};
	}

	times(list) {
		const long = this.detail.range.seconds;
		return list.map((t) => (long > 86400 ? f.day(t * 1000) : f.clock(t * 1000, long < 900 && t % 60 !== 0)));
	}

	lines(u) {
		const g = u.ctx, box = u.bbox, r = devicePixelRatio || 1;
		g.save();
		g.strokeStyle = g.fillStyle = css("--limit");
		g.lineWidth = r;
		g.font = `${10 * r}px system-ui, sans-serif`;
		g.textAlign = "right";
		for (const [v, label] of this.spec.lines(this.detail.row.device)) {
			const y = Math.round(u.valToPos(v, "y", true));
			g.setLineDash([5 * r, 4 * r]);
			g.beginPath();
			g.moveTo(box.left, y);
			g.lineTo(box.left + box.width, y);
			g.stroke();
			if (label !== "all")
				g.fillText(label, box.left + box.width - 4 * r, label.startsWith("max") ? y + 11 * r : y - 4 * r);
		}
		g.restore();
	}

	// The figures under the cursor, or the latest; for those who hear, the whole in a sentence.
	say(idx) {
		const p = this.detail.past, at = idx ?? p.time.length - 1, k = this.spec.scale;
		const parts = this.spec.series.map(([key, label]) => {
			const v = p.column(key).mean[at];
			return v == null ? `${label} ${f.DASH}` : `${label} ${this.spec.show(v * k)}`;
		});
		put(this.legend, (idx == null ? "" : `${f.when(p.time[at] * 1000)}  `) + parts.join(" · "));
		if (idx != null)
			return;
		const c = p.column(this.spec.series[0][0]), list = (kind) => c[kind].filter((v) => v !== null).map((v) => v * k);
		const low = list("min"), high = list("max"), least = Math.min(...low), most = Math.max(...high);
		const key = this.spec.series[0][0], d = this.detail.row.device;
		this.blank.hidden = low.length > 0;
		put(this.blank, d[key] == null ? f.absence(d.absent[key]) : `no figures in the last ${this.detail.range.label}`);
		put(this.summary, low.length ? `${this.spec.title} of the last ${this.detail.range.label}: ${this.spec.show(least)} to ${this.spec.show(most)}.` :
			`${this.spec.title}: no figures in the last ${this.detail.range.label}.`);
	}

	remake() {
		this.plot?.destroy();
		this.plot = null;
		this.draw();
	}

	resize() {
		this.plot?.setSize({ width: this.place.clientWidth, height: this.place.clientHeight });
	}
}

// ---- every figure, searchable

const SKIP = new Set(["absent", "index", "mig_devices", "energy_joules_total"]);

class Figures {
	constructor(row) {
		this.row = row;
		this.cells = new Map();
		this.search = el("input", { type: "search", placeholder: "power, ecc, clock …", autocomplete: "off" });
		this.list = el("dl", { className: "figures" });
		this.none = el("p", { className: "empty", textContent: "No figure has this in its name.", hidden: true });
		this.search.addEventListener("input", () => this.filter());
		this.box = el("details", { className: "all", open: matchMedia("(min-width: 761px)").matches },
			el("summary", { textContent: "All figures" }), el("label", { className: "search" }, "Search ", this.search), this.list, this.none);
	}

	draw() {
		const d = this.row.device;
		if (!("provenance" in d))
			return; // the stream's few alone: the snapshot gives the order
		for (const key of Object.keys(d)) {
			if (SKIP.has(key) || (d[key] === null && !(key in d.absent)))
				continue;
			if (!this.cells.has(key))
				this.make(key);
			const cell = this.cells.get(key).value;
			if (d[key] === null)
				unknown(cell, d.absent[key]);
			else {
				put(cell, f.quantity(key, d[key]));
				cell.removeAttribute("title");
			}
		}
	}

	make(key) {
		const help = quantities[key]?.[1] || "", value = el("dd"), name = el("dt", { textContent: f.title(key), title: help ? `${help} (${key})` : key });
		const box = el("div", {}, name, value);
		this.cells.set(key, { box, value, text: `${key} ${f.title(key)} ${help}`.toLowerCase() });
		this.list.append(box);
		this.filter();
	}

	filter() {
		const wanted = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
		let shown = 0;
		for (const c of this.cells.values()) {
			c.box.hidden = !wanted.every((w) => c.text.includes(w));
			shown += !c.box.hidden;
		}
		this.none.hidden = shown > 0;
	}
}

export class Detail {
	constructor(row, range) {
		this.row = row;
		this.range = ranges[range];
		this.past = new Past(this.range.step);
		this.charts = CHARTS.map((c) => new Chart(c, this));
		this.figures = new Figures(row);
		this.note = el("p", { className: "empty", role: "status", hidden: true });
		this.buttons = ranges.map((r, i) => el("button", {
			type: "button", textContent: r.label, title: `${r.label} (${i + 1})`, "aria-pressed": String(i === range),
			onclick: () => this.onrange?.(i),
		}));
		const group = el("div", { className: "ranges", role: "group", ariaLabel: "Range of the charts" }, ...this.buttons);
		this.facts = el("p", { className: "facts" });
		this.parts = el("ul", { className: "mig", ariaLabel: "MIG instances" });
		this.grid = el("div", { className: "charts" }, ...this.charts.map((c) => c.box));
		row.place.replaceChildren(el("div", { className: "inside" },
			el("div", { className: "bar-top" }, this.facts, group), this.parts, this.note, this.grid, this.figures.box));
		this.watch = new ResizeObserver(() => this.charts.forEach((c) => c.resize()));
		this.watch.observe(this.grid);
		this.tell();
		this.load();
	}

	tell() {
		const d = this.row.device;
		put(this.facts, [d.name, d.uuid, d.pci_bus_id, d.driver_version && `driver ${d.driver_version}`, d.message].filter(Boolean).join(" · "));
		this.instances(d.mig_devices || []);
	}

	// A board that is split: memory is told per instance, power and energy are of the whole.
	instances(list) {
		this.parts.hidden = !list.length;
		while (this.parts.childElementCount > list.length)
			this.parts.lastChild.remove();
		list.forEach((m, i) => {
			if (!this.parts.children[i])
				this.parts.append(el("li", {}, el("b"), el("span", { className: "of" }), el("span", { className: "bar", ariaHidden: "true" }, el("i", { className: "fill memory" }))));
			const [name, memory, bar] = this.parts.children[i].children, known = m.memory_used_bytes !== null;
			put(name, `${m.index}: ${(m.name || "").replace(/^.*MIG /, "")}`);
			name.title = m.uuid || "";
			if (known)
				put(memory, `${f.gib(m.memory_used_bytes)} of ${f.gib(m.memory_total_bytes)} GiB`);
			else
				unknown(memory, m.memory_absent);
			width(bar.firstChild, known ? m.memory_used_bytes / m.memory_total_bytes : 0);
		});
	}

	setRange(i) {
		this.range = ranges[i];
		this.buttons.forEach((b, n) => b.setAttribute("aria-pressed", String(n === i)));
		return this.load();
	}

	async load() {
		const turn = this.turn = (this.turn || 0) + 1;
		try {
			const [series] = await Promise.all([history(this.row.device, ASKED, this.range), loadCharts()]);
			if (turn !== this.turn || this.closed)
				return;
			this.past = new Past(this.range.step).load(series);
			this.ready = true;
			this.note.hidden = true;
			this.grid.hidden = false;
			this.draw();
		} catch (e) {
			if (turn !== this.turn || this.ready)
				return;
			this.note.hidden = false;
			this.grid.hidden = Boolean(!packages.charts);
			put(this.note, e.message);
		}
	}

	tick() {
		const t = Date.parse(model.tick?.time_utc) / 1000;
		if (this.ready && t)
			this.past.add(t, this.row.device, this.range.seconds);
		if (!document.hidden)
			this.draw();
	}

	draw() {
		this.tell();
		this.figures.draw();
		if (this.ready)
			this.charts.forEach((c) => c.draw());
	}

	remake() {
		if (this.ready)
			this.charts.forEach((c) => c.remake());
	}

	close() {
		this.closed = true;
		this.watch.disconnect();
		this.charts.forEach((c) => c.plot?.destroy());
		this.row.place.replaceChildren();
	}
}

