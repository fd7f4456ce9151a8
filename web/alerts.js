// alerts: browser notifications about problems that need a person. They are off until the user
// turns them on; this file is loaded when they are on or when their dialog is opened. They appear
// only while the page is open, because the service sends nothing to other hosts.
import { keyOf, model, on } from "./data.js";
import * as f from "./format.js";
import { $, el, put, troubleOf } from "./rows.js";
import { codes } from "./words.js";

const KINDS = {
	lost: "A GPU is lost or does not answer", hot: "A GPU is close to its temperature limit", moved: "A worker left a GPU, came back, or did not leave",
	window: "An energy window ended as suspect or invalid",
};
const HEAT = new Set(["sw_thermal", "hw_thermal"]);
const AGAIN = 300e3; // Milliseconds until the same notification about the same GPU may be shown again.

// The settings are kept in this browser.
const load = () => JSON.parse(localStorage.getItem("alerts") || "null") || { on: false, kinds: Object.keys(KINDS) };
const save = (s) => localStorage.setItem("alerts", JSON.stringify(s));
const granted = () => window.Notification?.permission === "granted";
const active = (kind) => load().on && granted() && load().kinds.includes(kind);

// Returns why this browser cannot show notifications; "": it can.
function obstacle() {
	if (!window.isSecureContext)
		return "The browser shows notifications only for https and for localhost. Open this page with https, or on its own machine as localhost.";
	if (!window.Notification)
		return "This browser has no notifications.";
	return Notification.permission === "denied" ? "This browser blocks notifications of this page. Allow them in the settings of the browser for this site." : "";
}

const shown = new Map(); // For each tag of a notification: the time at which it was shown.

function notify(kind, tag, title, body) {
	if (!active(kind) || performance.now() - (shown.get(tag) ?? -Infinity) < AGAIN)
		return;
	shown.set(tag, performance.now());
	show(tag, title, body);
}

function show(tag, title, body) {
	const simulated = model.tick?.simulated || model.snapshot?.source?.simulated;
	try {
		const n = new Notification(`${simulated ? "Simulated: " : ""}${title}`, { body, tag: `gpuward ${tag}`, icon: "assets/icon.svg" });
		n.onclick = () => {
			window.focus();
			n.close();
		};
	} catch {
		put($("alerts-note"), "This browser does not let a page show notifications. A desktop browser does.");
	}
}

// Calls fresh(d) for each GPU for which is(d) became true since the last call.
function edge(is, fresh) {
	let was = null;
	return () => {
		const now = new Set(model.devices.filter(is).map(keyOf));
		for (const d of was ? model.devices : [])
			if (now.has(keyOf(d)) && !was.has(keyOf(d)))
				fresh(d);
		was = model.devices.length ? now : null;
	};
}

const WORDS = { lost: "is lost", fault: "is faulty", stalled: "does not answer" };
const followLost = edge((d) => d.state in WORDS, (d) => {
	const t = troubleOf(d);
	notify("lost", `lost ${keyOf(d)}`, `GPU ${d.index} ${WORDS[d.state]}`, f.sentences(t.what, t.remedy));
});

function isHot(d) {
	const max = d.temperature_gpu_max_celsius ?? d.temperature_slowdown_celsius;
	return d.clock_event_reasons?.some((r) => HEAT.has(r)) || (max != null && d.temperature_gpu_celsius != null && d.temperature_gpu_celsius >= max - 3);
}
const followHeat = edge(isHot, (d) => notify("hot", `hot ${keyOf(d)}`, `GPU ${d.index} is close to its temperature limit`,
	f.sentences(d.temperature_gpu_celsius == null ? "heat reduces its clocks" : `its temperature is ${f.celsius(d.temperature_gpu_celsius)}`, "check its fans, the air flow and its load")));

let running = null; // Ids of the windows that had not ended at the last call. A window is "open", then "ending", then "ended".

function followWindows() {
	const list = [...model.windows.values()];
	for (const w of running ? list : [])
		if (w.state === "ended" && running.has(w.id) && w.validity !== "valid")
			notify("window", `window ${w.id}`, `Energy window ${w.label || w.id}: ${f.words(w.validity || "no result")}`, f.sentences((w.codes || []).map((c) => codes[c] || f.words(c)).join("; ")));
	running = new Set(list.filter((w) => w.state !== "ended").map((w) => w.id));
}

function draw() {
	const s = load(), why = obstacle();
	$("alerts-button").classList.toggle("set", s.on && granted());
	put($("alerts-state"), s.on && granted() ? "Notifications are on in this browser, while this page is open." : "Notifications are off.");
	put($("alerts-note"), why);
	put($("alerts-go"), s.on && granted() ? "Turn off" : "Turn on");
	$("alerts-go").disabled = Boolean(why) && !s.on;
	$("alerts-test").hidden = !(s.on && granted());
	for (const box of $("alerts-kinds").querySelectorAll("input"))
		box.checked = s.kinds.includes(box.value);
}

async function flip() {
	const s = load();
	if (!s.on && !granted())
		await Notification.requestPermission();
	save({ ...s, on: !s.on && granted() });
	draw();
	if (!granted() && !obstacle())
		put($("alerts-note"), "You did not allow notifications in the browser. Nothing was changed.");
}

$("alerts-kinds").append(...Object.entries(KINDS).map(([value, text]) => el("label", {}, el("input", { type: "checkbox", value }), text)));
$("alerts-kinds").addEventListener("change", () => save({ ...load(), kinds: [...$("alerts-kinds").querySelectorAll("input:checked")].map((b) => b.value) }));
$("alerts-go").addEventListener("click", flip);
$("alerts-test").addEventListener("click", () => show("test", "gpuward", "Notifications work in this browser."));
on("tick", followHeat);
on("snapshot", followLost); // The snapshot has the cause; a tick does not.
on("windows", followWindows);
on("moved", (kind, text) => notify("moved", `moved ${text}`, { left: "A worker left its GPU", back: "A worker is back", stuck: "A worker did not leave" }[kind], f.sentences(text)));
followHeat();
followLost();
followWindows();
draw();

export function openAlerts() {
	draw();
	$("alerts").showModal();
}
