// Runs the official suite against the server at E2E_URL. Its long-poll timeout must be
// 500 ms: two tests wait it out within vitest's own limit of 5 s for a test.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

const baseUrl = process.env.E2E_URL
if (!baseUrl) throw new Error("E2E_URL is not set: start the server and name it, or run test/e2e")

runConformanceTests({ baseUrl, longPollTimeoutMs: 500 })
