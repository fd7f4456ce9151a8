// panels: draws the lists below the GPUs: processes, workloads, health, events and the cost of the service itself.
import { ask, keyOf, MANY, model, named, whyBlind } from "./data.js";
import * as f from "./format.js";
import { drawProcesses, processes } from "./processes.js";
import { Table, text } from "./table.js";
import { $, ailments, el, figure, needsCare, put, shortName, stateWord, unknown } from "./rows.js";

const gpuOf = (uuid) => model.devices.find((d) => d.uuid === uuid);

const count = (key) => (c, d) => {
	const v = figure(c, d, key, String);
	c.classList.toggle("alarm", v > 0);
};
const flag = (key) => (c, d) => {
	const v = figure(c, d, key, (x) => (x ? "yes" : "no"));
	c.classList.toggle("alarm", v === true);
};

const isHot = (d) => d.temperature_margin_celsius != null && d.temperature_margin_celsius <= 3;

// With many GPUs, healthy ones are only counted unless the user wants to see them.
let everyone = false;

function drawHealth(table) {
	const all = model.devices, many = all.length > MANY, ill = all.filter((d) => needsCare(d) || isHot(d));
	table.draw(many && !everyone ? ill : all);
	$("health-more").hidden = !many;
	if (!many)
		return;
	table.empty.hidden = true;
	put($("health-count"), ill.length ? `${ill.length} of ${all.length} GPUs need attention` : `All ${all.length} GPUs are healthy`);
	put($("health-all"), everyone ? "Show those that need attention" : "Show all");
}

const health = () => new Table("health", [
	{ name: "GPU", lead: true, fill: text((d) => `${d.index} ${shortName(d)}`) },
	{ name: "State", fill: (c, d) => {
		const [word, tone] = stateWord(d);
		if (c.dataset.key === word)
			return;
		c.dataset.key = word;
		c.replaceChildren(el("span", { className: `badge ${tone}`, textContent: word }));
		c.title = d.message || ailments(d).join("; ");
	} },
	{ name: "Temperature limit", num: true, title: "At this temperature the driver begins to reduce the clocks. It is the current temperature plus the margin that the driver reports, or else the maximum temperature of the GPU; it can differ from the limits in the chart.", fill: (c, d) => {
		const t = d.temperature_gpu_celsius, max = d.temperature_gpu_max_celsius;
		const words = (left) => `${f.celsius(Math.abs(left))} ${left < 0 ? "above" : "below"}${t == null ? "" : ` ${f.celsius(t + left)}`}`;
		if (d.temperature_margin_celsius == null && t != null && max != null)
			put(c, words(max - t));
		else
			figure(c, d, "temperature_margin_celsius", words);
		c.classList.toggle("alarm", isHot(d));
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

// Shows the cost over the last seconds. Until there are two answers to compare, shows the cost since the start.
function selfTiles() {
	const s = model.self, show = (v, fn) => (v == null ? f.DASH : fn(v)), recent = rate("cpu_seconds") !== null;
	const cpu = recent ? rate("cpu_seconds") : s.cpu_mean_ratio ?? null, span = recent ? "in the last seconds" : "since it started";
	const wake = recent ? rate("wakeups") : s.uptime_seconds > 0 ? s.wakeups / s.uptime_seconds : null;
	return [
		["CPU", show(cpu, (v) => `${(v * 100).toFixed(v < 0.1 ? 2 : 1)} %`), `of one core, ${span}`],
		["Memory", show(s.rss_bytes, f.bytes), "resident"],
		["Wake-ups", show(wake, (v) => `${v.toFixed(1)} /s`), `rounds of the main loop, ${span}`],
		["Reading", show(s.tick_seconds, f.seconds), "how long the last reading of all GPUs took"],
		["Missed", show(s.ticks_missed, String), "readings that were skipped"],
	];
}

function drawSelf() {
	const place = $("self");
	selfTiles().forEach(([name, value, why], i) => {
		if (!place.children[i])
			place.append(el("div", {}, el("dt", { textContent: name }), el("dd")));
		place.children[i].title = why;
		put(place.children[i].lastChild, value);
	});
}

const SEVERITY = { info: ["info", "calm"], warning: ["warning", "warn"], error: ["error", "bad"] };

function drawEvents() {
	const list = $("events"), have = new Map([...list.children].map((li) => [li.dataset.id, li]));
	const shown = model.events.slice(0, 60);
	$("events-empty").hidden = shown.length > 0;
	list.replaceChildren(...shown.map((e) => have.get(String(e.id)) || eventItem(e)));
}

function eventItem(e) {
	const [word, tone] = SEVERITY[e.severity] || [f.words(e.severity), "calm"], t = Date.parse(e.time_utc), gpu = e.uuid && gpuOf(e.uuid);
	const li = el("li", {}, el("time", { dateTime: e.time_utc, textContent: f.when(t), title: new Date(t).toLocaleString() }),
		el("span", { className: `badge ${tone}`, textContent: word }),
		el("span", {}, gpu && !/^GPU \d/.test(e.text) ? el("b", { textContent: `GPU ${gpu.index} ` }) : "", named(e.text)));
	li.dataset.id = e.id;
	return li;
}

// The table of workloads is loaded only on machines that have workloads.
let workloads = null, loading = null;

const load = () => (loading ||= import("./workloads.js").then((m) => { workloads = m.workloads(); }));

function drawWorkloads() {
	if (model.tick?.workloads?.some((w) => w.kind !== "none"))
		load();
	workloads?.();
}

// Ended workloads are also a reason to show the table.
async function findEnded() {
	if ((await ask("workloads/history?limit=1")).workloads.length)
		load();
}

export function panels() {
	const tables = { processes: processes(), health: health(), calls: calls() };
	let asked = false;

	$("health-all").addEventListener("click", () => {
		everyone = !everyone;
		drawHealth(tables.health);
	});
	const drawCalls = () => model.self && tables.calls.draw((model.self.calls || []).filter((c) => c.count));
	const shut = $("calls").closest("details");
	shut.addEventListener("toggle", drawCalls);
	return {
		tick() {
			if (!document.hidden)
				tables.processes.draw(model.processes, true);
			drawWorkloads();
		},
		snapshot() {
			const shown = drawProcesses(tables.processes), why = whyBlind() && "Unknown: no GPU can be read.";
			put($("process-count"), shown ? String(shown) : "");
			put(tables.processes.empty, why || "No process is on a GPU.");
			put(tables.health.empty, why || "There is no GPU.");
			drawHealth(tables.health);
			if (!asked)
				findEnded().catch(() => {});
			asked = true;
		},
		events: drawEvents,
		self() {
			drawSelf();
			if (shut.open)
				drawCalls();
		},
	};
}
