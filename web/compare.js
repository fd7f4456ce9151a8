// compare: shows one quantity of all GPUs in one chart, one line per GPU. Loaded when the user
// opens it.
import { axes, drawUnwatched, loadCharts, lonely, padding, UNWATCHED_NOTE } from "./chart.js";
import { history, keyOf, model } from "./data.js";
import * as f from "./format.js";
import { Past, saveCsv } from "./past.js";
import { between, isLive, query, rangeButtons, shown, words } from "./range.js";
import { $, el, put, shortName } from "./rows.js";

const POINTS = 300; // Maximum number of points per line if there are more than FEW GPUs.
const FEW = 12; // Up to this many GPUs, lines are thick and end with the number of the GPU, and buttons show its name.
const QUANTITIES = [
	["power_watts", "Power", "W", 1], ["temperature_gpu_celsius", "Temperature", "°C", 1], ["utilization_gpu_ratio", "Utilisation", "%", 100],
	["memory_used_bytes", "Memory used", "GiB", 2 ** -30], ["clock_sm_hertz", "SM clock", "MHz", 1e-6],
	["temperature_memory_celsius", "Memory temperature", "°C", 1], ["utilization_memory_ratio", "Memory bus", "%", 100],
	["clock_memory_hertz", "Memory clock", "MHz", 1e-6], ["fan_speed_ratio", "Fan", "%", 100],
].map(([key, title, unit, scale]) => ({ key, title, unit, scale, show: (v) => `${v.toFixed(unit === "GiB" && v < 100 ? 1 : 0)} ${unit}` }));

// Returns the colour of line i of n: dark on a light ground, light on a dark ground.
function colour(i, n) {
	const hue = Math.round(210 + 360 * i / n) % 360, dark = document.documentElement.dataset.theme === "dark";
	return `hsl(${hue} ${dark ? 75 : 80}% ${dark ? 64 : 36}%)`;
}

export class Compare {
	// choose(range) and changed() are called when the user changes something.
	constructor(range, choose, changed) {
		this.range = range;
		this.part = null; // The range that the user zoomed to; null: no zoom.
		this.open = false;
		this.hidden = new Set(); // Keys of the GPUs with a hidden line.
		this.chips = new Map(); // key: { button, value }
		this.choice = el("select", { onchange: () => this.choose(this.choice.value) }, ...QUANTITIES.map((q) => el("option", { value: q.key, textContent: q.title })));
		this.changed = changed;
		this.buttons = rangeButtons(choose);
		this.buttons.press(range);
		const small = (word, title, onclick) => el("button", { type: "button", className: "small", textContent: word, title, onclick });
		this.back = small("Reset zoom", "Double click on the chart does the same", () => this.zoom(null));
		this.legend = el("span", { className: "legend" });
		this.summary = el("p", { className: "unseen" });
		this.note = el("p", { className: "empty", role: "status", hidden: true });
		this.unwatched = el("p", { className: "note unwatched", hidden: true, textContent: UNWATCHED_NOTE });
		this.place = el("div", { className: "plot tall", ariaHidden: "true" });
		this.list = el("div", { className: "chips", role: "group", ariaLabel: "GPUs with a line" });
		$("compare").replaceChildren(
			el("div", { className: "bar-top" }, el("h2", { id: "compare-title", textContent: "All GPUs in one chart" }),
				el("div", { className: "choose" }, el("label", {}, "Quantity ", this.choice), this.back, this.buttons.box,
					small("CSV", "The data of this chart as a file", () => saveCsv(`${this.quantity}-${this.current().name}`, this.past)))),
			this.note, el("figure", { className: "chart" }, el("figcaption", {}, el("span"), this.legend), this.place, this.summary), this.unwatched,
			el("div", { className: "lines" }, small("Show all", "A line for each GPU", () => this.hide([])),
				small("Hide all", "Then choose some", () => this.hide(model.devices.map(keyOf))), this.list));
		new ResizeObserver(() => this.plot?.setSize({ width: this.place.clientWidth, height: this.place.clientHeight })).observe(this.place);
		new IntersectionObserver(([e]) => {
			this.inSight = e.isIntersecting;
			this.draw();
		}).observe(this.place);
		this.list.addEventListener("pointerleave", () => this.point(null));
		this.list.addEventListener("focusout", () => this.point(null));
	}

	get spec() {
		return QUANTITIES.find((q) => q.key === this.quantity);
	}

	current() {
		return this.part || this.range;
	}

	shown() {
		return shown(this.current(), this.past?.time.at(-1), this.past?.step || 1);
	}

	show(open, quantity) {
		this.open = open;
		$("compare").hidden = !open;
		if (open)
			this.setQuantity(QUANTITIES.some((q) => q.key === quantity) ? quantity : QUANTITIES[0].key);
	}

	choose(key) {
		localStorage.setItem("chart", key);
		this.setQuantity(key);
		this.changed();
	}

	setQuantity(key) {
		this.quantity = key;
		this.choice.value = key;
		this.load();
	}

	setRange(r) {
		this.range = r;
		this.part = null;
		this.buttons.press(r);
		this.load();
	}

	zoom(part) {
		this.plot?.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
		const next = part && between(...part);
		if (part ? !next : !this.part)
			return;
		this.part = next;
		this.load();
	}

	hide(keys) {
		this.hidden = new Set(keys);
		this.remake();
	}

	async load() {
		if (!this.open)
			return;
		const turn = this.turn = (this.turn || 0) + 1, key = this.quantity, range = query(this.current(), model.devices.length > FEW ? POINTS : Infinity);
		this.back.hidden = !this.part;
		try {
			const [series] = await Promise.all([history(null, [key], range.text), loadCharts()]);
			if (turn !== this.turn)
				return;
			this.keys = model.devices.map(keyOf);
			// The columns of this Past are GPUs, not quantities.
			this.past = new Past(range.step, this.keys).load(series.map((s) => ({ ...s, quantity: keyOf({ uuid: s.gpu, index: s.index }) })));
			this.note.hidden = true;
			this.remake();
		} catch (e) {
			if (turn === this.turn) {
				this.note.hidden = false;
				put(this.note, e.message);
			}
		}
	}

	tick() {
		const t = Date.parse(model.tick?.time_utc) / 1000;
		if (!this.open || !this.past)
			return;
		if (model.devices.some((d) => !this.keys.includes(keyOf(d))))
			return this.load();
		if (isLive(this.current()) && t)
			this.past.add(t, Object.fromEntries(model.devices.map((d) => [keyOf(d), d[this.quantity]])), t - this.shown()[0]);
		this.draw();
	}

	data() {
		const k = this.spec.scale;
		return [this.past.time, ...this.keys.map((key) => this.past.column(key).mean.map((v) => (v === null ? null : v * k)))];
	}

	remake() {
		this.plot?.destroy();
		this.plot = null;
		this.makeChips();
		this.draw();
	}

	draw() {
		if (!this.open || !this.past || document.hidden || this.inSight === false)
			return;
		if (!this.plot) {
			put($("compare").querySelector("figcaption span"), this.spec.title);
			this.plot = new window.uPlot(this.options(), this.data(), this.place);
		} else
			this.plot.setData(this.data(), false);
		const [min, max] = this.shown();
		this.plot.batch(() => {
			this.plot.setScale("x", { min, max });
			this.plot.setScale("y", this.bounds());
		});
		this.unwatched.hidden = !this.keys.some((key) => this.past.unwatched(this.past.column(key).mean).length);
		this.say(this.plot.cursor.idx);
		this.sum();
	}

	bounds() {
		let most = this.spec.unit === "%" ? 100 : 0;
		this.plot.data.slice(1).forEach((column, i) => {
			for (const v of this.hidden.has(this.keys[i]) ? [] : column)
				most = Math.max(most, v ?? 0);
		});
		return { min: 0, max: Math.max(most * 1.05, 1) };
	}

	options() {
		const n = this.keys.length, few = n <= FEW;
		const series = this.keys.map((key, i) => {
			const stroke = colour(i, n);
			return { label: key, stroke, width: few ? 1.75 : 1, spanGaps: false, show: !this.hidden.has(key), points: { show: false, size: 5, fill: stroke, stroke, filter: (u, at) => lonely(u, at, this.past) } };
		});
		return {
			width: this.place.clientWidth || 300, height: this.place.clientHeight || 300, series: [{}, ...series], legend: { show: false }, padding,
			focus: { alpha: few ? 0.3 : 0.12 },
			cursor: { focus: { prox: few ? 30 : 1e6 }, drag: { x: true, y: false, setScale: false }, points: { size: 6 }, y: false, bind: { dblclick: () => () => this.zoom(null) } },
			scales: { x: { time: true, auto: false }, y: { auto: false } },
			axes: axes(this.spec.unit, () => this.shown()),
			hooks: {
				setCursor: [(u) => this.say(u.cursor.idx)], setSeries: [(u, i) => this.near(i)], draw: [(u) => few && this.numbers(u), (u) => this.keys.forEach((_, i) => drawUnwatched(u, i + 1, this.past))],
				setSelect: [(u) => u.select.width > 4 && this.zoom([u.select.left, u.select.left + u.select.width].map((x) => u.posToVal(x, "x")))],
			},
		};
	}

	// Draws the number of each GPU at the end of its line, unless the lines are too close
	// to each other.
	numbers(u) {
		const g = u.ctx, r = devicePixelRatio || 1, ends = [];
		this.keys.forEach((key, i) => {
			const at = this.hidden.has(key) ? -1 : u.data[i + 1].findLastIndex((v) => v !== null), d = model.devices[i];
			if (at >= 0 && d)
				ends.push({ i, text: String(d.index), x: u.valToPos(u.data[0][at], "x", true), y: u.valToPos(u.data[i + 1][at], "y", true) });
		});
		ends.sort((a, b) => a.y - b.y).forEach((e, n) => { e.top = Math.max(e.y, (ends[n - 1]?.top ?? -Infinity) + 11 * r); });
		if (ends.some((e) => e.top - e.y > 14 * r))
			return;
		g.save();
		g.font = `600 ${11 * r}px system-ui, sans-serif`;
		g.textBaseline = "middle";
		g.textAlign = "left";
		for (const e of ends) {
			g.fillStyle = colour(e.i, this.keys.length);
			g.fillText(e.text, Math.min(e.x, u.bbox.left + u.bbox.width) + 4 * r, e.top);
		}
		g.restore();
	}

	// The legend has a button per GPU with its value.
	makeChips() {
		const few = this.keys.length <= FEW;
		this.chips = new Map(model.devices.map((d, i) => {
			const key = keyOf(d), value = el("span", { className: "v" }), swatch = el("i", { className: "swatch", ariaHidden: "true" });
			swatch.style.background = colour(i, this.keys.length);
			const button = el("button", {
				type: "button", className: "chip", title: `${d.name || ""} ${d.uuid || ""}`.trim(), "aria-pressed": String(!this.hidden.has(key)),
				onclick: () => this.flip(key), onpointerenter: () => this.point(i), onfocus: () => this.point(i),
			}, swatch, el("b", { textContent: `${few ? "GPU " : ""}${d.index}` }), few ? ` ${shortName(d)} ` : " ", value);
			return [key, { button, value }];
		}));
		const focus = [...this.list.children].indexOf(document.activeElement);
		this.list.replaceChildren(...[...this.chips.values()].map((c) => c.button));
		this.list.children[focus]?.focus();
	}

	flip(key) {
		if (!this.hidden.delete(key))
			this.hidden.add(key);
		const at = this.keys.indexOf(key);
		this.chips.get(key).button.setAttribute("aria-pressed", String(!this.hidden.has(key)));
		this.plot?.setSeries(at + 1, { show: !this.hidden.has(key) });
		this.draw();
	}

	// Highlights the line of one GPU; null: no line.
	point(i) {
		this.plot?.setSeries(i === null ? null : i + 1, { focus: i !== null });
	}

	near(i) {
		this.nearest = i == null ? null : i - 1;
		[...this.chips.values()].forEach((c, n) => c.button.classList.toggle("near", n === this.nearest));
		this.say(this.plot?.cursor.idx);
	}

	// Shows the values under the cursor, or the current values.
	say(idx) {
		const { scale, show } = this.spec, values = [];
		model.devices.forEach((d, i) => {
			const key = keyOf(d), v = idx == null ? d[this.quantity] : this.past.column(key).mean[idx];
			put(this.chips.get(key).value, v == null ? f.DASH : show(v * scale));
			if (v != null && !this.hidden.has(key))
				values.push({ v: v * scale, d, i });
		});
		const time = idx == null ? "now" : f.when(this.past.time[idx] * 1000), one = values.find((x) => x.i === this.nearest);
		values.sort((a, b) => a.v - b.v);
		const [least, most] = [values[0], values.at(-1)];
		put(this.legend, `${time}  ${one ? `GPU ${one.d.index} ${show(one.v)}` : !most ? f.DASH :
			show(least.v) === show(most.v) ? `${values.length > 1 ? `${values.length} GPUs` : `GPU ${most.d.index}`} ${show(most.v)}` : `${show(least.v)} (GPU ${least.d.index}) to ${show(most.v)} (GPU ${most.d.index})`}`);
	}

	// Describes the chart in one sentence, for screen readers.
	sum() {
		const [from, to] = this.shown(), { scale, show, title } = this.spec;
		let least = null, most = null;
		this.keys.forEach((key, i) => {
			const c = this.past.column(key), d = model.devices[i];
			if (!this.hidden.has(key))
				this.past.time.forEach((t, n) => {
					if (t < from || t > to || c.min[n] === null)
						return;
					least = !least || c.min[n] < least.v ? { v: c.min[n], d } : least;
					most = !most || c.max[n] > most.v ? { v: c.max[n], d } : most;
				});
		});
		const n = this.keys.length - this.hidden.size, range = words(this.current());
		put(this.summary, most ? `${title} of ${n} GPU${n === 1 ? "" : "s"} ${range}: ${show(least.v * scale)} (GPU ${least.d.index}) to ${show(most.v * scale)} (GPU ${most.d.index}).` :
			`${title}: no figures ${range}.`);
		this.note.hidden = Boolean(most) || !n;
		put(this.note, `No figures of this quantity ${range}.`);
	}
}
