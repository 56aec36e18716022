"use strict";

const part = (id) => document.getElementById(id);
const percent = (value) => `${(100 * value).toFixed(1)}%`;
let limit = Infinity;
let newest = 0; // the number of the last request: replies to earlier ones are ignored
let shown = null;

part("address").textContent = location.origin;

fetch("health").then((reply) => reply.json()).then((about) => {
  limit = about.megabytes * 1e6;
  const accuracy = about.balanced_accuracy;
  const score =
    accuracy === null ? "" : `, balanced accuracy ${percent(accuracy)} on its test images`;
  part("model").textContent =
    `A classifier of ${about.classes.length} classes: ${about.recipe} on ${about.data}${score}.`;
  part("hint").textContent =
    `At most ${about.megabytes} MB. It goes to this server only, and is not stored.`;
  document.title = `${about.recipe} on ${about.data}`;
}).catch(() => {});

function fail(message) {
  part("status").textContent = "";
  part("result").hidden = true;
  part("problem").textContent = message;
}

function bars(top) {
  part("bars").replaceChildren(...top.map((entry) => {
    const line = document.createElement("li");
    const create = (kind, name) => Object.assign(document.createElement(kind), { className: name });
    const [name, track] = [create("span", "name"), create("div", "track")];
    const [bar, value] = [create("div", "bar"), create("span", "value")];
    name.textContent = entry.class;
    value.textContent = percent(entry.probability);
    bar.style.width = percent(entry.probability);
    track.setAttribute("aria-hidden", "true");
    track.append(bar);
    line.append(name, track, value);
    return line;
  }));
}

function show(prediction, file) {
  part("answer").textContent = `${prediction.class}, ${percent(prediction.probability)}`;
  part("abstain").hidden = !prediction.abstain;
  part("abstain").textContent = "Better ask a person: the network cannot decide on one class.";
  part("set").hidden = !prediction.set;
  if (prediction.set) {
    const classes = prediction.set.join(", ") || "empty: no class is probable enough";
    const level = Math.round(1000 * prediction.level) / 10;
    part("set").textContent =
      `Prediction set, which contains the true class in about ${level}% of cases: ${classes}.`;
  }
  bars(prediction.top);
  if (shown) URL.revokeObjectURL(shown);
  shown = URL.createObjectURL(file);
  part("chosen").hidden = false;
  part("picture").src = shown;
  part("picture").alt = `The image you chose${file.name ? `, ${file.name}` : ""}`;
  part("mapped").hidden = !prediction.map;
  part("unmapped").hidden = Boolean(prediction.map);
  if (prediction.map) {
    part("map").src = prediction.map;
    part("map").alt =
      `Your image with the saliency map of ${prediction.class}: yellow most, blue least`;
    part("kind").textContent = `Saliency map (${prediction.map_kind}): yellow most, blue least`;
  } else {
    part("unmapped").textContent = `This network has no saliency map (${prediction.map_kind}).`;
  }
  part("status").textContent = "";
  part("problem").textContent = "";
  part("result").hidden = false;
  part("answer").focus();
}

async function predict(file) {
  if (!file) return;
  const request = ++newest;
  part("problem").textContent = "";
  if (file.size > limit) {
    const size = (file.size / 1e6).toFixed(1);
    const most = limit / 1e6;
    fail(`This file has ${size} MB, the server takes at most ${most} MB: choose a smaller one.`);
    return;
  }
  part("status").textContent = "Classifying ...";
  const form = new FormData();
  form.append("image", file, file.name || "pasted");
  let reply, content;
  try {
    reply = await fetch("predict?map=true", { method: "POST", body: form });
    content = await reply.json();
  } catch (error) {
    if (request === newest) fail("The server does not reply: is `longtail serve` still running?");
    return;
  }
  if (request !== newest) return;
  if (reply.ok) show(content, file);
  else fail(`Error: ${content.detail}`);
}

// A format that only the server can read.
part("picture").addEventListener("error", () => { part("chosen").hidden = true; });
part("image").addEventListener("change", (event) => {
  predict(event.target.files[0]);
  event.target.value = "";
});
part("form").addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("paste", (event) => {
  predict([...(event.clipboardData || {}).files || []][0]);
});
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    part("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop") predict(event.dataTransfer.files[0]);
  });
}
