// chart: draws one quantity of one GPU over time. Hides the chart library.
import { model, now } from "./data.js";
import * as f from "./format.js";
import { el, put } from "./rows.js";
import { packages } from "./words.js";

const GIB = 2 ** 30;

function line(d, key, word, show, scale = 1) {
	return d[key] == null ? [] : [{ at: d[key] * scale, label: `${word} ${show(d[key] * scale)}` }];
}

const watts = (v) => `${v.toFixed(0)} W`, degrees = (v) => `${v.toFixed(0)} °C`, gib = (v) => `${v.toFixed(v < 100 ? 1 : 0)} GiB`;
// Each row of series is [quantity, label, kind]. kind "limit": the line is drawn only where its value differs from the current
// limit. kind "second": the line is thinner and has no minimum and maximum.
export const CHARTS = [
	{
		title: "Power", hue: "power", show: watts, unit: "W", scale: 1, windows: true,
		series: [["power_watts", "power"], ["power_limit_watts", "limit", "limit"]],
		lines: (d) => line(d, "power_limit_watts", "limit", watts),
	},
	{
		title: "Temperature", hue: "heat", show: degrees, unit: "°C", scale: 1, low: 20, high: 70,
		series: [["temperature_gpu_celsius", "GPU"], ["temperature_memory_celsius", "memory", "second"]],
		lines: (d) => [...line(d, "temperature_gpu_max_celsius", "limit", degrees), ...line(d, "temperature_slowdown_celsius", "hardware slowdown", degrees)],
	},
	{
		title: "Utilisation", hue: "use", show: (v) => `${v.toFixed(0)} %`, unit: "%", scale: 100, high: 100, tight: true,
		series: [["utilization_gpu_ratio", "GPU"], ["utilization_memory_ratio", "memory bus", "second"]],
		lines: () => [],
	},
	{
		title: "Memory", hue: "memory", show: gib, unit: "GiB", scale: 1 / GIB,
		series: [["memory_used_bytes", "used"]],
		lines: (d) => line(d, "memory_total_bytes", "total", gib, 1 / GIB),
	},
];
export const ASKED = CHARTS.flatMap((c) => c.series.map((s) => s[0]));
const FEW = 12; // With at most this many points, each has a dot, because a line would hide how few there are.

let library = null;
export function loadCharts() {
	library ||= new Promise((done, fail) => {
		if (!packages.charts)
			return fail(new Error("This build has no charts because npm was missing. Past values: /api/v1/series."));
		document.head.append(el("link", { rel: "stylesheet", href: "assets/uplot.css" }));
		document.head.append(el("script", { src: "assets/uplot.js", onload: done, onerror: () => fail(new Error("The charts could not be loaded.")) }));
	});
	return library;
}

export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const FONT = "11px system-ui, sans-serif";
const EDGE = 26; // Half the width of the widest time label, so that the last label is not clipped.
const WIDE = 56; // Least width of the vertical axis, so that charts below each other are aligned.
const SPARSE = 5; // Readings of an unwatched time get a dot if they are at least this many pixels apart.

export const padding = [8, EDGE, 0, 0];

let ruler = null;
function textWidth(text) {
	ruler ||= document.createElement("canvas").getContext("2d");
	ruler.font = FONT;
	return ruler.measureText(text).width;
}

function times(list, [min, max]) {
	const long = max - min, midnight = (t) => new Date(t * 1000).getHours() === 0;
	return list.map((t) => (long > 0.5 * 86400 && midnight(t) ? f.day(t * 1000) : f.clock(t * 1000, long < 900 && t % 60 !== 0)));
}

// Returns the axes of time and value; shown() returns the visible time range. The labels of the
// values decide how wide their axis is.
export function axes(unit, shown) {
	const axis = { stroke: css("--text-2"), font: FONT, grid: { stroke: css("--line"), width: 1 }, ticks: { show: false } };
	return [
		{ ...axis, size: 24, space: (u, i, min, max, wide) => (max - min < (wide > 400 ? 900 : 240) ? 60 : 44), values: (u, list) => times(list, shown()) },
		{ ...axis, size: (u, list) => Math.max(WIDE, ...(list || []).map((s) => textWidth(s) + 10)), space: 28,
			values: (u, list) => list.map((v) => `${Number(v.toPrecision(6))} ${unit}`) },
	];
}

// Returns the points that need a dot, because a line does not show a point without neighbours; null: none.
export function lonely(u, i, past = null) {
	const list = u.data[i], known = [], joined = new Set(past?.unwatched(list).flat());
	list.forEach((v, n) => v !== null && known.push(n));
	const alone = known.length <= FEW ? known : known.filter((n) => list[n - 1] == null && list[n + 1] == null && !joined.has(n));
	return alone.length ? alone : null;
}

export const UNWATCHED_NOTE = "Dashed line with dots: no client watched at that time, so the service read the GPUs only every 10 s. Nothing was measured in between.";

// Joins the readings of an unwatched time in series i with a dashed line, and draws a dot per reading if there is space.
export function drawUnwatched(u, i, past) {
	const g = u.ctx, r = devicePixelRatio || 1, x = (n) => u.valToPos(u.data[0][n], "x", true), y = (n) => u.valToPos(u.data[i][n], "y", true);
	const pairs = u.series[i].show ? past.unwatched(u.data[i]) : [], line = new Path2D(), dots = new Path2D();
	let end = -1;
	for (const [a, b] of pairs) {
		if (a !== end)
			line.moveTo(x(a), y(a));
		line.lineTo(x(b), y(b));
		end = b;
		for (const n of x(b) - x(a) < SPARSE * r ? [] : [a, b]) {
			dots.moveTo(x(n), y(n));
			dots.arc(x(n), y(n), 1.75 * r, 0, 2 * Math.PI);
		}
	}
	g.save();
	g.beginPath();
	g.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
	g.clip();
	g.strokeStyle = g.fillStyle = u.series[i].stroke(u, i);
	g.fill(dots);
	g.globalAlpha = 0.7;
	g.lineWidth = r;
	g.setLineDash([2 * r, 4 * r]);
	g.stroke(line);
	g.restore();
}

export class Chart {
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
		const p = this.detail.past, k = this.spec.scale, d = this.detail.row.device, out = [p.time];
		for (const [key, , kind] of this.spec.series) {
			const c = p.column(key), scale = (list) => list.map((v) => (v === null ? null : v * k));
			out.push(scale(kind === "limit" ? c.mean.map((v) => (v === d[key] ? null : v)) : c.mean));
			if (!kind)
				out.push(scale(c.max), scale(c.min));
		}
		return out;
	}

	draw() {
		if (!this.plot)
			this.plot = new window.uPlot(this.options(), this.data(), this.place);
		else
			this.plot.setData(this.data(), false);
		const [min, max] = this.detail.shown();
		this.plot.batch(() => {
			this.plot.setScale("x", { min, max });
			this.plot.setScale("y", this.bounds());
		});
		this.say(this.plot.cursor.idx);
		this.sum();
	}

	// Returns the range of the vertical axis. It includes the limits, with space for their labels.
	bounds() {
		let low = this.spec.low || 0, most = this.spec.high || 0;
		for (const column of this.plot.data.slice(1))
			for (const v of column)
				if (v !== null) {
					most = Math.max(most, v);
					low = this.spec.low ? Math.min(low, v) : low;
				}
		const lines = this.spec.lines(this.detail.row.device).map((l) => l.at), room = this.spec.tight ? 1.02 : 1.05;
		const top = Math.max(most * room, low + (Math.max(low, ...lines) - low) * (lines.length ? 1.16 : 1));
		return { min: low, max: Math.max(top, low + 1) };
	}

	options() {
		const main = css(`--${this.spec.hue}`), soft = css("--text-2");
		const series = [{}], bands = [], drawn = []; // drawn: indices of the series for which drawUnwatched() is called
		for (const [, label, kind] of this.spec.series) {
			const n = series.length, plain = { label, spanGaps: false, points: { show: false } };
			const dots = (colour) => ({ show: false, size: 5, fill: colour, stroke: colour, filter: (u, i) => lonely(u, i, this.detail.past) });
			if (kind === "limit")
				series.push({ ...plain, stroke: css("--limit"), width: 1, dash: [5, 4] });
			else
				drawn.push(n);
			if (kind === "second")
				series.push({ ...plain, stroke: soft, width: 1, points: dots(soft) });
			else if (!kind) {
				series.push({ ...plain, stroke: main, width: 1.75, points: dots(main) });
				series.push({ ...plain, width: 0, stroke: "transparent" }, { ...plain, width: 0, stroke: "transparent" });
				bands.push({ series: [n + 1, n + 2], fill: `${main}38` });
			}
		}
		const alone = (type) => type === "mousemove" || type === "mouseleave"; // The charts share the cursor, but not the zoom.
		return {
			width: this.place.clientWidth || 300, height: this.place.clientHeight || 160, series, bands,
			legend: { show: false }, padding,
			cursor: {
				sync: { key: this.detail.row.key, filters: { pub: alone } }, drag: { x: true, y: false, setScale: false },
				points: { size: 6 }, y: false, bind: { dblclick: () => () => this.detail.zoom(null) },
			},
			scales: { x: { time: true, auto: false }, y: { auto: false } },
			axes: axes(this.spec.unit, () => this.detail.shown()),
			hooks: {
				setCursor: [(u) => this.say(u.cursor.idx)], drawClear: [(u) => this.windows(u, false)],
				draw: [(u) => drawn.forEach((i) => drawUnwatched(u, i, this.detail.past)), (u) => this.windows(u, true), (u) => this.lines(u)],
				setSelect: [(u) => u.select.width > 4 && this.detail.zoom([u.select.left, u.select.left + u.select.width].map((x) => u.posToVal(x, "x")))],
			},
		};
	}

	// Writes when the history begins, if the chart begins earlier. The text covers the grid, so that no line crosses it.
	unkept(u, g, box, r) {
		const since = this.detail.since(), wide = since ? u.valToPos(since, "x", true) - box.left - 3 * r : 0;
		const word = since ? `no history before ${f.when(since * 1000, false)}` : "", needs = g.measureText(word).width + 12 * r;
		if (!since || wide < needs)
			return;
		const x = box.left + wide / 2, y = box.top + box.height / 2;
		g.fillStyle = css("--card");
		g.fillRect(x - needs / 2, y - 9 * r, needs, 18 * r);
		g.fillStyle = css("--text-2");
		g.textBaseline = "middle";
		g.textAlign = "center";
		g.fillText(word, x, y);
	}

	// Draws the energy windows of this GPU: a background behind the grid, and labels above it.
	windows(u, labels) {
		const g = u.ctx, box = u.bbox, r = devicePixelRatio || 1;
		const x = (t) => Math.max(box.left, Math.min(box.left + box.width, u.valToPos(t, "x", true)));
		g.save();
		g.font = `${10.5 * r}px system-ui, sans-serif`;
		g.fillStyle = css("--accent");
		g.textBaseline = "bottom";
		g.textAlign = "left";
		g.globalAlpha = labels ? 1 : 0.14;
		for (const w of this.spec.windows ? model.windows.values() : []) {
			const from = x(Date.parse(w.begin_time) / 1000), wide = x(w.end_time ? Date.parse(w.end_time) / 1000 : now()) - from;
			if (wide <= 0 || !w.devices.some((d) => d.uuid === this.detail.row.device.uuid))
				continue;
			if (!labels)
				g.fillRect(from, box.top, wide, box.height);
			else if (w.label && wide > g.measureText(w.label).width + 6 * r)
				g.fillText(w.label, from + 3 * r, box.top + box.height - 2 * r);
		}
		g.restore();
	}

	// Draws the limits. The label of the highest limit is above its line and the other labels are below, so that no line crosses a label.
	lines(u) {
		const g = u.ctx, box = u.bbox, r = devicePixelRatio || 1;
		g.save();
		g.font = `${10.5 * r}px system-ui, sans-serif`;
		this.unkept(u, g, box, r);
		g.strokeStyle = g.fillStyle = css("--limit");
		g.lineWidth = r;
		g.textAlign = "right";
		const list = this.spec.lines(this.detail.row.device).sort((a, b) => b.at - a.at);
		list.forEach(({ at, label }, i) => {
			const y = Math.round(u.valToPos(at, "y", true)) + 0.5 * r;
			g.setLineDash([5 * r, 4 * r]);
			g.beginPath();
			g.moveTo(box.left, y);
			g.lineTo(box.left + box.width, y);
			g.stroke();
			g.textBaseline = i ? "top" : "bottom";
			g.fillText(label, box.left + box.width - 4 * r, i ? y + 3 * r : y - 2 * r);
		});
		g.restore();
	}

	// Shows the values under the cursor, or the current values.
	say(idx) {
		const p = this.detail.past, k = this.spec.scale, d = this.detail.row.device;
		const parts = this.spec.series.map(([key, label]) => {
			const v = idx == null ? d[key] : p.column(key).mean[idx];
			return v == null ? `${label} ${f.DASH}` : `${label} ${this.spec.show(v * k)}`;
		});
		put(this.legend, `${idx == null ? "now" : `${p.step > 1 ? "mean at " : ""}${f.when(p.time[idx] * 1000)}`}  ${parts.join(" · ")}`);
	}

	// Describes the chart in one sentence, for screen readers.
	sum() {
		const p = this.detail.past, k = this.spec.scale, d = this.detail.row.device, range = this.detail.words();
		const key = this.spec.series[0][0], c = p.column(key), [from, to] = this.detail.shown();
		let least = Infinity, most = -Infinity;
		p.time.forEach((t, i) => {
			if (t >= from && t <= to && c.min[i] !== null) {
				least = Math.min(least, c.min[i] * k);
				most = Math.max(most, c.max[i] * k);
			}
		});
		const known = most >= least;
		this.blank.hidden = known;
		put(this.blank, d[key] == null ? f.absence(d.absent[key]) : `no figures ${range}`);
		put(this.summary, known ? `${this.spec.title} ${range}: ${this.spec.show(least)} to ${this.spec.show(most)}.` :
			`${this.spec.title}: no figures ${range}.`);
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
