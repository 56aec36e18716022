"use strict";

const part = (id) => document.getElementById(id);
const percent = (value) => `${(100 * value).toFixed(1)}%`;
let limit = Infinity;
let asked = 0; // the newest question: answers to older ones come too late
let shown = null;

part("address").textContent = location.origin;

fetch("health").then((reply) => reply.json()).then((about) => {
  limit = about.megabytes * 1e6;
  const score = about.balanced_accuracy === null ? "" : `, balanced accuracy ${percent(about.balanced_accuracy)} on its test images`;
  part("model").textContent = `A classifier of ${about.classes.length} classes: ${about.recipe} on ${about.data}${score}.`;
  part("hint").textContent = `At most ${about.megabytes} MB. It goes to this server only, and is not kept.`;
  document.title = `${about.recipe} on ${about.data}`;
}).catch(() => {});

function fail(sentence) {
  part("status").textContent = "";
  part("result").hidden = true;
  part("problem").textContent = sentence;
}

function bars(top) {
  part("bars").replaceChildren(...top.map((own) => {
    const line = document.createElement("li");
    const [name, track, bar, value] = ["span", "div", "div", "span"].map((kind) => document.createElement(kind));
    [name.className, track.className, bar.className, value.className] = ["name", "track", "bar", "value"];
    name.textContent = own.class;
    value.textContent = percent(own.probability);
    bar.style.width = percent(own.probability);
    track.setAttribute("aria-hidden", "true");
    track.append(bar);
    line.append(name, track, value);
    return line;
  }));
}

function show(found, file) {
  part("answer").textContent = `${found.class}, ${percent(found.probability)}`;
  part("abstain").hidden = !found.abstain;
  part("abstain").textContent = "Better ask a person: the network cannot decide on one class.";
  part("set").hidden = !found.set;
  if (found.set) {
    const some = found.set.length ? found.set.join(", ") : "empty, for no class is probable enough";
    part("set").textContent = `Prediction set, which holds the true class in about ${Math.round(1000 * found.level) / 10}% of cases: ${some}.`;
  }
  bars(found.top);
  if (shown) URL.revokeObjectURL(shown);
  shown = URL.createObjectURL(file);
  part("chosen").hidden = false;
  part("picture").src = shown;
  part("picture").alt = `The picture you chose${file.name ? `, ${file.name}` : ""}`;
  part("mapped").hidden = !found.map;
  part("unmapped").hidden = Boolean(found.map);
  if (found.map) {
    part("map").src = found.map;
    part("map").alt = `Your picture with a map of what spoke for ${found.class}: yellow most, blue least`;
    part("kind").textContent = `Where the network looked (${found.map_kind}): yellow most, blue least`;
  } else {
    part("unmapped").textContent = `This network does not show where it looks (${found.map_kind}).`;
  }
  part("status").textContent = "";
  part("problem").textContent = "";
  part("result").hidden = false;
  part("answer").focus();
}

async function ask(file) {
  if (!file) return;
  const question = ++asked;
  part("problem").textContent = "";
  if (file.size > limit) {
    fail(`This file has ${(file.size / 1e6).toFixed(1)} MB, and the server takes at most ${limit / 1e6} MB: choose a smaller one.`);
    return;
  }
  part("status").textContent = "Looking ...";
  const form = new FormData();
  form.append("image", file, file.name || "pasted");
  let reply, found;
  try {
    reply = await fetch("predict?map=true", { method: "POST", body: form });
    found = await reply.json();
  } catch (error) {
    if (question === asked) fail("The server does not answer: is `longtail serve` still running?");
    return;
  }
  if (question !== asked) return;
  if (reply.ok) show(found, file);
  else fail(`That did not work: ${found.detail}`);
}

part("picture").addEventListener("error", () => { part("chosen").hidden = true; }); // a kind that only the server can read
part("image").addEventListener("change", (event) => { ask(event.target.files[0]); event.target.value = ""; });
part("form").addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("paste", (event) => ask([...(event.clipboardData || {}).files || []][0]));
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    part("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop") ask(event.dataTransfer.files[0]);
  });
}
