// panels: lists below the GPUs.  Each is a table of columns; rows are kept by key, so that
// updates move nothing that somebody reads.
import { keyOf, model, post } from "./data.js";
import * as f from "./format.js";
import { codes } from "./words.js";
import { ailments, el, figure, put, shortName, stateWord, unknown } from "./rows.js";

const $ = (id) => document.getElementById(id);

// columns: { name, num, fill(cell, item), sort(item), show() }
class Table {
	constructor(id, columns, key, empty) {
		this.table = $(id);
		this.columns = columns;
		this.key = key;
		this.made = new Map();
		this.empty = this.table.parentElement.nextElementSibling;
		if (empty && this.empty)
			put(this.empty, empty);
		this.by = columns.find((c) => c.first) || null;
		this.down = true;
		this.heads = columns.map((c) => this.head(c));
		this.table.tHead.replaceChildren(el("tr", {}, ...this.heads));
	}

	head(c) {
		const th = el("th", { scope: "col", className: c.num ? "num" : "" });
		if (!c.sort)
			th.append(c.unseen ? el("span", { className: "unseen", textContent: c.unseen }) : c.name);
		else
			th.append(el("button", { type: "button", textContent: c.name, onclick: () => this.sortBy(c) }));
		return th;
	}

	sortBy(c) {
		this.down = this.by === c ? !this.down : Boolean(c.num);
		this.by = c;
		this.draw(this.items);
	}

	order(items) {
		if (!this.by)
			return items;
		const way = this.down ? -1 : 1, of = this.by.sort;
		return [...items].sort((a, b) => {
			const x = of(a) ?? null, y = of(b) ?? null;
			if (x === null || y === null)
				return (x === null) - (y === null);
			return way * (typeof x === "number" ? x - y : String(x).localeCompare(String(y)));
		});
	}

	row(item) {
		const key = this.key(item);
		if (!this.made.has(key)) {
			const cells = this.columns.map((c, i) => el(i ? "td" : "th", { className: c.num ? "num" : c.wrap ? "wrap" : "", ...(i ? {} : { scope: "row" }) }));
			this.made.set(key, { tr: el("tr", {}, ...cells), cells });
		}
		return this.made.get(key);
	}

	draw(items) {
		this.items = items;
		const body = this.table.tBodies[0], keep = new Set();
		const shown = this.columns.map((c) => !c.show || c.show(items));
		this.order(items).forEach((item, at) => {
			const r = this.row(item);
			keep.add(this.key(item));
			this.columns.forEach((c, i) => {
				r.cells[i].hidden = !shown[i];
				c.fill(r.cells[i], item);
			});
			if (body.children[at] !== r.tr)
				body.insertBefore(r.tr, body.children[at] || null);
		});
		for (const [key, r] of this.made)
			if (!keep.has(key)) {
				r.tr.remove();
				this.made.delete(key);
			}
		this.heads.forEach((th, i) => {
			th.hidden = !shown[i];
			if (this.columns[i].sort)
				th.setAttribute("aria-sort", this.by !== this.columns[i] ? "none" : this.down ? "descending" : "ascending");
		});
		this.table.hidden = !items.length;
		if (this.empty)
			this.empty.hidden = items.length > 0;
	}
}

const text = (of) => (cell, item) => {
	const v = of(item);
	if (v === null || v === undefined || v === "")
		unknown(cell, item.absent?.[of.key] || "no_data");
	else {
		put(cell, String(v));
		cell.removeAttribute("title");
	}
};

const gpuOf = (uuid) => model.devices.find((d) => d.uuid === uuid);
const gpuName = (uuid) => String(gpuOf(uuid)?.index ?? uuid);

// ---- processes

const processes = () => new Table("processes", [
	{ name: "GPU", num: true, sort: (p) => p.device_index, fill: text((p) => p.device_index) },
	{ name: "PID", num: true, sort: (p) => p.pid, fill: text((p) => p.pid) },
	{ name: "User", sort: (p) => p.user, fill: (c, p) => (p.user || p.uid != null ? put(c, p.user || `uid ${p.uid}`) : hidden(c, p)) },
	{ name: "Name", wrap: true, sort: (p) => p.name, fill: (c, p) => {
		text((x) => x.name)(c, p);
		if (p.command)
			c.title = p.command;
	} },
	{ name: "Type", sort: (p) => p.types?.join(), fill: text((p) => p.types?.join(", ")) },
	{ name: "Class", show: (all) => all.some((p) => p.class), fill: (c, p) => put(c, p.class ? f.words(p.class) : "") },
	{ name: "Memory", num: true, first: true, sort: (p) => p.memory_bytes, fill: (c, p) =>
		figure(c, { memory_bytes: p.memory_bytes, absent: { memory_bytes: p.memory_absent } }, "memory_bytes", f.bytes) },
	{ name: "Container", show: (all) => all.some((p) => p.container), fill: (c, p) => put(c, p.container || "") },
], (p) => `${p.device_uuid} ${p.pid} ${p.start_ticks} ${p.gpu_instance ?? ""}`, "No process is on a GPU.");

function hidden(cell, p) {
	unknown(cell, p.orphan ? "the process is not visible from here" : "no_permission");
}

// ---- windows

const KINDS = { valid: "good", suspect: "warn", invalid: "bad", "no-result": "bad", no_result: "bad" };

function interval(w) {
	const e = w.energy_joules ?? w.energy;
	if (e == null || typeof e === "number")
		return { best: e ?? null };
	return e;
}

function fillJoules(cell, w) {
	const e = interval(w);
	if (e.best == null)
		return unknown(cell, w.absent?.energy_joules || "no_data");
	const range = e.low != null ? `${f.joules(e.low)} … ${f.joules(e.high)}` : "";
	if (cell.dataset.key === range + e.best)
		return;
	cell.dataset.key = range + e.best;
	cell.title = `${f.wattHours(e.best)}${range ? `, between ${range}` : ""}`;
	cell.replaceChildren(el("b", { textContent: f.joules(e.best) }), el("span", { className: "range", textContent: range }));
}

function fillValidity(cell, w) {
	const early = w.state === "open" && interval(w).best == null;
	const list = early ? [] : w.codes || [], key = `${early} ${w.validity} ${list}`;
	if (cell.dataset.key === key)
		return;
	cell.dataset.key = key;
	const word = early ? "measuring" : w.validity || f.DASH;
	cell.replaceChildren(el("span", { className: `badge ${KINDS[word] || "calm"}`, textContent: f.words(word) }),
		el("span", { className: "codes", textContent: list.map((c) => codes[c.code ?? c] || f.words(c.code ?? c)).join("; ") }));
}

const devicesOf = (w) => (w.devices || []).map((d) => d.index ?? gpuName(d));
const began = (w) => Date.parse(w.begin_time ?? w.begin_utc);

function windowTable(act) {
	return new Table("windows", [
		{ name: "Label", wrap: true, fill: text((w) => w.label || w.id) },
		{ name: "GPUs", fill: (c, w) => put(c, devicesOf(w).join(", ") || "all") },
		{ name: "Began", num: true, fill: (c, w) => put(c, f.when(began(w))) },
		{ name: "Duration", num: true, fill: (c, w) => put(c, w.seconds == null ? f.DASH : w.seconds < 60 ? `${w.seconds.toFixed(1)} s` : f.span(w.seconds)) },
		{ name: "Energy", num: true, fill: fillJoules },
		{ name: "Validity", wrap: true, fill: fillValidity },
		{ name: "", unseen: "Action", fill: (c, w) => {
			const open = w.state === "open";
			if (open && !c.childElementCount)
				c.replaceChildren(el("button", { type: "button", textContent: "Stop", ariaLabel: `Stop ${w.label || w.id}`, onclick: () => act(`windows/${encodeURIComponent(w.id)}/stop`) }));
			else if (!open)
				c.replaceChildren();
		} },
	], (w) => String(w.id), "No window is open and none has ended. Start one around the work whose energy you want to know.");
}

// ---- health

const count = (key) => (c, d) => {
	const v = figure(c, d, key, String);
	c.classList.toggle("alarm", v > 0);
};
const flag = (key, bad = true) => (c, d) => {
	const v = figure(c, d, key, (x) => (x ? "yes" : "no"));
	c.classList.toggle("alarm", bad && v === true);
};

const health = () => new Table("health", [
	{ name: "GPU", fill: text((d) => `${d.index} ${shortName(d)}`) },
	{ name: "State", fill: (c, d) => {
		const [word, tone] = stateWord(d);
		c.replaceChildren(el("span", { className: `badge ${tone}`, textContent: word }));
		c.title = d.message || ailments(d).join("; ");
	} },
	{ name: "To slowdown", num: true, fill: (c, d) => {
		const v = figure(c, d, "temperature_margin_celsius", f.celsius);
		c.classList.toggle("alarm", v !== null && v <= 3);
	} },
	{ name: "Slowed by power", num: true, fill: (c, d) => figure(c, d, "limited_power_seconds", (v) => (v ? f.seconds(v) : "0 s")) },
	{ name: "Slowed by heat", num: true, fill: (c, d) => figure(c, d, "limited_thermal_seconds", (v) => (v ? f.seconds(v) : "0 s")) },
	{ name: "ECC corrected", num: true, fill: (c, d) => figure(c, d, "ecc_corrected_errors", String) },
	{ name: "ECC uncorrected", num: true, fill: count("ecc_uncorrected_errors") },
	{ name: "Rows remapped", num: true, fill: (c, d) => {
		const a = d.remapped_rows_correctable, b = d.remapped_rows_uncorrectable;
		if (a == null || b == null)
			return unknown(c, d.absent.remapped_rows_uncorrectable || d.absent.remapped_rows_correctable);
		put(c, String(a + b));
		c.title = `${a} for correctable, ${b} for uncorrectable errors`;
	} },
	{ name: "Remap pending", fill: flag("remapped_rows_pending") },
	{ name: "Remap failed", fill: flag("remapped_rows_failed") },
	{ name: "PCIe replays", num: true, fill: (c, d) => figure(c, d, "pcie_replays", String) },
	{ name: "Recovery", fill: (c, d) => {
		const v = figure(c, d, "recovery_action", f.words);
		c.classList.toggle("alarm", v !== null && v !== "none");
	} },
], keyOf, "There is no GPU.");

// ---- our own cost

const calls = () => new Table("calls", [
	{ name: "Call", fill: (c, x) => {
		put(c, x.name.replace(/^nvml(Device)?(Get)?/, ""));
		c.title = x.name;
	} },
	{ name: "Count", num: true, sort: (x) => x.count, fill: (c, x) => put(c, String(x.count)) },
	{ name: "Errors", num: true, show: (all) => all.some((x) => x.errors), sort: (x) => x.errors, fill: (c, x) => put(c, String(x.errors)) },
	{ name: "Mean", num: true, sort: (x) => x.seconds_total / x.count, fill: (c, x) => put(c, x.count ? f.seconds(x.seconds_total / x.count) : f.DASH) },
	{ name: "Most", num: true, sort: (x) => x.seconds_max, fill: (c, x) => put(c, f.seconds(x.seconds_max)) },
	{ name: "All", num: true, first: true, sort: (x) => x.seconds_total, fill: (c, x) => put(c, f.seconds(x.seconds_total)) },
], (x) => x.name);

function rate(key) {
	const a = model.selfBefore, b = model.self;
	return a && b[key] != null && b.at > a.at && b[key] >= a[key] ? (b[key] - a[key]) / (b.at - a.at) * 1000 : null;
}

function selfTiles() {
	const s = model.self, cpu = rate("cpu_seconds"), wake = rate("wakeups"), show = (v, fn) => (v == null ? f.DASH : fn(v));
	return [
		["CPU", show(cpu, (v) => `${(v * 100).toFixed(v < 0.1 ? 2 : 1)} %`), "of one core, in the last seconds"],
		["Memory", show(s.rss_bytes, f.bytes), "resident"],
		["Wake-ups", show(wake, (v) => `${v.toFixed(1)} /s`), "rounds of the main loop"],
		["Reading", show(s.tick_seconds, f.seconds), "how long the last reading of all GPUs took"],
		["Missed", show(s.ticks_missed, String), "readings that were left out"],
	];
}

function drawSelf() {
	const place = $("self");
	selfTiles().forEach(([name, value, why], i) => {
		if (!place.children[i])
			place.append(el("div", { title: why }, el("dt", { textContent: name }), el("dd")));
		put(place.children[i].lastChild, value);
	});
}

// ---- events

const SEVERITY = { info: ["info", "calm"], warning: ["warning", "warn"], error: ["error", "bad"] };

function drawEvents() {
	const list = $("events"), have = new Map([...list.children].map((li) => [li.dataset.id, li]));
	const shown = model.events.slice(0, 60);
	$("events-empty").hidden = shown.length > 0;
	list.replaceChildren(...shown.map((e) => have.get(String(e.id)) || eventItem(e)));
}

function eventItem(e) {
	const [word, tone] = SEVERITY[e.severity] || [f.words(e.severity), "calm"], t = Date.parse(e.time_utc);
	const li = el("li", {}, el("time", { dateTime: e.time_utc, textContent: f.when(t), title: new Date(t).toLocaleString() }),
		el("span", { className: `badge ${tone}`, textContent: word }),
		el("span", {}, e.uuid && gpuOf(e.uuid) && !/^GPU \d/.test(e.text) ? el("b", { textContent: `GPU ${gpuName(e.uuid)} ` }) : "", e.text));
	li.dataset.id = e.id;
	return li;
}

export function panels(needToken) {
	const note = $("window-note");
	async function act(path, body) {
		put(note, "");
		try {
			const w = await post(path, body);
			model.windows.set(String(w.id), w);
			drawWindows();
			return true;
		} catch (e) {
			if (e.status === 401 && await needToken(e.message))
				return act(path, body);
			put(note, e.message);
			return false;
		}
	}
	const tables = { processes: processes(), windows: windowTable(act), health: health(), calls: calls() };

	function drawWindows() {
		const list = [...model.windows.values()].sort((a, b) => (a.state === "ended") - (b.state === "ended") ||
			began(b) - began(a));
		tables.windows.draw(list.slice(0, 50));
	}

	$("window-form").addEventListener("submit", async (e) => {
		e.preventDefault();
		const gpu = $("window-gpus").value, body = { label: $("window-label").value.trim() };
		if (gpu)
			body.gpus = [gpu];
		if (await act("windows", body))
			$("window-label").value = "";
	});

	function chooseGpus() {
		const select = $("window-gpus"), want = ["", ...model.devices.map((d) => d.uuid || String(d.index))];
		if ([...select.options].map((o) => o.value).join() !== want.join())
			select.replaceChildren(...want.map((u) => el("option", { value: u, textContent: u ? `GPU ${gpuName(u)}` : "all" })));
	}

	return {
		snapshot() {
			const list = model.snapshot?.processes || [];
			tables.processes.draw(list);
			put($("process-count"), list.length ? String(list.length) : "");
			tables.health.draw(model.devices);
			chooseGpus();
			drawWindows();
		},
		windows: drawWindows,
		events: drawEvents,
		self() {
			drawSelf();
			tables.calls.draw((model.self.calls || []).filter((c) => c.count));
		},
	};
}
