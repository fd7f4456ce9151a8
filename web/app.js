// app: puts the parts together.  Header, totals, keyboard, theme, dialogs.
import { age, model, on, ranges, start, token } from "./data.js";
import { Detail } from "./detail.js";
import * as f from "./format.js";
import { panels } from "./panels.js";
import { ailments, drawRows, figure, put, rows, unknown } from "./rows.js";
import { packages } from "./words.js";

const $ = (id) => document.getElementById(id);
const STATES = {
	connecting: "Connecting", live: "Live", reconnecting: "Reconnecting", stale: "Stale", hangs: "Driver hangs", "let-go": "Drivers let go", "not-ready": "Not ready",
};
let range = Math.min(Number(localStorage.getItem("range")) || 0, ranges.length - 1);

// ---- rows and their details

function toggle(r, open = !r.open) {
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
}

const details = () => [...rows.values()].map((r) => r.detail).filter(Boolean);

function setRange(i) {
	range = i;
	localStorage.setItem("range", i);
	details().forEach((d) => d.setRange(i));
}

function draw() {
	if (document.hidden)
		return;
	const first = rows.size === 0;
	drawRows($("rows"), toggle);
	if (first && rows.size === 1)
		toggle([...rows.values()][0], true);
	$("empty").hidden = rows.size > 0;
	if (!rows.size && model.snapshot)
		put($("empty"), missing(model.snapshot.source));
	drawTotals();
}

function missing(source) {
	const parts = [source?.message || "This machine has no GPU that gpuward can see.", source?.remedy];
	return parts.filter(Boolean).map((s) => `${s[0].toUpperCase()}${s.slice(1)}`.replace(/[^.]$/, "$&.")).join(" ");
}

// ---- header

const sum = (key) => model.devices.reduce((s, d) => (d[key] == null ? s : (s ?? 0) + d[key]), null);

function total(id, value, missing) {
	if (value === null)
		unknown($(id), missing);
	else {
		put($(id), value);
		$(id).removeAttribute("title");
	}
}

function drawTotals() {
	const power = sum("power_watts"), limit = sum("power_limit_watts"), used = sum("memory_used_bytes"), all = sum("memory_total_bytes");
	const energy = sum("energy_joules_total") ?? sum("energy_joules"), down = model.devices.filter((d) => d.state !== "ok" || ailments(d).length).length;
	put($("total-gpus"), `${model.devices.length}${down ? ` (${down} not ok)` : ""}`);
	$("total-gpus").classList.toggle("alarm", down > 0);
	total("total-power", power === null ? null : `${power.toFixed(0)} W${limit ? ` of ${limit.toFixed(0)}` : ""}`, "no_data");
	total("total-energy", energy === null ? null : f.joules(energy), "no_data");
	if (energy !== null)
		$("total-energy").title = f.wattHours(energy);
	total("total-memory", used === null ? null : `${f.gib(used)} of ${f.gib(all ?? 0)} GiB`, "no_data");
	const h = model.host;
	if (!h)
		return;
	const host = { absent: {}, ...h };
	figure($("total-cpu"), host, "cpu_utilization_ratio", f.percent);
	figure($("total-ram"), host, "ram_used_bytes", (v) => `${f.gib(v)} of ${f.gib(h.ram_total_bytes ?? 0)} GiB`);
}

function drawLink() {
	const { state, why } = model.link, said = $("status").dataset.state;
	$("status").dataset.state = state;
	put($("status-word"), STATES[state]);
	put($("host"), model.hostname);
	document.title = `${state === "live" || state === "connecting" ? "" : `${STATES[state]}: `}${model.hostname || "gpuward"} · gpuward`;
	document.body.classList.toggle("old", state === "reconnecting" || state === "stale");
	// Where there is no GPU the place of the rows says why.
	$("problem").hidden = !why || (state === "not-ready" && !rows.size);
	$("problem").dataset.state = state;
	put($("problem"), why);
	if (said !== state)
		put($("announce"), `${STATES[state]}. ${why}`);
	drawAge();
}

function drawAge() {
	const a = age();
	put($("status-age"), Number.isFinite(a) ? (a < 1500 ? "now" : `${f.span(a / 1000)} old`) : "");
}

function drawSource() {
	const s = model.snapshot?.source, simulated = s?.simulated || model.devices.some((d) => /^simulat/.test(d.provenance || ""));
	$("simulated").hidden = !simulated;
	put($("source"), s ? [s.driver_version && `driver ${s.driver_version}`, s.cuda_driver_version && `CUDA ${s.cuda_driver_version}`,
		s.nvml_version && `NVML ${s.nvml_version}`].filter(Boolean).join(" · ") : "");
}

// ---- theme

function theme() {
	const kept = localStorage.getItem("theme");
	return kept || (matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark");
}

function applyTheme() {
	document.documentElement.dataset.theme = theme();
	$("theme-button").setAttribute("aria-label", `Theme: ${theme()}. Change`);
	details().forEach((d) => d.remake());
	draw();
}

function flipTheme() {
	localStorage.setItem("theme", theme() === "dark" ? "light" : "dark");
	applyTheme();
}

// ---- dialogs

// Resolves to whether there is a token to try now.
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
// Enter in the field keeps the token: the first button of the form is the one that it presses.
$("token-button").addEventListener("click", () => needToken("Reading needs none. Changes, such as starting an energy window, need the token of the service where it has one."));
$("help-button").addEventListener("click", () => $("help").showModal());
$("theme-button").addEventListener("click", flipTheme);

// ---- keyboard

function move(by) {
	const list = [...rows.values()].map((r) => r.button), at = list.indexOf(document.activeElement);
	const next = at < 0 ? (by > 0 ? 0 : list.length - 1) : Math.max(0, Math.min(list.length - 1, at + by));
	list[next]?.focus();
}

function search() {
	const figures = details()[0]?.figures;
	if (figures) {
		figures.box.open = true;
		figures.search.focus();
	}
}

const KEYS = {
	j: () => move(1), k: () => move(-1), t: flipTheme, "?": () => $("help").showModal(), "/": search,
};

addEventListener("keydown", (e) => {
	const typing = e.target.closest?.("input, select, textarea, dialog"), onRow = e.target.closest?.(".opener");
	if (e.ctrlKey || e.metaKey || e.altKey)
		return;
	if (e.key === "Escape" && e.target.matches?.("input[type=search]"))
		e.target.blur();
	if (typing)
		return;
	const n = Number(e.key);
	const act = n >= 1 && n <= ranges.length ? () => setRange(n - 1) : KEYS[e.key] ||
		(onRow && { ArrowDown: KEYS.j, ArrowUp: KEYS.k }[e.key]);
	if (act) {
		e.preventDefault();
		act();
	}
});

// ---- start

const lists = panels(needToken);
on("tick", () => {
	draw();
	details().forEach((d) => d.tick());
	drawAge();
});
on("snapshot", () => {
	draw();
	drawSource();
	lists.snapshot();
});
on("gap", () => details().forEach((d) => d.load()));
on("link", drawLink);
on("events", lists.events);
on("windows", lists.windows);
on("self", lists.self);
matchMedia("(prefers-color-scheme: light)").addEventListener("change", applyTheme);
addEventListener("resize", draw);
document.addEventListener("visibilitychange", () => {
	draw();
	lists.events();
});
setInterval(drawAge, 1000);
$("licences").hidden = !packages.charts;
applyTheme();
start();
