// models: the table of the models on the inference servers, with their tokens and energy.
import * as f from "./format.js";
import { ask, model } from "./data.js";
import { $, put, unknown } from "./rows.js";
import { Table } from "./table.js";

const METHODS = {
	"only model": "the only model of the server that has no process of its own", "own process": "energy of the model's own process",
	"split by tokens": "the energy of the process is divided among its models by their tokens", "no model": "no model is loaded, or it is unknown which one worked",
	"sum of models": "the sum of the models without a row of their own",
};
const number = (v) => (v < 10 ? f.figures(v) : Math.round(v).toLocaleString());

// Shows a figure, or a dash with the reason.
const cell = (get, why, format = number) => (c, m) => {
	const v = get(m);
	if (v != null)
		return put(c, format(v));
	unknown(c, "no_data");
	c.title = why(m) || "no reading yet";
};
const noTokens = (m) => m.tokens_absent, minute = (m) => m.last_minute, start = (m) => m.since_start;

const models = () => new Table("models", [
	{ name: "Model", lead: true, wrap: true, fill: (c, m) => put(c, m.model || "(no model)"), sort: (m) => m.model },
	{ name: "Worker", fill: (c, m) => put(c, m.worker), sort: (m) => m.worker },
	{ name: "Tokens/s", num: true, title: "generated tokens per second, last minute", fill: cell((m) => minute(m).tokens_per_second, noTokens), sort: (m) => minute(m).tokens_per_second },
	{ name: "J/token", num: true, title: "energy per generated token, last minute", fill: cell((m) => minute(m).joules_per_token, (m) => m.tokens_absent || minute(m).joules_per_token_absent),
		sort: (m) => minute(m).joules_per_token },
	{ name: "J/token since start", num: true, title: "since the service started", fill: cell((m) => start(m).joules_per_token, (m) => m.tokens_absent || start(m).joules_per_token_absent) },
	{ name: "Tokens", num: true, title: "all generated tokens", fill: cell((m) => m.generated_tokens, noTokens), sort: (m) => m.generated_tokens },
	{ name: "Energy", num: true, first: true, fill: (c, m) => put(c, f.joules(m.energy_joules)), sort: (m) => m.energy_joules },
	{ name: "How", wrap: true, fill: (c, m) => {
		put(c, m.method || f.DASH);
		c.title = [METHODS[m.method], m.energy_method && `energy of the process: ${m.energy_method}`].filter(Boolean).join("; ");
	} },
], (m) => `${m.worker} ${m.model}`);

const EVERY = 5000;
let table = null;

async function refresh() {
	if (document.hidden || model.link.state === "reconnecting")
		return;
	const list = (await ask("models")).models;
	$("models-part").hidden = !list.length;
	table.draw(list);
}

export function showModels() {
	table = models();
	setInterval(() => refresh().catch(() => {}), EVERY);
	refresh().catch(() => {});
}
