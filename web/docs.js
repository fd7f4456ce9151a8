// docs: shows our OpenAPI document with Swagger UI. Makes no request to other hosts.
import { packages } from "./words.js";

// Uses the theme of the main page: the user's choice, or else the preference of the system.
const light = matchMedia("(prefers-color-scheme: light)");
function applyTheme() {
	document.documentElement.classList.toggle("dark-mode", (localStorage.getItem("theme") || (light.matches ? "light" : "dark")) === "dark");
}
light.addEventListener("change", applyTheme);
addEventListener("storage", applyTheme);
applyTheme();

const note = document.getElementById("docs-note");

function load(tag, props) {
	return new Promise((done, fail) => {
		document.head.append(Object.assign(document.createElement(tag), props, {
			onload: done, onerror: () => fail(new Error("Swagger UI could not be loaded.")),
		}));
	});
}

async function show() {
	if (!packages.docs)
		throw new Error("This build has no Swagger UI because npm was missing. The OpenAPI document is at openapi.json.");
	await Promise.all([load("link", { rel: "stylesheet", href: "docs/swagger-ui.css" }), load("script", { src: "docs/swagger-ui.js" })]);
	window.SwaggerUIBundle({
		url: new URL("openapi.json", document.baseURI).href, dom_id: "#docs", deepLinking: true, validatorUrl: null,
		docExpansion: "list", defaultModelsExpandDepth: 0, presets: [window.SwaggerUIBundle.presets.apis], layout: "BaseLayout",
	});
}

show().catch((e) => { note.textContent = e.message; });
