// Calls the service with OpenAI's own Node SDK and prints what it got as one JSON object.
// Usage: node sdk.mjs BASE_URL API_KEY RECORDING
import { createReadStream } from "node:fs";
import { readFile } from "node:fs/promises";
import OpenAI, { toFile } from "openai";

const [baseURL, apiKey, path] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const { transcriptions, translations } = client.audio;
const recording = await readFile(path);
const file = () => toFile(recording, "speech.wav");
const transcribe = async (fields) =>
  transcriptions.create({ file: await file(), model: "whisper-1", ...fields });

const errorOf = async (promise) => {
  try {
    await promise;
  } catch (error) {
    const { status, code, param, type, message } = error;
    return { name: error.constructor.name, status, code, param, type, message };
  }
  throw new Error("this should have been refused");
};

const collect = async (stream) => {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
};

const models = [];
for await (const model of client.models.list()) models.push(model);

const got = {
  default: await transcribe({}),
  from_disk: await transcriptions.create({ file: createReadStream(path), model: "whisper-1" }),
  json: await transcribe({ response_format: "json", language: "en", temperature: 0.2 }),
  text: await transcribe({ response_format: "text" }),
  srt: await transcribe({ response_format: "srt" }),
  vtt: await transcribe({ response_format: "vtt" }),
  verbose: await transcribe({ response_format: "verbose_json" }),
  words: await transcribe({ response_format: "verbose_json", timestamp_granularities: ["word"] }),
  both: await transcribe({
    response_format: "verbose_json",
    timestamp_granularities: ["word", "segment"],
  }),
  logprobs: await transcribe({ model: "gpt-4o-transcribe", include: ["logprobs"] }),
  chunked: await transcribe({ chunking_strategy: "auto", prompt: "Zürich" }),
  vad: await transcribe({ chunking_strategy: { type: "server_vad", threshold: 0.5 } }),
  stream: await collect(await transcribe({ stream: true })),
  stream_logprobs: await collect(await transcribe({ stream: true, include: ["logprobs"] })),
  translation: await translations.create({ file: await file(), model: "whisper-1" }),
  translation_verbose: await translations.create({
    file: await file(),
    model: "whisper-1",
    response_format: "verbose_json",
  }),
  models,
  model: await client.models.retrieve("whisper-1"),
  errors: {
    format: await errorOf(transcribe({ response_format: "docx" })),
    diarized: await errorOf(transcribe({ response_format: "diarized_json" })),
    language: await errorOf(transcribe({ language: "xx" })),
    model: await errorOf(transcribe({ model: "whisper-99" })),
    no_audio: await errorOf(
      transcriptions.create({ file: await toFile(Buffer.from("text"), "a.mp3"), model: "whisper-1" }),
    ),
    key: await errorOf(client.withOptions({ apiKey: "sk-wrong" }).models.list()),
  },
};
process.stdout.write(JSON.stringify(got));
