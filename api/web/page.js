"use strict";

const $ = (id) => document.getElementById(id);
const KEY = "scriptorium.key";
let job = null;

$("key").value = sessionStorage.getItem(KEY) ?? "";
$("key").addEventListener("change", () => {
  sessionStorage.setItem(KEY, $("key").value.trim());
  loadModels();
});

function headers() {
  const key = $("key").value.trim();
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function call(path, options = {}) {
  const response = await fetch(path, { ...options, headers: { ...headers(), ...options.headers } });
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new Error(body.detail ?? body.error?.message ?? `The service answered ${response.status}.`);
}

function say(text) {
  $("status").textContent = text;
}

async function loadModels() {
  try {
    const list = await (await call("/v1/models")).json();
    $("model").replaceChildren(...list.data.map((model) => new Option(model.id)));
    say("");
  } catch (error) {
    say(error.message);
  }
}

// XMLHttpRequest, because fetch tells nothing of an upload's progress.
function upload(form) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", "/v1/jobs");
    for (const [name, value] of Object.entries(headers())) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => {
      if (event.lengthComputable) say(`Sending: ${Math.round((100 * event.loaded) / event.total)} %`);
    };
    request.onerror = () => reject(new Error("The upload was cut off."));
    request.onload = () => {
      let body = {};
      try { body = JSON.parse(request.responseText); } catch { /* told by the status */ }
      if (request.status === 202) resolve(body);
      else reject(new Error(body.detail ?? `The service answered ${request.status}.`));
    };
    request.send(form);
  });
}

// fetch, because EventSource cannot send a key. Comes back with the last event's id.
async function follow(id) {
  let last = 0;
  while (job === id) {
    try {
      const response = await call(`/v1/jobs/${id}/events`, { headers: { "Last-Event-ID": String(last) } });
      if (response.status === 204) return;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        const blocks = (rest + part.value).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) {
          const data = block.split("\n").find((line) => line.startsWith("data: "));
          if (!data || job !== id) continue;
          const event = JSON.parse(data.slice(6));
          last = event.seq;
          show(event);
          if (["job.completed", "job.failed", "job.cancelled"].includes(event.type)) return;
        }
      }
    } catch (error) {
      say(error.message);
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

function clock(seconds) {
  const date = new Date(Math.round(seconds * 1000)).toISOString();
  return seconds < 3600 ? date.slice(14, 21) : `${Math.floor(seconds / 3600)}:${date.slice(14, 21)}`;
}

function show(event) {
  const data = event.data;
  if (data.progress) $("progress").value = data.progress.percent;
  if (event.type === "job.updated") say(`${data.status} – ${data.progress.percent} %`);
  if (event.type === "transcript.segment") {
    const item = document.createElement("li");
    const time = document.createElement("time");
    time.textContent = clock(data.start);
    const text = document.createElement("span");
    text.textContent = data.text;
    text.lang = data.language ?? "";
    text.dir = "auto";
    item.append(time, text);
    $("segments").append(item);
  }
  if (event.type === "job.failed") end(`Failed: ${data.error.message}`);
  if (event.type === "job.cancelled") end("Cancelled.");
  if (event.type === "job.completed") {
    end($("segments").childElementCount ? "Done." : "Done: nobody speaks in this recording.");
    $("downloads").hidden = false;
  }
}

function end(text) {
  say(text);
  $("progress").hidden = true;
  $("cancel").hidden = true;
  $("send").disabled = false;
}

$("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, $("key").value.trim());
  const form = new FormData();
  for (const name of ["model", "language", "timestamps"]) {
    if ($(name).value.trim()) form.append(name, $(name).value.trim());
  }
  form.append("file", $("file").files[0]);
  $("send").disabled = true;
  $("segments").replaceChildren();
  $("downloads").hidden = true;
  try {
    const created = await upload(form);
    job = created.id;
    $("actions").hidden = $("progress").hidden = $("cancel").hidden = false;
    $("progress").value = 0;
    await follow(job);
  } catch (error) {
    end(error.message);
  }
});

$("cancel").addEventListener("click", () =>
  call(`/v1/jobs/${job}/cancel`, { method: "POST" }).catch((error) => say(error.message)));

$("downloads").addEventListener("click", async (event) => {
  const format = event.target.dataset.format;
  if (!format) return;
  try {
    const response = await call(`/v1/jobs/${job}/transcript?download=true&format=${format}`);
    const name = /filename\*=UTF-8''(.*)$/.exec(response.headers.get("Content-Disposition") ?? "");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await response.blob());
    link.download = name ? decodeURIComponent(name[1]) : `transcript.${format}`;
    link.click();
    URL.revokeObjectURL(link.href);
  } catch (error) {
    say(error.message);
  }
});

loadModels();
