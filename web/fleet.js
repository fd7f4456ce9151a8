// fleet: shows all machines, from the Prometheus that the service queries. Loaded only if a
// Prometheus is configured. Sends requests only while its tab is shown.
import { ask } from "./data.js";
import * as f from "./format.js";
import { Table } from "./table.js";
import { $, el, put, unknown } from "./rows.js";

const EVERY = 10000, OLD = 30, NODES_SHOWN = 250;

const nodeName = (n) => [n.cluster, n.node].filter(Boolean).join("/") || "(no instance)";
const power = (v) => (v >= 10000 ? `${(v / 1000).toFixed(1)} kW` : f.watts(v));
const show = (c, v, how) => (v == null ? unknown(c, "no_data") : (delete c.dataset.unknown, c.removeAttribute("title"), put(c, how(v))));
const column = (name, key, how, more = {}) => ({ name, num: true, sort: (x) => x[key], fill: (c, x) => show(c, x[key], how), ...more });
const STATES = { ok: "good", ahead: "warn" };

const nodes = () => new Table("fleet-nodes", [
	{ name: "Node", wrap: true, lead: true, sort: nodeName, fill: (c, n) => put(c, nodeName(n)) },
	{ name: "State", sort: (n) => (n.state === "ok" ? 1 : 0), fill: (c, n) => {
		if (c.firstChild?.textContent !== n.state)
			c.replaceChildren(el("span", { className: `badge ${STATES[n.state] || "bad"}`, textContent: n.state }));
	} },
	{ name: "GPUs", num: true, sort: (n) => n.gpus, fill: (c, n) => {
		show(c, n.gpus, (v) => (n.gpus_down ? `${n.gpus_up} of ${v}` : String(v)));
		c.classList.toggle("alarm", n.gpus_down > 0);
	} },
	column("Power", "power_watts", power),
	{ ...column("Energy", "energy_joules", f.wattHours, { first: true }), fill: (c, n) => {
		show(c, n.energy_joules, f.wattHours);
		c.title = n.energy_problem ? `Energy not shown: ${n.energy_problem}` : n.energy_joules == null ? c.title : f.joules(n.energy_joules);
	} },
	column("Utilisation", "utilization_ratio", f.percent, { title: "Mean of the last 5 minutes" }),
	{ name: "Memory", num: true, sort: (n) => n.memory_used_bytes, fill: (c, n) =>
		show(c, n.memory_used_bytes, (v) => `${f.gib(v)} of ${f.gib(n.memory_total_bytes)} GiB`) },
	{ name: "Idle, held", num: true, title: "GPUs with memory that processes hold and did not use in the last 30 minutes", sort: (n) => n.idle_held_gpus,
		fill: (c, n) => show(c, n.idle_held_gpus, (v) => (v ? `${v}, ${power(n.idle_held_watts ?? 0)}` : "0")) },
	column("Age", "age_seconds", (v) => f.span(Math.max(0, v)), { title: "Age of the last reading, by the clock of Prometheus" }),
], nodeName, "No node matches.");

const REST = { idle: "GPUs without a process", unattributed: "no process can be charged" };
const workloadName = (w) => (w.name ? [w.namespace, w.name].filter(Boolean).join("/") : REST[w.kind] || "no workload");
const workloads = () => new Table("fleet-workloads", [
	{ name: "Workload", wrap: true, lead: true, sort: workloadName, fill: (c, w) => {
		put(c, workloadName(w));
		c.classList.toggle("none", !w.name);
	} },
	{ name: "Kind", sort: (w) => w.kind, fill: (c, w) => put(c, w.kind) },
	column("Energy", "energy_joules", f.wattHours, { first: true }),
	column("Share", "share_ratio", f.percent, { title: "Share of the energy of all workloads, including idle and unattributed energy" }),
], (w) => JSON.stringify([w.kind, w.namespace, w.name]), "Prometheus has no samples of gpuward_workload_energy_joules_total in this range.");

const models = () => new Table("fleet-models", [
	{ name: "Model", wrap: true, lead: true, sort: (m) => m.model, fill: (c, m) => put(c, m.model || "(no model)") },
	column("Energy", "energy_joules", f.wattHours, { first: true }),
	column("Generated", "tokens_generated", (v) => f.si(v, "").trim(), { title: "Generated tokens" }),
	column("J per token", "joules_per_token", (v) => f.figures(v), { title: "Joules per generated token" }),
], (m) => m.model, "Prometheus has samples of neither gpuward_model_energy_joules_total nor gpuward_model_tokens_total in this range.");

const places = () => new Table("fleet-places", [
	{ name: "Node", wrap: true, lead: true, fill: (c, p) => put(c, nodeName(p)) },
	{ name: "GPUs to use", fill: (c, p) => {
		put(c, p.gpus.map((g) => g.gpu).join(", "));
		c.title = p.gpus.map((g) => g.uuid).join(" ");
	} },
	{ name: "Available", num: true, fill: (c, p) => put(c, f.bytes(Math.min(...p.gpus.map((g) => g.available_bytes)))) },
	{ name: "With room", num: true, title: "GPUs of the node with enough memory", fill: (c, p) => put(c, String(p.gpus_with_room)) },
], (p) => nodeName(p), "No node has this much available memory.");

function attentionRow(a) {
	const where = nodeName(a) + (a.uuid ? ` GPU ${a.gpu ?? a.uuid}` : "");
	const more = [a.state, a.more_reasons ? `${a.more_reasons} more` : "", a.age_seconds > 120 ? `last reading ${f.span(a.age_seconds)} ago` :
		a.age_seconds < 0 ? `${f.span(-a.age_seconds)}` : ""].filter(Boolean).join(", ");
	return el("li", { title: a.uuid || "" }, el("b", { textContent: where }), ` ${a.what}${more ? ` (${more})` : ""}. `,
		el("span", { className: "note", textContent: f.sentences(a.remedy) }));
}

const rangeName = (s) => (s === 86400 ? "the last day" : `the last ${f.span(s)}`);
const parted = (n, down, word) => `${n ?? f.DASH}${down ? ` (${down} ${word})` : ""}`;

class Fleet {
	constructor() {
		this.nodes = nodes();
		this.workloads = workloads();
		this.models = models();
		this.places = places();
		this.doc = null;
		this.asked = -Infinity;
		$("fleet-filter").addEventListener("input", () => this.drawNodes());
		$("fleet-fit").addEventListener("submit", (e) => {
			e.preventDefault();
			this.refresh(true);
		});
	}

	// Requests the fleet, unless the tab is hidden or another request is running.
	async refresh(now = false) {
		if ($("fleet").hidden || document.hidden || this.waiting || (!now && performance.now() - this.asked < EVERY))
			return;
		const size = Number($("fleet-size").value), q = new URLSearchParams({ top: 100 });
		if (size > 0) {
			q.set("fits", `${size}GiB`);
			q.set("gpus", Math.max(1, Number($("fleet-gpus").value) || 1));
		}
		this.asked = performance.now();
		this.waiting = true;
		try {
			this.doc = await ask(`fleet?${q}`);
			this.got = performance.now();
			this.failed = "";
		} catch (e) {
			this.failed = e.message;
		} finally {
			this.waiting = false;
		}
		this.draw();
	}

	draw() {
		this.drawState();
		const d = this.doc;
		$("fleet-body").hidden = !d;
		if (!d)
			return;
		this.drawTotals(d);
		$("fleet-attention").replaceChildren(...d.attention.map(attentionRow));
		put($("fleet-well"), d.attention_more ? "Further rows are not shown." : "Nothing.");
		$("fleet-well").hidden = d.attention.length > 0 && !d.attention_more;
		this.drawNodes();
		this.workloads.draw(d.workloads);
		this.models.draw(d.models);
		$("fleet-places").closest(".scroll").hidden = !d.fits;
		if (d.fits)
			this.places.draw(d.fits.places);
		put($("fleet-fit-note"), d.fits ? `${d.fits.nodes} node${d.fits.nodes === 1 ? "" : "s"}` : "");
		$("fleet-remarks").replaceChildren(...d.remarks.map((r) => el("li", { textContent: r })),
			...d.problems.map((p) => el("li", { textContent: `Unknown: ${p.query.replaceAll("_", " ")}: ${p.detail}` })));
	}

	// Shows the age of the figures, and a note if they are old.
	drawState() {
		const d = this.doc, old = d ? d.age_seconds + (performance.now() - this.got) / 1000 : 0;
		const why = this.failed || d?.error || "";
		$("fleet").classList.toggle("old", Boolean(d) && (Boolean(why) || old > OLD));
		$("fleet-error").hidden = !why;
		put($("fleet-error"), why ? f.sentences(why, d ? `These figures are ${f.span(old)} old` : "") : "");
		put($("fleet-age"), d ? `${d.prometheus}, ${f.span(Math.round(old))} old` : why ? "" : "Asking Prometheus …");
		$("fleet-simulated").hidden = !d?.simulated;
		put($("fleet-simulated"), d?.gpus_real ? "Some of these GPUs are simulated: their values are not real" : "SIMULATED GPUs: no value is real");
	}

	drawTotals(d) {
		const t = d.total;
		const states = [[t.nodes_down - t.nodes_gone - t.nodes_stale, "down"], [t.nodes_gone, "gone"], [t.nodes_stale, "stale"]];
		const bad = states.filter(([n]) => n).map(([n, word]) => `${n} ${word}`).join(", ");
		put($("fleet-total-nodes"), `${t.nodes}${bad ? ` (${bad})` : ""}`);
		$("fleet-total-nodes").classList.toggle("alarm", t.nodes_down > 0);
		put($("fleet-total-gpus"), parted(t.gpus, t.gpus_down, "down"));
		$("fleet-total-gpus").classList.toggle("alarm", t.gpus_down > 0);
		show($("fleet-total-power"), t.power_watts, (v) => `${t.power_nodes < t.nodes ? "at least " : ""}${power(v)}`);
		show($("fleet-total-energy"), t.energy_joules, f.wattHours);
		put($("fleet-range"), ` in ${rangeName(d.range_seconds)}`);
		show($("fleet-total-use"), t.utilization_ratio, f.percent);
		show($("fleet-total-memory"), t.memory_used_bytes, (v) => `${f.bytes(v)} of ${f.bytes(t.memory_total_bytes)}`);
		show($("fleet-total-idle"), t.idle_held_gpus, (v) => (v ? `${v} GPU${v === 1 ? "" : "s"}, ${power(t.idle_held_watts ?? 0)}` : "none"));
	}

	drawNodes() {
		const words = $("fleet-filter").value.toLowerCase().split(/\s+/).filter(Boolean), all = this.doc?.nodes || [];
		const match = all.filter((n) => words.every((w) => `${nodeName(n)} ${n.state}`.toLowerCase().includes(w)));
		const listed = this.nodes.order(match).slice(0, NODES_SHOWN);
		this.nodes.draw(listed);
		put($("fleet-node-count"), listed.length < all.length ? `${listed.length} of ${all.length} shown` : String(all.length));
	}
}

// Shows the tab, and the fleet if the address asks for it.
export function fleet() {
	const page = new Fleet();
	function choose() {
		const on = location.hash === "#fleet";
		$("fleet").hidden = !on;
		$("machine").hidden = on;
		for (const a of $("tabs").children)
			(a.hash === "#fleet") === on ? a.setAttribute("aria-current", "page") : a.removeAttribute("aria-current");
		if (on)
			page.refresh();
		else
			dispatchEvent(new Event("resize")); // Draws the charts again: a chart that was hidden was not drawn.
	}
	$("tabs").hidden = false;
	addEventListener("hashchange", choose);
	document.addEventListener("visibilitychange", () => page.refresh());
	setInterval(() => {
		page.refresh();
		if (!$("fleet").hidden)
			page.drawState();
	}, 1000);
	choose();
}
