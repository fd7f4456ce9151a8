// workloads: shows the pods, jobs, containers, units and sessions on the GPUs with their
// energy, and those that ended.
import { ask, model } from "./data.js";
import * as f from "./format.js";
import { Table, text } from "./table.js";
import { $, figure, put } from "./rows.js";

const EVERY = 5000, ENDED_SHOWN = 200;

const METHODS = {
	measured: "measured: no other workload was on the GPU",
	modelled: "divided among the workloads on the GPU by SM utilisation",
	"equal-split": "divided in equal parts among the processes on the GPU, because the utilisation is unknown",
};

const keyOf = (w) => `${w.kind} ${w.id} ${w.part} ${w.begin_utc}`;
const nameOf = (w) => [w.namespace, w.name].filter(Boolean).join("/") || "no workload";
const partOf = (w) => (w.part ? ` (${w.part})` : "");
const rates = () => model.self?.energy_cost;

// The lower and the upper limit are certain; the value between them is an estimate.
function fillEnergy(c, w) {
	if (figure(c, w, "energy_joules", f.joules) === null)
		return;
	const shared = w.energy_high_joules > w.energy_joules * 1.001;
	c.title = f.sentences(f.wattHours(w.energy_joules), f.cost(w.energy_joules, rates()),
		METHODS[w.energy_method],
		shared ? `at least ${f.joules(w.energy_low_joules)} and at most ${f.joules(w.energy_high_joules)}` : "");
}

const number = (name, key, show) => ({ name, num: true, sort: (w) => w[key], show: (all) => all.some((w) => w[key] != null),
	fill: (c, w) => figure(c, w, key, show) });
const moment = (name, key, first = false) => ({ name, num: true, first, sort: (w) => Date.parse(w[key]) || null, fill: (c, w) => {
	put(c, w[key] ? f.when(Date.parse(w[key])) : f.DASH);
	c.title = w[key] ? new Date(w[key]).toLocaleString() : "";
} });
const identity = [
	{ name: "Workload", wrap: true, lead: true, sort: nameOf, fill: (c, w) => {
		put(c, nameOf(w) + partOf(w));
		c.title = w.id && w.id !== w.name ? w.id : "";
	} },
	{ name: "Kind", sort: (w) => w.kind, fill: text((w) => w.kind) },
	{ name: "User", show: (all) => all.some((w) => w.user), sort: (w) => w.user, fill: (c, w) => put(c, w.user || "") },
	{ name: "GPUs", sort: (w) => w.devices[0]?.device_index, fill: (c, w) => put(c, w.devices.map((d) => d.device_index).join(", ")) },
];
const energy = (first) => ({ name: "Energy", num: true, first, sort: (w) => w.energy_joules, fill: fillEnergy });
const time = { name: "GPU time", num: true, title: "Time in which the workload had a process on a GPU, summed over the GPUs", sort: (w) => w.gpu_seconds,
	fill: (c, w) => put(c, f.seconds(Math.max(1, Math.round(w.gpu_seconds)))) };

const running = () => new Table("workloads", [
	...identity,
	number("SM", "utilization_sm_ratio", f.percent),
	number("Memory", "memory_bytes", f.bytes),
	number("Power", "power_watts", f.watts),
	energy(true),
	time,
	{ name: "State", sort: (w) => w.state, fill: (c, w) => put(c, w.state === "running" ? "running" : `ended ${f.when(Date.parse(w.end_utc))}`) },
], keyOf, "No workload is on a GPU.");

const ended = () => new Table("workloads-ended", [
	...identity,
	moment("Began", "begin_utc"),
	moment("Ended", "end_utc", true),
	time,
	energy(false),
	number("Mean power", "power_mean_watts", f.watts),
	number("Peak memory", "memory_peak_bytes", f.bytes),
	number("Mean SM", "utilization_sm_mean_ratio", f.percent),
], keyOf, "No workload has ended.");

// Shows where the energy of all GPUs went. The parts add up to the total.
function drawSums(devices) {
	const sum = (key) => devices.reduce((s, d) => s + (d[key] || 0), 0), total = sum("energy_joules_total");
	const share = (key) => f.percent(sum(key) / total);
	put($("workloads-sums"), total ? `Energy of the GPUs, ${f.joules(total)}: listed workloads ${share("workloads_joules")}, workloads that are not listed any more ` +
		`${share("former_joules")}, idle ${share("idle_joules")}, unattributed ${share("unattributed_joules")}, before the accounting began ${share("earlier_joules")}` : "");
}

export function workloads() {
	const section = $("workloads").closest("section"), fold = $("workloads-ended").closest("details");
	const now = running(), past = ended();
	let asked = -Infinity;

	async function refresh() {
		if (document.hidden || performance.now() - asked < EVERY)
			return;
		asked = performance.now();
		const r = await ask("workloads");
		const live = r.workloads.filter((w) => w.kind !== "none" || w.state === "running");
		section.hidden = false;
		put($("workload-count"), String(live.filter((w) => w.state === "running").length || ""));
		now.draw(live);
		drawSums(r.devices);
		if (fold.open)
			await refreshPast();
	}

	async function refreshPast() {
		past.draw((await ask(`workloads/history?limit=${ENDED_SHOWN}`)).workloads);
	}

	fold.addEventListener("toggle", () => fold.open && refreshPast().catch(() => {}));
	return () => refresh().catch(() => {});
}
