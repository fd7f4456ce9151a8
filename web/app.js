// app: connects the parts of the page: header, totals, order of the rows, keyboard, theme, dialogs.
import { age, ask, MANY, model, on, retryNow, start, token, whyBlind } from "./data.js";
import { Detail } from "./detail.js";
import * as f from "./format.js";
import { panels } from "./panels.js";
import { enterRange, fromAddress, named, preset, toAddress } from "./range.js";
import { $, arrange, drawRows, el, figure, needsCare, put, restyle, rows, since, sortBy, unknown, wanted } from "./rows.js";
import { windows } from "./windows.js";
import { packages } from "./words.js";

const STATES = {
	connecting: "Connecting", live: "Live", reconnecting: "Reconnecting", stale: "Stale", hangs: "Driver hangs", "let-go": "Drivers released", "not-ready": "Not ready",
};
const OPEN_FROM_START = 4; // With at most this many GPUs, the charts of the first GPU are open at first.
let range = named(localStorage.getItem("range")) || preset(0);

function toggle(r, open = !r.open, kept = true) {
	if (r.open === open)
		return;
	r.open = open;
	r.button.setAttribute("aria-expanded", String(open));
	r.detailRow.hidden = !open;
	r.tr.classList.toggle("open", open);
	if (open) {
		r.detail = new Detail(r, range);
		r.detail.onrange = setRange;
	} else {
		r.detail.close();
		r.detail = null;
	}
	if (kept)
		keepView();
}

const details = () => [...rows.values()].map((r) => r.detail).filter(Boolean);

function setRange(r) {
	range = r;
	details().forEach((d) => d.setRange(r));
	compare?.setRange(r);
	keepView();
}

// The view is stored for the next visit, and is part of the address so that it can be shared.
function keepView() {
	const open = [...rows.values()].filter((r) => r.open);
	if (range.begin == null)
		localStorage.setItem("range", range.name);
	localStorage.setItem("open", open.map((r) => r.key).join());
	const gpus = open.map((r) => r.device.index).sort((a, b) => a - b).join();
	history.replaceState(null, "", `#gpu=${gpus}&${toAddress(range)}${compare?.open ? `&chart=${compare.quantity}` : ""}`);
}

// Returns { gpus, range, chart } from the address of the page. A member is null if the address does not have it.
function asked() {
	const q = new URLSearchParams(location.hash.slice(1)), gpus = q.get("gpu");
	return { gpus: gpus === null ? null : gpus.split(",").filter(Boolean), range: fromAddress(q), chart: q.get("chart") };
}

function isAsked(r, gpus) {
	return gpus.some((g) => g === String(r.device.index) || (g.length > 4 && r.device.uuid?.startsWith(g)));
}

function openFirst() {
	const { gpus } = asked(), kept = localStorage.getItem("open")?.split(","), all = [...rows.values()];
	const want = gpus ? (r) => isAsked(r, gpus) : kept ? (r) => kept.includes(r.key) : (r) => all.length <= OPEN_FROM_START && r === all[0];
	all.filter(want).forEach((r) => toggle(r, true, false));
}

addEventListener("hashchange", () => {
	const view = asked();
	if (view.range && toAddress(view.range) !== toAddress(range))
		setRange(view.range);
	if (view.gpus)
		rows.forEach((r) => toggle(r, isAsked(r, view.gpus), false));
	if (view.chart)
		openCompare(true, view.chart, false);
});

// The chart of all GPUs is loaded when the user opens it.
let compare = null, wantsCompare = false;

async function openCompare(open = !compare?.open, quantity = localStorage.getItem("chart"), kept = true) {
	if (model.devices.length < 2 || (!compare && !open))
		return;
	wantsCompare = open;
	if (!compare) {
		const { Compare } = await import("./compare.js");
		compare ||= new Compare(range, setRange, keepView);
	}
	compare.show(wantsCompare, quantity);
	$("compare-button").setAttribute("aria-expanded", String(wantsCompare));
	if (!kept)
		return;
	localStorage.setItem("compare", wantsCompare ? "1" : "");
	keepView();
}
$("compare-button").addEventListener("click", () => openCompare());

function sortRows() {
	const shown = arrange($("rows")), all = rows.size;
	$("choice").hidden = all <= MANY;
	put($("filter-count"), shown < all ? `${shown} of ${all} shown` : "");
	$("none-match").hidden = shown > 0 || !all;
	for (const th of document.querySelectorAll("[data-sort]"))
		th.setAttribute("aria-sort", th.dataset.sort !== wanted.by ? "none" : wanted.down ? "descending" : "ascending");
	restyle();
}

for (const th of document.querySelectorAll("[data-sort]")) {
	const button = el("button", { type: "button", textContent: th.textContent, onclick: () => {
		sortBy(th.dataset.sort);
		sortRows();
	} });
	th.replaceChildren(button);
}
$("filter").addEventListener("input", () => {
	wanted.words = $("filter").value;
	sortRows();
});
$("attention").addEventListener("change", () => {
	wanted.attention = $("attention").checked;
	localStorage.setItem("attention", wanted.attention ? "1" : "0");
	sortRows();
});
$("attention").checked = wanted.attention = localStorage.getItem("attention") !== "0";

// Rows are not sorted while the user points at them, so that they do not move away.
const busy = () => $("rows").matches(":hover, :focus-within");

function draw(all = false) {
	if (document.hidden)
		return;
	const first = rows.size === 0;
	if (drawRows($("rows"), toggle, all))
		sortRows();
	if (first && rows.size) {
		openFirst();
		const { chart } = asked();
		if (chart || localStorage.getItem("compare"))
			openCompare(true, chart || undefined, false);
	}
	$("compare-button").hidden = rows.size < 2;
	$("empty").hidden = rows.size > 0;
	if (!rows.size && model.snapshot)
		put($("empty"), f.sentences(model.snapshot.source?.message || "This machine has no GPU that gpuward can see", model.snapshot.source?.remedy));
	drawTotals();
}

// Returns the sum over all GPUs, and in `lacking` the number of GPUs with an unknown value. Returns null if all are unknown.
function sum(key) {
	const known = model.devices.map((d) => d[key]).filter((v) => v != null);
	return known.length ? { value: known.reduce((a, b) => a + b, 0), lacking: model.devices.length - known.length } : null;
}

// Returns the function that formats power and limit, so that both have the unit of the larger value.
const powers = (of) => (of?.value >= 10000 ? (v) => `${(v / 1000).toFixed(1)} kW` : f.watts);

function total(id, s, show, of, title = "") {
	const place = $(id);
	if (!s)
		return unknown(place, "no_data");
	const whole = s.lacking === 0, rest = whole && of && of.lacking === 0 ? ` of ${show(of.value, true)}` : "";
	const text = `${whole ? "" : "at least "}${show(s.value, !rest)}${rest}`, lack = whole ? "" : ` (${s.lacking} GPU${s.lacking > 1 ? "s" : ""} unknown)`;
	if (place.dataset.unknown || place.textContent !== text + lack) {
		delete place.dataset.unknown;
		place.replaceChildren(text, ...(lack ? [el("small", { textContent: lack })] : []));
	}
	if (place.title !== title)
		place.title = title;
}

const TOTALS = ["gpus", "power", "energy", "memory", "cpu", "ram"];

// The sum covers the time since the energy of the first GPU was counted.
function drawSince() {
	const list = [...model.since.values()];
	since($("energy-since"), list.length ? Math.min(...list) : null);
}

// Without an answer from a driver, the number of GPUs is unknown.
function drawCount(down) {
	const n = model.devices.length, place = $("total-gpus");
	const why = whyBlind() || (n || model.snapshot ? "" : "nothing was read yet"); // A tick can arrive before the snapshot.
	if (why)
		return unknown(place, why);
	delete place.dataset.unknown;
	place.removeAttribute("title");
	put(place, `${n}${down ? ` (${down} not ok)` : ""}`);
}

function drawTotals() {
	if (!model.snapshot && !model.tick)
		return TOTALS.forEach((t) => unknown($(`total-${t}`), "nothing was read yet"));
	const power = sum("power_watts"), limit = sum("power_limit_watts"), energy = sum("energy_joules_total") ?? sum("energy_joules"), down = model.devices.filter(needsCare).length;
	drawCount(down);
	$("total-gpus").classList.toggle("alarm", down > 0);
	total("total-power", power, powers(limit ?? power), limit);
	total("total-energy", energy, f.joules, null, energy ? `${f.wattHours(energy.value)}, including the time before restarts of the service` : "");
	drawSince();
	put($("total-cost"), f.cost(energy?.value, model.self?.energy_cost));
	total("total-memory", sum("memory_used_bytes"), (v, unit) => `${f.gib(v)}${unit ? " GiB" : ""}`, sum("memory_total_bytes"));
	const h = model.host;
	if (!h)
		return;
	const host = { absent: {}, ...h };
	figure($("total-cpu"), host, "cpu_utilization_ratio", f.percent);
	figure($("total-ram"), host, "ram_used_bytes", (v) => (h.ram_total_bytes == null ? `${f.gib(v)} GiB` : `${f.gib(v)} of ${f.gib(h.ram_total_bytes)} GiB`));
}

function drawLink() {
	const { state, why } = model.link, said = $("status").dataset.state;
	$("status").dataset.state = state;
	put($("status-word"), STATES[state]);
	put($("host"), model.hostname);
	document.title = `${state === "live" || state === "connecting" ? "" : `${STATES[state]}: `}${model.hostname || "gpuward"} · gpuward`;
	document.body.classList.toggle("old", state === "reconnecting" || state === "stale");
	// Without a GPU, the empty table says why.
	$("problem").hidden = !why || (state === "not-ready" && !rows.size);
	$("problem").dataset.state = state;
	put($("problem-text"), why);
	$("retry").hidden = state !== "reconnecting";
	if (said !== state)
		put($("announce"), `${STATES[state]}. ${why}`);
	drawAge();
}

function drawAge() {
	const a = age();
	put($("status-age"), Number.isFinite(a) ? (a < 1500 ? "now" : `${f.span(a / 1000)} old`) : "");
}

// Shows why the service cannot store its history.
function drawStore() {
	const state = model.self?.store?.state, ok = !state || state === "ok";
	$("store").hidden = ok;
	put($("store"), ok ? "" : `History is not stored: ${f.sentences(state)}`);
}

function drawSource() {
	const s = model.snapshot?.source, simulated = s?.simulated || model.devices.some((d) => /^simulat/.test(d.provenance || ""));
	$("simulated").hidden = !simulated;
	put($("source"), s ? [s.driver_version && `driver ${s.driver_version}`, s.cuda_driver_version && `CUDA ${s.cuda_driver_version}`,
		s.nvml_version && `NVML ${s.nvml_version}`].filter(Boolean).join(" · ") : "");
}

const theme = () => localStorage.getItem("theme") || (matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark");

function applyTheme() {
	document.documentElement.dataset.theme = theme();
	$("theme-button").setAttribute("aria-label", `Theme: ${theme()}. Change`);
	restyle();
	details().forEach((d) => d.remake());
	compare?.remake();
	draw(true);
}

function flipTheme() {
	localStorage.setItem("theme", theme() === "dark" ? "light" : "dark");
	applyTheme();
}

// Asks for the token. Resolves to true if the user pressed Store, so that the request can be sent again.
function needToken(why) {
	put($("token-why"), why);
	$("token").returnValue = "";
	$("token-input").value = token.get();
	$("token").showModal();
	return new Promise((done) => {
		$("token").addEventListener("close", () => done($("token").returnValue === "keep"), { once: true });
	});
}

$("token").addEventListener("close", () => {
	const said = $("token").returnValue;
	if (said === "keep")
		token.set($("token-input").value.trim());
	if (said === "forget")
		token.set("");
	$("token-input").value = "";
	$("token-button").classList.toggle("set", Boolean(token.get()));
});
// The first button of the form stores the token, because the key Enter presses the first button.
$("token-button").addEventListener("click", () => needToken("Reading needs no token. If the service has a token, it is needed for changes, such as starting " +
	"an energy window. Enter the content of the token file of the service."));
$("retry").addEventListener("click", retryNow);
$("help-button").addEventListener("click", () => $("help").showModal());
$("theme-button").addEventListener("click", flipTheme);
const alerts = () => import("./alerts.js");
$("alerts-button").addEventListener("click", () => alerts().then((m) => m.openAlerts()));
if (localStorage.getItem("alerts"))
	alerts();

function move(by) {
	const list = [...$("rows").querySelectorAll("tr:not([hidden]) > th > .opener")], at = list.indexOf(document.activeElement);
	const next = at < 0 ? (by > 0 ? 0 : list.length - 1) : Math.max(0, Math.min(list.length - 1, at + by));
	list[next]?.focus();
}

function search() {
	const figures = details()[0]?.figures;
	if (!$("choice").hidden && !figures)
		$("filter").focus();
	else if (figures) {
		figures.box.open = true;
		figures.search.focus();
	}
}

const KEYS = {
	j: () => move(1), k: () => move(-1), t: flipTheme, r: () => enterRange(range, setRange), c: () => openCompare(), "?": () => $("help").showModal(), "/": search,
};

addEventListener("keydown", (e) => {
	const typing = e.target.closest?.("input, select, textarea, dialog"), onRow = e.target.closest?.(".opener");
	if (e.ctrlKey || e.metaKey || e.altKey)
		return;
	if (e.key === "Escape" && e.target.matches?.("input[type=search]"))
		e.target.blur();
	if (typing)
		return;
	const chosen = preset(Number(e.key) - 1), act = chosen ? () => setRange(chosen) : KEYS[e.key] ||
		(onRow && { ArrowDown: KEYS.j, ArrowUp: KEYS.k }[e.key]);
	if (act) {
		e.preventDefault();
		act();
	}
});

const lists = panels(), energy = windows(needToken);
on("tick", () => {
	draw();
	details().forEach((d) => d.tick());
	compare?.tick();
	lists.tick();
	if (!document.hidden)
		energy.tick();
	drawAge();
});
on("snapshot", () => {
	draw();
	if (!busy())
		sortRows();
	drawSource();
	lists.snapshot();
	energy.chooseGpus();
});
// The panel of the guard is loaded only if the service has workers or reservations.
let guard;
on("snapshot", async () => {
	const g = guard || await ask("guard").catch(() => {});
	if (guard || !(g?.workers.length || g?.reservations.length))
		return;
	guard = Promise.all([import("./guard.js"), import("./models.js")]).then(([m, { showModels }]) => {
		showModels();
		return m.guard(needToken);
	}, () => guard = null);
});
// The tab Fleet is loaded only if a Prometheus is configured in the service.
let fleet;
on("self", () => {
	if (model.self?.fleet)
		fleet ||= import("./fleet.js").then((m) => m.fleet(), () => fleet = null);
});
on("gap", () => {
	draw(true);
	details().forEach((d) => d.load());
	compare?.load();
});
on("link", drawLink);
on("events", lists.events);
on("windows", energy.draw);
on("self", () => {
	lists.self();
	drawStore();
});
matchMedia("(prefers-color-scheme: light)").addEventListener("change", applyTheme);
addEventListener("resize", () => {
	restyle();
	draw(true);
});
document.addEventListener("visibilitychange", () => {
	draw();
	lists.events();
});
setInterval(drawAge, 1000);
$("licences").hidden = !packages.charts;
range = asked().range || range;
applyTheme();
start();
