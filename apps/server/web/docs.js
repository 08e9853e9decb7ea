import { $, make } from "./parts.js";

const api = await (await fetch("/openapi.json")).json();
const stored = localStorage.getItem("ounce-theme");
if (stored) document.documentElement.dataset.theme = stored;
const key = api.components.securitySchemes ? ' \\\n    -H "Authorization: Bearer $KEY"' : "";
$("curl").textContent = `curl ${location.origin}/v1/images/generations -H "Content-Type: application/json"${key} \\
    -d '{"prompt": "red apple", "response_format": "file"}' -o apple.png`;

for (const [path, verbs] of Object.entries(api.paths)) {
  for (const [verb, about] of Object.entries(verbs)) {
    $("routes").append(make("article", {}, make("span", { class: "verb" }, verb.toUpperCase()), make("code", {}, path),
      make("p", {}, about.summary)));
  }
}

function kind(f) {
  if (f.enum) return f.enum.join(", ");
  if (f.minimum !== undefined && f.maximum !== undefined) return `${f.type}, ${f.minimum} to ${f.maximum}`;
  return f.type ?? "";
}

for (const [name, schema] of Object.entries(api.components.schemas)) {
  const rows = Object.entries(schema.properties).filter(([, f]) => f.type).map(([field, f]) =>
    make("tr", {}, make("td", {}, make("code", {}, field)), make("td", {}, kind(f)), make("td", {}, f.description)));
  const neutral = Object.entries(schema.properties).filter(([, f]) => !f.type).map(([field]) => field);
  $("fields").append(make("h3", {}, name), make("div", { class: "scroll" }, make("table", {}, make("tbody", {}, ...rows))),
    make("p", { class: "muted" }, `Taken at their neutral value, without effect: ${neutral.join(", ")}.`));
}
